"""
A process that registers a bookie, makes the claim `claims/owner`, takes the repair lock of ledger 7, votes as an
auditor, and stays, to be stopped or killed by a test.

    python -m tests.metadata.holder URI BOOKIE SESSION_TIMEOUT_MS

It prints "registered", and after an expiry "lost" and, once it is registered again, "registered".
"""

import sys

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from quire.metadata.store import ServiceInfo
from quire.metadata.uri import open_store

# SPDX-License-Identifier: Apache-2.0


def main(uri: str, bookie: str, session_timeout_ms: str) -> None:
    async def hold() -> None:
        store = await open_store(reactor, uri, session_timeout_ms=int(session_timeout_ms))

        async def register() -> None:
            await store.register_bookie(bookie, ServiceInfo.of("127.0.0.1", 3181))
            await store.records.folder("claims")
            await store.records.create("claims/owner", bookie.encode(), claim=True)
            await store.repairs.lock(7)
            await store.auditing.vote(bookie)
            print("registered", flush=True)

        def lost() -> None:
            print("lost", flush=True)
            Deferred.fromCoroutine(register())

        store.on_session_lost(lost)
        await register()

    reactor.callWhenRunning(
        lambda: Deferred.fromCoroutine(hold()).addErrback(lambda failure: (failure.printTraceback(), reactor.stop()))
    )
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
