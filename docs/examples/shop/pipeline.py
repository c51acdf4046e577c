"""
A pipeline from end to end: a shop's orders as JSON in a named log; Spark sets apart what is broken, joins the rest with
the table of products, and adds up what was sold in each quarter of an hour; the sums go into a log and a table, which a
small HTTP page shows with a chart.

    make pipeline                       everything on this machine, with a cluster of its own
    make pipeline ARGS=--serve          the page stays until Ctrl-C
    python docs/examples/shop/pipeline.py --metadata zk://127.0.0.1:2181/ledgers --out shop      on a cluster of yours

    log "shop orders" ──┬── broken ──> log "shop rejects": each with its reason
                        └── right ──── each order once ── joined, by quarter of an hour ──┬──> log "shop sales"
                                                                                          └──> table sales ──> page

Each step can be run again: every order is in the log once and counts once, however often a run was stopped.  At its
end the result is compared with what plain Python makes of the same log (check.py).
"""

import argparse
import json
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import check
import events
import page
from pyspark.sql import functions as fn

from quire.client import LedgerError
from quire.log import LogExists, connect
from quire.pipeline import each_batch, session
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

ORDERS, REJECTS, SALES = "shop orders", "shop rejects", "shop sales"
LATE = "30 minutes"
FEW = {"spark.sql.shuffle.partitions": "2"}  # the sums are few: more tasks would do next to nothing

# What an order has to have; more is passed over.  In `broken` Spark puts the text of what does not fit.
SCHEMA = "`order` string, at timestamp, sku string, quantity int, broken string"

# What is wrong with a row: the first of these that holds.  The text is parsed as part of an object, for by itself
# Spark parses its first value, and passes over what follows: a second order, say.
REASON = f"""CASE
    WHEN text IS NULL THEN 'not UTF-8'
    WHEN try_parse_json(concat('{{"":', text, '}}')) IS NULL THEN 'not JSON'
    WHEN event.broken IS NOT NULL THEN 'wrong type'
    WHEN event.order IS NULL OR event.at IS NULL OR event.sku IS NULL OR event.quantity IS NULL THEN 'missing field'
    WHEN category IS NULL THEN 'unknown product'
    WHEN event.quantity NOT BETWEEN 1 AND {events.MOST} THEN 'out of range'
    WHEN event.at > arrived THEN 'from the future'
    WHEN event.at < arrived - INTERVAL {LATE} THEN 'too late'
END"""


STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - STARTED:5.1f} s  {text}", flush=True)


def publish(uri: str, arrivals: Sequence[events.Arrival]) -> int:
    """Appends the orders to the log, which passes over those that it has.  Returns how many are new."""
    with connect(uri) as logs:
        for name in (ORDERS, REJECTS, SALES):
            with suppress(LogExists):  # from an earlier run
                logs.create(name, dedup=name == ORDERS)  # dedup: a producer may send again
        new = 0
        with logs.own(ORDERS) as owner:
            for first in range(0, len(arrivals), 1000):
                times, keys, values = zip(*arrivals[first : first + 1000], strict=True)
                done = owner.append_many(values, keys=keys, times_ms=times, producer="gateway", first_sequence=first)
                new += len(values) - done.duplicates
        return new


def orders(spark: Any, uri: str, cursor: str) -> Any:
    """
    The log as a stream.  Its place is also a cursor of the log: `quire log cursors` shows how far behind it is, and
    retention keeps what it has not read.
    """
    source = spark.readStream.format("log").options(metadata=uri, log=ORDERS, maxRecordsPerTrigger=10_000)
    return source.option("cursor", cursor).load()


def checked(spark: Any, rows: Any) -> Any:
    """Adds to each record the order in it, its product, and the reason for which it does not count, if there is one."""
    products = spark.createDataFrame(events.PRODUCTS, "sku string, product string, category string, cents int")
    return (
        rows.withColumn("arrived", fn.coalesce("time", "stamp"))  # the gateway's time; the log's where it gave none
        .withColumn("text", fn.try_validate_utf8(fn.col("value").cast("string")))
        .withColumn("event", fn.from_json("text", SCHEMA, {"columnNameOfCorruptRecord": "broken"}))
        .join(fn.broadcast(products), fn.col("event.sku") == products.sku, "left")
        .withColumn("reason", fn.expr(REASON))
    )


def rejected(rows: Any) -> Any:
    """Broken rows for a log of their own: bytes, key and time as they came, with reason and index as headers."""
    header = "struct('{0}' as key, encode({0}, 'UTF-8') as value)"
    return rows.filter("reason is not null").selectExpr(
        "key", "value", "arrived as time", f"array({header.format('reason')}, {header.format('index')}) as headers"
    )


def summed(rows: Any) -> Any:
    """
    Sums by quarter of an hour and category, each order once.  Spark drops rows that are older than its watermark, and
    says so to nobody; here are none, for the watermark is 30 minutes behind the newest order, and what comes later than
    that, or from the future, was set apart.
    """
    return (
        rows.filter("reason is null")
        .selectExpr("event.order", "event.at", "category", "event.quantity", "event.quantity * cents as cents")
        .withWatermark("at", LATE)
        .dropDuplicatesWithinWatermark(["order"])
        .groupBy(fn.window("at", "15 minutes").start.alias("begin"), "category")
        .agg(fn.count("*").alias("orders"), fn.sum("quantity").alias("items"), fn.sum("cents").alias("cents"))
    )


def to_log_and_table(uri: str, database: Path) -> Callable[[Any, int], None]:
    """
    The function for `foreachBatch`: sums that changed in a batch go into the log, once, and into the table, where a
    batch that is done again replaces rows by the same ones.
    """
    to_log = each_batch(metadata=uri, log=SALES)

    def write(frame: Any, batch: int) -> None:
        frame = frame.withColumn("begin", fn.date_format("begin", "yyyy-MM-dd'T'HH:mm")).persist()  # computed once
        to_log(frame.selectExpr("concat(begin, ' ', category) as key", "to_json(struct(*)) as value"), batch)
        with closing(sqlite3.connect(database)) as table, table:
            table.executemany("INSERT OR REPLACE INTO sales VALUES (?, ?, ?, ?, ?)", map(tuple, frame.collect()))
        frame.unpersist()

    return write


def run(spark: Any, uri: str, out: Path) -> int:
    """Runs both streams, from their checkpoints to the log's end.  Returns how many rows Spark has dropped."""
    with closing(sqlite3.connect(out / "shop.db")) as table:
        table.execute(
            "CREATE TABLE IF NOT EXISTS sales (begin, category, orders, items, cents, UNIQUE (begin, category))"
        )
    rejects = rejected(checked(spark, orders(spark, uri, "rejects"))).writeStream.format("log")
    sales = summed(checked(spark, orders(spark, uri, "sales"))).writeStream.outputMode("update")
    streams = {
        "rejects": rejects.options(metadata=uri, log=REJECTS),
        "sales": sales.foreachBatch(to_log_and_table(uri, out / "shop.db")),
    }
    lost = 0
    for name, stream in streams.items():
        stream = stream.queryName(name).option("checkpointLocation", str(out / "checkpoints" / name))
        query = stream.trigger(availableNow=True).start()  # a service leaves the trigger out, and starts both at once
        query.awaitTermination()
        batches = query.recentProgress
        say(f"stream {name!r}: {sum(batch['numInputRows'] for batch in batches)} rows in {len(batches)} batches")
        lost += sum(state["numRowsDroppedByWatermark"] for batch in batches for state in batch["stateOperators"])
    return lost


def requested(address: str, out: Path) -> list[dict[str, Any]]:
    """Asks the page's server, as a browser does, and keeps what it answers as files.  Returns the table, as served."""
    for place in ("", "chart.png", "sales.json"):
        with urlopen(address + place, timeout=60) as answer:
            (out / (place or "shop.html")).write_bytes(answer.read())
    return json.loads((out / "sales.json").read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--metadata", help="a cluster's metadata store; without it one is started here")
    parser.add_argument("--out", type=Path, help="where results go; a temporary directory by default")
    parser.add_argument("--seed", type=int, default=1127, help="another seed draws another day")
    parser.add_argument("--orders", type=int, default=40_000)
    parser.add_argument("--serve", action="store_true", help="the page stays until Ctrl-C")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp(prefix="quire-shop-"))
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        uri = given.metadata
        if uri is None:
            say("four bookies and a metadata store on this machine")
            uri = stack.enter_context(LocalCluster(out / "cluster", 4)).uri
        new = publish(uri, events.day(given.seed, given.orders))
        say(f"{new} new records in the log {ORDERS!r}: a day of orders, drawn with the seed {given.seed}")
        spark = session(given.master, app="shop", log_directory=out / "spark", config=FEW)
        say("a Spark session")
        try:
            lost = run(spark, uri, out)
        finally:
            spark.stop()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark had its own, for its jobs
        with connect(uri) as logs:
            for cursor in logs.cursors(ORDERS):
                say(f"cursor {cursor.name!r}: {cursor.backlog.records} records of {ORDERS!r} to go")
            with logs.read(REJECTS) as reader:
                rejects = [page.Reject.of(record) for record in reader]

        server = stack.enter_context(page.server(out / "shop.db", rejects))
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        stack.callback(server.shutdown)
        address = f"http://127.0.0.1:{server.server_port}/"
        served = requested(address, out)
        say(f"{address} has answered; {out / 'shop.html'} and {out / 'chart.png'} show the same")

        want = check.expected(uri, ORDERS)
        say(f"{want.records} records: {want.counted} orders, {want.duplicates} sent twice, {len(rejects)} set apart")
        wrong = check.differences(want, uri, SALES, REJECTS, served)
        if lost:
            wrong.append(f"Spark dropped {lost} rows")
        print("\n".join(wrong) or "logs, table and page have what plain Python counts")
        if given.serve:
            say(f"{address} until Ctrl-C; beside it, say, quire log read {SALES!r} --values --metadata {uri}")
            with suppress(KeyboardInterrupt):
                thread.join()  # for ever
        return int(bool(wrong))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LedgerError, ValueError) as failure:  # no store, say
        sys.exit(f"{type(failure).__name__}: {failure}")
