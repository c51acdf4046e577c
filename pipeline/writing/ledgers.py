"""
Rows into one ledger, which a task creates, writes and closes.

Knows: the client's writer.  Does not know: Spark, other tasks.

Safety: a ledger whose task failed is deleted, as are those that a job does not end with; one that is closed has every
row.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from quire.client.api import LEDGER_IDS_PER_PAGE, Client, Writer
from quire.conf.pipeline import LedgerWriting
from quire.metadata.position import NOTHING, Position
from quire.pipeline.clients import Cluster, password
from quire.pipeline.columns import rows
from quire.pipeline.core.selection import LEDGER_MAX
from quire.protocol.errors import LedgerError, NoSuchLedger

# SPDX-License-Identifier: Apache-2.0

TAG = "quire/job"  # custom metadata: which write made it


class Job(NamedTuple):
    """
    One write of a frame; its ledgers have ids from `first` to `last`, which are one where the user chose it, and none
    that was `given` before.
    """

    id: str
    first: int
    last: int = LEDGER_MAX
    given: Position = NOTHING


def begin(cluster: Cluster, options: LedgerWriting) -> Job:
    """Begins a job in the driver, before any task."""
    if options.ledger_id is not None:
        return Job(cluster.new_id(), options.ledger_id, options.ledger_id)
    given = cluster.wait(cluster.client.store.progress).position
    return Job(cluster.new_id(), min(given), given=given)


def withdraw(cluster: Cluster, job: Job, kept: int | None = None) -> None:
    """Deletes what its tasks wrote, also what they could not tell, but for the ledger `kept`."""

    async def delete() -> None:
        client, after = cluster.client, job.first - 1
        while after < job.last:
            page = await client.ledger_ids(after, min(LEDGER_IDS_PER_PAGE, job.last - after))
            if not page:
                break
            after, page = page[-1], job.given.beyond(page)
            for ledger, found in zip(page, await client.store.read_ledgers(page), strict=True):
                if ledger != kept and found is not None and found.value.custom.get(TAG) == job.id.encode():
                    with suppress(NoSuchLedger):
                        await discard(cluster, ledger)

    cluster.wait(delete)


def keep(cluster: Cluster, options: LedgerWriting, job: Job, ledger: int | None) -> None:
    """The job is done with this ledger: those that other attempts of its task wrote go, as far as that can be."""
    if ledger is not None and options.ledger_id is None:  # else no attempt could make another one
        with suppress(LedgerError):
            withdraw(cluster, job, ledger)


class Written(NamedTuple):
    """The report of a task; `ledger` is None where there were no rows."""

    ledger: int | None
    entries: int


def write(cluster: Cluster, options: LedgerWriting, job: Job, batches: Iterable[Any]) -> Written:
    """Writes a task's rows as the entries of a new ledger.  `NotEnoughBookies`, `LedgerExist`."""
    secret = password(options)
    writer = None
    try:
        for batch in batches:
            for some in rows(batch):
                if writer is None:
                    writer = cluster.wait(lambda: begun(cluster.client, options, job, secret))
                made = writer
                cluster.wait(lambda some=some, made=made: made.append_many(list(some.values)))  # type: ignore[misc]  # binds this turn's
        if writer is None:
            return Written(None, 0)
        cluster.wait(writer.close)
        return Written(writer.id, writer.last_add_confirmed + 1)
    except BaseException:
        if writer is not None:
            ended = writer
            with suppress(LedgerError):  # what stays goes with the job
                cluster.wait(lambda: discard(cluster, ended.id))
        raise


async def begun(client: Client, options: LedgerWriting, job: Job, secret: bytes) -> Writer:
    """A task's ledger.  Its id is drawn now: one that this process has from before is below those of the job."""
    ledger = options.ledger_id
    return await client.create_ledger(
        ensemble_size=options.ensemble,
        write_quorum=options.write_quorum,
        ack_quorum=options.ack_quorum,
        password=secret,
        digest=options.digest,
        ledger_id=await client.store.new_ledger_id() if ledger is None else ledger,
        custom_metadata={TAG: job.id.encode()},
    )


async def discard(cluster: Cluster, ledger: int) -> None:
    """Fenced first, so that nothing is acknowledged in a ledger that goes."""
    await cluster.client.recover_ledger(ledger)
    await cluster.client.delete_ledger(ledger)
