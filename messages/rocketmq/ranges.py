"""
The part of a message store that a broker can serve.

Knows: where files begin, which regions go together in one store directory.
Does not know: what is written.
"""

from dataclasses import dataclass

from quire.messages.core.queues import QueueTable
from quire.messages.descriptor import Descriptor, Region
from quire.protocol.message_errors import ExportRefused

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class Source:
    """
    A store to export: its name, the id of its log, its descriptor, the position at which the log begins,
    the end of what can be read, and the queue table at that end.
    """

    name: str
    log: str
    descriptor: Descriptor
    begin: int
    end: int
    table: QueueTable


def first_border(begin: int, file_bytes: int) -> int:
    """The first offset at or above `begin` at which a file can begin."""
    return -(-begin // file_bytes) * file_bytes


def range_of(source: Source, start: int | None, below: int) -> tuple[int, int]:
    """Begin and end of what `--from` asks for; `below`: the records below the first border.  `ExportRefused`."""
    file_bytes = source.descriptor.store_settings.file_bytes
    border = first_border(source.begin, file_bytes)
    if border >= source.end:
        text = f"no record of {source.name!r} is at or above {border}, where the first whole file would begin"
        raise ExportRefused("NothingToExport", f"{text}: there is nothing for a broker to start on")
    if start is None and border != source.begin:
        text = f"the log begins at {source.begin}, inside a file of {file_bytes} bytes: `--from {border}` begins at the"
        raise ExportRefused("NeedsFrom", f"{text} next one, and leaves {below} records out")
    found = border if start is None else start
    if found % file_bytes or not border <= found < source.end:
        text = f"give a multiple of {file_bytes} from {border} on, below {source.end}"
        raise ExportRefused("NeedsFrom", f"{found} is no offset at which an export can begin: {text}")
    return found, source.end


def shape_of(descriptor: Descriptor, begin: int, end: int) -> Region | None:
    """
    The DLedger region with which the range ends, None if all of it is plain; `ExportRefused` for any other shape.
    """
    ends = [region.begin for region in descriptor.regions[1:]] + [end]
    held = [
        region
        for region, up_to in zip(descriptor.regions, ends, strict=True)
        if max(region.begin, begin) < min(up_to, end)
    ]
    last = held[-1]
    entries = [region for region in held if region.layout == "dledger"]
    if not entries:
        return None
    if entries == [last]:
        return last
    behind = held[held.index(entries[0]) + 1]
    raise ExportRefused(
        "NeedsRenumber",
        f"DLedger entries begin at {max(begin, entries[0].begin)}, and other records at {behind.begin}: no broker can"
        " serve both, and giving records new offsets is not possible yet; `--from"
        f" {last.begin}` exports what is from there on",
        offset=behind.begin,
    )
