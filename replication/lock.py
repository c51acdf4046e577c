"""
The lock under which one process at a time repairs a ledger, for as long as a block runs.

Knows: that it is given back however the block ends, also when its story is cancelled before the lock came.
Does not know: what is done under it.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.metadata.store import MetadataStore
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

Release = Callable[[], Deferred[None]]


@asynccontextmanager
async def repair_lock(store: MetadataStore, ledger: int) -> AsyncIterator[bool]:
    """
    Whether this process has the ledger's repair lock; it has not when another one has it, or where the store knows no
    locks.  Fails as the store does.
    """
    release = await _asked_for(store, ledger)
    try:
        yield release is not None
    finally:
        if release is not None:
            with suppress(MetaStore):  # then it goes with the session
                await release()


def _asked_for(store: MetadataStore, ledger: int) -> "Deferred[Release | None]":
    answer: Deferred[Release | None] = Deferred()

    def came(release: Release | None) -> None:
        if not answer.called:
            answer.callback(release)
        elif release is not None:  # the caller was cancelled
            release().addErrback(lambda failure: None)

    def failed(failure: Failure) -> None:
        if not answer.called:
            answer.errback(failure)

    store.lock_repair(ledger).addCallbacks(came, failed)
    return answer
