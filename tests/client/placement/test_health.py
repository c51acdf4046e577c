"""
Who is asked first and who is chosen last: failures, slowness, lists of registered bookies, quarantine; and the same in
a whole client.
"""

from random import Random

import pytest
from twisted.internet.task import Clock

from quire.client.placement.health import Health, HealthLimits
from quire.metadata.store import BookieList, ServiceInfo
from tests.client.fakes.cluster import FakeCluster

INFO = ServiceInfo.of("127.0.0.1", 1)
ERROR = -1


def health(**limits):
    clock = Clock()
    return Health(clock.seconds, HealthLimits(**limits), Random(1)), clock


def lists(writable, read_only=""):
    return BookieList(dict.fromkeys(writable, INFO), dict.fromkeys(read_only, INFO))


def order(of, bookies):
    ranks = of.ranks(bookies)
    return "".join(sorted(bookies, key=lambda bookie: ranks.get(bookie, ())))


def test_while_all_are_well_nothing_is_ranked():
    """Registered bookies without failures have no rank."""
    of, _clock = health()
    assert of.ranks("abc") == {}
    of.registered = lists("abc")
    assert of.ranks("abc") == {}


def test_classes_come_in_their_order():
    """Healthy, failed, read-only, slow, not registered."""
    of, _clock = health()
    of.registered = lists("abcs", "r")
    of.failed("b")
    of.slow("s")
    assert order(of, "xsrba") == "abrsx"


def test_the_older_failure_comes_first_and_failures_are_forgotten():
    """Bookies that failed are ordered last, most recent failure at the end, until the memory ends."""
    of, clock = health(memory_ms=10_000)
    of.failed("b")
    clock.advance(1)
    of.failed("a")
    assert order(of, "abc") == "cba"
    clock.advance(9.5)
    assert order(of, "abc") == "bca"
    assert of.suspects("abc") == ["a"]
    clock.advance(10)
    assert of.suspects("abc") == []


def test_many_errors_in_an_interval_are_quarantine_for_a_while():
    """Errors in one interval count together, and quarantine ends after its time."""
    of, clock = health(quarantine=True, errors=3, interval_ms=1000, quarantine_ms=5000)
    for _ in range(2):
        of.answered("a", ERROR)
    clock.advance(1.5)
    of.answered("a", ERROR)
    assert of.quarantined() == [], "the count began again"
    for _ in range(2):
        of.answered("a", ERROR)
    assert of.quarantined() == ["a"]
    assert of.suspects("ab") == ["a"]
    assert of.suspects("b") == []
    clock.advance(5)
    assert of.quarantined() == []


def test_answers_that_are_no_fault_do_not_count_and_nothing_does_when_it_is_off():
    """Codes for absence, fencing, read-only and unreachable bookies cause no quarantine."""
    for code, on in ((-13, True), (-7, True), (-8, True), (-101, True), (-104, True), (0, True), (ERROR, False)):
        of, _clock = health(quarantine=on, errors=1)
        of.answered("a", code)
        assert of.quarantined() == [], code


def test_a_ratio_spares_some():
    """With ratio 0.5 about half of the bookies with errors are quarantined."""
    of, _clock = health(quarantine=True, errors=1, ratio=0.5)
    for number in range(200):
        of.answered(f"b{number}", ERROR)
    assert 60 < len(of.quarantined()) < 140


# In a client.


def closed_ledger(cluster):
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    cluster.succeed(writer.append_many([b"x"] * 6))
    cluster.succeed(writer.close())
    return writer.id


def readings(cluster, **options):
    ledger = closed_ledger(cluster)
    client = cluster.client(sticky_reads=False, **options)
    return client, cluster.succeed(client.open_ledger(ledger))


def asked(cluster):
    return [request.bookie for request in cluster.pools[-1].asked if request.op in ("read", "batch")]


def test_a_reader_prefers_replicas_near_it(tmp_path):
    """Reads go to the replica with the reader's own place while it lives."""
    cluster = FakeCluster(3)
    path = tmp_path / "places"
    path.write_text("b0 /eu/r1\nb1 /us/r1\nb2 /eu/r2\n")
    _client, reader = readings(cluster, topology="file", topology_file=str(path), local_place="/us/r1")
    cluster.spin(0.1)
    for entry in range(6):
        cluster.succeed(reader.read(entry, entry))
    assert set(asked(cluster)) == {"b1"}
    cluster.kill("b1")
    cluster.spin(0.1)
    assert cluster.succeed(reader.read(0, 5))


def test_a_near_replica_comes_behind_a_healthy_one_and_before_a_less_crowded_one(tmp_path):
    """Failures weigh more than distance, distance more than load."""
    cluster = FakeCluster(3)
    path = tmp_path / "places"
    path.write_text("b0 /eu/r1\nb1 /us/r1\nb2 /eu/r2\n")
    client, reader = readings(cluster, topology="file", topology_file=str(path), local_place="/us/r1", crowded_reads=8)
    cluster.spin(0.1)
    client.pool.crowd = {"b0": 0, "b1": 30, "b2": 30}
    cluster.succeed(reader.read(0, 0))
    client.health.failed("b1")
    cluster.succeed(reader.read(1, 1))
    assert asked(cluster) == ["b1", "b0"]


def test_an_unregistered_replica_is_asked_last():
    """While others answer, reads do not go to a bookie that left the list."""
    cluster = FakeCluster(3)
    _client, reader = readings(cluster)
    cluster.kill("b1")
    cluster.spin(0.1)
    for entry in range(6):
        cluster.succeed(reader.read(entry, entry))
    assert "b1" not in asked(cluster)


def test_a_slow_replica_is_asked_last_by_other_readers_too():
    """A bookie that needed a speculative read is avoided by every reader of the client."""
    cluster = FakeCluster(3)
    client, reader = readings(cluster, speculative_read_ms=100)
    cluster.slow["b0"] = 1.0
    for entry in range(3):
        cluster.succeed(reader.read(entry, entry))
    cluster.slow.clear()
    other = cluster.succeed(client.open_ledger(reader.id))
    cluster.spin(3)
    del cluster.pools[-1].asked[:]
    for entry in range(6):
        cluster.succeed(other.read(entry, entry))
    assert "b0" not in asked(cluster)


def test_without_reordering_everybody_has_a_turn():
    """With `reorder_reads` off all replicas are read, also unregistered ones."""
    cluster = FakeCluster(3)
    _client, reader = readings(cluster, reorder_reads=False)
    cluster.unregister("b1")
    cluster.spin(0.1)
    for entry in range(6):
        cluster.succeed(reader.read(entry, entry))
    assert set(asked(cluster)) == {"b0", "b1", "b2"}


def test_a_bookie_with_many_errors_gets_no_new_ledgers():
    """A quarantined bookie is in no new ensemble."""
    cluster = FakeCluster(4)
    client, reader = readings(cluster, quarantine=True, quarantine_errors=2)
    cluster.judge = lambda request: ERROR if request.op in ("read", "batch") and request.bookie == "b0" else "pass"
    other = [cluster.succeed(client.open_ledger(reader.id)) for _ in range(3)]
    for each in other:
        for entry in range(6):
            cluster.succeed(each.read(entry, entry))
    holders = set(reader.metadata.last_fragment.bookies)
    if "b0" in holders:
        assert client.health.quarantined() == ["b0"]
        for _ in range(10):
            writer = cluster.succeed(client.create_ledger())
            assert "b0" not in writer.metadata.last_fragment.bookies


def test_a_bookie_that_refuses_appends_gets_no_new_ledgers():
    """What it answers to adds counts as well as what it answers to reads."""
    cluster = FakeCluster(4)
    client = cluster.client(quarantine=True, quarantine_errors=2, failure_memory_ms=0)
    cluster.judge = lambda request: ERROR if request.op == "add" and request.bookie == "b0" else "pass"
    for _ in range(20):
        writer = cluster.succeed(client.create_ledger())
        cluster.succeed(writer.append(b"x"))
    assert client.health.quarantined() == ["b0"]
    for _ in range(10):
        assert "b0" not in cluster.succeed(client.create_ledger()).metadata.last_fragment.bookies


def test_among_equals_the_less_crowded_comes_first():
    """In steps of `many`; below the first step nothing changes, and slow ones are counted one by one."""
    clock = Clock()
    of = Health(clock.seconds)
    waiting = {"a": 9, "b": 3, "c": 12}
    assert of.ranks("abc", waiting.__getitem__) == {}
    assert of.ranks("abc", waiting.__getitem__, 20) == {}
    ranks = of.ranks("abc", waiting.__getitem__, 5)
    assert sorted("abc", key=ranks.__getitem__) == ["b", "a", "c"]
    for bookie in "ac":
        clock.advance(0.1)
        of.slow(bookie)
    ranks = of.ranks("abc", {"a": 4, "b": 0, "c": 3}.__getitem__)
    assert sorted("abc", key=ranks.__getitem__) == ["b", "c", "a"]


def failed_lately(of, clock):
    of.failed("b")
    clock.advance(0.1)
    of.failed("a")


def read_only(of, _clock):
    of.registered = lists("", "ab")


@pytest.mark.parametrize("equally", [failed_lately, read_only])
def test_among_those_that_are_equally_bad_too(equally):
    """Fewer reads under way come before the longer ago."""
    clock = Clock()
    of = Health(clock.seconds)
    equally(of, clock)
    for waiting, first in (({"a": 0, "b": 5}, "a"), ({"a": 5, "b": 0}, "b")):
        ranks = of.ranks("ab", waiting.__getitem__, 5)
        assert min("ab", key=ranks.__getitem__) == first
