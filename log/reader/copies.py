"""
Offloaded copies of segments, read as their ledgers were.

Knows: who opens a copy, by the scheme of its URI; that it has to give as many entries as it was asked for.
Does not know: where copies are, what entries mean.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence

from quire.client.api import Entry
from quire.conf.log import Copy, Opener
from quire.log.core.values import Segment
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0

Openers = Mapping[str, Opener]
NO_OPENERS: Openers = {}
READ_AT_ONCE = 64  # entries


class CopiedLedger:
    """A copy, read as its ledger was."""

    def __init__(self, segment: Segment, copy: Copy) -> None:
        self._ledger = segment.ledger
        self._copy = copy

    async def read(self, first: int, last: int) -> list[Entry]:
        """The entries, both ends included."""
        found: Sequence[bytes] = await self._copy.read(first, last)
        if len(found) != last - first + 1:
            raise LogError(
                f"the offloaded copy of ledger {self._ledger} gave {len(found)} entries for {first} to {last}"
            )
        return [Entry(self._ledger, number, data) for number, data in enumerate(found, first)]

    async def stream(self, first: int, last: int) -> AsyncGenerator[list[Entry], None]:
        """Reads entries, some at a time."""
        for start in range(first, last + 1, READ_AT_ONCE):
            yield await self.read(start, min(last, start + READ_AT_ONCE - 1))

    async def offset_of(self, entry: int) -> int:
        """The bytes of the entries before, of a plain ledger."""
        offset = 0
        async for some in self.stream(0, entry - 1):
            offset += sum(len(each.data) for each in some)
        return offset

    async def close(self) -> None:
        """Ends it."""
        await self._copy.close()


async def open_copy(segment: Segment, openers: Openers) -> CopiedLedger:
    """`LogError` when nothing opens it; the opener's errors."""
    mark = segment.offload or {}
    uri = str(mark.get("uri", ""))
    scheme = uri.partition(":")[0]
    opener = openers.get(scheme)
    if opener is None:
        raise LogError(
            f"segment {segment.n} was offloaded to {uri!r}, and this process has no opener for {scheme!r}: "
            f"LogOptions(openers={{{scheme!r}: ...}}) gives it one"
        )
    return CopiedLedger(segment, await opener(mark))
