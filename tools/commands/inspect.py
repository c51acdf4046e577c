"""
`quire inspect`: prints what is in one file of a bookie's, ours or Apache's.

Knows: columns.  Does not know: formats; `bookie/offline/listing.py` does.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.tools.terminal import output
from quire.tools.terminal.options import Json, command, group

# SPDX-License-Identifier: Apache-2.0

app = group(
    "Print a stopped bookie's journal, entry log or index, its own or Apache's.",
    "quire inspect entrylog /var/lib/quire/ledgers/current/0.log",
)

Ledger = Annotated[int | None, typer.Option("--ledger", metavar="ID", help="only what concerns this ledger", min=0)]
File = Annotated[Path, typer.Argument(metavar="PATH", help="the file or directory", exists=True)]


@command(app, "quire inspect journal /var/lib/quire/journal/current/0000000000000000.qj")
def journal(path: File, ledger: Ledger = None, json_wanted: Json = False) -> None:
    """Prints the groups of a journal segment (*.qj), or the records of an Apache journal file (*.txn), in order."""
    from quire.bookie.offline import listing
    from quire.rows.files import Files

    show(
        listing.journal(Files(), str(path)),
        ledger,
        json_wanted,
        {"offset": 12, "sequence": 10, "kind": 14, "ledger": 20, "first": 12, "count": 6, "bytes": 10},
    )


@command(app, "quire inspect entrylog /var/lib/quire/ledgers/current/0.log --ledger 0", name="entrylog")
def entry_log(path: File, ledger: Ledger = None, json_wanted: Json = False) -> None:
    """Prints an entry log: its header, its ledgers map, and every record with its CRC32C."""
    from quire.bookie.offline import listing
    from quire.rows.files import Files

    show(
        listing.entry_log(Files(), str(path)),
        ledger,
        json_wanted,
        {"offset": 12, "kind": 8, "ledger": 20, "entry": 12, "bytes": 10, "crc32c": 8},
    )


@command(app, "quire inspect index /var/lib/quire/ledgers/current/runs --ledger 0")
def index(path: File, ledger: Ledger = None, json_wanted: Json = False) -> None:
    """
    Prints an index: the directory runs, ledgers (keys are not shown) or Apache's locations, or one of Apache's .idx
    files.
    """
    from quire.bookie.offline import listing
    from quire.rows.files import Files

    columns = {
        "kind": 8,
        "ledger": 20,
        "first": 12,
        "entry": 12,
        "count": 6,
        "log": 8,
        "offset": 12,
        "bytes": 10,
        "fenced": 6,
        "limbo": 5,
        "explicit_lac": 12,
    }
    show(listing.index(Files(), str(path), ledger), ledger, json_wanted, columns)


def show(rows: Iterator[dict[str, Any]], ledger: int | None, json_wanted: bool, columns: dict[str, int]) -> None:
    """Prints rows as they are found; `StorageError` when the file is damaged or of another kind."""
    table = output.Table(json_wanted, columns)
    for row in rows:
        if ledger is None or row.get("ledger") in (None, ledger):
            table.row(row)
    table.end("nothing is in it" if ledger is None else f"nothing of ledger {ledger} is in it")
