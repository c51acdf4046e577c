"""
A whole store read and verified: every record, its place, its position.

Knows: what must hold of a value of the log.  Does not know: how it is shown.
Safety: reads only.
"""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from quire.log.api import Logs
from quire.messages.core.layout import entry_header, record_of, rule_of
from quire.messages.core.queues import QueueTable
from quire.messages.core.record import unpack
from quire.messages.descriptor import Descriptor
from quire.protocol.message_errors import MessageError, StoreDamaged

# SPDX-License-Identifier: Apache-2.0


class Flaw(NamedTuple):
    """A value of the log that is not as it must be: its offset in the store, and what is wrong."""

    offset: int
    text: str


class Checked(NamedTuple):
    """How far a check is: records and bytes looked at, and the flaws found since the last."""

    records: int
    bytes: int
    flaws: list[Flaw]


class Checker:
    """Verifies values in order.  `table`: what they add up to."""

    def __init__(self, descriptor: Descriptor, is_trimmed: bool = False) -> None:
        """`is_trimmed`: the log does not begin where the store did."""
        self._descriptor = descriptor
        self.table = QueueTable(descriptor.placing, is_trimmed)
        self._after: tuple[int, int] | None = None  # index and term of the entry before

    def verify(self, at: int, value: bytes) -> Flaw | None:
        """The value at a byte position of the log."""
        try:
            far, raw = record_of(value)
            rule = self._descriptor.region_at(at).layout
            if rule_of(value) != rule:
                raise StoreDamaged(f"a value of a {rule} region has another layout")
            if far:
                self._verify_entry(at, value)
            record = unpack(raw)
            if record.offset != at + far:
                raise StoreDamaged(f"the record says that its offset is {record.offset}")
            if len(raw) != record.size:
                raise StoreDamaged(f"{len(raw) - record.size} bytes are behind the record")
            self.table.take(record)
        except MessageError as error:
            return Flaw(at, str(error))
        return None

    def _verify_entry(self, at: int, value: bytes) -> None:
        header = entry_header(value)
        if header.place != at:
            raise StoreDamaged(f"the DLedger entry says that its place is {header.place}")
        before, self._after = self._after, (header.index, header.term)
        if before is not None and (header.index != before[0] + 1 or header.term < before[1]):
            raise StoreDamaged(
                f"the DLedger entry has index {header.index} of term {header.term}, behind {before[0]} of {before[1]}"
            )


async def checked(logs: Logs, name: str, descriptor: Descriptor) -> AsyncGenerator[Checked, None]:
    """Reads the whole log; after each batch, how far it is."""
    checker = Checker(descriptor, (await logs.info(name)).begin > 0)
    reader = await logs.read(name)
    records = size = 0
    try:
        async for batch in reader.batches():
            flaws = []
            for at, value in zip(batch.positions, batch.values, strict=True):
                if flaw := checker.verify(at, value):
                    flaws.append(flaw)
                size += len(value)
            records += batch.count
            yield Checked(records, size, flaws)
    finally:
        await reader.close()
