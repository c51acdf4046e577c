"""Orphans of one log on their way out: what is named by then stays, and what can't be deleted is not forgotten."""

from twisted.internet.defer import succeed

from quire.log.core.upkeep_edits import Doom
from quire.log.store.ledgers import Deleted
from quire.log.upkeep.orphans import DOOMED_AT_ONCE, Removal, Tagged, named_by
from tests.log.store.test_editing import World
from tests.log.upkeep.test_named import published
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def tag(ledger, cursor=""):
    return Tagged(ledger, "log", "orders", "log-segment", cursor, 0)


class Ledgers:
    """Notes what is deleted, but for those that `stay`."""

    def __init__(self, *stay):
        self.deleted = []
        self.stay = set(stay)

    def delete_all(self, ledgers):
        gone = [ledger for ledger in ledgers if ledger not in self.stay]
        self.deleted += gone
        return succeed(Deleted(set(gone), {}))


async def doomed_of(handle):
    return [each.ledger for each in (await handle.read()).value.doomed]


def test_through_the_doomed():
    """A hundred at a time; those that can't be deleted stay doomed, the others are forgotten."""

    async def story():
        world = World()
        handle, points = await world.made(), []
        ledgers = Ledgers(17)
        wanted = list(range(DOOMED_AT_ONCE + 5))
        gone = await Removal(world.handle(), ledgers, points.append).remove([tag(each) for each in wanted])
        assert gone == set(wanted) - {17}
        assert ledgers.deleted == sorted(gone)
        assert points == ["orphan.doomed", "orphan.deleted"] * 2
        assert await doomed_of(handle) == [17]

    run(story)


def test_a_ledger_that_is_named_in_a_chunk_by_then():
    """After what is named was read it came into a segment, and that into a chunk: it is not doomed."""

    async def story():
        world = World()
        handle, ledgers = await world.made(), Ledgers()
        mine = world.handle()
        named = await named_by(mine)
        await published(handle, range(1000, 1600))
        assert 1000 not in (await handle.read()).value.named_ledgers()
        removal = Removal(mine, ledgers, lambda _name: None)
        assert await removal.through_doomed(named, [1000]) == set()
        assert await removal.through_doomed(named, [3000]) == {3000}
        assert ledgers.deleted == [3000]
        assert await doomed_of(handle) == []

    run(story)


def test_what_another_one_has_doomed():
    """Is deleted and forgotten, too; a ledger that the manifest names is not."""

    async def story():
        world = World()
        handle, ledgers = await world.made(), Ledgers()
        await published(handle, [5])
        mine = world.handle()
        named = await named_by(mine)
        await handle.edit(Doom([7], "orphan", 1))
        assert await Removal(mine, ledgers, lambda _name: None).through_doomed(named, [7]) == {7}
        assert await Removal(mine, ledgers, lambda _name: None).remove([tag(5)]) == set()
        assert ledgers.deleted == [7]
        assert await doomed_of(handle) == []

    run(story)
