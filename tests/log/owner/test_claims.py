"""Claims on a log: who has one is decided by the token, others wait for their turn, a stale one goes."""

from random import Random

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.log.core.ownership_messages import ClaimFree, ClaimGone, ClaimMine, ClaimTaken
from quire.log.owner.claims import TURN_S, Candidacy, Claims, candidates_of, token_of
from quire.log.store.editing import LogRecords
from quire.metadata.memory.cluster import RECORDS, Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.records import NoRecord
from quire.metadata.store import ANY, Versioned
from quire.protocol.errors import MetaStore
from tests.metadata.stored import init
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


class World:
    """A log's claims, and handles that say what they hear."""

    def __init__(self):
        self.clock = Clock()
        self.cluster = MemoryCluster("claims")
        init(self.cluster)
        self.look = MemoryStore(self.clock, self.cluster).records

    async def ready(self):
        await self.look.folder("logs/x/x/candidates")
        return self

    def handle(self, token, priority=0, store=None):
        store = store or MemoryStore(self.clock, self.cluster)
        heard = []
        names = {ClaimFree: "free", ClaimMine: "mine", ClaimGone: "gone"}

        class Unhurried:
            """Waits without end."""

            def taken(self):
                pass

            def unanswered(self, error):
                pass

        claims = Claims(
            LogRecords(store.records, self.clock, Random(1), lambda: 1700.0, "x", "a"),
            self.clock,
            Random(1),
            0.05,
            token,
            Candidacy("", "", priority),
            lambda given: heard.append(given.token if isinstance(given, ClaimTaken) else names[type(given)]),
            Unhurried(),
        )
        claims.heard, claims.store = heard, store
        return claims

    async def registered(self, token, priority=0, store=None):
        claims = self.handle(token, priority, store)
        await claims.register()
        self.clock.advance(0)
        return claims

    def make(self, claims, *args):
        return Deferred.fromCoroutine(claims.make(*args))


def test_one_of_two_gets_the_claim():
    """The other hears whose it is, and that it is free again when it is released."""

    async def story():
        world = await World().ready()
        one, two = await world.registered("one"), await world.registered("two")
        assert one.heard == two.heard == ["free"]
        await world.make(one)
        world.clock.advance(0)
        assert one.heard[-1] == "mine"
        await world.make(two)
        assert two.heard[-1] == "one"
        await one.release()
        world.clock.advance(0)
        assert two.heard[-1] == "free"
        assert await world.look.children("logs/x/x/candidates") == ["two"]

    run(story)


def test_two_handles_on_one_session_are_two():
    """The token decides, not the session."""

    async def story():
        world = await World().ready()
        one = await world.registered("one")
        two = await world.registered("two", store=one.store)
        await world.make(one)
        await world.make(two)
        assert two.heard[-1] == "one"
        await two.release()
        assert (await world.look.read("logs/x/x/owner")).value.startswith(b'{"token":"one"')

    run(story)


def test_a_session_that_ends():
    """Its claim goes, and its handle hears that; it can make it again."""

    async def story():
        world = await World().ready()
        one = await world.registered("one")
        await world.make(one)
        one.store.expire_session()
        world.clock.advance(0.05)  # the watch has seen neither
        assert one.heard[-1] == "gone"
        await world.make(one)
        world.clock.advance(0)
        assert one.heard[-1] == "mine"

    run(story)


def test_force_takes_it_in_one_step():
    """The holder has no chance to make it again first."""

    async def story():
        world = await World().ready()
        one, two = await world.registered("one"), await world.registered("two")
        await world.make(one)
        await two.force()
        world.clock.advance(0)
        assert two.heard[-1] == "mine"
        assert one.heard[-1] == "two"
        await two.force()
        assert (await world.look.read("logs/x/x/owner")).value.startswith(b'{"token":"two"')

    run(story)


def test_force_takes_one_that_went_with_its_session():
    """Its former holder would make it again; what was made between the look and the change is replaced, too."""

    async def story():
        world = await World().ready()
        two = world.handle("two")
        await two.force()
        assert token_of(await world.look.read("logs/x/x/owner")) == "two"
        await two.release()
        looked = []
        two = world.handle("two", store=two.store)
        look = two.store.records.read

        async def read(path):
            try:
                return await look(path)
            finally:
                if not looked:
                    looked.append(path)
                    await world.look.create(path, b'{"token":"one"}')

        two.store.records.read = read
        await two.force()
        assert looked == ["logs/x/x/owner"]
        assert token_of(await world.look.read("logs/x/x/owner")) == "two"

    run(story)


def test_better_candidates_go_first():
    """Half a second for each of higher priority; and for the one that it is handed to."""

    async def story():
        world = await World().ready()
        low = await world.registered("low")
        high, higher = await world.registered("high", 5), await world.registered("higher", 9)
        waiting = world.make(low)
        world.clock.advance(2 * TURN_S - 0.01)
        assert not waiting.called
        await world.make(higher, "other", 0.0)
        world.clock.advance(0.02)
        await waiting
        assert low.heard[-1] == "higher"
        await higher.release()
        world.clock.advance(0)
        waiting = world.make(high, "low", 0.3)
        world.clock.advance(0.29)
        assert not waiting.called
        world.clock.advance(0.02)
        await waiting
        assert high.heard[-1] == "mine"

    run(story)


def test_a_candidate_that_can_not_be_understood_is_not_waited_for():
    """Whatever is in its record: nobody who can take the log is kept from it."""

    async def story():
        world = await World().ready()
        low = await world.registered("low")
        strange = [b"", b"7", b"[" * 100_000, b'{"priority": [1]}', b'{"priority": 1e999}', b'{"priority": "high"}']
        for number, data in enumerate(strange):
            await world.look.create(f"logs/x/x/candidates/strange{number}", data)
        await world.make(low)
        assert low.heard[-1] == "mine"

    run(story)


def test_a_claim_that_can_not_be_understood_is_another_s():
    """Never nobody's, and never one's own."""
    for data in (b"", b"null", b'"token"', b"[" * 100_000):
        assert token_of(Versioned(data, 1)) == ""
    assert token_of(None) is None


def test_one_that_is_gone_is_not_waited_for():
    """A log that was handed to a candidate that left is free for the next one at once."""

    async def story():
        world = await World().ready()
        one, target = await world.registered("one"), await world.registered("target")
        await target.release()
        await world.make(one, "target", 0.5)
        assert one.heard[-1] == "mine"

    run(story)


def test_a_lost_answer():
    """The claim was made: the next try finds its own token."""

    async def story():
        world = await World().ready()
        one = await world.registered("one")
        faults = [Fault(error=MetaStore("no answer"), applied=True)]
        one.store.faults = lambda name, _: faults.pop() if faults and name == "transact" else None
        waiting = world.make(one)
        world.clock.advance(0.1)
        await waiting
        world.clock.advance(0)
        assert one.heard[-1] == "mine"

    run(story)


def test_a_claim_that_comes_after_its_handle_left():
    """It is removed again, so that others can have it."""

    async def story():
        world = await World().ready()
        one = await world.registered("one")
        one.store.faults = lambda name, _: Fault(before=0.1) if name == "transact" else None
        waiting = world.make(one)
        one.store.faults = None
        await one.release()
        world.clock.advance(0.2)
        await waiting
        await failing(world.look.read("logs/x/x/owner"), NoRecord)

    run(story)


def test_a_release_takes_only_its_own():
    """Another's claim stays."""

    async def story():
        world = await World().ready()
        one, two = await world.registered("one"), await world.registered("two")
        await world.make(one)
        await two.release()
        assert (await world.look.read("logs/x/x/owner")).value
        await world.look.delete("logs/x/x/owner", ANY)
        await one.release()
        await failing(world.look.read("logs/x/x/owner"), NoRecord)

    run(story)


def faulty(claims, *faults):
    """The next changes of records through this handle go wrong like that."""
    left = list(faults)
    claims.store.faults = lambda name, _: left.pop(0) if left and name == "transact" else None


def test_a_claim_that_lands_after_its_handle_has_left():
    """A forced claim that was not answered is removed when it takes effect, so that others have their turn."""

    async def story():
        world = await World().ready()
        one, two = await world.registered("one"), await world.registered("two")
        await world.make(one)
        faulty(two, Fault(late=1.0))
        await failing(two.force(), MetaStore)
        leaving = Deferred.fromCoroutine(two.release())
        world.clock.pump([0.05] * 40)
        await failing(world.look.read("logs/x/x/owner"), NoRecord)
        world.clock.pump([0.5] * 50)
        await leaving

    run(story)


def test_a_release_while_the_store_is_away():
    """The claim goes once the store answers again."""

    async def story():
        world = await World().ready()
        one = await world.registered("one")
        await world.make(one)
        faulty(one, *[Fault(error=MetaStore("away"))] * 3)
        leaving = Deferred.fromCoroutine(one.release())
        world.clock.pump([0.05] * 5)
        await leaving
        await failing(world.look.read("logs/x/x/owner"), NoRecord)

    run(story)


def test_a_look_that_fails_after_the_claim_was_taken():
    """The store fails right after it said that there is a claim: that is tried again, and is no bug."""

    async def story():
        world = await World().ready()
        one, two = await world.registered("one"), await world.registered("two")
        await world.make(one)
        faults = [Fault(error=MetaStore("away"))]
        two.store.faults = lambda _, args: faults.pop() if faults and args == (f"{RECORDS}/logs/x/x/owner",) else None
        waiting = world.make(two)
        world.clock.advance(0.1)
        await waiting
        assert two.heard[-1] == "one"
        assert not faults

    run(story)


def test_a_handle_that_leaves_while_it_begins():
    """What it had not asked for yet is not asked for: the claim of another stays, and there is no candidate."""

    async def story():
        world = await World().ready()
        one, two = await world.registered("one"), world.handle("two")
        await world.make(one)
        two.store.faults = lambda name, _: Fault(after=1.0) if name == "get" else None
        forcing = Deferred.fromCoroutine(two.force())
        two.store.faults = None
        await two.release()
        world.clock.advance(1.0)
        await forcing
        await two.register()
        world.clock.advance(0)
        assert one.heard[-1] == "mine"
        assert two.heard == []
        assert await world.look.children("logs/x/x/candidates") == ["one"]

    run(story)


@pytest.mark.parametrize("heard", [True, False], ids=["watch", "look"])
def test_a_candidate_whose_session_ended(heard, monkeypatch):
    """It is listed again, with its priority, at once or with the next look; not once it has left."""

    async def story():
        world = await World().ready()
        store = MemoryStore(world.clock, world.cluster)
        watch = store.records.watch

        def deaf(path, hear):
            return watch(path, (lambda _found: None) if path.endswith("candidates/one") else hear)

        if not heard:
            monkeypatch.setattr(store.records, "watch", deaf)
        one = await world.registered("one", 5, store)
        one.store.expire_session()
        world.clock.advance(0.05)
        listed = await world.look.children("logs/x/x/candidates")
        assert listed == (["one"] if heard else [])
        if not heard:
            one.look()
        world.clock.advance(0)
        (found,) = [each async for each in candidates_of(world.look, "logs/x/x")]
        assert (found.token, found.priority) == ("one", 5)
        await one.release()
        one.store.expire_session()
        world.clock.advance(60)
        assert await world.look.children("logs/x/x/candidates") == []

    run(story)
