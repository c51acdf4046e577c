"""What a new owner learns of producers: the newest table and what is behind it, wherever the segment is."""

import pytest

from quire.log.core import edits
from quire.log.owner.appending import producing
from quire.log.owner.appending.encoder import Encoder
from quire.log.upkeep.keeping import replayed
from quire.protocol.log_errors import LogDamaged
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_trims import kept_of, records_of
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("table_records", [1, 4, 50_000])
def test_a_table_and_what_is_behind_it(tmp_path, monkeypatch, table_records, compression):
    """The highest sequence of each, its index, and those that the entries behind the table tell; large batches, too."""
    monkeypatch.setattr(producing, "TABLE_RECORDS", table_records)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(part_bytes=100)
            await logs.create("a", dedup=True, compression=compression)
            assert (await replayed(await kept_of(logs))).by_name == {}
            owner = await logs.own("a")
            for number in range(5):
                await owner.append(b"x" * 300, producer="one", sequence=10 * number)
                await owner.append_many([b"y"] * 3, producer="two", first_sequence=3 * number)
                await owner.append(b"plain")
            await owner.close()
            found = (await replayed(await kept_of(logs))).by_name
            assert {name: (each.stored, each.record) for name, each in found.items()} == {
                "one": (40, 20),
                "two": (14, 23),
            }
            if table_records == 50_000:
                assert found["one"].places(0, 41)[::10] == [0, 5, 10, 15, 20]
            (manifest,) = [(await (await records_of(logs)).read()).value]
            assert manifest.table == manifest.segments[-1].n
            assert [hold for hold in await logs.holds("a") if hold.what == "the table of producers"]

    run(story)


@pytest.mark.parametrize("by", [-9, 1])
def test_a_table_that_is_none_is_damage(tmp_path, monkeypatch, by):
    """An entry that names one before the ledger's first, or a batch: nobody goes on as if no producer had stored."""
    made = Encoder.table

    def misplaced(encoder, rows):
        entries = made(encoder, rows)
        encoder.table_at += by
        return entries

    monkeypatch.setattr(Encoder, "table", misplaced)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            for number in range(3):
                await owner.append(b"x", producer="p", sequence=number)
            await owner.close()
            with pytest.raises(LogDamaged, match="newest table of producers"):
                await replayed(await kept_of(logs))

    run(story)


def test_a_segment_in_a_chunk_and_one_that_is_lost(tmp_path, monkeypatch):
    """It is found behind published ones; of one that was given up nothing is known."""
    monkeypatch.setattr(edits, "SEGMENTS_MAX", 3)
    monkeypatch.setattr(edits, "SEGMENTS_KEPT", 1)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            await owner.append(b"x", producer="p", sequence=5)
            await owner.close()
            for number in range(5):
                writer = await logs.bk.create_ledger()
                await writer.append(b"%d" % number)
                await writer.close()
                await logs.adopt("a", [writer.id])
            manifest = (await (await records_of(logs)).read()).value
            assert manifest.line(manifest.table) is not None
            assert (await replayed(await kept_of(logs))).by_name["p"].stored == 5
            (first, *_rest) = [each async for each in logs.segments("a")]
            await logs.bk.delete_ledger(first.ledger)
            await logs.give_up("a", first.n)
            assert (await replayed(await kept_of(logs))).by_name == {}

    run(story)
