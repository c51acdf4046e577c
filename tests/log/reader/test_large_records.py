"""Large records: up to the limit, in pieces, and of an owner that was killed in the middle of one."""

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.client.api import Entry
from quire.log.core.batch import Records, encode_body
from quire.log.core.frame import Kind, pack_entries
from quire.log.core.values import Segment
from quire.log.owner.appending.appends import VALUE_BYTES_MAX
from quire.log.reader.batches import LogBatch, Piece
from quire.log.reader.one_segment import SegmentReader
from quire.protocol.errors import Timeout
from quire.protocol.log_errors import LogDamaged
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import kill
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def put_together(batches, count=None):
    """The values that come whole or in pieces: each piece follows the one before; as many as are wanted."""
    found, parts = [], []
    async for each in batches:
        if isinstance(each, LogBatch):
            assert parts == []
            found += each.values
        else:
            assert parts == [] or (parts[-1].index, parts[-1].number + 1) == (each.index, each.number)
            assert each.number == len(parts)
            parts.append(each)
            if len(parts) == each.of:
                found.append(b"".join(piece.data for piece in parts))
                parts = []
        if count is not None and len(found) >= count:
            break
    assert parts == []
    return found


def test_the_largest_value(tmp_path):
    """Written and read, whole and in pieces of at most a part."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            large = bytes(range(256)) * (VALUE_BYTES_MAX // 256)
            await owner.append(large)
            await owner.append(b"small")
            await owner.close()
            assert await values(await other.read("a")) == [large, b"small"]
            assert await put_together((await other.read("a")).pieces()) == [large, b"small"]
            sizes = [len(each.data) async for each in (await other.read("a")).pieces() if isinstance(each, Piece)]
            assert max(sizes) <= 1 << 20
            assert len(sizes) == 64

    run(story)


def test_batches_of_any_size_in_pieces(tmp_path):
    """Many records in a cut batch, compressed ones, from any index on; what is small comes as it does otherwise."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(part_bytes=100), await world.logs()
            await logs.create("plain", roll_records=40)
            await logs.create("packed", compression="zlib")
            for name in ("plain", "packed"):
                owner, wanted = await logs.own(name), []
                for number in range(12):
                    some = [bytes([number]) * (number * size % 231) for size in range(1, 9)]
                    await owner.append_many(some, keys=[b"k"] * 8, atomic=True)
                    wanted += some
                await owner.close()
                for start in (0, 1, 7, 8, 50, 95, 96):
                    assert await put_together((await other.read(name, start)).pieces()) == wanted[start:]
                whole = [each async for each in (await other.read(name)).pieces() if isinstance(each, LogBatch)]
                assert (len(whole) == 12) is (name == "packed")

    run(story)


@pytest.mark.parametrize("half", range(2))
def test_an_owner_that_is_killed_within_a_record(tmp_path, half):
    """
    Readers that follow never get a part of the record, and go on with what the next owner writes; it is in the log
    if all its parts are in the ledger.
    """

    async def story():
        async with cluster(tmp_path) as world:
            second = await world.logs()
            for number in range(25 * half, 25 * half + 25):
                logs, name = await world.logs(part_bytes=100), f"log {number}"
                await second.create(name)
                owner = await logs.own(name)
                large = b"%03d" % number * (number * 13 + 40)
                parts = len(pack_entries(Kind.BATCH, encode_body(Records([large])), **PLACE, part_bytes=100))
                stored = 1 + number % parts
                died = killed_after(logs, stored)
                await owner.append(b"before")
                tails = [(await second.read(name)).tail(60), (await second.read(name)).pieces(60)]
                complete = parts > 1 and stored == parts
                wanted = [b"before", *([large] if complete else []), b"after"]
                found = [Deferred.fromCoroutine(put_together(tail, len(wanted))) for tail in tails]
                owner.append(large).addErrback(lambda _failure: None)
                await died
                owner = await second.own(name)
                assert (await owner.append(b"after")).index == len(wanted) - 1
                for each in found:
                    assert await each == wanted
                await owner.close()

    run(story)


def test_a_read_that_fails_within_a_record(tmp_path):
    """It goes on in the segment as it is now, with the piece that is next."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(part_bytes=100), await world.logs(read_ahead_bytes=300)
            await logs.create("a")
            owner = await logs.own("a")
            large = bytes(range(256)) * 20
            await owner.append(large)
            await owner.append(b"small")
            await owner.barrier()
            real = other.bk.open_ledger

            def breaking(ledger):
                tail = ledger.tail

                async def broken(timeout, first=0, **how):
                    lists = 0
                    async for some in tail(timeout, first, **how):
                        yield some
                        lists += 1
                        if lists == 5:
                            await owner.close()
                            raise Timeout("no answer")

                ledger.tail = broken
                return ledger

            other.bk.open_ledger = lambda *given, **more: real(*given, **more).addCallback(breaking)
            reader = await other.read("a")
            assert await put_together(reader.pieces(60), 2) == [large, b"small"]
            assert (await logs.info("a")).ledger is None

    run(story)


PLACE = {"ordinal": 0, "offset": 0, "stamp": 0, "records": 1, "value_bytes": 1}


def killed_after(logs, entries):
    """The process dies when so many parts of a record are stored; fires then."""
    died, real = Deferred(), logs.bk.create_ledger

    def breaking(writer):
        append = writer.append_many

        def append_many(given):
            if given[0][5] == Kind.BATCH and b"before" in given[0]:
                return append(given)
            append(given[:entries]).addCallback(lambda _ids: (kill(logs), died.callback(None)))
            return Deferred()

        writer.append_many = append_many
        return writer

    logs.bk.create_ledger = lambda **options: real(**options).addCallback(breaking)
    return died


class Part(bytes):
    """One that counts how many of it are held."""

    alive = 0

    def __init__(self, _data):
        Part.alive += 1

    def __del__(self):
        Part.alive -= 1


class Parts:
    """A closed ledger that holds nothing: an entry is made when it is read."""

    def __init__(self, entries):
        self.entries = entries
        self.last_entry_id = len(entries) - 1

    def read(self, first, _last):
        return succeed([Entry(7, first, Part(self.entries[first]))])

    async def stream(self, first, last):
        for entry in range(first, last + 1):
            yield [Entry(7, entry, Part(self.entries[entry]))]

    async def close(self):
        pass


def large_ledger():
    """A value of fifty parts in a ledger, and its segment."""
    body = encode_body(Records([bytes(50_000)]))
    entries = pack_entries(
        Kind.BATCH, body, ordinal=0, offset=0, stamp=0, records=1, value_bytes=50_000, part_bytes=1000
    )
    return entries, Segment(0, 7, 1, 0, 0, 1, 50_000, len(entries), (0, 0))


def test_two_parts_are_held_at_most():
    """However large the value is: while a piece is looked at there is the part that it came from, and no other."""

    async def story():
        entries, segment = large_ledger()
        seen = 0
        async for found in SegmentReader(segment, Parts(entries), len(entries)).batches(0, None, "pieces"):
            for piece in found:
                assert Part.alive <= 2
                seen += len(piece.data)
        assert seen == 50_000
        assert Part.alive == 0

    run(story)


def test_a_group_whose_end_is_not_there():
    """A closed segment that counts the record, but whose ledger lacks its last part, is damage, not an end."""

    async def story():
        entries, segment = large_ledger()
        reader = SegmentReader(segment, Parts(entries[:-1]), len(entries) - 1)
        await failing(Deferred.fromCoroutine(put_together(reader.batches(0, None, "pieces"))), LogDamaged)

    run(story)
