"""
Taking a bookie that is down out of the cluster.

Knows: what must be true before its cookie goes.  Does not know: how ledgers are freed from it (`lost_bookies`).

Safety: a cookie is removed only when no ledger names its bookie and it is not registered again meanwhile.
"""

from contextlib import suppress

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.metadata.store import CookieNotFound
from quire.protocol.errors import Replication
from quire.replication.lost_bookies import Recovered, Report, recover_bookies, refuse_registered

# SPDX-License-Identifier: Apache-2.0

FAILURES_NAMED_MAX = 5  # in an error's text


def decommission(client: Client, bookie: str, progress: Report | None = None) -> Deferred[Recovered]:
    """
    Takes a bookie that is down out of the cluster: copies everything it held, reads the copies back, makes sure that no
    ledger names it, removes its cookie.  `IllegalOp` while it is registered; `Replication` when a ledger could not be
    freed from it, and then the cookie stays.  To be called again after an interruption.
    """
    return Deferred.fromCoroutine(_decommission(client, bookie, progress))


async def _decommission(client: Client, bookie: str, progress: Report | None) -> Recovered:
    await refuse_registered(client, [bookie])
    done = await recover_bookies(client, [bookie], progress=progress, verify=True)
    _raise_failures(bookie, done)
    # Ledgers that were created or changed while this ran may name it too.
    again = await recover_bookies(client, [bookie], dry_run=True)
    if again.ledgers or again.failed:
        _raise_failures(bookie, again)
        raise Replication(
            f"{len(again.ledgers)} ledgers name {bookie} again, {again.ledgers[0]} for one: run this again"
        )
    await refuse_registered(client, [bookie])
    with suppress(CookieNotFound):  # removed by an earlier run, or it never had one
        await client.store.remove_cookie(bookie)
    return done


def _raise_failures(bookie: str, done: Recovered) -> None:
    if done.failed:
        named = "; ".join(each.reason for each in done.failed[:FAILURES_NAMED_MAX])
        more = f"; and {len(done.failed) - FAILURES_NAMED_MAX} more" if len(done.failed) > FAILURES_NAMED_MAX else ""
        raise Replication(f"{len(done.failed)} ledgers still name {bookie}: {named}{more}")
