"""
What an export of a store is made from, taken from a store directory by the reference; and directories compared.

Knows: the values that an import would put into the log, with their offsets.
Does not know: the import itself, and what is expected of an export.
"""

import pathlib
import struct
from collections.abc import Callable, Iterator, Mapping

from quire.messages.core.queues import QueueTable
from quire.messages.core.record import unpack
from quire.messages.descriptor import READY, Descriptor, Import, Region
from quire.messages.progress import PIECE_BYTES, Consumed, Progress, document_records, offset_key
from quire.messages.rocketmq.building import Sizes
from quire.messages.rocketmq.exporting import Export, Report
from quire.messages.rocketmq.ranges import Source
from tests.messages.archives import FILE_BYTES
from tests.messages.reference import parser

# SPDX-License-Identifier: Apache-2.0

LONG = struct.Struct(">q")
Value = tuple[int, bytes]
SIZES = Sizes(queue_file_bytes=2000, index_slots=1000, index_rows=4000)  # those of the archives


def values_of(store: pathlib.Path) -> tuple[list[Value], list[Value], int]:
    """The values of the plain and of the DLedger files with their offsets, and where the first file begins."""
    old, groups = parser.parts(store)
    plain = [(at, found["raw"]) for kind, at, found in parser.plain(old) if kind == "record"]
    entries = []
    for group in groups:
        for kind, at, head, _record in parser.dledger(group / "data"):
            if kind == "entry":
                name = group / "data" / f"{at - at % FILE_BYTES:020d}"
                entries.append((at, name.read_bytes()[at % FILE_BYTES :][: head["size"]]))
    first = parser.files(old) or parser.files(groups[0] / "data")
    return plain, entries, int(first[0].name)


def sealed(store: pathlib.Path) -> bool:
    """True if the last file with records ends with a filler."""
    old, groups = parser.parts(store)
    kinds = [line[0] for line in (parser.dledger(groups[0] / "data") if groups else parser.plain(old))]
    return "filler" in kinds and "record" not in kinds[::-1][: kinds[::-1].index("filler")]


class Stored:
    """A store whose log has these values; `descriptor`, `progress` and `values` may be changed before an export."""

    def __init__(
        self, plain: list[Value], entries: list[Value], begin: int, seal: bool = False, file_bytes: int = FILE_BYTES
    ) -> None:
        self.values = [*plain, *entries]
        self.begin, self.log = begin, "log-1"
        self.end = self.values[-1][0] + len(self.values[-1][1])
        regions = [Region(begin, "plain")] if plain or not entries else []
        if entries:
            regions.append(Region(entries[0][0], "dledger", "dledger-n0"))
        if entries or seal:
            regions.append(Region(-(-self.end // file_bytes) * file_bytes, "plain"))
        settings = {"file_bytes": file_bytes, "address": "127.0.0.1:10911", "progress": "orders.progress"}
        imported = Import("t", "s", 1, len(self.values), self.end, 0)
        self.descriptor = Descriptor((), READY, settings, tuple(regions), imported)
        self.progress = Progress(with_documents=True)

    @classmethod
    def of(cls, store: pathlib.Path) -> "Stored":
        """All of a store directory."""
        plain, entries, begin = values_of(store)
        found = cls(plain, entries, begin, not entries and sealed(store))
        for pattern in ("config/*", "timerwheel", "timerlog/*"):
            for path in sorted(store.glob(pattern)):
                if path.suffix != ".bak":
                    found.document(str(path.relative_to(store)), path.read_bytes())
        return found

    def document(self, name: str, data: bytes) -> None:
        pieces = (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
        for key, value in document_records(name, pieces):
            self.progress.apply(key, value)

    def consumed(self, group: str, topic: str, queue: int, position: int) -> None:
        self.progress.apply(offset_key(Consumed(group, topic, queue)), LONG.pack(position))

    @property
    def table(self) -> QueueTable:
        """As it is at the end."""
        found = QueueTable(self.descriptor.placing)
        for _at, value in self.values:
            found.take(unpack(value, 48 if value[:4] == b"\0\0\0\1" else 0))
        return found

    def source(self) -> Source:
        return Source("orders", self.log, self.descriptor, self.begin, self.end, self.table)

    def export(
        self,
        directory: pathlib.Path,
        start: int | None = None,
        reached: Callable[[str], None] = lambda point: None,
    ) -> Report:
        """Begun, or gone on with, and ended."""
        path = str(directory)
        with Export(path, self.source(), start, 7, sizes=SIZES, reached=reached) as export:
            for at, value in self.values:
                if export.start <= at < export.end:
                    export.take(at, value)
            return export.finish(self.progress)


def tree(directory: pathlib.Path) -> dict[str, bytes]:
    """All files below a directory."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def blanked(files: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Files of a log in which the body of the filler, if one is there, is zeros."""
    for name, data in files.items():
        rule = "plain" if name.startswith("commitlog/") else "dledger"
        at, left = 0, len(data)
        while at + 8 <= len(data):
            first, second = struct.unpack_from(">II", data, at)
            filler = second == parser.BLANK if rule == "plain" else first == 0xFFFFFFFF
            size = first if rule == "plain" else second
            if filler or not size:
                left = at + 8 if filler else len(data)
                break
            at += size
        yield name, data[:left].ljust(len(data), b"\0")
