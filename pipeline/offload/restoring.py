"""
Copies brought back to bookies: a ledger with its number, its metadata, and each entry bit for bit.

Knows: the order of steps.  Does not know: how one is done.

Safety: a restore that ends anywhere leaves a ledger that is read from its copy; the next one goes on.  Copies stay.
"""

from dataclasses import dataclass

from quire.log.store.ledgers import log_of
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.copies.reading import Offloaded
from quire.pipeline.core.selection import Selection
from quire.pipeline.offload.claims import NothingToDo, check, claimed, release
from quire.pipeline.offload.storing import store_copy
from quire.pipeline.offload.wishes import Done, Problem, Reached, Spread, nothing
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """One ledger."""

    metadata: str
    source: str
    ledger: int


@dataclass(frozen=True, slots=True)
class Restored:
    """Of a task: `entries` of `bytes`; `left`: why there was nothing to do; `problem`: why it could not be done."""

    ledger: int
    entries: int = 0
    bytes: int = 0
    left: str | None = None
    problem: str | None = None


def restore(metadata: str, source: str, ledgers: str, spread: Spread) -> Done:
    """
    The ledgers that have copies at `source`, in ranges of ids as `7,9-20`, or `all`.  In `offloaded` those that are on
    bookies again.  `ValueError`; `OSError`, also where no copies are.
    """
    selection, listed, done = Selection.parse(ledgers), Offloaded(source).listed(), Done()
    if not listed:
        raise FileNotFoundError(2, "there are no copies of ledgers: give the place that `offload --to` named", source)
    there = [each for each in listed if each in selection]
    if len(there) < selection.count and not selection.is_all:
        done.left["without a copy"] = selection.count - len(there)
    for made in spread(restored, [RestoreTask(metadata, source, ledger) for ledger in there]):
        if made.left is not None:
            done.leave(made.left)
        elif made.problem is None:
            done.offloaded.append(made.ledger)
            done.entries += made.entries
            done.bytes += made.bytes
        else:
            done.problems.append(Problem(made.ledger, made.problem))
    return done


def restored(task: RestoreTask, reached: Reached = nothing) -> Restored:
    """One ledger, from the beginning or from where another task has ended."""
    try:
        return bring_back(cluster(task.metadata), task.source, task.ledger, reached)
    except NothingToDo as why:
        return Restored(task.ledger, left=str(why))
    except (LedgerError, OSError) as error:
        return Restored(task.ledger, problem=f"{type(error).__name__}: {error}")


def bring_back(ours: Cluster, source: str, ledger: int, reached: Reached) -> Restored:
    """
    `NothingToDo`; `LedgerExist` when there is another ledger of that number; `CopyDamaged`, `NotEnoughBookies`,
    `Replication`, `Write`.
    """
    copy = Offloaded(source).opened(ledger)
    if copy is None:
        raise NothingToDo("without a copy")
    if log_of(copy.manifest.closed) is not None:
        raise NothingToDo("of a log, which reads the copy as it is")
    record = ours.wait(lambda: claimed(ours.client, copy.manifest))
    reached("claimed")
    store_copy(ours, copy, record, reached)
    reached("stored")
    ours.wait(lambda: check(ours.client, ledger))
    reached("checked")
    ours.wait(lambda: release(record))
    reached("released")
    return Restored(ledger, copy.metadata.last_entry + 1, copy.metadata.length)
