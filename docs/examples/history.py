"""
A stream from end to end: this repository's own history, line by line, into a named log; Spark counts the lines that
were added and removed in each hour and package; the counts go back into a log and to Parquet, and become a chart.

    make pipeline                       everything on this machine, in a temporary directory
    python docs/examples/history.py --metadata zk://127.0.0.1:2181/ledgers --out /tmp/history

Each step can be run again: the log has each record once, however often the queries were stopped.
"""

import argparse
import html
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from quire.client import LedgerError
from quire.log import LogExists, connect
from quire.pipeline import session
from quire.tools.local_cluster.cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
SOURCE, COUNTS = "history", "history by hour"
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#bab0ac")
HOUR_MS = 3_600_000
FEW = {"spark.sql.shuffle.partitions": "2"}  # the counts are few: 200 tasks for each batch would do next to nothing


def changes(repository: Path) -> Iterator[tuple[int, str, bytes]]:
    """(time in ms, package, text) of each file of each commit, the oldest first."""
    command = ["git", "-C", str(repository), "log", "--reverse", "--no-merges", "--numstat", "--format=@%ct %h"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    when, commit = 0, ""
    for line in text.splitlines():
        if line.startswith("@"):
            seconds, commit = line[1:].split()
            when = int(seconds) * 1000
        elif line:
            added, removed, path = line.split("\t")
            if added != "-":  # a file of bytes has no lines
                yield when, path.split("/", maxsplit=1)[0], f"{commit} {added} {removed} {path}".encode()


def write(uri: str, repository: Path) -> int:
    """The history as records of a log: its time, the package as key; how many."""
    with connect(uri) as logs:
        try:
            logs.create(SOURCE, roll_records=2000)
        except LogExists:
            print(f"  the log {SOURCE!r} is there already, with {logs.info(SOURCE).end} records")
            return logs.info(SOURCE).end or 0
        found = list(changes(repository))
        # a last record, two days on: with it the windows of all others are complete
        found.append((max((when for when, _key, _text in found), default=0) + 48 * HOUR_MS, "", b"- 0 0 end"))
        with logs.own(SOURCE) as owner:
            for start in range(0, len(found), 500):
                times, keys, texts = zip(*found[start : start + 500], strict=True)
                owner.append_many(texts, keys=[key.encode() for key in keys], times_ms=times)
        return len(found)


def counted(rows: Any) -> Any:
    """Lines by hour and package, out of records; an hour is complete once the log is a day past it."""
    fields = rows.selectExpr(
        "time", "decode(key, 'UTF-8') as package", "split(decode(value, 'UTF-8'), ' ', 4) as field"
    ).selectExpr("time", "package", "cast(field[1] as bigint) as added", "cast(field[2] as bigint) as removed")
    return (
        fields.withWatermark("time", "1 day")
        .selectExpr("window(time, '1 hour') as hour", "package", "added", "removed")
        .groupBy("hour", "package")
        .sum("added", "removed")
        .selectExpr(
            "hour.start as time",
            "encode(package, 'UTF-8') as key",
            "encode(concat_ws(' ', `sum(added)`, `sum(removed)`), 'UTF-8') as value",
        )
    )


def streamed(spark: Any, uri: str, out: Path) -> list[dict[str, Any]]:
    """Both queries, to what the log has now: into a log, exactly once, and to Parquet."""
    place = {"metadata": uri}
    progress = []
    for name, kind, sink in (
        ("to a log", "log", {**place, "log": COUNTS, "create": "true"}),
        ("to Parquet", "parquet", {"path": str(out / "by-hour.parquet")}),
    ):
        rows = spark.readStream.format("log").options(**place, log=SOURCE, maxRecordsPerTrigger=4000).load()
        writer = counted(rows).writeStream.queryName(name).outputMode("append").trigger(availableNow=True)
        query = writer.format(kind).options(checkpointLocation=str(out / "checkpoints" / name), **sink).start()
        query.awaitTermination()
        progress += [{"query": name, **each} for each in query.recentProgress]
    return progress


def chart(rows: list[tuple[Any, str, int]], title: str) -> str:
    """A page with bars: one for each hour, a colour for each of the largest packages."""
    totals: Counter[str] = Counter()
    hours: dict[Any, Counter[str]] = defaultdict(Counter)
    for hour, package, lines in rows:
        totals[package] += lines
        hours[hour][package] += lines
    names = [name for name, _lines in totals.most_common(len(COLOURS) - 1)]
    colour = dict(zip([*names, "others"], COLOURS, strict=False))
    highest = max((sum(each.values()) for each in hours.values()), default=1)
    width = max(4, min(30, 900 // max(len(hours), 1)))
    bars = []
    for place, hour in enumerate(sorted(hours)):
        y = 300.0
        for name in (*names, "others"):
            lines = hours[hour][name] if name in names else sum(n for key, n in hours[hour].items() if key not in names)
            height = 280 * lines / highest
            y -= height
            tip = f"{hour:%Y-%m-%d %H:%M} {html.escape(name)}: {lines} lines"
            bars.append(
                f'<rect x="{40 + place * width}" y="{y:.1f}" width="{width - 1}" height="{height:.1f}" '
                f'fill="{colour[name]}"><title>{tip}</title></rect>'
            )
    legend = "".join(f'<span style="color:{colour[name]}">■</span> {html.escape(name)} &nbsp; ' for name in colour)
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<body style='font-family:sans-serif'><h1>{html.escape(title)}</h1>"
        f'<svg width="{60 + len(hours) * width}" height="320"><text x="0" y="20">{highest}</text>{"".join(bars)}</svg>'
        f"<p>{legend}</p>"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--metadata", help="a cluster's metadata store; without it one is started here")
    parser.add_argument("--out", type=Path, help="where results go; a temporary directory by default")
    parser.add_argument("--repository", type=Path, default=ROOT, help="whose history (default: this one's)")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp(prefix="quire-history-"))
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {text}", flush=True)

    with ExitStack() as stack:
        uri = given.metadata
        if uri is None:
            say("four bookies and a metadata store on this machine")
            uri = stack.enter_context(LocalCluster(out / "cluster", 4)).uri
        count = write(uri, given.repository)
        say(f"{count} changes of this repository's history are in the log {SOURCE!r}")
        spark = session(given.master, app="history", log_directory=out / "spark", config=FEW)
        stack.callback(spark.stop)
        say("a Spark session")
        for each in streamed(spark, uri, out):
            say(f"{each['query']}: batch {each['batchId']}, {each['numInputRows']} rows, {each['batchDuration']} ms")
        logged = spark.read.format("log").options(metadata=uri, log=COUNTS).load()
        rows = [
            (row.time, bytes(row.key).decode(), int(bytes(row.value).split()[0]))
            for row in logged.orderBy("time").collect()
        ]
        stored = spark.read.parquet(str(out / "by-hour.parquet")).count()
        expected: Counter[str] = Counter()
        with connect(uri) as logs, logs.read(SOURCE) as reader:
            for record in reader:
                expected[(record.key or b"").decode()] += int(record.value.split()[1])
        total: Counter[str] = Counter()
        for _hour, package, lines in rows:
            total[package] += lines
        (out / "history.html").write_text(chart(rows, "Lines added by hour and package"))
        same = +expected == +total and stored == len(rows)
        say(f"{len(rows)} counts in the log {COUNTS!r}, {stored} in Parquet; {out / 'history.html'} shows them")
        print("each line was counted once" if same else f"the counts differ: {expected - total}, {total - expected}")
        return 0 if same else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LedgerError, ValueError) as failure:  # no store, say
        sys.exit(f"{type(failure).__name__}: {failure}")
