"""
The lock under which one process at a time repairs a ledger, for as long as a block runs.

Knows: that it is given back however the block ends, also when its story is cancelled before the lock came.
Does not know: what is done under it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.metadata.repairs import RepairLock, Repairs
from quire.protocol.errors import MetaStore
from quire.replication.concurrently import Share

# SPDX-License-Identifier: Apache-2.0


@asynccontextmanager
async def repair_lock(
    repairs: Repairs, ledger: int, held: RepairLock | None = None, operations: Share | None = None
) -> AsyncIterator[RepairLock | None]:
    """
    The ledger's repair lock; None when another one has it.  `held`: the caller has it, and keeps it.
    `operations`: it is asked for in its turn.  Fails as the store does.
    """
    if held is not None:
        yield held
        return
    if operations is None:
        lock = await _asked_for(repairs, ledger)
    else:
        lock = await operations.turn(lambda: _asked_for(repairs, ledger))
    try:
        yield lock
    finally:
        if lock is not None:
            with suppress(MetaStore):  # then it goes with the session
                await repairs.release(lock)


def _asked_for(repairs: Repairs, ledger: int) -> "Deferred[RepairLock | None]":
    answer: Deferred[RepairLock | None] = Deferred()

    def came(lock: RepairLock | None) -> None:
        if not answer.called:
            answer.callback(lock)
        elif lock is not None:  # the caller was cancelled
            repairs.release(lock).addErrback(lambda failure: None)

    def failed(failure: Failure) -> None:
        if not answer.called:
            answer.errback(failure)

    repairs.lock(ledger).addCallbacks(came, failed)
    return answer
