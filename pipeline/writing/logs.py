"""
Exactly once into a named log: tasks write parts, the driver publishes them in one step.

Knows: which txn, run and batch a task works for, and what the driver has to be told.
Does not know: Spark; how a batch comes to be published once (docs/log-publishing.md, "Publishing").

Safety: a task's part names its run.  A batch that was published is told so and left; an abort looks first.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from quire.conf.pipeline import LogWriting
from quire.log.api import Part, PartWriter, Receipt
from quire.pipeline.clients import Cluster
from quire.pipeline.columns import rows
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogExists, LogFenced, NoSuchLog

# SPDX-License-Identifier: Apache-2.0


class Work(NamedTuple):
    """The place of a task's part: its txn, run, batch, number and attempt."""

    txn: str
    run: str
    batch: int
    part: int
    attempt: int


class Written(NamedTuple):
    """The report of a task; without rows there is no part."""

    work: Work
    part: Part | None
    records: int


def work_of(cluster: Cluster, options: LogWriting) -> Work:
    """A batch write: a txn of its own, or a batch of the writer that the options name.  `ValueError`."""
    run = cluster.new_id()
    if options.txn_app_id is None and options.txn_version is None:
        return Work(run, run, 0, 0, 0)
    if options.txn_app_id is None or options.txn_version is None:
        raise ValueError("the options txnAppId and txnVersion go together: the writer's name, and the write's number")
    return Work(options.txn_app_id, run, options.txn_version, 0, 0)


def is_done(cluster: Cluster, options: LogWriting, work: Work) -> bool:
    """True if a named writer's write is done already.  Earlier runs of that writer are over from now on."""
    if options.txn_app_id is None:
        return False
    last = cluster.wait(lambda: _begin(cluster, options, work))
    return last is not None and work.batch <= last


async def _begin(cluster: Cluster, options: LogWriting, work: Work) -> int | None:
    return await (await cluster.logs.sink(options.log, work.txn, work.run)).begin()


def prepare(cluster: Cluster, options: LogWriting) -> None:
    """The log is there, or is created where that is wanted.  `NoSuchLog`."""

    async def look() -> None:
        try:
            await cluster.logs.info(options.log)
        except NoSuchLog:
            if not options.create:
                raise NoSuchLog(
                    f"there is no log {options.log!r}: `quire log create {options.log}` makes it, or option create=true"
                ) from None
            try:
                await cluster.logs.create(options.log)
            except LogExists:  # another one was quicker
                return

    cluster.wait(look)


def write(cluster: Cluster, options: LogWriting, work: Work, batches: Iterable[Any]) -> Written:
    """
    The rows of a task as a part; the store is asked for nothing before the first of them, for most tasks behind a
    shuffle have none.  `LogFenced` when its run is over.  When the rows end with an error, or can't be written, the
    part is deleted where that is possible.
    """
    writer: PartWriter | None = None
    count = 0
    try:
        for batch in batches:
            for some in rows(batch):
                count += len(some.values)
                if writer is None:
                    writer = cluster.wait(lambda: _part(cluster, options, work))
                cluster.wait(
                    lambda some=some, writer=writer: writer.append_many(  # type: ignore[misc]  # binds this turn's
                        some.values, keys=some.keys, times_ms=some.times, headers=some.headers
                    )
                )
        return Written(work, None if writer is None else cluster.wait(writer.close), count)
    except LogFenced:
        raise
    except BaseException:
        if writer is not None:
            with suppress(LedgerError, ValueError):  # what stays goes with the batch, or by the janitor
                cluster.wait(writer.discard)
        raise


async def _part(cluster: Cluster, options: LogWriting, work: Work) -> PartWriter:
    sink = await cluster.logs.sink(options.log, work.txn, work.run, first_batch=options.first_batch)
    return await sink.part(work.batch, work.part, work.attempt)


def publish(cluster: Cluster, options: LogWriting, work: Work, written: Sequence[Written]) -> Receipt:
    """Makes the batch visible, in the order of its parts.  Tasks without rows are no part that counts."""
    ordered = sorted(written, key=lambda each: each.work.part)
    return cluster.wait(
        lambda: _publish(cluster, options, work, [each.part for each in ordered if each.part is not None])
    )


async def _publish(cluster: Cluster, options: LogWriting, work: Work, parts: Sequence[Part]) -> Receipt:
    sink = await cluster.logs.sink(options.log, work.txn, work.run, first_batch=options.first_batch)
    return await sink.commit(work.batch, parts, gaps=options.txn_app_id is not None)


def withdraw(cluster: Cluster, options: LogWriting, work: Work) -> None:
    """Deletes what tasks of its run wrote for the batch, also what they could not tell, unless it was published."""

    async def abort() -> None:
        sink = await cluster.logs.sink(options.log, work.txn, work.run, first_batch=options.first_batch)
        await sink.abort(work.batch)

    cluster.wait(abort)
