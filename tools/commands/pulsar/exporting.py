"""
`quire pulsar export`: a topic into files.

Knows: options, progress, what is told of an export.  Does not know: files.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.tools.commands.pulsar.shared import (
    Compacted,
    From,
    Of,
    Root,
    To,
    Topic,
    Unconfirmed,
    app,
    options_of,
    with_topics,
)
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, client_options, command, metadata_uri

if TYPE_CHECKING:
    from quire.pulsar.api import Plan, Topics
    from quire.pulsar.exporting import Exported, Form

# SPDX-License-Identifier: Apache-2.0


@command(
    app,
    "quire pulsar export orders /backup/pulsar-orders",
    "quire pulsar export orders /backup/pulsar-json --format jsonl --jobs 2",
)
def export(
    topic: Topic,
    to: Annotated[Path, typer.Argument(metavar="DIR", help="the directory for the files; must not be there yet")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="parquet or jsonl")] = "parquet",
    start: From = "earliest",
    end: To = "latest",
    subscription: Of = None,
    compacted: Compacted = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="with jsonl: values by the schemas of the topic's registry")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, metavar="N", help="processes; as many as cores if not given"),
    ] = None,
    unconfirmed: Unconfirmed = False,
    root: Root = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Copies the messages of a topic and its partitions to Parquet files or JSON lines, one file for each range.

    Ends at what is confirmed when it begins: export.json in the directory says where, and what was passed over.
    """
    if form not in ("parquet", "jsonl"):
        raise Usage(f"--format is parquet or jsonl, not {form!r}")
    if decode and form == "parquet":
        raise Usage("--decode is for --format jsonl")
    if to.exists():
        raise FileExistsError(17, "it is there already: name another directory", str(to))
    options = options_of(root, unconfirmed)

    kind: Form = "parquet" if form == "parquet" else "jsonl"
    processes = jobs or len(os.sched_getaffinity(0))

    async def work(topics: "Topics") -> "tuple[Plan, Exported | None]":
        from quire.pulsar.exporting import export as write

        plan = await topics.plan(topic, start=start, end=end, subscription=subscription, compacted=compacted)
        if min(processes, len(plan.ranges)) > 1:
            return plan, None
        with output.ProgressBar(topic, plan.entries) as progress:
            return plan, await write(topics, plan, to, kind, decode, progress.advance)

    plan, done = with_topics(metadata, options, work)
    if done is None:
        from quire.pulsar.exporting import export_apart

        opening = metadata_uri(metadata), options, client_options(None)
        with output.ProgressBar(topic, plan.entries) as progress:
            done = export_apart(opening, plan, to, kind, decode, progress.advance, processes)
    for position, _why, text in done.passed:
        output.note(f"quire: passed over {position}: {text}")
    found = {
        "topic": plan.topic,
        "messages": done.messages,
        "bytes": done.bytes,
        "files": len(done.parts),
        "directory": str(to),
        "ends": {name: str(last) for name, last in plan.ends.items()},
        "passed_over": len(done.passed),
    }
    text = f"{done.messages:,} messages, {output.size_text(done.bytes)} in {len(done.parts)} files in {to}"
    output.document(json_wanted, found, text)
