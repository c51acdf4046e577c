"""
The result of the pipeline once more, by plain Python that reads the same log from its begin and keeps all of it in
memory: what a stream and two cores make in pieces has to be equal to this, row by row.

Knows: JSON, and what makes an order right.
Does not know: Spark.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import events

from quire.log import Record, connect

# SPDX-License-Identifier: Apache-2.0

LATE = timedelta(minutes=30)
QUARTER = timedelta(minutes=15)
TABLE = {sku: (category, cents) for sku, _product, category, cents in events.PRODUCTS}
TYPES = {"order": str, "at": str, "sku": str, "quantity": int}

Sales = dict[tuple[str, str], tuple[int, int, int]]  # by quarter of an hour and category: orders, items, cents
Rejects = Counter[tuple[str, int, bytes]]  # reason, index, value


class Result(NamedTuple):
    """What the log comes to: each of its records is counted, a duplicate or a reject."""

    records: int
    counted: int
    duplicates: int
    sales: Sales
    rejects: Rejects


def expected(uri: str, log: str) -> Result:
    """Reads the whole log and counts."""
    seen: set[str] = set()
    records = duplicates = 0
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    rejects: Rejects = Counter()
    with connect(uri) as logs, logs.read(log) as reader:
        for record in reader:
            records += 1
            reason = wrong(record.value, record.stamp_ms if record.time_ms is None else record.time_ms)
            if reason:
                rejects[reason, record.index, record.value] += 1
                continue
            order = json.loads(record.value)
            if order["order"] in seen:
                duplicates += 1
                continue
            seen.add(order["order"])
            category, cents = TABLE[order["sku"]]
            row = sums[begin(datetime.fromisoformat(order["at"])), category]
            for place, more in enumerate((1, order["quantity"], order["quantity"] * cents)):
                row[place] += more
    sales = {key: (orders, items, cents) for key, (orders, items, cents) in sums.items()}
    return Result(records, len(seen), duplicates, sales, rejects)


def wrong(value: bytes, time_ms: int) -> str | None:
    """Returns why an order is set apart, None if it is right."""
    try:
        order = json.loads(value.decode())
    except UnicodeDecodeError:
        return "not UTF-8"
    except ValueError:
        return "not JSON"
    if not isinstance(order, dict):
        return "wrong type"
    fields = {name: order.get(name) for name in TYPES}
    if any(field is not None and type(field) is not TYPES[name] for name, field in fields.items()):
        return "wrong type"
    if None in fields.values():
        return "missing field"
    try:
        at = datetime.fromisoformat(order["at"])
    except ValueError:
        return "wrong type"
    if order["sku"] not in TABLE:
        return "unknown product"
    if not 1 <= order["quantity"] <= events.MOST:
        return "out of range"
    arrived = datetime.fromtimestamp(time_ms / 1000, at.tzinfo)
    if at > arrived:
        return "from the future"
    return "too late" if at < arrived - LATE else None


def begin(at: datetime) -> str:
    """Returns when the quarter of an hour of a time began, as the table has it."""
    return at.replace(minute=at.minute // 15 * 15).strftime("%Y-%m-%dT%H:%M")


def differences(
    want: Result, uri: str, sales_log: str, rejects_log: str, served: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Compares the log of sums (the newest of each key), the table as it was served, and the rejects; what differs."""
    with connect(uri) as logs:
        with logs.read(sales_log) as reader:
            logged = sales_of(json.loads(record.value) for record in reader)
        with logs.read(rejects_log) as reader:
            rejects = Counter(rejected(record) for record in reader)
    found = []
    for name, sales in (("the log of sums", logged), ("the table", sales_of(served))):
        if unequal := dict(sales.items() ^ want.sales.items()):
            found.append(f"{name} differs at {len(unequal)} rows, such as {min(unequal.items())}")
    for name, some in (("lacks", want.rejects - rejects), ("has too much", rejects - want.rejects)):
        if some:
            found.append(f"the log of rejects {name}: {some.total()}, such as {min(some)}")
    return found


def sales_of(rows: Iterable[Mapping[str, Any]]) -> Sales:
    """Returns the rows of the table by quarter of an hour and category; the newest where there are several."""
    return {(row["begin"], row["category"]): (row["orders"], row["items"], row["cents"]) for row in rows}


def rejected(record: Record) -> tuple[str, int, bytes]:
    """Returns a reject's reason, its index in the log of orders, and its bytes, which no step may have changed."""
    headers = dict(record.headers)
    return headers["reason"].decode(), int(headers["index"]), record.value
