"""
A topic in files: a part for each range of a plan, written here or by several processes, and what they hold in
`export.json`.

Knows: the names of the files, Parquet and JSON lines.
Does not know: how messages are read.

Safety: a part has its name once it is whole, and `export.json` is written last: without it an export has not ended.
One that failed leaves no directory.
"""

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Literal, NamedTuple

from quire.client.threads import ReactorThread, reactor_thread
from quire.conf.client import ClientOptions
from quire.conf.extras import installs
from quire.conf.pulsar import PulsarOptions
from quire.protocol.pulsar_errors import NotRead
from quire.pulsar.api import MessageBatch, Plan, TopicRange, Topics, connect
from quire.pulsar.documents import lines, versions
from quire.pulsar.schemas import Schema

# SPDX-License-Identifier: Apache-2.0

Form = Literal["parquet", "jsonl"]
Told = Callable[[int], object]
Opening = tuple[str, PulsarOptions, ClientOptions | None]  # the cluster, for `connect`
SUMMARY = "export.json"
UNFINISHED = ".part"
PASSED_MAX = 1000  # of what was passed over, as the summary names it one by one


class Part(NamedTuple):
    """One file.  `passed`: position, reason and text of what was passed over."""

    file: str
    messages: int
    bytes: int
    passed: list[tuple[str, str, str]]


class Exported(NamedTuple):
    """The result of an export."""

    directory: str
    messages: int
    bytes: int
    parts: list[Part]

    @property
    def passed(self) -> list[tuple[str, str, str]]:
        return [each for part in self.parts for each in part.passed]


class Task(NamedTuple):
    """A range and the file for it."""

    wanted: TopicRange
    path: str
    form: Form
    decode: bool


@contextmanager
def exporting(to: Path, form: Form) -> Iterator[None]:
    """Makes the directory, which goes again if something fails.  `NotRead` names a library that is missing."""
    check_library(form)
    to.mkdir(parents=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise


async def export(topics: Topics, plan: Plan, to: Path, form: Form, decode: bool, told: Told) -> Exported:
    """
    Writes the messages of a plan to a directory, which must not be there.  `decode`: values in JSON lines by their
    schemas; `told` gets the number of entries of each range that is done.  `NotRead` names a library that is missing;
    `FileExistsError`; else as reading.
    """
    with exporting(to, form):
        parts = []
        for task in tasks_of(plan, to, form, decode):
            parts.append(await written(topics, task))
            told(task.wanted.entries)
        return ended(plan, to, parts)


def export_apart(opening: Opening, plan: Plan, to: Path, form: Form, decode: bool, told: Told, jobs: int) -> Exported:
    """Writes as `export`, in `jobs` processes, of which each opens the topics anew."""
    with exporting(to, form):
        context = multiprocessing.get_context("spawn")
        tasks = tasks_of(plan, to, form, decode)
        pool = ProcessPoolExecutor(max(1, min(jobs, len(tasks))), context, initializer=begin, initargs=(opening,))
        try:
            parts = []
            for task, future in [(task, pool.submit(written_apart, task)) for task in tasks]:
                parts.append(future.result())
                told(task.wanted.entries)
        finally:
            pool.shutdown(cancel_futures=True)
        return ended(plan, to, parts)


def tasks_of(plan: Plan, to: Path, form: Form, decode: bool) -> list[Task]:
    """A part for each range."""
    return [Task(each, str(to / f"part-{number:05}.{form}"), form, decode) for number, each in enumerate(plan.ranges)]


def ended(plan: Plan, to: Path, parts: list[Part]) -> Exported:
    """Writes the summary."""
    done = Exported(str(to), sum(each.messages for each in parts), sum(each.bytes for each in parts), parts)
    (to / SUMMARY).write_text(json.dumps(summary(plan, done), indent=1) + "\n")
    return done


def check_library(form: Form) -> None:
    """`NotRead` if Parquet can't be written here."""
    if form == "parquet":
        try:
            import pyarrow  # noqa: F401  # only whether it is there
        except ImportError:
            raise NotRead(f"Parquet can't be written here: `{installs('pulsar')}`, or export JSON lines") from None


def summary(plan: Plan, done: Exported) -> dict[str, Any]:
    """Makes what `export.json` says."""
    return {
        "topic": plan.topic,
        "ends": {name: str(end) for name, end in plan.ends.items()},
        "messages": done.messages,
        "files": [{"file": part.file, "messages": part.messages} for part in done.parts],
        "passed_over": [dict(zip(("position", "why", "text"), each, strict=True)) for each in done.passed[:PASSED_MAX]],
        "passed_over_count": len(done.passed),
    }


_own: list[tuple[ReactorThread, Topics]] = []  # of a worker process, which has one


def begin(opening: Opening) -> None:
    """Opens the topics of a worker process."""
    thread = reactor_thread()
    topics = thread.wait(lambda: connect(thread.reactor, *opening))
    _own.append((thread, topics))
    Finalize(None, thread.wait, (topics.close,), exitpriority=10)


def written_apart(task: Task) -> Part:
    """Writes one part in a worker process."""
    ((thread, topics),) = _own
    return thread.wait(lambda: written(topics, task))


async def written(topics: Topics, task: Task) -> Part:
    """Writes one part."""
    count, size = 0, 0
    passed: list[tuple[str, str, str]] = []
    schemas: dict[bytes, Schema] = {}
    with opened(task, schemas) as write:
        async with aclosing(topics.read_range(task.wanted)) as batches:
            async for batch in batches:
                for version in versions(batch) - schemas.keys() if task.decode else ():
                    schemas[version] = await topics.schema(task.wanted.topic, version)
                write(batch)
                count, size = count + len(batch), size + batch.bytes
                passed += [(str(position), why, text) for position, why, text in batch.passed]
    return Part(os.path.basename(task.path), count, size, passed)


@contextmanager
def opened(task: Task, schemas: Mapping[bytes, Schema]) -> Iterator[Callable[[MessageBatch], object]]:
    """A file under its name once it is whole; what comes back writes a batch."""
    unfinished = task.path + UNFINISHED
    try:
        if task.form == "parquet":
            from pyarrow import parquet

            from quire.pulsar.arrow import SCHEMA, record_batch

            with parquet.ParquetWriter(unfinished, SCHEMA, compression="zstd") as writer:
                yield lambda batch: writer.write_batch(record_batch(batch))
        else:
            with open(unfinished, "wb") as file:
                yield lambda batch: file.write(lines(batch, schemas))
        os.replace(unfinished, task.path)
    finally:
        with suppress(FileNotFoundError):
            os.remove(unfinished)
