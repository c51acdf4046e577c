"""Replicas over three real bookies: the same log applied in each, proposals and reads answered, roles and snapshots."""

import os
from functools import partial
from random import Random

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.machine import applying
from quire.log.core.machine.applying_messages import Role
from quire.log.machine import applier, driver
from quire.log.machine.standing import Standing, while_leading
from quire.log.owner.appending.appends import Position
from quire.metadata.clock import pause
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import ClientClosed, MetaStore
from quire.protocol.log_errors import (
    AppendUnknown,
    ApplyFailed,
    LogFenced,
    LogTrimmed,
    NotOwner,
    SnapshotDamaged,
    StaleRead,
)
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import kill
from tests.log.fakes.machines import Chain, Made
from tests.log.fakes.silent import silence
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

LEFT = (NotOwner, LogFenced, AppendUnknown)  # what proposals end with where the log goes to another one
ROUNDS = int(os.environ.get("ROUNDS", "20"))  # restarts


async def refused(story, *kinds):
    """The error of a coroutine that must fail."""
    return await failing(Deferred.fromCoroutine(story), *kinds)


async def proposed(replica, values):
    """What the machine gave for each, all of them under way at once."""
    return await gatherResults([Deferred.fromCoroutine(replica.propose(value)) for value in values])


async def led(world, name="a", address="", reached=lambda _name: None, kind=Chain, **options):
    """Logs, a replica that leads, and its machine."""
    logs = await world.logs(reached, **options)
    made = Made(kind)
    replica = await logs.replica(name, made, stand=True, address=address)
    assert await replica.leads(60)
    return logs, replica, made.last


async def leading(replicas):
    """That one of them which leads, once one does."""
    while True:
        for each in replicas:
            if each.role is Role.LEADING:
                return each
        await pause(reactor, 0.01)


async def created(world, **settings):
    await (await world.logs()).create("a", **settings)


def test_a_replica_that_leads_applies_what_its_hook_made(tmp_path):
    """Owner and follower are equal, also where a fence had entries encoded again for another segment."""

    def hook(first, position, _stamp, values):
        return [b"%d,%d:" % (first, position) + value for value in values]

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            follower, made = Made(Chain), Made(Chain)
            await (await world.logs()).replica("a", follower)
            logs, other = await world.logs(), await world.logs()
            leader = await logs.replica("a", made, stand=True, before_append=hook)
            assert await leader.leads(60)
            for number in range(3):
                answers = await proposed(leader, [b"x"] * 50)
                assert all(int(value.partition(b",")[0]) <= index for index, value in answers)
                ledger = (await logs.info("a")).ledger
                sent = proposed(leader, [b"%d" % number] * 50)
                await other.bk.open_ledger(ledger, b"")
                await sent
            await follower.last.reached(made.last.applied)
            assert made.last.applied == 300
            assert follower.last.hash == made.last.hash

    run(story)


class Numbering(Chain):
    """Counts its records; where it leads, its hook numbers what is appended, from what is applied on."""

    def __init__(self):
        super().__init__()
        self.count = 0
        self.term = None  # index and number at which it began

    def apply(self, record):
        assert record.value.startswith(b"%d:" % self.count), f"{record.value} instead of number {self.count}"
        self.count += 1
        return super().apply(record)

    def save(self):
        return [b"%d\n" % self.count, *super().save()]

    def load(self, data):
        count, _, rest = b"".join(data).partition(b"\n")
        self.count = int(count)
        super().load([rest])

    def role(self, role, epoch):
        super().role(role, epoch)
        self.term = (self.applied, self.count) if role is Role.LEADING else None

    def hook(self, first, _position, _stamp, values):
        index, number = self.term
        return [b"%d:" % (number + first - index + each) + value for each, value in enumerate(values)]


def test_a_hook_that_goes_by_the_machine(tmp_path):
    """Numbers are dense over takeovers and fences: it is asked where all that was before is applied, and never else."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world, publish=False, roll_records=40)
            machines = [Made(Numbering) for _ in range(3)]
            standing, done, fences, other = [], 0, 0, await world.logs()
            for made in machines:
                logs = await world.logs()
                hook = partial(Made.hook, made)
                standing.append(await logs.replica("a", made, stand=True, before_append=hook))
            for turn in range(9):
                leader = await leading(standing)
                sent = [Deferred.fromCoroutine(leader.propose(b"%d" % number)) for number in range(60)]
                if turn % 3 == 1:  # a fence
                    while (ledger := (await other.info("a")).ledger) is None and not all(each.called for each in sent):
                        await pause(reactor, 0.001)
                    fences += ledger is not None
                    if ledger is not None:
                        await other.bk.open_ledger(ledger, b"")
                elif turn % 3 == 2:  # a takeover in the middle of it
                    await (await other.own("a", force=True)).close()
                    while leader.role is Role.LEADING:
                        await pause(reactor, 0.01)
                for each in sent:
                    done += not isinstance(await each.addErrback(lambda failure: failure.trap(*LEFT)), type)
            assert done >= 360  # all but those of three takeovers
            assert fences
            await leading(standing)  # after the last takeover, too
            end = max(made.last.applied for made in machines)
            for made in machines:
                await made.last.reached(end)
            assert len({made.last.hash for made in machines}) == 1
            assert all(made.last.count == made.last.applied == end for made in machines)
            assert sum(len(made.last.roles) for made in machines) >= 7, "the log went to others"
            for each in standing:
                await each.close()

    run(story)


def test_a_leader_that_is_behind_a_trim_leads_in_another_epoch(tmp_path, monkeypatch):
    """What was appended in the former one is not in the snapshot that it loads: its hook begins behind all of it."""
    trimmed = []

    class Reader(driver.LogReader):
        def tail(self, timeout):
            if trimmed:
                trimmed.pop()
                raise LogTrimmed("as if it was")
            return super().tail(timeout)

    monkeypatch.setattr(driver, "LogReader", Reader)
    monkeypatch.setattr(applying, "UNAPPLIED_BYTES_MAX", 0)  # what is not applied at once is read
    monkeypatch.setattr(applier, "SLICE_S", 0.0)
    monkeypatch.setattr(applier, "LOOKED_AT", 1)

    async def story():
        async with cluster(tmp_path) as world:
            await created(world, publish=False)
            logs, made = await world.logs(batch_bytes=5), Made(Numbering)
            leader = await logs.replica("a", made, stand=True, before_append=partial(Made.hook, made))
            assert await leader.leads(60)
            await proposed(leader, [b"x"] * 20)
            assert await leader.snapshot() == 20
            first = made.last
            trimmed.append(True)
            while made.last is first:
                sent = [Deferred.fromCoroutine(leader.propose(b"y")) for _ in range(50)]
                for each in sent:
                    each.addErrback(lambda failure: failure.trap(*LEFT, ApplyFailed))
                await gatherResults(sent)
            assert await leader.leads(60)
            assert made.last.loaded == 20
            assert [first.roles[-1], made.last.roles[-1]] == [("following", 1), ("leading", 2)]
            await proposed(leader, [b"z"] * 20)
            reader = await logs.read("a")
            values = [value async for batch in reader.batches() for value in batch.values]
            await leader.close()
            assert [int(value.partition(b":")[0]) for value in values] == list(range(len(values)))

    run(story)


def test_a_hook_before_its_replica_leads():
    """It is not asked, and the append says that nothing was sent and what to wait for."""
    leads, asked = [False], []
    hook = while_leading(lambda *all: asked.append(all) or all[3], "a", lambda: leads[0])
    with pytest.raises(NotOwner, match=r"'a' has not applied all .* this was not sent; leads\(\) waits"):
        hook(5, 0, 7, [b"x"])
    assert not asked
    leads[0] = True
    assert hook(5, 0, 7, [b"x"]) == [b"x"]
    assert asked == [(5, 0, 7, [b"x"])]


def test_what_a_machine_asks_for_while_it_applies_a_record_waits(tmp_path, monkeypatch):
    """A snapshot holds whole records, and a read sees whole ones, also in a later slice."""
    monkeypatch.setattr(applier, "SLICE_S", 0.0)

    class Asking(Chain):
        def apply(self, record):
            if record.value == b"ask":
                self.asked = [
                    Deferred.fromCoroutine(self.replica.snapshot()),
                    Deferred.fromCoroutine(self.replica.read(lambda _machine: self.applied, "unsafe")),
                ]
                self.seen = [each.called for each in self.asked]
            return super().apply(record)

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            _logs, first, machine = await led(world, kind=Asking)
            machine.replica = first
            await proposed(first, [b"%d" % each for each in range(300)])
            assert await proposed(first, [b"x"] * 150 + [b"ask"] + [b"x"] * 150)
            index, read = await gatherResults(machine.asked)
            assert machine.seen == [False, False]
            assert read.value > 450
            made = Made(Chain)
            await (await world.logs()).replica("a", made)
            await made.last.reached(machine.applied)
            assert made.last.loaded == index
            assert (made.last.applied, made.last.hash) == (601, machine.hash)

    run(story)


def test_a_replica_s_life(tmp_path):
    """One leads and answers; another follows, and says where to go; both have the same state; the next one goes on."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            _logs, first, machine = await led(world, address="one:1")
            assert await proposed(first, [b"%d" % each for each in range(100)]) == [
                (each, b"%d" % each) for each in range(100)
            ]
            assert machine.roles == [("leading", 1)]
            made = Made()
            follower = await (await world.logs()).replica("a", made, stand=True, address="two:2")
            await made.last.reached(100)
            assert (made.last.hash, made.last.roles) == (machine.hash, [])
            assert (await refused(follower.propose(b"x"), NotOwner)).address == "one:1"
            assert (await refused(follower.read(len, "barrier"), NotOwner)).address == "one:1"
            answer = await first.read(lambda chain: chain.applied, "barrier")
            assert answer[:2] == (100, 100)
            assert 0 <= answer.age_ms < 60_000
            assert await follower.read(lambda chain: chain.applied, "unsafe") == (100, 100, -1)
            assert (first.applied, follower.applied) == (100, 100)
            assert await first.propose(b"acknowledged", wait="ack") == Position(100, 190)
            await made.last.reached(101)
            await first.close()
            assert machine.roles[1:] == [("following", 1)]
            await refused(first.propose(b"late"), ClientClosed)
            assert await follower.leads(60)
            assert await follower.propose(b"mine") == (101, b"mine")
            assert made.last.roles == [("leading", 2)]
            assert not await first.leads(60)

    run(story)


def test_what_leads_is_applied_without_reading_it(tmp_path):
    """From the first proposal on; a publisher's records come in between, where they are."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world, roll_records=30)
            logs, replica, machine = await led(world)
            await proposed(replica, [b"%d" % each for each in range(100)])
            read = logs.metrics.of("a").read_records
            await proposed(replica, [b"%d" % each for each in range(100)])
            assert logs.metrics.of("a").read_records == read
            other = await world.logs()
            sink = await other.sink("a", "t", "r")
            for batch in range(3):
                part = await sink.part(batch, 0, 0)
                await part.append_many([b"p1", b"p2"])
                await sink.commit(batch, [await part.close()])
                end = (batch + 1) * 2 + 200 + batch * 10
                await machine.reached(end)
                answers = await proposed(replica, [b"%d" % each for each in range(10)])
                assert [index for index, _value in answers] == list(range(end, end + 10))
            follower = Made()
            await other.replica("a", follower)
            await follower.last.reached(236)
            assert (follower.last.applied, follower.last.hash) == (236, machine.hash)

    run(story)


def test_proposals_survive_a_fence(tmp_path):
    """Somebody recovers the open ledger: each proposal has its answer, at the index where it is."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            _logs, replica, machine = await led(world, batch_bytes=100)
            other = await world.logs()
            for _ in range(3):
                under_way = [
                    Deferred.fromCoroutine(replica.propose(b"%d" % each)) for each in range(machine.applied, 100)
                ]
                found = await other.info("a")
                if found.ledger is not None:
                    await other.bk.recover_ledger(found.ledger)
                answers = await gatherResults(under_way)
                assert sorted(index for index, _value in answers) == [index for index, _value in answers]
                assert len({index for index, _value in answers}) == len(answers)
            follower = Made()
            await other.replica("a", follower)
            await follower.last.reached(machine.applied)
            assert (follower.last.applied, follower.last.hash) == (machine.applied, machine.hash)

    run(story)


class Agreed(Chain):
    """Compares its state after each record with that of whoever has applied it, too: `states`, by index."""

    def __init__(self, states):
        super().__init__()
        self._states = states

    def apply(self, record):
        answer = super().apply(record)
        assert self._states.setdefault(record.index, self.hash) == self.hash, f"another state after {record.index}"
        return answer


def test_equal_states_after_many_restarts(tmp_path):
    """
    Replicas that are closed, killed and begun again at any time: the same chain after each record, whoever led, with
    snapshots and with publishers between.
    """

    async def story():
        rng, states = Random(ROUNDS), {}
        async with cluster(tmp_path) as world:
            await created(world, roll_records=20)
            running, number = [], 0
            for turn in range(ROUNDS):
                while len(running) < 3:
                    logs = await world.logs(snapshot_records=15, tidy_ms=100)
                    made = Made(lambda: Agreed(states))
                    running.append((logs, await logs.replica("a", made, stand=True), made))
                leader = await led_among(running)
                for _ in range(3):
                    values = [b"%d" % each for each in range(number, number + 9)]
                    number += 9
                    await proposed(leader, values)
                if turn % 3 == 0:
                    sink = await running[0][0].sink("a", f"t{turn}", "r")
                    part = await sink.part(0, 0, 0)
                    await part.append_many([b"p%d" % turn] * 2)
                    await sink.commit(0, [await part.close()])
                    number += 2
                logs, replica, made = running.pop(rng.randrange(len(running)))
                if rng.random() < 0.5:
                    kill(logs)
                else:
                    await replica.close()
            leader = await led_among(running)
            end = (await leader.read(lambda chain: chain.applied)).index
            for _logs, _replica, made in running:
                await made.last.reached(end)
            fresh = Made(lambda: Agreed(states))
            await (await world.logs()).replica("a", fresh)
            await fresh.last.reached(end)
            assert len(states) == end
            assert {made.last.hash for _logs, _replica, made in running} == {fresh.last.hash}
            assert fresh.last.loaded
            assert end == number

    run(story, 60 + 10 * ROUNDS)


async def led_among(running):
    """The one that leads, once one does."""
    while True:
        for _logs, replica, _made in running:
            if await replica.leads(0.1):
                return replica


def test_an_apply_that_raises_stops_that_replica(tmp_path):
    """At that index: it resigns, and whoever waits is told which; so does the next one, for all apply the same."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            _logs, first, machine = await led(world)
            answers = [Deferred.fromCoroutine(first.propose(each)) for each in (b"one", b"bad", b"two")]
            assert await answers[0] == (0, b"one")
            for answer in answers[1:]:
                assert (await failing(answer, ApplyFailed)).index == 1
            assert (first.applied, machine.applied, first.error.index) == (1, 1, 1)
            await refused(first.propose(b"three"), ApplyFailed)
            await refused(first.read(len, "unsafe"), ApplyFailed)
            await refused(first.snapshot(), ApplyFailed)
            assert not await first.leads(60)
            logs = await world.logs()
            assert (await refused(logs.replica("a", Chain), ApplyFailed)).index == 1
            owner = await logs.own("a")  # it has resigned
            assert owner.epoch == 2

    run(story)


def test_snapshots_are_made_where_it_leads(tmp_path):
    """Every so many records, three are kept; a new replica loads the newest and applies each later record once."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            logs, replica, machine = await led(world, snapshot_records=10, tidy_ms=100)
            for _ in range(6):
                await proposed(replica, [b"x"] * 10)
                await replica.snapshot()
            kept = await logs.snapshots("a")
            assert len(kept) == 3
            assert (kept[-1].index, kept[-1].machine, kept[-1].epoch) == (60, "chain/1", 1)
            assert await replica.snapshot() == 60
            assert logs.metrics.of("a").applied_index == 60
            await proposed(replica, [b"y"] * 5)
            follower = Made()
            other = await world.logs()
            await other.replica("a", follower)
            await follower.last.reached(65)
            assert (follower.last.loaded, follower.last.applied, follower.last.hash) == (60, 65, machine.hash)
            report = await other.tidy("a")
            assert not report.stayed
            ledgers = {each.ledger for each in kept} | {each.ledger async for each in other.segments("a")}
            assert set(await other.bk.ledger_ids()) == ledgers

    run(story)


def test_anybody_may_make_a_snapshot(tmp_path):
    """A follower too; one that is behind does not replace a newer one."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            _logs, replica, _machine = await led(world)
            other, made = await world.logs(), Made()
            follower = await other.replica("a", made)
            assert await follower.snapshot() == 0
            await proposed(replica, [b"x"] * 10)
            await made.last.reached(10)
            assert await follower.snapshot() == 10
            assert await replica.snapshot() == 10
            assert [each.index for each in await other.snapshots("a")] == [0, 10]

    run(story)


def test_trims_keep_what_snapshots_need(tmp_path):
    """Nothing before the first one, never above the oldest kept; a replica that is behind begins from a snapshot."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world, roll_records=5)
            logs, replica, machine = await led(world, batch_bytes=1)
            for _ in range(20):
                await replica.propose(b"x")
            with pytest.raises(ValueError, match="first snapshot, which is not there yet"):
                await logs.trim("a", 5)
            for _ in range(4):
                await replica.snapshot()
                for _ in range(20):
                    await replica.propose(b"y")
            assert [each.index for each in await logs.snapshots("a")] == [40, 60, 80]
            with pytest.raises(ValueError, match="oldest kept snapshot needs it from index 40"):
                await logs.trim("a", 41)
            assert await logs.trim("a", 40) == 40
            follower = Made()
            await (await world.logs()).replica("a", follower)
            await follower.last.reached(100)
            assert (follower.last.loaded, follower.last.hash) == (80, machine.hash)

    run(story)


def test_a_log_without_what_was_before(tmp_path):
    """Trimmed before it had replicas: there is no state to begin from."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world, roll_records=5)
            logs = await world.logs(batch_bytes=1)
            owner = await logs.own("a")
            await owner.append_many([b"x"] * 20)
            await owner.close()
            await logs.trim("a", 10)
            await refused(logs.replica("a", Chain), SnapshotDamaged)

    run(story)


def test_what_can_t_be_asked(tmp_path):
    """A mode that is none, a wait that is none: `ValueError`; what a reader's function raises is the read's error."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            _logs, replica, _machine = await led(world)
            await replica.propose(b"x")
            await refused(replica.read(len, "eventually"), ValueError)
            await refused(replica.propose(b"x", wait="long"), ValueError)
            with pytest.raises(ZeroDivisionError):
                await replica.read(lambda _machine: 1 // 0)
            assert await replica.propose(b"y") == (1, b"y")

    run(story)


def test_a_store_that_is_away_when_a_snapshot_is_named(tmp_path):
    """Its edit is tried again with the same id until the answer is known."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            logs, replica, _machine = await led(world)
            await proposed(replica, [b"x"] * 10)
            fails = ["applied", "lost"]

            def faults(operation, arguments):
                if operation == "transact" and fails:
                    return Fault(error=MetaStore("no answer"), applied=fails.pop() == "applied")
                return None

            logs.bk.store.faults = faults
            assert await replica.snapshot() == 10
            assert not fails
            assert [each.index for each in await logs.snapshots("a")] == [10]

    run(story)


def test_a_close_does_not_wait_long_for_a_snapshot(tmp_path, monkeypatch):
    """Whoever asked for it learns that the replica was closed."""
    monkeypatch.setattr(driver, "CLOSE_S", 0.05)

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            logs, replica, _machine = await led(world)
            await proposed(replica, [b"x"] * 10)
            asked = Deferred.fromCoroutine(replica.snapshot())
            slow = []

            def faults(operation, arguments):
                if operation == "transact":
                    slow.append(operation)
                    return Fault(before=1.0)
                return None

            logs.bk.store.faults = faults
            await replica.close()
            assert slow
            await failing(asked, ClientClosed)

    run(story)


def test_nothing_is_applied_that_is_not_acknowledged():
    """What bookies store and the owner was not answered is in no replica; once it is answered it is in all."""
    fakes = FakeCluster()
    logs, other = (Logs(fakes.client(placement="random"), LogOptions(), now=lambda: 9.0) for _ in range(2))
    followed, made = Made(), Made()

    async def begun():
        await logs.create("a")
        leader = await logs.replica("a", made, stand=True)
        assert await leader.leads(60)
        await leader.propose(b"one")
        return leader, await other.replica("a", followed)

    leader, follower = fakes.succeed(begun())
    fakes.spin(1.0)
    fakes.judge = lambda request: "hold" if request.op == "add" and request.bookie != "b0" else "pass"
    pending = fakes.outcome(leader.propose(b"two"))
    fakes.spin(1.0)
    assert fakes.held
    assert (pending.done, made.last.applied, followed.last.applied) == (False, 1, 1)
    fakes.judge = lambda _request: "pass"
    fakes.let_go()
    fakes.spin(1.0)
    assert (pending.result(), made.last.applied, followed.last.applied) == ((1, b"two"), 2, 2)
    for each in (leader, follower):
        fakes.succeed(each.close())


def test_a_lease_that_is_too_long_for_the_session(tmp_path):
    """A replica that would stand hears so at once; one that stands already tries until the lease is shorter."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", publish=False, lease_ms=5_001)
            error = await refused(logs.replica("a", Chain, stand=True), ValueError)
            assert "lease_ms=5001" in str(error)
            follower = await logs.replica("a", Chain)
            await follower.close()
            heard = Deferred()
            tries = []

            async def own():
                tries.append(len(tries))
                if len(tries) == 2:
                    await logs.update("a", lease_ms=400)
                return await logs.own("a")

            told = partial(reactor.callLater, 0, heard.callback)
            standing = Standing(reactor, own, told, lambda: None, lambda _batches: None)
            running = Deferred.fromCoroutine(standing.run())
            assert await heard is standing.owner
            assert tries == [0, 1]
            await standing.close()
            await running

    run(story)


def test_a_read_of_a_log_whose_owner_died(tmp_path):
    """It is `StaleRead`, which says since when nobody owns the log; when another one has owned it, it is answered."""

    async def story():
        async with cluster(tmp_path) as world:
            await created(world)
            logs, leader, _machine = await led(world, lac_ms=60_000)
            other = await world.logs(read_ms=300)
            silence(logs)
            follower = await other.replica("a", Chain)
            await leader.propose(b"1")
            await leader.propose(b"2")
            error = await refused(follower.read(lambda machine: machine.applied), StaleRead)
            assert "ask again" in str(error)
            kill(logs)
            said = set()
            for _ in range(2):
                error = await refused(follower.read(lambda machine: machine.applied), StaleRead)
                said.add(str(error))
            (text,) = said
            assert "nobody owns it, since 20" in text
            assert "`quire log own a`" in text
            await (await other.own("a")).close()
            assert (await follower.read(lambda machine: machine.applied)).value == 2

    run(story)
