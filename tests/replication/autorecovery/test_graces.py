"""How long a worker waits: for bookies that left, and for writers of open ledgers as long as nothing moves."""

import pytest

from quire.metadata.repair_queue import Shortage
from quire.replication.autorecovery import ledger as graces_module
from quire.replication.autorecovery.ledger import Absent, Graces
from tests.client.fakes.cluster import FakeCluster
from tests.replication.autorecovery.processes import THREE
from tests.replication.stories import closed, left_open

# SPDX-License-Identifier: Apache-2.0


def mark_of(ledger: int, since_ms: int = 0) -> Shortage:
    return Shortage(ledger, ("b2",), since_ms, 0)


def left(cluster: FakeCluster, graces: Graces, ledger: int, since_ms: int = 0, *gone: str) -> float | None:
    found: float | None = cluster.succeed(
        graces.left(ledger, cluster.metadata(ledger), gone or ("b2",), mark_of(ledger, since_ms))
    )
    return None if found is None else round(found)


def test_it_is_over_when_nothing_moved() -> None:
    """Since the first look."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 20)
    cluster.kill("b2")
    graces = Graces(cluster.client(), 30.0)
    assert left(cluster, graces, ledger) == 30
    cluster.spin(10)
    assert left(cluster, graces, ledger) == 20
    cluster.spin(25)
    assert left(cluster, graces, ledger) < 0


def test_none_for_who_depends_on_nobody_that_is_gone() -> None:
    """A closed ledger, or one whose last ensemble names others."""
    cluster = FakeCluster(5)
    graces = Graces(cluster.client(), 30.0)
    assert left(cluster, graces, closed(cluster, {0: THREE}, 20)) is None
    assert left(cluster, graces, left_open(cluster, {0: THREE, 10: ["b0", "b1", "b3"]}, 20)) is None


def test_a_writer_that_goes_on_has_all_of_it_again() -> None:
    """Another last add confirmed begins a new grace."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 20)
    cluster.kill("b2")
    graces = Graces(cluster.client(), 30.0)
    left(cluster, graces, ledger)
    cluster.spin(25)
    cluster.put(ledger, 21, b"more", 20, 400, "b0", "b1")
    assert left(cluster, graces, ledger) == 30


def test_another_mark_is_another_grace() -> None:
    """Also for the same bookie: the ledger was whole in between, and its writer knows nothing yet."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 20)
    graces = Graces(cluster.client(), 30.0)
    left(cluster, graces, ledger, 1)
    cluster.spin(100)
    assert left(cluster, graces, ledger, 2) == 30
    cluster.spin(10)
    assert left(cluster, graces, ledger, 2, "b1") == 30
    graces.over(ledger)
    cluster.spin(10)
    assert left(cluster, graces, ledger, 2, "b1") == 30


def test_what_cant_be_read_stands_still_too() -> None:
    """When no bookie of the last ensemble answers the writer can't go on either."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 20)
    cluster.kill(*THREE)
    graces = Graces(cluster.client(), 30.0)
    assert left(cluster, graces, ledger) == 30
    cluster.spin(31)
    assert left(cluster, graces, ledger) < 0


def test_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers that other workers close are never heard of again; who came first has a new grace then."""
    monkeypatch.setattr(graces_module, "KEPT_MAX", 3)
    cluster = FakeCluster(5)
    ledgers = [left_open(cluster, {0: THREE}, 20) for _ in range(4)]
    graces = Graces(cluster.client(), 30.0)
    for ledger in ledgers:
        left(cluster, graces, ledger)
    cluster.spin(10)
    assert [left(cluster, graces, ledger) for ledger in ledgers[1:]] == [20, 20, 20]
    assert left(cluster, graces, ledgers[0]) == 30


class Story:
    """A worker's view of a cluster whose bookies have 60 s."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(5)
        self.cluster.shared.time_of_day = lambda: 1e9 + self.cluster.clock.seconds()
        self.client = self.cluster.client()
        self.cluster.succeed(self.client.store.auditing.set_delay(60))
        self.absent = Absent(self.client)
        self.look()

    def look(self) -> None:
        self.absent.see(self.cluster.succeed(self.client.store.bookies()))

    def now_ms(self) -> int:
        now_ms: int = self.cluster.succeed(self.client.store.records.clock())
        return now_ms

    def inside(self, *missing: str, since_ms: int | None = 1) -> set[str]:
        found: set[str] = self.cluster.succeed(self.absent.inside(missing, Shortage(1, missing, since_ms, 0)))
        return found


def test_each_by_its_own_time() -> None:
    """From when it was seen to leave, until the delay is over or it is back; others never were inside."""
    story = Story()
    story.cluster.kill("b1")
    story.look()
    assert story.inside(*THREE) == {"b1"}
    story.cluster.spin(30)
    story.cluster.kill("b2")
    story.look()
    assert story.inside("b1", "b2") == {"b1", "b2"}
    story.cluster.spin(31)
    assert story.inside("b1", "b2") == {"b2"}
    story.cluster.restart("b2")
    story.look()
    assert story.inside("b1", "b2") == set()


def test_a_mark_since_then_is_from_who_knows_it_to_be_lost() -> None:
    """And one without a time may be."""
    story = Story()
    before_ms = story.now_ms()
    story.cluster.spin(1)
    story.cluster.kill("b1")
    story.look()
    story.cluster.spin(1)
    assert story.inside("b1", since_ms=before_ms) == {"b1"}
    assert story.inside("b1", since_ms=story.now_ms()) == set()
    assert story.inside("b1", since_ms=None) == set()


def test_who_was_away_before_may_be_lost() -> None:
    """Nobody knows since when."""
    story = Story()
    story.cluster.kill("b1")
    story.absent = Absent(story.client)
    story.look()
    assert story.inside("b1") == set()


def test_who_may_have_been_back_left_just_now() -> None:
    """Between two looks that do not follow each other, as of a worker that stood still."""
    story = Story()
    story.cluster.kill("b1")
    story.look()
    story.cluster.spin(70)
    assert story.inside("b1") == set()
    story.cluster.restart("b1")
    story.cluster.kill("b1")
    story.look()
    assert story.inside("b1") == {"b1"}


def test_until_a_delay_is_said_the_own_one_holds() -> None:
    """As before the first auditor has begun."""
    cluster = FakeCluster(5)
    client = cluster.client()
    absent = Absent(client, 60.0)
    absent.see(cluster.succeed(client.store.bookies()))
    cluster.kill("b1")
    absent.see(cluster.succeed(client.store.bookies()))
    shortage = Shortage(1, ("b1",), 1, 0)
    assert cluster.succeed(absent.inside(["b1"], shortage)) == {"b1"}
    cluster.succeed(client.store.auditing.set_delay(0))
    assert cluster.succeed(absent.inside(["b1"], shortage)) == set()


def test_without_a_delay_nobody_is_waited_for() -> None:
    """The delay of the moment counts."""
    story = Story()
    story.cluster.kill("b1")
    story.look()
    assert story.inside("b1") == {"b1"}
    story.cluster.succeed(story.client.store.auditing.set_delay(0))
    assert story.inside("b1") == set()
