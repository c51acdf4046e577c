"""
Two who change one log at the same time, by name and in both orders: a takeover and a rollover, a recovery of the open
ledger, a publish and a rollover, another publish or a takeover, an answer that is lost and a change that lands late, a
trim and a reader, a delete and a part, a ledger that vanishes.
"""

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred, fail, gatherResults
from twisted.internet.task import deferLater

from quire.log.core.manifest import Manifest
from quire.metadata.records import RecordChanged
from quire.metadata.store import ANY
from quire.metadata.tree import Write
from quire.protocol.errors import LedgerError, MetaStore
from quire.protocol.log_errors import LogFenced, LogTrimmed, NoSuchLog, NotOwner, SegmentLost
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.gate import Gate as HeldBack
from tests.log.fakes.killed import kill
from tests.log.publish.test_sink import written
from tests.log.upkeep.test_trims import records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

SOON_S = 30.0  # only what hangs takes so long


class Gate:
    """Holds the first write of a manifest that is as wanted back, by one handle, until it is opened; others pass."""

    def __init__(self, logs, wanted):
        self._records = logs.bk.store.records
        self._multi, self._wanted = self._records.multi, wanted
        self._records.multi = self._held
        self.met, self._opened = Deferred(), Deferred()

    def _held(self, steps):
        if not self.met.called and any(self._wanted(manifest) for manifest in written_by(steps)):
            self.met.callback(None)
            return self._opened.addCallback(lambda _: self._multi(steps))
        return self._multi(steps)

    def open(self):
        self._opened.callback(None)


class Lost:
    """The answer to the first write of a manifest that is as wanted is lost; it is done at once, or when it lands."""

    def __init__(self, logs, wanted, at_once):
        self._records = logs.bk.store.records
        self._multi, self._wanted, self._at_once = self._records.multi, wanted, at_once
        self._records.multi = self._losing
        self.met = Deferred()  # fires with the id of the edit

    def _losing(self, steps):
        wanted = [manifest.edit for manifest in written_by(steps) if self._wanted(manifest)]
        if self.met.called or not wanted:
            return self._multi(steps)
        self._steps = steps
        if self._at_once:
            self.land()
        self.met.callback(wanted[0])
        return fail(MetaStore("no answer"))

    def land(self):
        return self._multi(self._steps)


def written_by(steps):
    """The manifests that these steps write."""
    written = [step.data for step in steps if isinstance(step, Write)]
    return [Manifest.decode(data) for data in written if data.startswith(b'{"quire":"log"')]


def rolls(manifest):
    """Whether it has a segment open behind a closed one."""
    return len(manifest.segments) > 1 and manifest.open_segment is not None


async def manifest_of(logs):
    id_ = (await logs.info("a")).id
    return Manifest.decode((await logs.bk.store.records.read(f"logs/{id_[:2]}/{id_}")).value)


async def named_only(logs):
    """All ledgers there are named, and all that are named are there once a deposed owner has cleaned up."""
    deadline = reactor.seconds() + SOON_S
    while True:
        manifest = await manifest_of(logs)
        named = {segment.ledger for segment in manifest.segments} | {doomed.ledger for doomed in manifest.doomed}
        found = set(await logs.bk.ledger_ids())
        if found == named:
            return
        assert reactor.seconds() < deadline, f"{named - found} are missing, {found - named} are left over"
        await deferLater(reactor, 0.02)


@pytest.mark.parametrize("first", ["takeover", "rollover"])
def test_r2_a_takeover_and_the_old_owners_rollover(tmp_path, first):
    """
    After the claim edit the rollover is refused, and its new ledger goes; before it, the new owner settles the segment
    that was rolled to.  What was acknowledged is in the log, what failed is not.
    """

    async def story():
        async with cluster(tmp_path) as world:
            one, two, looking = [await world.logs() for _ in range(3)]
            await one.create("a")
            owner = await one.own("a")
            await owner.append(b"0")
            gate = Gate(one, rolls) if first == "takeover" else Gate(two, lambda manifest: manifest.epoch == 2)
            if first == "takeover":
                owner.roll()
                late = owner.append(b"1")
                await gate.met
                successor = await two.own("a", force=True)
                gate.open()
                await failing(late, LogFenced, NotOwner)
                expected = [b"0"]
            else:
                succeeding = Deferred.fromCoroutine(two.own("a", force=True))
                await gate.met
                owner.roll()
                expected = [b"0"]
                late = owner.append(b"1").addCallback(lambda _: expected.append(b"1"))
                late.addErrback(lambda failure: failure.trap(LogFenced, NotOwner))
                await late
                gate.open()
                successor = await succeeding
            assert (await successor.append(b"2")).index == len(expected)
            assert await values(await looking.read("a"), len(expected) + 1) == [*expected, b"2"]
            await owner.close()
            await successor.close()
            await named_only(looking)

    run(story)


@pytest.mark.parametrize("first", ["recovery", "append"])
def test_r7_the_open_ledger_is_recovered(tmp_path, first):
    """Before appends are sent or under them: the owner goes on, and each append is in the log once, in order."""

    async def story():
        async with cluster(tmp_path) as world:
            one, other = await world.logs(), await world.logs()
            await one.create("a")
            owner = await one.own("a")
            await owner.append(b"0")
            ledger = (await other.info("a")).ledger
            waiting = [owner.append(b"%d" % number) for number in range(1, 50)] if first == "append" else []
            await other.bk.recover_ledger(ledger)
            waiting += [owner.append(b"%d" % number) for number in range(len(waiting) + 1, 100)]
            positions = await gatherResults(waiting)
            assert [position.index for position in positions] == list(range(1, 100))
            assert await values(await other.read("a"), 100) == [b"%d" % number for number in range(100)]
            assert owner.epoch == 1
            await owner.close()
            await named_only(other)

    run(story)


@pytest.mark.parametrize("first", ["rollover", "publish"])
@pytest.mark.parametrize("appends", [True, False])
def test_r8_a_publish_and_a_rollover(tmp_path, first, appends):
    """
    The rollover first, to a new segment or only to the end of the old one: the publish settles what is open then.  The
    publish first: the rollover finds its segment closed, and the new one is named behind the parts.
    """

    async def story():
        async with cluster(tmp_path) as world:
            one, two, looking = [await world.logs() for _ in range(3)]
            await one.create("a")
            owner = await one.own("a")
            await owner.append(b"0")
            sink = await two.sink("a", "facts", "run")
            part = await written(sink, 0, 0, [b"part"])
            gate = Gate(two, lambda manifest: manifest.next > 1) if first == "rollover" else Gate(one, rolls)
            if first == "rollover":
                publishing = Deferred.fromCoroutine(sink.commit(0, [part]))
                await gate.met
                owner.roll()
                if appends:
                    await owner.append(b"1")
                gate.open()
                await publishing
                following = owner.append(b"2")
                expected = [b"0", b"1", b"part", b"2"] if appends else [b"0", b"part", b"2"]
            else:
                owner.roll()
                following = owner.append(b"1")
                await gate.met
                await sink.commit(0, [part])
                gate.open()
                expected = [b"0", b"part", b"1"]
            assert (await following).index == len(expected) - 1
            assert await values(await looking.read("a"), len(expected)) == expected
            await owner.close()
            await named_only(looking)

    run(story)


@pytest.mark.parametrize("owned", [True, False])
def test_r9_two_publishes(tmp_path, owned):
    """One version wins; the other one is made again and comes behind, and what an owner had open is settled once."""

    async def story():
        async with cluster(tmp_path) as world:
            one, two, three = [await world.logs() for _ in range(3)]
            await three.create("a")
            before = []
            if owned:
                owner = await three.own("a")
                await owner.append(b"0")
                before = [b"0"]
            sinks = [await logs.sink("a", f"facts {number}", "run") for number, logs in enumerate((one, two))]
            parts = [await written(sink, 0, 0, [b"part %d" % number]) for number, sink in enumerate(sinks)]
            gate = Gate(two, lambda manifest: manifest.next > len(before))
            late = Deferred.fromCoroutine(sinks[1].commit(0, [parts[1]]))
            await gate.met
            first = await sinks[0].commit(0, [parts[0]])
            gate.open()
            assert (first.first, (await late).first) == (len(before), len(before) + 1)
            expected = [*before, b"part 0", b"part 1"]
            if owned:
                assert (await owner.append(b"1")).index == 3
                await owner.close()
                expected.append(b"1")
            assert await values(await one.read("a")) == expected
            await named_only(one)

    run(story)


@pytest.mark.parametrize("first", ["takeover", "publish"])
def test_r10_a_publish_and_a_takeover(tmp_path, first):
    """Both recover the dead owner's ledger; who edits first closes its segment, the other one goes on behind it."""

    async def story():
        async with cluster(tmp_path) as world:
            one, two, three = [await world.logs() for _ in range(3)]
            await one.create("a")
            await (await one.own("a")).append(b"0")
            kill(one)
            sink = await two.sink("a", "facts", "run")
            part = await written(sink, 0, 0, [b"part"])
            if first == "takeover":
                gate = Gate(two, lambda manifest: manifest.next > 1)
                publishing = Deferred.fromCoroutine(sink.commit(0, [part]))
                await gate.met
                owner = await three.own("a", wait_s=60)
                gate.open()
                await publishing
            else:
                gate = Gate(three, lambda manifest: manifest.epoch == 2 and manifest.open_segment is None)
                owning = Deferred.fromCoroutine(three.own("a", wait_s=60))
                await gate.met
                await sink.commit(0, [part])
                gate.open()
                owner = await owning
            assert owner.epoch == 2
            assert (await owner.append(b"1")).index == 2
            await owner.close()
            assert await values(await two.read("a")) == [b"0", b"part", b"1"]
            await named_only(two)

    run(story)


@pytest.mark.parametrize("first", ["the change", "another one", "the next try"])
def test_r11_an_edit_whose_answer_is_lost(tmp_path, first):
    """
    It was done: it is found by its id, and not done twice.  It comes late: it can't be done any more, for the version
    has moved, by another change or by the next try.
    """

    async def story():
        async with cluster(tmp_path) as world:
            one, other = await world.logs(), await world.logs()
            await one.create("a")
            owner = await one.own("a")
            lost = Lost(one, lambda manifest: manifest.open_segment is not None, first == "the change")
            appending = owner.append(b"0")
            edit = await lost.met
            if first == "another one":
                await other.update("a", roll_records=1000)
                await failing(lost.land(), RecordChanged)
            assert (await appending).index == 0
            if first == "the next try":
                await failing(lost.land(), RecordChanged)
            manifest = await manifest_of(other)
            assert manifest.recent.count(edit) == 1
            assert [segment.n for segment in manifest.segments] == [0]
            await owner.append(b"1")
            assert await values(await other.read("a"), 2) == [b"0", b"1"]
            await owner.close()
            await named_only(other)

    run(story)


@pytest.mark.parametrize("first", ["reader", "trim"])
def test_r16_a_trim_and_a_reader_inside_the_segment(tmp_path, first):
    """One that has read it goes on behind it; one that has not is told what was trimmed, not what a bookie lacks."""

    async def story():
        async with cluster(tmp_path) as world:
            one, two = [await world.logs() for _ in range(2)]
            await one.create("a", roll_records=4)
            owner = await one.own("a")
            for number in range(12):
                await owner.append(b"%d" % number)
            reader = await two.read("a", 0 if first == "reader" else 2)
            if first == "reader":
                assert await values(reader, 5) == [b"%d" % number for number in range(5)]
            await one.trim("a", 8)
            await one.tidy("a")
            if first == "reader":
                reader.index = 8
                assert await values(reader, 4) == [b"%d" % number for number in range(8, 12)]
            else:
                assert (await failing(Deferred.fromCoroutine(values(reader)), LogTrimmed)).begin == 8
            await reader.close()
            await owner.close()

    run(story)


@pytest.mark.parametrize("first", ["part", "delete"])
def test_r21_a_delete_and_a_part(tmp_path, first):
    """
    A part that was begun before the log was deleted goes with it, and its task is told; one that begins after finds no
    log.  Nothing is left either way.
    """

    async def story():
        async with cluster(tmp_path) as world:
            one, two = [await world.logs() for _ in range(2)]
            await one.create("a")
            path = (await manifest_of(one)).id
            sink = await one.sink("a", "txn", "run")
            if first == "part":
                part = await sink.part(0, 0, 0)
                await part.append_many([b"0"])
            await two.delete("a")
            await two.tidy()
            if first == "part":
                await failing(Deferred.fromCoroutine(part.append_many([b"1"])), LedgerError)
            else:

                async def begin():
                    await (await sink.part(0, 0, 0)).append_many([b"1"])

                await failing(Deferred.fromCoroutine(begin()), NoSuchLog)
            async for _orphan in two.orphans(delete=True, really=True, grace_s=0.0):
                pass
            assert await two.bk.ledger_ids() == []
            assert path not in await two.bk.store.records.children(f"logs/{path[:2]}")

    run(story)


@pytest.mark.parametrize("by", ["a publisher", "hand"])
def test_r25_a_named_ledger_that_vanished(tmp_path, by):
    """
    While a takeover is about to recover it: settled and deleted by a publisher it is no loss, and the new owner goes
    on; deleted by hand it is one, which is said with the segment and the next command, and given up it is passed over.
    """

    async def story():
        async with cluster(tmp_path) as world:
            one, two, three = [await world.logs() for _ in range(3)]
            await one.create("a", roll_records=1000)
            owner = await one.own("a")
            await owner.barrier()  # a segment is open, and empty
            ledger = (await one.info("a")).ledger
            kill(one)
            gate = HeldBack(two.bk, "recover_ledger")
            owning = Deferred.fromCoroutine(two.own("a", wait_s=60))
            await gate.reached
            if by == "hand":
                await three.bk.delete_ledger(ledger)
                gate.open()
                error = await failing(owning, SegmentLost)
                assert "segment 0" in str(error)
                assert "`quire log give-up a 0`" in str(error)
                assert await three.give_up("a", 0) == range(1 << 32)
                successor = await two.own("a", wait_s=60)
                assert (await successor.append(b"1")).index == 1 << 32  # none that anybody may have been told
                assert await values(await three.read("a", 1 << 32), 1) == [b"1"]
            else:
                sink = await three.sink("a", "facts", "run")
                await sink.commit(0, [await written(sink, 0, 0, [b"part"])])
                await three.tidy("a")
                assert ledger not in await three.bk.ledger_ids()
                gate.open()
                successor = await owning
                assert (await successor.append(b"1")).index == 1
                assert await values(await three.read("a"), 2) == [b"part", b"1"]
            await successor.close()

    run(story)


@pytest.mark.parametrize("again", [False, True], ids=["free", "taken again"])
@pytest.mark.parametrize("call", ["rename", "delete"])
def test_a_name_that_another_log_has_by_then(tmp_path, call, again):
    """A rename or a delete takes away no name that its log has lost meanwhile: `NoSuchLog`, and nothing is changed."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            first = await other.create("a")
            held = Gate(logs, lambda manifest: manifest.name == "c" or manifest.state == "deleting")
            asked = Deferred.fromCoroutine(logs.rename("a", "c") if call == "rename" else logs.delete("a"))
            await held.met
            await other.rename("a", "b")
            second = await other.create("a") if again else None
            held.open()
            await failing(asked, NoSuchLog)
            assert {name async for name in logs.names()} == ({"a", "b"} if again else {"b"})
            assert (await logs.info("b")).id == first.id
            assert (await logs.info("b")).state == "open"
            if second is not None:
                assert await logs.info("a") == second

    run(story)


def test_a_name_that_was_taken_away_before(tmp_path):
    """A log whose name another one has, as an earlier version could leave it, keeps that other one's name."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await other.create("a")
            records, read = logs.bk.store.records, logs.bk.store.records.read

            async def then(path):
                found = await read(path)
                records.read = read
                await other.bk.store.records.delete(path, ANY)
                await other.create("a")
                return found

            records.read = lambda path: Deferred.fromCoroutine(then(path))
            await failing(Deferred.fromCoroutine(logs.rename("a", "c")), NoSuchLog)
            assert [name async for name in logs.names()] == ["a"]

    run(story)


@pytest.mark.parametrize(
    ("one", "two", "mended"),
    [({"write": 2, "ack": 2}, {"ack": 3}, {"ack": 2}), ({"publish": True}, {"lease_ms": 400}, {"publish": False})],
)
def test_two_changes_of_settings(tmp_path, one, two, mended):
    """
    Of two that contradict each other the second is refused, and the log goes on; one that an earlier version let both
    have is mended by another change.
    """

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await other.create("a", publish=False)
            owner = await other.own("a")
            held = Gate(logs, lambda manifest: two.items() <= manifest.settings.items())
            asked = Deferred.fromCoroutine(logs.update("a", **two))
            await held.met
            settings = (await other.update("a", **one)).settings
            held.open()
            await failing(asked, ValueError)
            assert (await logs.info("a")).settings == settings
            await owner.append(b"1")
            await owner.close()
            handle = await records_of(logs)
            manifest, version = await handle.read()
            broken = replace(manifest, settings=settings | two)
            await handle.records.write(handle.path, broken.encode(), version)
            await failing(Deferred.fromCoroutine(logs.update("a", roll_bytes=9)), ValueError)
            assert (await logs.update("a", **mended)).settings == settings | two | mended
            owner = await logs.own("a")
            await owner.append(b"2")
            await owner.close()
            assert await values(await logs.read("a")) == [b"1", b"2"]

    run(story)
