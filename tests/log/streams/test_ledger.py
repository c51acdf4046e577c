"""A cursor's ledger: written in checkpoints and changes, read back also where it is damaged or gone."""

import pytest

from quire.log.core.streams import cursors
from quire.log.core.streams.marks import Marks
from quire.log.streams import holding as ledgers
from quire.log.streams.holding import UNREADABLE, CursorLedger, load
from quire.protocol.log_errors import UnknownFormat
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_trims import filled, kept_of
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

WIDE = 1 << 20


async def loaded(kept, ledger, checkpoint=0, mark=0):
    """The runs and the mark that are read, and what was said of the rest."""
    told = []
    marks = Marks(mark, WIDE)
    try:
        await load(kept.client, ledger, checkpoint, marks)
    except UNREADABLE as error:
        told.append(f"{type(error).__name__}: {error}")
    return marks.mark, list(marks.runs()), told


async def written(kept, *changes):
    """A ledger with a checkpoint of a few records, and these changes."""
    marks = Marks(3, WIDE)
    marks.add_many([range(5, 8), 600])
    made = await CursorLedger.made(kept, "c0ffee")
    await made.write_checkpoint(marks)
    for change in changes:
        marks.add_many(change)
        await made.write_change(marks)
    return made, marks


def test_what_is_written_is_read(tmp_path, monkeypatch):
    """Checkpoints of several entries, changes behind them, a later checkpoint; the writer has lost its ledger then."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await filled(logs)
            kept = await kept_of(logs)
            made, marks = await written(kept, [9, 3], [range(4, 5), 20])
            assert await loaded(kept, made.id) == (8, [(9, 10), (20, 21), (600, 601)], [])
            monkeypatch.setattr(ledgers, "CHANGES_BYTES_MAX", 1)
            monkeypatch.setattr(ledgers, "LEDGER_BYTES_MAX", 150)
            made, marks = await written(kept, [10])
            assert (made.needs_checkpoint, made.is_full) == (True, False)
            await made.write_checkpoint(marks)
            assert (made.checkpoint, made.needs_checkpoint) == (2, False)
            marks.add_many(range(1000, 5000, 2))
            await made.write_change(marks)
            assert made.is_full
            await made.close()
            mark, runs, told = await loaded(kept, made.id, made.checkpoint)
            assert (mark, runs, told) == (marks.mark, list(marks.runs()), [])
            tags = (await logs.bk.metadata(made.id)).custom
            assert (tags["component"], tags["quire/cursor"]) == (b"log-cursor", b"c0ffee")

    run(story)


def test_what_can_t_be_read_is_left_out(tmp_path):
    """A ledger that is gone, or damaged from some entry on; a newer version's is refused."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await filled(logs)
            kept = await kept_of(logs)
            made, _marks = await written(kept, [9])
            await logs.bk.recover_ledger(made.id)
            await logs.bk.delete_ledger(made.id)
            mark, runs, (told,) = await loaded(kept, made.id, mark=2)
            assert (mark, runs) == (2, [])
            assert "NoSuchLedger" in told
            for bad, error in ((b"x", "LogDamaged"), (b"qcur\x02" + bytes(20), "UnknownFormat")):
                writer = await logs.bk.create_ledger()
                made, _marks = await written(kept, [9])
                reader = await logs.bk.open_ledger(made.id, recover=True)
                entries = [each.data for each in await reader.read(0, 1)]
                await writer.append_many([*entries, bad, entries[1]])
                await writer.close()
                if error == "UnknownFormat":
                    await failing_load(kept, writer.id)
                    continue
                mark, runs, (told,) = await loaded(kept, writer.id)
                assert (mark, runs) == (3, [(5, 8), (9, 10), (600, 601)])
                assert f"ledger {writer.id}, entry 2" in told

    run(story)


async def failing_load(kept, ledger):
    """It is not dropped."""
    with pytest.raises(UnknownFormat, match="entry 2"):
        await loaded(kept, ledger)


def test_half_a_checkpoint(tmp_path, monkeypatch):
    """Counts as far as it goes, and is said to be half."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await filled(logs)
            kept = await kept_of(logs)
            writer = await logs.bk.create_ledger()
            marks = Marks(0, WIDE)
            marks.add_many(range(1, 1000, 2))
            parts = list(cursors.bodies(0, marks.runs(), 100))
            await writer.append_many(cursors.pack_checkpoint(0, parts)[:2])
            _mark, runs, (told,) = await loaded(kept, writer.id)
            assert f"has 2 of the {len(parts)} parts" in told
            assert runs == list(marks.runs())[: len(runs)]
            assert len(runs) >= 100
            empty = await logs.bk.create_ledger()
            assert (await loaded(kept, empty.id, mark=4))[:2] == (4, [])

    run(story)
