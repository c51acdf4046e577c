"""Formats that are kept: the table of versions in docs/formats.md, and the bytes that 0.2.0 writes."""

import re
from importlib import import_module
from pathlib import Path

from crc32c import crc32c

from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.index.ledger_table import decode as decode_row
from quire.bookie.index.ledger_table import encode as encode_row
from quire.bookie.index.run import Run, encode_run
from quire.bookie.journal.format import Position, group_header, salt_of, segment_foot
from quire.bookie.journal.mark import decode_mark, encode_mark
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.upkeep.store_notes import Seen
from quire.log.core.frame import Kind, pack_entries, unpack_header
from quire.log.core.streams.cursors import bodies, pack_change, pack_checkpoint, unpack_entry
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.metadata.position import Position as NextIds
from quire.metadata.store import Progress
from quire.pipeline.copies.manifest import File, Manifest
from quire.protocol.digest import DigestType

# SPDX-License-Identifier: Apache-2.0

PAGE = Path(__file__).parents[1] / "docs" / "formats.md"
TABLE_ROW = re.compile(r"^\| [^|]+ \| [^|]+ \| (\d+) \| `([a-z_.]+)\.([A-Z_]+)` \|$", re.MULTILINE)


def test_versions() -> None:
    """A version is raised on the page and in the code together: from the first release on, formats are kept."""
    rows = TABLE_ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == 14
    for version, module, constant in rows:
        assert getattr(import_module(f"quire.{module}"), constant) == int(version), f"{module}.{constant}"


CLUSTER = "6a0f4d3e-1b2c-4d5e-8f90-a1b2c3d4e5f6"
COOKIE = Cookie("10.0.0.5:3181", "/j1,/j2", "1\t/l", CLUSTER, "1\t/i", "0123456789abcdef")
LEDGER = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    fragments=(Fragment(0, ("a:1", "b:1", "c:1")), Fragment(7, ("a:1", "d:1", "c:1"))),
    state=LedgerState.CLOSED,
    length=700,
    last_entry=8,
    digest=DigestType.CRC32C,
    password=b"secret",
    ctime_ms=1_700_000_000_000,
    custom={"k": b"v"},
    ctoken=77,
)
SEEN = Seen(
    CLUSTER,
    changes=12,
    ledgers=NextIds([3]),
    chosen=(9,),
    accepted=1,
    note=2,
    behind=1,
    found=Progress(4, NextIds([5])),
    bound=NextIds([6]),
)
FILE = File("part-0", 0, 8, 700, 900, 1, 2)
ROW = LedgerRow(b"\x01" * 20, fenced=True, explicit_lac=b"lac", limbo=True)
WRITTEN = {
    "mark": encode_mark([Position(5, 4096), Position(6, 8192)]),
    "segment's foot": segment_foot(1 << 22, 0x1234),
    "group's header": group_header(24 + 3, Position(9, 512), 0x1234, [b"abc"]),
    "run of equal entries": encode_run(7, 1024, [100, 100], [1, 2]),
    "run of short entries": encode_run(7, 1024, [100, 101], [1, 2]),
    "run of long entries": encode_run(7, 1024, [100, 1 << 16], [1, 2]),
    "row of the ledger table": encode_row(ROW),
    "cookie": COOKIE.encode(),
    "metadata of a ledger": ledger_codec.encode(LEDGER),
    "what was seen of the store": SEEN.encode(),
    "entry of a log": pack_entries(Kind.BATCH, b"body", ordinal=1, offset=2, stamp=3, records=4, value_bytes=5)[0],
    "part of an entry of a log": pack_entries(Kind.BATCH, b"body", ordinal=1, offset=2, stamp=3, part_bytes=3)[1],
    "checkpoint of cursors": pack_checkpoint(10, list(bodies(10, [(11, 13), (20, 21)])))[0],
    "change of a cursor": pack_change(10, next(bodies(10, [(11, 13)]))),
    "manifest": Manifest(CLUSTER, 3, "run-1", 5, ledger_codec.encode(LEDGER), (FILE,)).encode(),
}
KEPT = {  # sum of the bytes that release 0.2.0 writes for the same
    "mark": "deca7bf3",
    "segment's foot": "c7e63d58",
    "group's header": "2ea00d62",
    "run of equal entries": "88d42b01",
    "run of short entries": "7c0e2660",
    "run of long entries": "ad97ef00",
    "row of the ledger table": "eb40531d",
    "cookie": "2afd5a5e",
    "metadata of a ledger": "f3146a4a",
    "what was seen of the store": "81e6aaf6",
    "entry of a log": "18d2e005",
    "part of an entry of a log": "b49ee3bd",
    "checkpoint of cursors": "d78e770c",
    "change of a cursor": "4ae028f9",
    "manifest": "b8a6cbd1",
}


def test_the_bytes_that_are_kept() -> None:
    """What is written is what 0.2.0 wrote: another sum asks for another version, and for a reader of the old one."""
    assert {name: f"{crc32c(data):08x}" for name, data in WRITTEN.items()} == KEPT


def test_what_was_written_is_read() -> None:
    """Each of those that a reader takes whole."""
    assert decode_mark("mark", WRITTEN["mark"]) == [Position(5, 4096), Position(6, 8192)]
    assert salt_of(WRITTEN["segment's foot"], 1 << 22) == 0x1234
    assert list(Run(1, 0, WRITTEN["run of short entries"]).sizes()) == [100, 101]
    assert decode_row(1, WRITTEN["row of the ledger table"]) == ROW
    assert Cookie.decode(WRITTEN["cookie"], "here") == COOKIE
    assert ledger_codec.decode(WRITTEN["metadata of a ledger"]) == LEDGER
    assert Seen.decode(WRITTEN["what was seen of the store"], "here") == SEEN
    assert unpack_header(WRITTEN["entry of a log"]).records == 4
    assert unpack_entry(WRITTEN["checkpoint of cursors"]).runs == [(11, 13), (20, 21)]
    assert Manifest.decode(WRITTEN["manifest"]).files == (FILE,)
