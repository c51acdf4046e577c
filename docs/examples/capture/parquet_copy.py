"""
The changes of a captured table as Parquet files, and its rows as of the last of them.

    DIR/changes/<first index>-<next index>.parquet    what happened: a row for each record of the log
    DIR/present.parquet                               what is there: the last change of each key, deletions left out

A file appears whole or not at all, and its name says where the next one begins.  So a run may be killed at any time;
the next one goes on behind the last file.

Knows: columns.  Does not know: how changes come to the log.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from envelope import Row, change_of, row_bytes, row_of

from quire.log import Logs, Record

# SPDX-License-Identifier: Apache-2.0

FILE_RECORDS = 100_000
COLUMNS = {
    "index": pa.int64(),
    "time": pa.timestamp("ms", tz="UTC"),
    "op": pa.string(),
    "capture": pa.string(),
    "sequence": pa.int64(),
    "key": pa.string(),
    "before": pa.string(),
    "after": pa.string(),
}


def copy_to_parquet(logs: Logs, log: str, directory: Path) -> tuple[int, int]:
    """Brings the files up to date with the log: how many changes they have, and how many rows are left."""
    changes, info = directory / "changes", logs.info(log)
    changes.mkdir(parents=True, exist_ok=True)
    files = sorted(changes.glob("[0-9]*.parquet"))
    if files and (pq.read_schema(files[-1]).metadata or {}).get(b"log") != info.id.encode():
        raise ValueError(f"{directory} is of another log {log!r}: take a new directory")
    if not files and info.begin:
        raise ValueError(f"the log {log!r} begins at {info.begin}: the rows that are left are not known")
    schema = pa.schema(COLUMNS, metadata={"log": info.id})
    with logs.read(log, int(files[-1].stem.split("-")[1]) if files else 0) as reader:
        while records := list(islice(reader, FILE_RECORDS)):
            files.append(changes / f"{records[0].index:020}-{records[-1].index + 1:020}.parquet")
            _write(pa.Table.from_pylist([_history(each) for each in records], schema), files[-1])
    if not files:
        return 0, 0
    names = ["index", "op", "capture", "key", "after"]
    history = pa.concat_tables(pq.read_table(file, columns=names) for file in files)
    newest = history.group_by("key").aggregate([("index", "max")])["index_max"]
    newest = newest.take(pc.array_sort_indices(newest))  # an index is a place, for the history begins at 0
    emptied = pc.max(history.filter(pc.field("op") == "t")["index"]).as_py()
    # of a capture that was begun again all rows came again, and nothing of those that had gone meanwhile
    counts = (pc.field("capture") == history["capture"][-1]) & (
        pc.field("index") > (-1 if emptied is None else emptied)
    )
    left = history.take(newest).filter(counts)["after"].drop_null()
    present = [row_of(text) for text in left.to_pylist()]
    _write(table_of(present), directory / "present.parquet")
    return len(history), len(present)


def table_of(rows: Sequence[Row]) -> Any:
    """Rows as a table of Arrow; a column whose values have more than one type, as SQLite allows, is text."""
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    return pa.table(columns)


def _history(record: Record) -> Row:
    change = change_of(record.key, record.value)
    rows = {"before": change.before, "after": change.after}
    return {
        "index": record.index,
        "time": datetime.fromtimestamp(change.ts_ms / 1000, UTC),
        "op": change.op,
        "capture": change.source["capture"],
        "sequence": change.sequence,
        "key": row_bytes(change.key).decode(),
        **{name: None if row is None else row_bytes(row).decode() for name, row in rows.items()},
    }


def _write(table: Any, file: Path) -> None:
    """Puts a file there in one step."""
    part = file.with_suffix(".part")
    pq.write_table(table, part)
    with part.open("rb") as written:
        os.fsync(written.fileno())
    part.replace(file)
