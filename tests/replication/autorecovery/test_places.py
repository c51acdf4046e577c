"""Moving copies to where the placement wants them: copied before it is named, and what can't be moved says why."""

from pathlib import Path

from quire.client.api import Client
from quire.replication.autorecovery.ledger import put_right
from quire.replication.mending import Mended, Mending
from quire.replication.scrub.second_look import Look
from tests.client.fakes.cluster import READ_ONLY, FakeCluster
from tests.metadata import stored
from tests.replication.autorecovery.processes import THREE, in_racks, store_of
from tests.replication.stories import closed, is_whole, left_open

# SPDX-License-Identifier: Apache-2.0


async def moved_right(client: Client, ledger: int, how: Mending, done: Mended) -> None:
    await put_right(await Look.taken(client, ledger), how, done)


class Racks:
    """A client that wants two racks: b0 to b2 are in one, the others in another."""

    def __init__(self, bookies: int = 5) -> None:
        self.cluster = FakeCluster(bookies)
        self.client = in_racks(self.cluster)

    def put_right(self, ledger: int) -> Mended:
        done = Mended(ledger)
        lock = self.cluster.succeed(self.client.store.repairs.lock(ledger))
        self.cluster.succeed(moved_right(self.client, ledger, Mending(lock=lock), done))
        return done


def test_one_copy_is_moved() -> None:
    """Each fragment's; all entries are where the metadata says."""
    racks = Racks()
    ledger = closed(racks.cluster, {0: THREE, 10: ["b0", "b1", "b3"]}, 19)
    done = racks.put_right(ledger)
    assert done.left == []
    first, second = racks.cluster.metadata(ledger).fragments
    assert not set(first.bookies) <= set(THREE)
    assert second.bookies == ("b0", "b1", "b3")
    assert done.entries == 10
    assert is_whole(racks.cluster, racks.cluster.client(), ledger)


def test_one_move_after_the_other(tmp_path: Path) -> None:
    """Three racks are wanted, and all copies are in one: none of the moves is enough alone."""
    cluster = FakeCluster(5)
    places = tmp_path / "places"
    places.write_text("b0 /one\nb1 /one\nb2 /one\nb3 /two\nb4 /three\n")
    client = cluster.client(placement="rack-aware", racks_min=3, topology="file", topology_file=str(places))
    ledger = closed(cluster, {0: THREE, 10: ["b0", "b3", "b4"]}, 19)
    done = Mended(ledger)
    lock = cluster.succeed(client.store.repairs.lock(ledger))
    cluster.succeed(moved_right(client, ledger, Mending(lock=lock), done))
    assert done.left == []
    first, second = cluster.metadata(ledger).fragments
    assert {"b3", "b4"} < set(first.bookies)
    assert second.bookies == ("b0", "b3", "b4")
    assert done.entries == 20
    assert is_whole(cluster, cluster.client(), ledger)


def test_a_move_that_helps_is_made_though_it_is_not_enough(tmp_path: Path) -> None:
    """What the cluster has no bookie for is left, with the reason, and the next try moves nothing in vain."""
    cluster = FakeCluster(5)
    places = tmp_path / "places"
    places.write_text("b0 /one\nb1 /one\nb2 /one\nb3 /two\nb4 /three\n")
    client = cluster.client(placement="rack-aware", racks_min=3, topology="file", topology_file=str(places))
    ledger = closed(cluster, {0: THREE}, 9)
    stored.move(cluster.shared, "b4")
    for entries in (10, 0):
        done = Mended(ledger)
        lock = cluster.succeed(client.store.repairs.lock(ledger))
        cluster.succeed(moved_right(client, ledger, Mending(lock=lock), done))
        cluster.succeed(client.store.repairs.release(lock))
        assert len(done.left) == 1
        assert done.entries == entries
        assert cluster.metadata(ledger).bookies() > {"b3"}
    assert is_whole(cluster, cluster.client(), ledger)


def test_what_cant_be_moved_says_why() -> None:
    """A bookie that takes no copies, or none that would do: nothing is changed, nothing is raised."""
    racks = Racks()
    ledger = closed(racks.cluster, {0: THREE}, 19)
    racks.cluster.judge = lambda request: READ_ONLY if "add" in request.op else "pass"
    done = racks.put_right(ledger)
    assert len(done.left) == 1
    assert f"ledger {ledger}" in done.left[0]
    assert racks.cluster.metadata(ledger).bookies() == set(THREE)


def test_without_its_lock_nothing_is_named() -> None:
    """It went with the session while copies were made."""
    racks = Racks()
    ledger = closed(racks.cluster, {0: THREE}, 19)
    lock = racks.cluster.succeed(racks.client.store.repairs.lock(ledger))
    store_of(racks.client).expire_session()
    done = Mended(ledger)
    racks.cluster.succeed(moved_right(racks.client, ledger, Mending(lock=lock), done))
    assert "lock" in done.left[0]
    assert racks.cluster.metadata(ledger).bookies() == set(THREE)


def test_what_is_written_stays_where_it_is() -> None:
    """Its writer has the last word."""
    racks = Racks()
    ledger = left_open(racks.cluster, {0: THREE}, 19)
    assert racks.put_right(ledger).left == []
    assert racks.cluster.metadata(ledger).bookies() == set(THREE)
