"""Snapshots that are damaged, gone or half made: the one before and the log give the same state, whatever was hit."""

import re
import struct
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.machine.snapshots import SLICE_BYTES_MAX
from quire.metadata.clock import pause
from quire.protocol.digest import Digest, DigestType
from quire.protocol.log_errors import SnapshotDamaged
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import Doomed
from tests.log.fakes.machines import Chain, Made
from tests.log.machine.test_replica import created, led
from tests.log.upkeep.test_children import refused
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

LOG = Path(__file__).parents[3] / "log"
DIGEST = Digest(DigestType.CRC32C, b"")
POINTS = ["snapshot.created", "snapshot.written", "snapshot.closed", "snapshot.named"]
FIELDS = {"ledger": 7, "entry": 15, "LAC": 23, "length": 31, "digest": 33, "content": -1}  # a byte of each


class Story:
    """A log on three bookies with snapshots at 10, 20 and 30, and a replica that is made anew."""

    def __init__(self):
        self.cluster = FakeCluster()
        self.logs, self.other = (
            Logs(self.cluster.client(placement="random"), LogOptions(), now=lambda: 9.0) for _ in range(2)
        )
        self.cluster.succeed(self.written())
        self.kept = self.cluster.succeed(self.logs.snapshots("a"))
        assert [each.index for each in self.kept] == [10, 20, 30]

    async def written(self):
        await self.logs.create("a", roll_records=5)
        made = Made()
        replica = await self.logs.replica("a", made, stand=True)
        assert await replica.leads(60)
        for number in range(35):
            await replica.propose(b"%d" % number)
            if number in {9, 19, 29}:
                assert await replica.snapshot() == number + 1
        self.hash = made.last.hash
        await replica.close()

    def bodies(self, snapshot):
        """The bodies of its entries on one bookie, by entry."""
        return self.cluster.bookies["b0"].ledgers[snapshot.ledger].entries

    def segments(self):
        async def listed():
            return [each async for each in self.logs.segments("a")]

        return self.cluster.succeed(listed())

    def had(self, request):
        """The entries that a request for some was answered with."""
        there = self.cluster.bookies[request.bookie].ledgers[request.ledger].entries
        return [entry for entry in range(request.entry, request.last + 1) if entry in there]

    def put(self, snapshot, entry, body):
        for bookie in ("b0", "b1", "b2"):
            self.cluster.bookies[bookie].ledgers[snapshot.ledger].entries[entry] = body

    def loaded(self):
        """From where a fresh replica begins; its state is the same."""
        made = Made()

        async def work():
            replica = await self.other.replica("a", made)
            await made.last.reached(35)
            await replica.close()

        self.cluster.succeed(work())
        assert (made.last.applied, made.last.hash) == (35, self.hash)
        return made.last.loaded


def flipped(data, place):
    changed = bytearray(data)
    changed[place] ^= 0x81
    return bytes(changed)


@pytest.mark.parametrize("entry", [0, 1, 2])
@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_snapshot_costs_only_time(entry, field):
    """On all bookies, in head, data or end: the one before; two of them: the first."""
    story = Story()
    for newest, before in ((2, 20), (1, 10)):
        snapshot = story.kept[newest]
        story.put(snapshot, entry, flipped(story.bodies(snapshot)[entry], FIELDS[field]))
        assert story.loaded() == before


def test_each_byte_of_a_snapshot():
    """
    Wrong on all bookies, in whichever entry: never a part of it, nor any other state; wrong on one of them, it is had
    from another one.
    """
    story = Story()
    newest = story.kept[2]
    places = [(entry, place) for entry in (0, 1, 2) for place in range(len(story.bodies(newest)[entry]))]
    for entry, place in places:
        whole = story.bodies(newest)[entry]
        story.put(newest, entry, flipped(whole, place))
        assert story.loaded() == 20, (entry, place)
        story.put(newest, entry, whole)
    for number, (entry, place) in enumerate(places[::7]):
        entries = story.cluster.bookies[f"b{number % 3}"].ledgers[newest.ledger].entries
        whole, entries[entry] = entries[entry], flipped(entries[entry], place)
        assert story.loaded() == 30, (entry, place)
        entries[entry] = whole


@pytest.mark.parametrize("entry", [0, 1, 2])
def test_an_entry_of_a_snapshot_that_is_gone_or_cut(entry):
    """On all bookies: the one before; an entry that is cut anywhere, too."""
    story = Story()
    newest = story.kept[2]
    whole = story.bodies(newest)[entry]
    for length in (0, 7, 31, len(whole) - 1):
        story.put(newest, entry, whole[:length])
        assert story.loaded() == 20
    for bookie in story.cluster.bookies.values():
        del bookie.ledgers[newest.ledger].entries[entry]
    assert story.loaded() == 20


def signed(body, old, new):
    """The entry with other content, as a client would write it."""
    ledger, entry, lac, length = struct.unpack_from(">qqqq", body)
    payload = DIGEST.open(ledger, entry, body)
    assert old in payload
    return DIGEST.entry(ledger, entry, lac, length, payload.replace(old, new))


@pytest.mark.parametrize(
    ("entry", "old", "new"),
    [
        (0, b'"index":30', b'"index":31'),
        (0, b'"log":"', b'"log":"0'),
        (0, b'"format":1', b'"format":2'),
        (1, b"30 ", b"31 "),
        (2, b'"entries":1', b'"entries":2'),
        (2, b'"crc":', b'"crc":1'),
        (2, b"}", b""),
    ],
)
def test_an_entry_that_a_wrong_writer_signed(entry, old, new):
    """Its digest is right, and it is not what the manifest and the other entries say."""
    story = Story()
    newest = story.kept[2]
    story.put(newest, entry, signed(story.bodies(newest)[entry], old, new))
    assert story.loaded() == 20


def test_a_snapshot_that_is_gone_costs_only_time():
    """Its ledger is deleted by hand; all of them: the log is there from its first record."""
    story = Story()
    for newest, before in ((2, 20), (1, 10), (0, None)):
        story.cluster.succeed(story.logs.bk.delete_ledger(story.kept[newest].ledger))
        assert story.loaded() == before


def test_no_snapshot_is_left_and_the_log_is_trimmed():
    """It says which there are and what is wrong with each."""
    story = Story()
    assert story.cluster.succeed(story.logs.trim("a", 10)) == 10
    for each in story.kept:
        story.put(each, 1, flipped(story.bodies(each)[1], -1))
    error = story.cluster.fails(story.other.replica("a", Chain))
    assert isinstance(error, SnapshotDamaged)
    for each in story.kept:
        assert f"index {each.index}, ledger {each.ledger}" in str(error)


def test_a_machine_that_can_t_load_one():
    """As when it is of another version: the one before."""
    story = Story()

    class Picky(Chain):
        def load(self, data):
            super().load(data)
            if self.applied > 20:
                raise ValueError("of a newer version")

    made = Made(Picky)

    async def work():
        replica = await story.other.replica("a", made)
        await made.last.reached(35)
        await replica.close()

    story.cluster.succeed(work())
    assert (made.last.loaded, made.last.hash) == (20, story.hash)


def test_a_snapshot_of_many_entries():
    """Larger than one entry, in pieces of any size; a piece that raises leaves nothing behind."""
    story = Story()
    pieces = [bytes((number,)) * size for number, size in enumerate((1, 0, SLICE_BYTES_MAX, 7, 2 * SLICE_BYTES_MAX))]

    class Large:
        def __init__(self):
            self.loaded = None

        def apply(self, record):
            return None

        def save(self):
            yield from pieces

        def load(self, data):
            self.loaded = b"".join(data)

    class Failing(Large):
        def save(self):
            yield b"x" * 3 * SLICE_BYTES_MAX
            raise ArithmeticError("halfway")

        def load(self, data):
            list(data)

    async def work():
        replica = await story.other.replica("a", Failing)
        owner = await story.logs.own("a")
        await owner.append(b"more")
        await owner.close()
        while replica.applied < 36:
            await pause(story.cluster.clock, 0.01)
        before = await story.other.bk.ledger_ids()
        with pytest.raises(ArithmeticError):
            await replica.snapshot()
        assert await story.other.bk.ledger_ids() == before
        await replica.close()
        replica = await story.other.replica("a", Large)
        while replica.applied < 36:
            await pause(story.cluster.clock, 0.01)
        assert await replica.snapshot() == 36
        await replica.close()
        made = Made(Large)
        await (await story.logs.replica("a", made)).close()
        return made.last.loaded

    assert story.cluster.succeed(work()) == b"".join(pieces)
    (*_kept, newest) = story.cluster.succeed(story.logs.snapshots("a"))
    assert (newest.entries, newest.bytes, newest.machine) == (4, 3 * SLICE_BYTES_MAX + 8, "Large")


def test_a_new_replica_reads_what_it_needs_once():
    """
    Each entry of the newest snapshot and each of the log behind it, while writes go on; nothing of the log before, nor
    of older snapshots.
    """
    story, values = Story(), iter(b"%d" % number for number in range(35, 90))
    cluster, made = story.cluster, Made()
    closed = [each.ledger for each in story.segments() if each.end <= 30]
    behind = [each.ledger for each in story.segments() if each.end > 30]
    assert closed
    assert behind
    pool, writers = cluster.pools[1], story.cluster.succeed(story.logs.own("a"))
    pool.asked.clear()
    begun = cluster.outcome(story.other.replica("a", made))
    while not begun.done:
        cluster.outcome(writers.append(next(values)))
        cluster.spin(0.005)
    read = [request for request in pool.asked if request.op in ("read", "batch")]
    assert not {request.ledger for request in read} & {*closed, *(each.ledger for each in story.kept[:2])}
    for ledger in (story.kept[2].ledger, *behind):
        entries = [entry for request in read if request.ledger == ledger for entry in story.had(request)]
        assert sorted(entries) == sorted(set(entries))
        assert entries
    assert made.last.loaded == 30
    assert made.last.applied >= 35
    cluster.succeed(begun.result().close())
    cluster.succeed(writers.close())


def test_each_step_is_a_point():
    """Every step of a snapshot is one at which it is killed here."""
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted(LOG.glob("machine/*.py")))
    assert set(re.findall(r"reached\(\"([a-z.]+)\"\)", sources)) == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_step_of_a_snapshot(tmp_path, point):
    """The next replica has the same state, and trims keep its tail; what nothing names is found and deleted."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world, roll_records=5)
            doomed = Doomed(point, 3)
            logs, replica, machine = await led(world, reached=doomed.reached)
            doomed.logs = logs
            for number in range(3):
                for _ in range(12):
                    await replica.propose(b"x")
                if number < 2:
                    await replica.snapshot()
            Deferred.fromCoroutine(replica.snapshot()).addErrback(lambda _failure: None)
            await doomed.died
            other, made = await world.logs(), Made()
            second = await other.replica("a", made, stand=True)
            assert await second.leads(60)
            assert (made.last.applied, made.last.hash) == (36, machine.hash)
            kept = [each.index for each in await other.snapshots("a")]
            assert kept in ([12, 24], [12, 24, 36])
            assert made.last.loaded == kept[-1]
            assert await other.trim("a", 12) <= 12
            assert await second.propose(b"y") == (36, b"y")
            assert await second.snapshot() == 37
            found = [each async for each in other.orphans(True, really=True, grace_s=-60.0)]
            assert len(found) == (0 if point == "snapshot.named" else 1)
            await other.tidy("a")
            named = {each.ledger for each in await other.snapshots("a")}
            named |= {each.ledger async for each in other.segments("a")}
            assert set(await other.bk.ledger_ids()) == named

    run(story)


class Large:
    """A machine whose snapshot is several slices long."""

    def __init__(self):
        self.loaded = 0

    def apply(self, record):
        return record.index

    def save(self):
        return [bytes(SLICE_BYTES_MAX)] * 6

    def load(self, data):
        self.loaded = sum(map(len, data))


def test_a_snapshot_goes_by_the_window_of_its_ledgers_writer():
    """One slice fills it; all of them are stored."""
    world = FakeCluster()
    logs = Logs(world.client(placement="random", window_bytes_max=SLICE_BYTES_MAX), LogOptions(), now=lambda: 9.0)

    async def story():
        await logs.create("a")
        replica = await logs.replica("a", Large, stand=True)
        assert await replica.leads(60)
        await replica.propose(b"x")
        assert await replica.snapshot() == 1
        await replica.close()
        again = await logs.replica("a", Large)
        loaded = (await again.read(lambda machine: machine.loaded)).value
        await again.close()
        return loaded

    assert world.succeed(story()) == 6 * SLICE_BYTES_MAX


def test_saved_without_a_replica(tmp_path):
    """By one that has applied all: replicas begin from it; saved again it is there once; a newer one stays."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a", needs_snapshot=True, use="messages", roll_records=5)
            owner, machine = await logs.own("a", use="messages"), Chain()
            for number in range(12):
                await owner.append(b"%d" % number)
            await owner.close()
            for record in [each async for batch in (await logs.read("a")).batches() for each in batch.records()]:
                machine.apply(record)
            for _time in range(2):  # as after an answer that was lost
                assert await logs.save_snapshot("a", 12, iter(machine.save()), machine.name, use="messages") == 12
            assert [(each.index, each.machine) for each in await logs.snapshots("a")] == [(12, "chain/1")]
            assert await logs.trim("a", 12) == 12
            made = Made()
            replica = await other.replica("a", made, stand=True, use="messages")
            assert (made.last.loaded, made.last.hash) == (12, machine.hash)
            assert await replica.leads(60)
            await replica.propose(b"more")
            assert await replica.snapshot() == 13
            assert await logs.save_snapshot("a", 12, [b"older"], "m", use="messages") == 13
            await replica.close()

    run(story)


def test_what_can_not_be_saved(tmp_path):
    """An index that the log does not have, pieces that are none, another use; nothing is left of it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", roll_records=2)
            owner = await logs.own("a")
            for value in (b"a", b"b", b"c", b"d", b"e"):
                await owner.append(value)
            await owner.close()
            await logs.trim("a", 2)
            before = set(await logs.bk.ledger_ids())
            for index in (1, 6):
                said = await refused(logs.save_snapshot("a", index, [b""], "m"), ValueError)
                assert said.startswith("the log 'a' has records from index 2 to before 5")
            assert "pieces of bytes" in await refused(logs.save_snapshot("a", 5, b"state", "m"), TypeError)
            assert "has no use" in await refused(logs.save_snapshot("a", 5, [], "m", use="messages"), ValueError)
            await refused(logs.save_snapshot("a", 5, ["text"], "m"), TypeError)
            assert set(await logs.bk.ledger_ids()) == before
            assert await logs.save_snapshot("a", 5, [], "m") == 5

    run(story)
