"""
An export: the log of a message store becomes a directory for a broker (docs/messages.md, "Export").

Knows: which records and positions belong to one moment: the queue table's, which is the end of the range.
Does not know: what files hold (`exporting`), faces.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from quire.log.api import Logs
from quire.messages import known
from quire.messages.core.queues import QueueTable
from quire.messages.descriptor import USE, Descriptor
from quire.messages.progress import Progress
from quire.messages.rocketmq.building import Sizes
from quire.messages.rocketmq.exporting import Export, Report
from quire.messages.rocketmq.importing import in_thread
from quire.messages.rocketmq.ranges import Source, first_border

# SPDX-License-Identifier: Apache-2.0


async def exported(
    logs: Logs,
    name: str,
    directory: str,
    start: int | None = None,
    *,
    sizes: Sizes = Sizes(),
    told: Callable[[int, int], None] = lambda _done, _total: None,
    reached: Callable[[str], None] = lambda _point: None,
) -> Report:
    """
    Begins an export, or goes on with it, and ends it.  `start`: an offset at which a file begins; `told(bytes done,
    bytes in all)`; `reached`: after each step, on another thread.  `NoSuchStore`, `StoreImporting`, `ExportRefused`,
    `StoreDamaged`; the errors of logs and of the disk.
    """
    descriptor = await known.ready(logs, name)
    source, below = await _source(logs, name, descriptor)
    export: Export = await in_thread(
        logs, lambda: Export(directory, source, start, below, sizes=sizes, reached=reached)
    )
    with export:
        if not export.complete:
            await _copy(logs, name, export, told)
        progress = Progress(with_documents=True)
        await _read_progress(logs, descriptor.store_settings.progress, progress)
        report: Report = await in_thread(logs, export.finish, progress)
    return report


async def _source(logs: Logs, name: str, descriptor: Descriptor) -> tuple[Source, int]:
    """The store at one moment, and how many of its records are below the first border of files."""
    info = await logs.info(name)
    replica = await logs.replica(name, lambda: QueueTable(descriptor.placing), use=USE)
    try:
        answer = await replica.read(lambda machine: machine.save())
    finally:
        await replica.close()
    table = QueueTable()
    table.load(answer.value)
    first = await logs.find(name, info.begin_at)  # the log itself begins with what is skipped before it
    border = await logs.find(name, first_border(first.position, descriptor.store_settings.file_bytes))
    end = await _end_of(logs, name, answer.index - 1) if answer.index > first.index else first.position
    return Source(name, info.id, descriptor, first.position, end, table), border.index - first.index


async def _end_of(logs: Logs, name: str, index: int) -> int:
    """The position behind the record with an index."""
    reader = await logs.read(name, index)
    try:
        async with aclosing(reader.batches()) as batches:
            batch = await anext(batches)
            return batch.positions[0] + len(batch.values[0])
    finally:
        await reader.close()


async def _copy(logs: Logs, name: str, export: Export, told: Callable[[int, int], None]) -> None:
    """The values of the log that are missing; the next ones are read while some are written."""
    if export.start >= export.end:
        return

    def take(batch: Any) -> None:
        for at, value in zip(batch.positions, batch.values, strict=True):
            if at < export.end:
                export.take(at, value)

    begin, writing = export.report.begin, None
    reader = await logs.read(name, (await logs.find(name, export.start)).index)
    try:
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                if writing is not None:
                    written, writing = writing, None
                    await written
                    told(export.at - begin, export.end - begin)
                if batch.positions[0] >= export.end:
                    break
                writing = in_thread(logs, take, batch)
    finally:
        try:
            if writing is not None:
                await writing
        finally:
            await reader.close()
    told(export.end - begin, export.end - begin)


async def _read_progress(logs: Logs, name: str, progress: Progress) -> None:
    reader = await logs.read(name, compacted=True)
    try:
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                for key, value in zip(batch.keys or (), batch.values, strict=True):
                    if key is not None:
                        progress.apply(key, value)
    finally:
        await reader.close()
