"""
`quire pipeline`: Spark jobs over ledgers and logs.

Knows: options, progress, what is printed.  Does not know: Spark; `quire.pipeline.jobs` does.
"""

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.conf.extras import installs
from quire.metadata.clock import time_of_day
from quire.tools.commands.log.merging import DryRun, RunMin, ToBytes
from quire.tools.commands.log.merging import say as say_merged
from quire.tools.terminal import output
from quire.tools.terminal.jobs import Master, MetricsFile, work
from quire.tools.terminal.options import Json, Metadata, Usage, command, group, metadata_uri, refused

if TYPE_CHECKING:
    from types import ModuleType

    from quire.pipeline.jobs.findings import Scrubbed
    from quire.pipeline.offload.requests import OffloadResult

# SPDX-License-Identifier: Apache-2.0

LEFT_TOLD_MAX = 20

app = group(
    "Spark jobs over ledgers and logs; need the extra `pipeline`.",
    "quire pipeline export /backup/orders --log orders --master 'local[4]'",
)
Chart = Annotated[Path | None, typer.Option("--chart", metavar="FILE", help="a page (HTML) with a chart of the result")]

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """Reads an age, as `90s`, `10m`, `4h`, `7d`."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS_S or not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is no age: write 90s, 10m, 4h or 7d")
    return float(number) * UNITS_S[unit]


def here(path: Path | None) -> Path | None:
    """A directory of this machine.  `typer.BadParameter` for a URL, which would become one with that name."""
    if path is not None and re.match("[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):
        raise typer.BadParameter(
            f"{str(path).replace(':/', '://', 1)!r} is a URL, not a directory of this machine: copy the directory "
            "there, or write from Spark, as spark.read.format('log')…write.parquet(…)"
        )
    return path


@command(app, "quire pipeline export /backup/orders --log orders --chart orders.html")
def export(
    to: Annotated[
        Path, typer.Argument(metavar="DIR", callback=here, help="the directory for the files; must not be there yet")
    ],
    log: Annotated[str | None, typer.Option("--log", metavar="NAME", help="a named log")] = None,
    ledgers: Annotated[str | None, typer.Option("--ledgers", metavar="IDS", help="`7,9-20`, or `all`")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replaces the directory")] = False,
    metadata: Metadata = None,
    master: Master = None,
    metrics: MetricsFile = None,
    chart: Chart = None,
    json_wanted: Json = False,
) -> None:
    """
    Copies a log, or ledgers, to Parquet files.  Ledgers that are still written are read up to the last add confirmed.
    """
    if (log is None) == (ledgers is None):
        raise Usage("name what is exported: either --log NAME or --ledgers IDS")
    if to.exists() and not overwrite:  # before a session is begun for nothing
        raise FileExistsError(17, "it is there already: name another directory, or give --overwrite", str(to))
    kind, what = ("log", {"log": log}) if log is not None else ("ledger", {"ledgers": ledgers})
    options = {"metadata": metadata_uri(metadata), **{name: str(value) for name, value in what.items()}}
    with work("export", str(log or ledgers), master, metrics) as run:
        from quire.pipeline.jobs import chart as charts
        from quire.pipeline.jobs import parquet

        done = parquet.export(run.spark, kind, options, to, overwrite, run.told)
        run.figures |= {"rows": done.rows, "bytes": done.bytes, "files": done.files}
    if chart is not None:
        facts = [("rows", f"{done.rows:,}"), ("bytes", f"{done.bytes:,}"), ("files", str(done.files))]
        chart.write_text(charts.page(f"{log or f'ledgers {ledgers}'}: rows", done.bars, "rows", facts))
    output.document(
        json_wanted,
        {"rows": done.rows, "bytes": done.bytes, "files": done.files, "directory": str(to)},
        f"{done.rows:,} rows, {output.size_text(done.bytes)} in {done.files} files in {to}",
    )


@command(app, "quire pipeline import /backup/orders --log orders-again --create", name="import")
def import_(
    source: Annotated[
        Path, typer.Argument(metavar="DIR", callback=here, help="Parquet files, as `export` writes them")
    ],
    log: Annotated[str, typer.Option("--log", metavar="NAME", help="the log that they are appended to")],
    create: Annotated[bool, typer.Option("--create", help="makes the log if it is not there")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only counts the rows")] = False,
    metadata: Metadata = None,
    master: Master = None,
    metrics: MetricsFile = None,
    json_wanted: Json = False,
) -> None:
    """
    Appends the rows of Parquet files to a log: all of them become visible in one step, or none.  Of what was exported
    the order is kept.
    """
    options = {"metadata": metadata_uri(metadata), "log": log, "create": str(create)}
    with work("import", log, master, metrics) as run:
        from quire.pipeline.jobs import parquet

        rows = parquet.import_(run.spark, source, options, dry_run, run.told)
        run.figures["rows"] = rows
    output.document(
        json_wanted,
        {"rows": rows, "log": log, "appended": not dry_run},
        f"{rows:,} rows {'would be ' if dry_run else ''}appended to the log {log!r}",
    )


Directory = Annotated[
    Path, typer.Argument(metavar="DIR", callback=here, help="a directory with findings, as `scrub` writes it")
]


@command(
    app,
    "quire pipeline scrub /var/scrub/monday --rate 50000000",
    "quire pipeline scrub /var/scrub/quick --level presence",
    "quire pipeline scrub /var/scrub/tonight --queue",
)
def scrub(
    to: Annotated[Path, typer.Argument(metavar="DIR", callback=here, help="the directory for the findings")],
    ledgers: Annotated[str, typer.Option("--ledgers", metavar="IDS", help="`7,9-20`, or `all`")] = "all",
    level: Annotated[
        str,
        typer.Option("--level", help="`metadata` asks no bookie, `presence` what each has, `full` reads it"),
    ] = "full",
    sample: Annotated[float, typer.Option("--sample", min=0, max=100, metavar="PERCENT", help="of the entries")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="which entries a sample has")] = 0,
    lanes: Annotated[int, typer.Option("--lanes", min=1, help="tasks that ask one bookie at the same time")] = 2,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, metavar="BYTES", help="read from one bookie in a second, at most")
    ] = None,
    settle: Annotated[
        float,
        typer.Option("--settle", min=0, metavar="SECONDS", help="time for copies that are on their way"),
    ] = 15.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replaces findings that are there")] = False,
    queue: Annotated[
        bool, typer.Option("--queue", help="hands what copies make good to AutoRecovery's repair queue")
    ] = False,
    metadata: Metadata = None,
    master: Master = None,
    metrics: MetricsFile = None,
    chart: Chart = None,
    json_wanted: Json = False,
) -> None:
    """
    Looks at every copy of every entry on every bookie: whether it is there, whether its digest holds, whether the
    copies are the same; at placement and metadata too. Changes nothing, never fences; writers may go on.

    The findings are a table, which `repair` and `report` take. Exit status 1 when there are any.
    """
    if level not in ("metadata", "presence", "full"):
        raise Usage(f"--level is metadata, presence or full, not {level!r}")
    uri = metadata_uri(metadata)
    tables().refuse(to, overwrite)
    with work("scrub", ledgers, master, metrics) as run:
        from quire.pipeline.jobs import findings, running
        from quire.pipeline.jobs import repair as mending
        from quire.pipeline.jobs import scrub as job
        from quire.replication.scrub.whole import Scrubbing

        how = Scrubbing(level, sample, seed, lanes, rate, settle)  # type: ignore[arg-type]  # looked at above
        done = job.scrub(running.in_tasks(run.spark, run.told), uri, ledgers, how)
        findings.write(to, done)
        marked = mending.queue(uri, done.findings) if queue else 0
        counts = asdict(done.summary) | {"queued": marked}
        run.figures |= {name: count for name, count in counts.items() if name != "level"}
    told_findings(done, chart, json_wanted)
    if marked:
        output.note(f"quire: {marked} ledgers are in the repair queue; `quire underreplicated list` shows them")
    if done.findings:
        output.note(f"quire: {len(done.findings)} findings; what can be done: `quire pipeline repair {to} --dry-run`")
        raise typer.Exit(1)


@command(
    app,
    "quire pipeline repair /var/scrub/monday --dry-run",
    "quire pipeline repair --bookie 10.0.0.7:3181 --decommission",
)
def repair(
    source: Annotated[
        Path | None, typer.Argument(metavar="DIR", callback=here, help="findings, as `scrub` writes them")
    ] = None,
    bookies: Annotated[
        list[str] | None,
        typer.Option("--bookie", metavar="BOOKIE", help="instead: free all ledgers from this one, which is down"),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--decommission", help="with --bookie: take it out of the cluster for good")
    ] = False,
    recover: Annotated[
        bool, typer.Option("--recover-open", help="close open ledgers whose writer seems gone, and that need it")
    ] = False,
    grace: Annotated[
        float, typer.Option("--grace", min=0, metavar="SECONDS", help="how long such a ledger must stand still")
    ] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only counts what would be copied")] = False,
    metadata: Metadata = None,
    master: Master = None,
    metrics: MetricsFile = None,
    chart: Chart = None,
    json_wanted: Json = False,
) -> None:
    """
    Makes good what a scrub found: copies what is missing or wrong onto the bookie that should have it, from copies that
    are right; where that bookie is gone or takes none, onto another one, which the metadata names then.

    What is wrong is looked up again, so it may be interrupted and run again. Exit status 1 when something is left.
    """
    if (source is None) == (not bookies):
        raise Usage("name what is repaired: either DIR or --bookie")
    if remove and not bookies:
        raise Usage("--decommission needs --bookie")
    uri = metadata_uri(metadata)
    found = tables().read(source).findings if source is not None else []
    with work("repair", str(source or ",".join(bookies or [])), master, metrics) as run:
        from quire.pipeline.jobs import chart as charts
        from quire.pipeline.jobs import repair as job
        from quire.pipeline.jobs import running
        from quire.replication.mending import Mending

        how, each = Mending(dry_run, recover, grace), running.in_tasks(run.spark, run.told)
        if source is None:
            done = job.drain(each, uri, bookies or [], how, remove)
        else:
            done = job.repair(each, uri, found, how)
        left = [reason for one in done for reason in one.left]
        entries, size = sum(one.entries for one in done), sum(one.bytes for one in done)
        fragments = sum(one.fragments for one in done)
        run.figures |= {"entries": entries, "bytes": size, "fragments": fragments, "left": len(left)}
    if chart is not None:
        facts = [("entries", f"{entries:,}"), ("fragments moved", f"{fragments:,}"), ("left", f"{len(left):,}")]
        bars = [(str(one.ledger), float(one.entries)) for one in done]
        chart.write_text(charts.page("copies made again, by ledger", bars, "entries", facts))
    would = "would be " if dry_run else ""
    output.document(
        json_wanted,
        {
            "dry_run": dry_run,
            "ledgers": [one.ledger for one in done],
            "entries": entries,
            "bytes": size,
            "fragments": fragments,
            "left": left,
        },
        f"{entries:,} entries of {len(done):,} ledgers {would}copied"
        f"{'' if dry_run else ', ' + output.size_text(size)}; {fragments:,} fragments {would}moved",
    )
    if left:
        for reason in left[:LEFT_TOLD_MAX]:
            output.note(f"quire: {reason}")
        output.note(f"quire: {len(left)} things are left")
        raise typer.Exit(1)


@command(app, "quire pipeline report /var/scrub/monday --chart monday.html")
def report(source: Directory, chart: Chart = None, json_wanted: Json = False) -> None:
    """Prints what a scrub found, by kind and by bookie. Needs no cluster."""
    told_findings(tables().read(source), chart, json_wanted)


def tables() -> "ModuleType":
    """Returns the module that reads and writes findings."""
    try:
        from quire.pipeline.jobs import findings
    except ImportError as error:
        raise refused(f"the pipeline needs PyArrow: {installs('pipeline')} ({error})") from None
    return findings


def told_findings(done: "Scrubbed", chart: Path | None, json_wanted: bool) -> None:
    """Prints a summary; with `chart` also as a page."""
    from quire.pipeline.jobs import chart as charts

    found, kinds, bookies = done.summary, done.by_kind(), done.by_bookie()
    if chart is not None:
        facts = [
            *[("looked at", found.level), ("ledgers", f"{found.ledgers:,}"), ("copies", f"{found.copies:,}")],
            *[(kind, f"{count:,} findings") for kind, count in kinds.items()],
        ]
        bars = [(bookie, float(count)) for bookie, count in bookies.items()]
        chart.write_text(charts.page("copies that are wrong, by bookie", bars, "copies", facts))
    lines = [
        f"{found.ledgers:,} ledgers, {found.copies:,} copies, {output.size_text(found.bytes)} read ({found.level}): "
        f"{found.findings:,} findings in {found.ledgers_wrong:,} ledgers, {found.copies_wrong:,} copies wrong"
    ]
    lines += [f"  {kind}: {count:,}" for kind, count in kinds.items()]
    lines += [f"  {bookie}: {count:,} copies" for bookie, count in bookies.items()]
    for each in done.findings[:LEFT_TOLD_MAX]:
        where = f" entries {each.first} to {each.last}" if each.entries else ""
        lines.append(f"  ledger {each.ledger}{where} {each.kind} {each.bookie}: {each.detail}")
    output.document(json_wanted, {**asdict(found), "kinds": kinds, "bookies": bookies}, lines)


@command(
    app,
    "quire pipeline offload --ledgers all --to /backup/ledgers",
    "quire pipeline offload --ledgers all --to /backup/ledgers --delete --dry-run",
    "quire pipeline offload --log orders --to s3://cold/ledgers --older-than 7d --delete",
)
def offload(
    to: Annotated[
        str,
        typer.Option("--to", metavar="URI", help="where copies go: a directory, s3://bucket/path, gs://…, hdfs://…"),
    ],
    log: Annotated[str | None, typer.Option("--log", metavar="NAME", help="the closed segments of a named log")] = None,
    ledgers: Annotated[str | None, typer.Option("--ledgers", metavar="IDS", help="`7,9-20`, or `all`")] = None,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="AGE", parser=seconds, help="only older ones: 90s, 10m, 4h, 7d")
    ] = "0s",  # type: ignore[assignment]  # typer gives it to the parser
    delete: Annotated[
        bool, typer.Option("--delete", help="bookies lose what an earlier run offloaded, once it is verified again")
    ] = False,
    deletion_lag: Annotated[
        float, typer.Option("--deletion-lag", metavar="AGE", parser=seconds, help="so long after it was offloaded")
    ] = "4h",  # type: ignore[assignment]  # typer gives it to the parser
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only says what would be done")] = False,
    metadata: Metadata = None,
    master: Master = None,
    metrics: MetricsFile = None,
    json_wanted: Json = False,
) -> None:
    """
    Copies closed ledgers, or the closed segments of a log, to Parquet files, reads them back, and marks them.  With
    --delete a later run takes from the bookies what was offloaded longer ago than the lag.  It may be run again at any
    time, also after one that was killed.
    """
    from quire.pipeline.offload.requests import OffloadRequest

    if (log is None) == (ledgers is None):
        raise Usage("name what is offloaded: either --log NAME or --ledgers IDS")
    request = OffloadRequest(metadata_uri(metadata), to, ledgers, log, older_than, delete, deletion_lag, dry_run)
    with work("offload", str(log or ledgers), master, metrics) as run:
        from quire.pipeline.clients import cluster
        from quire.pipeline.jobs.running import spread
        from quire.pipeline.offload import running

        done = running.offload(cluster(request.metadata), request, spread(run.spark, run.told), time_of_day)
        run.figures |= figures_of(done) | {"deleted": len(done.deleted)}
    would = "would be " if dry_run else ""
    say(done, "offloaded", json_wanted, [f"{len(done.deleted):,} ledgers {would}deleted from bookies"], would)


@command(app, "quire pipeline restore /backup/ledgers --ledgers 0,1-2")
def restore(
    source: Annotated[str, typer.Argument(metavar="URI", help="where `offload` put the copies")],
    ledgers: Annotated[str, typer.Option("--ledgers", metavar="IDS", help="`7,9-20`, or `all`")],
    metadata: Metadata = None,
    master: Master = None,
    metrics: MetricsFile = None,
    json_wanted: Json = False,
) -> None:
    """
    Brings offloaded ledgers back to bookies, with their numbers and each entry bit for bit, also in another cluster.
    Ledgers that are there are left alone, and those of logs: their logs read the copies.  The copies stay.
    """
    with work("restore", ledgers, master, metrics) as run:
        from quire.pipeline.jobs.running import spread
        from quire.pipeline.offload import restoring

        done = restoring.restore(metadata_uri(metadata), source, ledgers, spread(run.spark, run.told))
        run.figures |= figures_of(done)
    say(done, "restored", json_wanted, [], "")


@command(app, "quire pipeline merge --log orders --dry-run")
def merge(
    log: Annotated[str, typer.Option("--log", metavar="NAME", help="the log whose small segments are merged")],
    to_bytes: ToBytes = None,
    run_min: RunMin = 8,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, metavar="BYTES", help="written by one task in a second, at most")
    ] = None,
    dry_run: DryRun = False,
    metadata: Metadata = None,
    master: Master = None,
    metrics: MetricsFile = None,
    json_wanted: Json = False,
) -> None:
    """
    As `quire log merge`, with each run of small segments in a task.  It may be run again at any time, also after one
    that was killed.
    """
    uri = metadata_uri(metadata)
    with work("merge", log, master, metrics) as run:
        from quire.pipeline.clients import cluster
        from quire.pipeline.jobs import merging
        from quire.pipeline.jobs.running import spread

        each = spread(run.spark, run.told)
        done = merging.merge(
            cluster(uri), log, each, to_bytes=to_bytes, run_min=run_min, rate=rate or -1, dry_run=dry_run
        )
        run.figures |= {"runs": len(done.merged), "bytes": sum(one.run.bytes for one in done.merged)}
    say_merged(log, done, dry_run, json_wanted)


def figures_of(done: "OffloadResult") -> dict[str, float]:
    """Returns what an offload and a restore have in common."""
    return {
        "ledgers": len(done.offloaded),
        "entries": done.entries,
        "bytes": done.bytes,
        "problems": len(done.problems),
    }


def say(done: "OffloadResult", verb: str, json_wanted: bool, more: list[str], would: str) -> None:
    """A summary; exit status 1 when there were problems."""
    size = output.size_text(done.bytes)
    lines = [f"{len(done.offloaded):,} ledgers {would}{verb}: {done.entries:,} entries, {size}", *more]
    if done.waiting:
        lines.append(f"{len(done.waiting):,} offloaded ledgers are on bookies, too")
    lines += [f"{count:,} left alone: {why}" for why, count in done.left.items()]
    for problem in done.problems:
        output.note(f"ledger {problem.ledger}: {problem.what}")
    facts = {
        verb: done.offloaded,
        "entries": done.entries,
        "bytes": done.bytes,
        "deleted": done.deleted,
        "waiting": done.waiting,
        "left": done.left,
        "problems": [problem._asdict() for problem in done.problems],
    }
    output.document(json_wanted, facts, lines)
    if done.problems:
        raise typer.Exit(1)
