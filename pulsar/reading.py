"""
Reads one range of a topic: entries from bookies become messages in columns.

Knows: the order of messages, what is passed over (markers, aborted and open transactions, messages that lack chunks),
and where the rest of a transaction or of a message in chunks is looked for.
Does not know: how a topic was divided.

Safety: a ledger is opened without recovery, so nothing is fenced and nothing written; nothing is read past the range,
but for the ends of transactions, up to `end`, and the first chunks of messages, before the range.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from quire.client.api import Client, Reader
from quire.conf.pulsar import PulsarOptions
from quire.protocol.errors import LedgerError, NoSuchLedger
from quire.protocol.pulsar_errors import LedgerOffloaded
from quire.pulsar.codecs import decompress
from quire.pulsar.core.batch import MessageBatch
from quire.pulsar.core.chunks import CHUNK_BYTES, LOOK_BACK, Chunks, Incomplete, completed
from quire.pulsar.core.entry import TXN_ABORT, TXN_COMMIT, Frame, decode_compacted, decode_entry
from quire.pulsar.core.managed import LedgerPart
from quire.pulsar.core.positions import PassedOver, Position, Txn
from quire.pulsar.core.ranges import TopicRange

# SPDX-License-Identifier: Apache-2.0

PASSWORD = b""  # of all ledgers of Pulsar
LOOK_BACK_ENTRIES = 64  # entries that are read together while one looks back


class Neighbours(Protocol):
    """The ledgers of a topic, for looks beyond a range."""

    async def parts(self, topic: str, end: int) -> Sequence[LedgerPart]:
        """All of them up to a ledger of that id, in order; entries are right of those before it."""


async def opened(client: Client, topic: str, ledger: int, part: LedgerPart | None = None) -> Reader:
    """A reader of one ledger of a topic, which fences nothing.  `LedgerOffloaded`, `NoSuchLedger`."""
    if part is not None and part.deleted:
        raise offloaded(topic, part)
    try:
        return await client.open_ledger(ledger, PASSWORD, False)
    except NoSuchLedger as error:
        if part is not None and part.offloaded:
            raise offloaded(topic, part) from None
        raise NoSuchLedger(f"{topic}: ledger {ledger} is gone, as after retention or a deletion: {error}") from None


def offloaded(topic: str, part: LedgerPart) -> LedgerOffloaded:
    """The error of a ledger that bookies no longer have."""
    error = LedgerOffloaded(
        f"{topic}: ledger {part.ledger} was offloaded by the driver {part.offloaded!r} and deleted from the bookies:"
        f" read it through a broker, or begin behind it, at {part.ledger + 1}:0"
    )
    error.driver = part.offloaded
    return error


class RangeReading:
    """
    One range that is being read.  `stop_at_open`: ends before the first entry of an open transaction, which is then at
    `stopped`.
    """

    def __init__(
        self,
        client: Client,
        neighbours: Neighbours,
        wanted: TopicRange,
        options: PulsarOptions,
        *,
        stop_at_open: bool = False,
    ) -> None:
        self._client = client
        self._neighbours = neighbours
        self._wanted = wanted
        self._options = options
        self._stop_at_open = stop_at_open
        self._bits = wanted.bits_by_place()
        self._chunks = Chunks(options.chunk_bytes_max)
        self._ends = Ends(client, neighbours, wanted)
        self._passed: list[PassedOver] = []
        self.stopped: Position | None = None

    async def batches(self) -> AsyncGenerator[MessageBatch, None]:
        """Yields the messages in batches of about `batch_bytes`; the last one may have only what was passed over."""
        wanted, batch = self._wanted, MessageBatch()
        decode = decode_compacted if wanted.compacted else decode_entry
        begin_index = max(wanted.start.batch_index, 0)
        parts = {each.ledger: each for each in await self._neighbours.parts(wanted.topic, wanted.end.ledger)}
        reader = await opened(self._client, wanted.topic, wanted.ledger, parts.get(wanted.ledger))
        try:
            reader.read_ahead(self._options.batch_bytes)
            reader.learn_confirmed(wanted.last)  # the plan saw that it is
            async with aclosing(reader.runs(wanted.first, wanted.last)) as runs:
                async for run in runs:
                    for entry, payload in enumerate(run.payloads, run.first):
                        found = decode(payload, wanted.ledger, entry)
                        plain = found.head.plain and not wanted.compacted
                        frame = found if plain else await self._whole(found)
                        if self.stopped is not None:
                            break
                        if frame is None:
                            continue
                        at = frame.ledger, frame.entry
                        first = begin_index if at == wanted.start.place else 0
                        behind = wanted.stop.batch_index if at == wanted.stop.place else None
                        batch.add(wanted.topic, frame, decompress, first, self._bits.get(at), behind)
                        if batch.bytes >= self._options.batch_bytes:
                            yield self._ended(batch)
                            batch = MessageBatch()
                    if self.stopped is not None:
                        break
        finally:
            await self._ends.close()
            await reader.close()
        if (wanted.ledger, wanted.last) >= wanted.end.place and self.stopped is None:
            self._passed += self._chunks.rest()
        if len(batch) or self._passed:
            yield self._ended(batch)

    def _ended(self, batch: MessageBatch) -> MessageBatch:
        batch.passed, self._passed = self._passed, []
        return batch

    async def _whole(self, frame: Frame) -> Frame | None:
        """The frame, of a message in chunks all of it; None: nothing is given, or reading has `stopped`."""
        wanted = self._wanted
        at = frame.ledger, frame.entry
        if wanted.compacted and not wanted.start.place <= at <= wanted.end.place:
            return None
        if frame.is_marker or (wanted.place is not None and wanted.place.holds(*at)):
            return None
        if not wanted.compacted and (txn := frame.txn) is not None:
            committed = await self._ends.committed(txn, frame.position)
            if not committed:
                if committed is None and self._stop_at_open:
                    self.stopped = frame.position
                    return None
                state = "open" if committed is None else "aborted"
                text = f"transaction ({txn[0]},{txn[1]}) is {state}"
                self._passed.append(PassedOver(frame.position, state, text))
                return None
        if not frame.is_chunk:
            return frame
        found = self._chunks.add(frame)
        return await self._looked_back(found) if isinstance(found, Incomplete) else found

    async def _looked_back(self, found: Incomplete) -> Frame | None:
        """Finds the chunks before the range."""
        earlier: dict[int, bytes] = {}
        name, left, why = found.frame.head.uuid, self._options.look_back_max, found.pieces.lost or "chunks"
        try:
            if not found.pieces.lost:
                async with aclosing(self._before()) as frames:
                    async for frame in frames:
                        if not left:
                            why = LOOK_BACK
                            break
                        left -= 1
                        if frame.head.uuid == name and frame.is_chunk:
                            earlier.setdefault(frame.head.chunk, frame.payload)
                            if frame.head.chunk == 0:
                                break
        except (NoSuchLedger, LedgerOffloaded):
            pass  # trimmed, or where only a broker reads
        whole = completed(found, earlier)
        if whole is None:
            limits = {CHUNK_BYTES: self._options.chunk_bytes_max, LOOK_BACK: self._options.look_back_max}
            self._passed.append(found.missing(why, limits.get(why, 0)))
        return whole

    async def _before(self) -> AsyncGenerator[Frame, None]:
        """The entries before the range, the last one first."""
        wanted = self._wanted
        if wanted.compacted:
            return
        for part in reversed(await self._neighbours.parts(wanted.topic, wanted.end.ledger)):
            if part.ledger > wanted.ledger:
                continue
            last = wanted.first - 1 if part.ledger == wanted.ledger else part.entries - 1
            if last < 0:
                continue
            reader = await opened(self._client, wanted.topic, part.ledger, part)
            try:
                reader.learn_confirmed(last)
                while last >= 0:
                    first = max(0, last - LOOK_BACK_ENTRIES + 1)
                    for each in reversed(await reader.read(first, last)):
                        yield decode_entry(each.data, part.ledger, each.entry_id)
                    last = first - 1
            finally:
                await reader.close()


class Ends:
    """How the transactions of a topic ended, as far as the markers up to the end of a plan say."""

    def __init__(self, client: Client, neighbours: Neighbours, wanted: TopicRange) -> None:
        self._client = client
        self._neighbours = neighbours
        self._wanted = wanted
        self._known: dict[Txn, bool] = {}
        self._markers: AsyncGenerator[tuple[Txn, bool], None] | None = None
        self._ended = False

    async def committed(self, txn: Txn, position: Position) -> bool | None:
        """True: committed; False: aborted; None: open.  Markers come behind all messages of their transaction."""
        if txn in self._known or self._ended:
            return self._known.get(txn)
        if self._markers is None:
            self._markers = self._behind(position)
        async for ended, how in self._markers:
            self._known[ended] = how
            if ended == txn:
                return how
        self._ended = True
        return None

    async def _behind(self, position: Position) -> AsyncGenerator[tuple[Txn, bool], None]:
        wanted = self._wanted
        for part in await self._neighbours.parts(wanted.topic, wanted.end.ledger):
            if not position.ledger <= part.ledger <= wanted.end.ledger:
                continue
            first = position.entry + 1 if part.ledger == position.ledger else 0
            last = wanted.end.entry if part.ledger == wanted.end.ledger else part.entries - 1
            if first > last:
                continue
            reader = await opened(self._client, wanted.topic, part.ledger, part)
            try:
                reader.learn_confirmed(last)
                async with aclosing(reader.runs(first, last)) as runs:
                    async for run in runs:
                        for entry, payload in enumerate(run.payloads, run.first):
                            frame = decode_entry(payload, part.ledger, entry)
                            if frame.txn and frame.head.marker in (TXN_COMMIT, TXN_ABORT):
                                yield frame.txn, frame.head.marker == TXN_COMMIT
            finally:
                await reader.close()

    async def close(self) -> None:
        """Ends the look."""
        if self._markers is not None:
            await self._markers.aclose()


async def last_entry(reader: Reader, unconfirmed: bool) -> int:
    """The last entry of a ledger that may be read: its end, or what is confirmed, or what may be acknowledged."""
    if reader.closed:
        return reader.last_entry_id
    if unconfirmed:
        confirmed, highest = await reader.read_horizon()
        return await stored_up_to(reader, confirmed, highest)
    return reader.last_entry_id


async def stored_up_to(reader: Reader, confirmed: int, highest: int) -> int:
    """The last of the entries behind what is confirmed that can be read without a gap."""
    for entry in range(confirmed + 1, highest + 1):
        try:
            found = await reader.read_unconfirmed(entry, entry)
        except LedgerError:
            found = []
        if not found:
            return entry - 1
    return highest
