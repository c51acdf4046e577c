"""
Very many acknowledgements out of order: all of them are the same to the next holder, and who else is in the process
has its turns meanwhile.
"""

from random import Random

import pytest

from quire.log.core.streams import cursors
from quire.log.core.streams.marks import Marks
from quire.log.streams import holding
from quire.log.streams.holding import CursorLedger, load
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import kill
from tests.log.upkeep.test_trims import filled, kept_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

SEGMENTS = 100
SLOW = 10**6
LONG = pytest.param(1_000_000, 8 << 20, marks=[pytest.mark.long, pytest.mark.timeout(600)])


async def every_second_acknowledged(cursor, holes):
    """In an order that is drawn, with a hole before each, and stored a hundred times."""
    order = list(range(1, 2 * holes, 2))
    Random(holes).shuffle(order)
    for start in range(0, holes, holes // SEGMENTS):
        cursor.ack_many(order[start : start + holes // SEGMENTS])
        await cursor.persist()


async def all_given(cursor):
    """The indexes that it gives out."""
    found = []
    while records := await cursor.read(8192):
        found += [record.index for record in records]
    return found


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("holes", "ledger_bytes"), [(10_000, 100), LONG])
def test_holes_over_a_hundred_ledgers(tmp_path, monkeypatch, holes, ledger_bytes, killed):
    """
    Of the log, and in the small case of the cursor, too: after a close and after a kill just what was not acknowledged
    is given out.
    """
    monkeypatch.setattr(holding, "LEDGER_BYTES_MAX", ledger_bytes)

    async def story():
        async with cluster(tmp_path) as world:
            logs, first = await world.logs(), await world.logs(cursor_ms=SLOW)
            size = 2 * holes // SEGMENTS
            await logs.create("a", roll_records=size)
            owner = await logs.own("a")
            for _ in range(SEGMENTS):
                await owner.append_many([b""] * size)
            await owner.close()
            assert (await logs.info("a")).segments == SEGMENTS
            cursor = await first.cursor("a", "billing", start="begin")
            await every_second_acknowledged(cursor, holes)
            if killed:
                kill(first)
            else:
                await cursor.close()
            second = await logs.cursor("a", "billing", create=False)
            assert (second.mark, (await second.backlog()).records) == (0, holes)
            assert await all_given(second) == list(range(0, 2 * holes, 2))
            second.ack_many(range(0, 2 * holes, 2))
            assert second.mark == 2 * holes

    run(story, 60 if holes <= 10_000 else 600)


class Turns:
    """Counts the reactor's turns; `seen` are those in which something was noted."""

    def __init__(self):
        self.now, self.seen, self._over = 0, [], False
        self._next()

    def _next(self):
        self.now += 1
        if not self._over:
            reactor.callLater(0, self._next)

    def note(self):
        self.seen.append(self.now)

    def end(self):
        self._over = True
        return self.seen


class NotedMarks(Marks):
    """Each run that is added is noted."""

    __slots__ = ("turns",)

    def add_run(self, start, stop):
        self.turns.note()
        super().add_run(start, stop)


def test_others_have_their_turn(tmp_path, monkeypatch):
    """While very many are stored, as a change or as a checkpoint, each entry has a turn; they are read likewise."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await filled(logs)
            kept = await kept_of(logs)
            marks = Marks(0, 1 << 20)
            made = await CursorLedger.made(kept, "c0ffee")
            await made.write_checkpoint(marks)
            real = cursors.bodies
            for write in (made.write_change, made.write_checkpoint):
                marks.add_many(range(1, 200_000, 2))
                turns = Turns()

                def noted(*given, turns=turns):
                    for body in real(*given):
                        turns.note()
                        yield body

                monkeypatch.setattr(cursors, "bodies", noted)
                await write(marks)
                seen = turns.end()
                assert len(set(seen)) == len(seen) > 10
            read = NotedMarks(0, 1 << 20)
            read.turns = turns = Turns()
            await load(kept.client, made.id, 0, read)
            seen = turns.end()
            assert list(read.runs()) == list(marks.runs())
            assert len(seen) == 200_000
            most = 3 * holding.RUNS_A_TURN  # an entry is read whole
            assert max(map(seen.count, set(seen))) <= most

    run(story)
