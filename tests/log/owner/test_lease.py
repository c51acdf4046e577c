"""An owner's lease: held while it owns the log, over before another one owns it; and what readers of its log see."""

import json

import pytest
from twisted.internet.defer import Deferred

from quire.log.core.ownership_messages import CloseLedger
from quire.log.store.paths import log_path
from quire.log.upkeep.keeping import KeptOwner
from quire.metadata.clock import pause
from quire.metadata.memory.cluster import RECORDS, Fault
from quire.metadata.uri import boottime
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogTerminated
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import Doomed
from tests.log.fakes.silent import silence
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

MS = 300
LEASED = {"publish": False, "lease_ms": MS}


class Watch:
    """A clock that a test sets; one for each process."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


async def lease_of(logs, name="a"):
    info = await logs.info(name)
    return json.loads((await logs.bk.store.records.read(f"{log_path(info.id)}/lease")).value)


async def until(condition):
    """Awaits something that has to come."""
    while not condition():
        await pause(reactor, 0.005)


def test_an_owner_holds_a_lease_and_renews_it(tmp_path):
    """Its record says so; it counts for less than its time; the end of the ownership frees it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", **LEASED)
            assert (await lease_of(logs))["state"] == "free"
            owner = await logs.own("a")
            await until(lambda: owner.lease.holds)
            first = await lease_of(logs)
            assert (first["state"], first["epoch"], first["token"], first["ms"]) == ("held", 1, owner.token, MS)
            assert owner.lease.seconds_left < 0.99 * MS / 1000
            await owner.append(b"one")
            assert [segment.leased async for segment in logs.segments("a")] == [True]
            ends = owner.lease.ends
            await until(lambda: owner.lease.ends > ends)
            assert (await lease_of(logs))["edit"] != first["edit"]
            await owner.close()
            assert not owner.lease.holds
            assert (await lease_of(logs))["state"] == "free"

    run(story)


def test_a_lease_runs_out_by_a_clock_that_a_stop_does_not_stop(tmp_path):
    """An owner that slept past its end has none, whatever it has done since; then it holds it again."""

    async def story():
        async with cluster(tmp_path) as world:
            watch = Watch()
            logs = await world.logs(boottime=watch)
            await logs.create("a", **LEASED)
            owner = await logs.own("a")
            await until(lambda: owner.lease.holds)
            watch.now += 0.98 * MS / 1000
            assert owner.lease.holds
            watch.now += 0.02 * MS / 1000
            assert (owner.lease.holds, owner.lease.seconds_left) == (False, 0.0)
            await until(lambda: owner.lease.holds)

    run(story)


def test_a_lease_is_not_renewed_while_the_store_is_away(tmp_path):
    """It ends by itself; once the store answers it is held again."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", **LEASED)
            owner = await logs.own("a")
            await until(lambda: owner.lease.holds)
            logs.bk.store.faults = lambda *_: Fault(error=MetaStore("no answer"))
            await until(lambda: not owner.lease.holds)
            logs.bk.store.faults = None
            await until(lambda: owner.lease.holds)

    run(story)


@pytest.mark.parametrize("open_segment", [False, True])
def test_a_forced_takeover_waits_for_the_living_owners_lease(tmp_path, open_segment):
    """It is revoked, and over before the epoch moves; its owner, without the claim, does not hold it again."""

    async def story():
        async with cluster(tmp_path) as world:
            held = []

            def reached(name):
                if name in ("claim.revoked", "claim.waited"):
                    held.append((name, boottime() < before.lease.ends))

            logs, other = await world.logs(), await world.logs(reached=reached)
            await logs.create("a", **LEASED)
            before = await logs.own("a")
            if open_segment:
                await before.append(b"one")
            await until(lambda: before.lease.holds)
            logs.bk.store.faults = lambda *_: Fault(error=MetaStore("no answer"))  # so that it can't resign
            after = await other.own("a", force=True)
            assert [name for name, _is_held in held] == ["claim.revoked", "claim.waited"]
            assert not held[-1][1]
            assert after.epoch == 2
            logs.bk.store.faults = None
            await until(lambda: before.lost)
            await until(lambda: after.lease.holds)
            found = await lease_of(other)
            assert (found["state"], found["token"], found["epoch"]) == ("held", after.token, 2)
            assert not before.lease.holds

    run(story)


def test_a_waiting_candidate_has_waited_when_the_owner_is_dead(tmp_path):
    """It looks at the lease while it waits for the claim, so the wait runs beside the session's time-out."""

    async def story():
        async with cluster(tmp_path) as world:
            watch = Watch()
            logs, other = await world.logs(), await world.logs(boottime=watch)
            await logs.create("a", **LEASED)
            owner = await logs.own("a")
            await until(lambda: owner.lease.holds)
            path = f"{log_path((await other.info('a')).id)}/lease"
            waiting = Deferred.fromCoroutine(other.own("a"))
            logs.bk.store.faults = lambda *_: Fault(error=MetaStore("no answer"))
            looks = []
            other.bk.store.faults = lambda _name, arguments: looks.append(f"{RECORDS}/{path}" in arguments)
            await until(lambda: sum(looks) > 2)
            watch.now += 1.01 * MS / 1000
            logs.bk.store.expire_session()
            assert (await waiting).epoch == 2
            logs.bk.store.faults = None

    run(story)


def test_a_taker_that_dies_leaves_the_owner_its_lease_in_the_end(tmp_path):
    """The owner whose claim stands holds a revoked lease again after twice its time."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed("claim.revoked", 1)
            logs, other = await world.logs(), await world.logs(reached=doomed.reached)
            doomed.logs = other
            await logs.create("a", **LEASED)
            owner = await logs.own("a")
            await owner.append(b"one")
            await until(lambda: owner.lease.holds)
            Deferred.fromCoroutine(other.terminate("a")).addErrback(lambda _failure: None)
            await doomed.died
            assert (await lease_of(logs))["state"] == "revoked"
            await until(lambda: not owner.lease.holds)
            await until(lambda: owner.lease.holds)
            assert (await lease_of(logs))["state"] == "held"
            assert (await owner.append(b"two")).index == 1

    run(story)


def test_the_end_of_a_log_waits_for_the_lease(tmp_path):
    """The ledger is ended when nobody may answer by it; no owner may hold it afterwards."""

    async def story():
        async with cluster(tmp_path) as world:
            held = []
            reached = lambda name: held.append((name, owner.lease.holds))  # noqa: E731
            logs, other = await world.logs(), await world.logs(reached=reached)
            await logs.create("a", **LEASED)
            owner = await logs.own("a")
            await owner.append(b"one")
            await until(lambda: owner.lease.holds)
            assert (await other.terminate("a")).index == 1
            assert [name for name, _is_held in held] == ["claim.revoked", "claim.waited", "end.settled", "end.marked"]
            assert not any(is_held for _name, is_held in held[1:])
            await until(lambda: owner.lost)
            assert not owner.lease.holds
            await failing(owner.append(b"two"), LogTerminated)

    run(story)


def test_an_owner_whose_log_is_truncated_knows_where_it_ends_before_it_answers_again(tmp_path):
    """Its lease is over while the ledger is ended; it holds it again with a manifest that says so."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a", **LEASED)
            owner = await logs.own("a")
            await owner.append(b"one")
            await until(lambda: owner.lease.holds)
            assert await other.truncate("a") == 1
            await until(lambda: owner.lease.holds)
            assert owner.records.known.value.open_segment is None
            assert (await owner.append(b"two")).index == 1

    run(story)


def test_leases_are_turned_on_and_off(tmp_path):
    """They count for segments that were opened under them, so the open one ends; off, nobody holds one."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"one")
            assert ((await lease_of(logs))["state"], owner.lease.holds) == ("off", False)
            await other.update("a", publish=False, lease_ms=MS)
            await until(lambda: owner.lease.holds)
            await owner.append(b"two")
            assert [segment.leased async for segment in logs.segments("a")] == [False, True]
            await other.update("a", lease_ms=2 * MS)
            await until(lambda: owner.lease.seconds_left > MS / 1000)
            await other.update("a", lease_ms=0)
            assert (await lease_of(logs))["state"] == "off"
            assert not owner.lease.holds
            await owner.append(b"three")
            owner.roll()
            await owner.append(b"four")
            assert [segment.leased async for segment in logs.segments("a")][-1] is False
            assert await values(await other.read("a"), 4) == [b"one", b"two", b"three", b"four"]

    run(story)


def test_a_lease_does_not_count_for_a_segment_that_was_opened_without(tmp_path, monkeypatch):
    """Readers of that one end where its ledger was closed, by whomever; so the lease counts once it is ended."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            closes = []
            monkeypatch.setitem(KeptOwner.performers, CloseLedger, lambda *which: closes.append(which))
            owner = await logs.own("a")
            await owner.append(b"one")
            await other.update("a", publish=False, lease_ms=10_000)
            await until(lambda: owner.lease.ends and closes)
            assert (await lease_of(logs))["state"] == "held"
            assert (owner.lease.holds, owner.lease.seconds_left) == (False, 0.0)
            monkeypatch.undo()
            for performer, effect in closes:
                KeptOwner.performers[CloseLedger](performer, effect)
            await until(lambda: owner.lease.holds)
            assert owner.lease.seconds_left > 5

    run(story)


def test_a_lease_is_at_most_half_of_a_session(tmp_path):
    """Else a dead owner's would outlast its session by far."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", publish=False, lease_ms=5_001)
            error = await failing(Deferred.fromCoroutine(logs.own("a")), ValueError)
            assert "lease_ms=5001" in str(error)
            await logs.update("a", lease_ms=5_000)
            await logs.own("a")

    run(story)


def test_r27_what_a_repair_confirms_shows_when_the_manifest_says_it(tmp_path):
    """The ledger is closed without the owner's knowledge: readers see no more than before until the segment is."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(lac_ms=60_000), await world.logs()
            silence(logs)
            await logs.create("a", **LEASED)
            owner = await logs.own("a")
            await owner.append(b"one")
            await owner.append(b"two")
            following = await other.read("a")
            assert await values(following, 1) == [b"one"]
            logs.bk.store.faults = lambda *_: Fault(error=MetaStore("no answer"))
            await other.bk.recover_ledger((await other.info("a")).ledger)
            assert await values(await other.read("a")) == []
            assert await values(following) == []
            logs.bk.store.faults = None
            assert await values(following, 1) == [b"two"]
            assert not (await other.info("a")).ledger

    run(story)
