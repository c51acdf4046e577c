"""
Taking bookies out of the cluster: those that are down, or, while they are up, emptying them first.  Several at once
take as many looks at all ledgers as one, and what one has is not copied to another one.

Knows: what must be true before a cookie goes, and before a bookie turns read-only for good; that an order in the
metadata store keeps it read-only through restarts, and that a drain which is called again goes on with it.
Does not know: how ledgers are freed from it (`lost_bookies`), how a bookie follows the order.

Safety: a cookie is removed only when no ledger names its bookie and it is not registered again meanwhile; the store
remembers that the id was in use, for an empty bookie under it knows no fence (D19).  A drain
fences nobody, and the copies on the bookie stay readable until the metadata names others.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict

from quire.client.api import Client
from quire.metadata.bookies.drain_orders import DrainOrders
from quire.metadata.clock import pause
from quire.metadata.retired_ids import DECOMMISSIONED, retire
from quire.protocol.errors import IllegalOp, NotEnoughBookies, Replication
from quire.replication.concurrently import Pace
from quire.replication.freeing.run import Accept, Failed, FreeingProgress, Recovered, Report
from quire.replication.lost_bookies import recover_bookies, refuse_registered, widest_ensemble

# SPDX-License-Identifier: Apache-2.0

FAILURES_NAMED_MAX = 5  # in an error's text
OBEYED_S = 30.0  # in which a bookie follows the order
LOOK_S = 0.2  # between two looks whether it did
WAIT_S = 5.0  # between two looks at ledgers that something is waited for with

Waiting = Callable[[Sequence[Failed]], object]


def _several(bookies: str | Collection[str]) -> list[str]:
    return [bookies] if isinstance(bookies, str) else sorted(set(bookies))


async def decommission(
    client: Client,
    bookies: str | Collection[str],
    progress: Report | None = None,
    accept: Accept | None = None,
    pace: Pace | None = None,
) -> Recovered:
    """
    Takes a bookie, or some, that are down out of the cluster: copies everything they held, reads the copies back, makes
    sure that no ledger names them, notes that their ids were in use, removes their cookies.  `IllegalOp` while one is
    registered; `Replication` when a ledger could not be freed from them, and then the cookies stay.  To be called again
    after an interruption.  `accept`: as that of `recover_bookies`.
    """
    some = _several(bookies)
    await refuse_registered(client, some)
    done = await recover_bookies(client, some, progress=progress, verify=True, accept=accept, pace=pace)
    _raise_failures(some, done.failed)
    # Ledgers that were created or changed while this ran may name them too.
    again = await recover_bookies(client, some, dry_run=True)
    if again.ledgers or again.failed:
        _raise_failures(some, again.failed)
        raise Replication(
            f"{len(again.ledgers)} ledgers name {', '.join(some)} again, {again.ledgers[0]} for one: run this again"
        )
    await refuse_registered(client, some)
    for bookie in some:
        await retire(client.store, bookie, DECOMMISSIONED)  # an earlier run may have removed its cookie
        await DrainOrders(client.store.records).withdraw(bookie)
    return done


async def drain(
    client: Client,
    bookies: str | Collection[str],
    progress: Report | None = None,
    waiting: Waiting = lambda _left: None,
    pace: Pace | None = None,
) -> Recovered:
    """
    Empties a bookie, or some, that are up: orders them to be read-only from now on, also after a restart, and copies
    what they have to others until no ledger names them, those that were made meanwhile among them.  The writer of an
    open ledger is waited for; `waiting` hears, round by round, which ledgers are left and why.  The order stays, to be
    withdrawn by `undo`, or by `decommission` once a bookie is stopped.  To be called again after an interruption: it
    goes on.

    `NotEnoughBookies` before anything is changed when a ledger would have fewer writable bookies than its ensemble;
    `IllegalOp` when one is down, does not follow the order, or the order is withdrawn; `Replication` when entries that
    only they should have can't be read there.
    """
    orders, rounds, some = DrainOrders(client.store.records), [], _several(bookies)
    await _check_room(client, some)
    for bookie in some:
        await orders.give(bookie)
    for bookie in some:
        await _obeyed(client, bookie)
    left: list[int] | None = None  # of the last round; None: a round over all ledgers is next
    while True:
        done = await recover_bookies(
            client,
            some,
            progress=progress if left is None else None,
            verify=True,
            even_if_registered=True,
            fence=False,
            ledgers=left,
            pace=pace,
        )
        rounds.append(done)
        withdrawn = set(some) - await orders.bookies()
        if withdrawn:
            raise IllegalOp(
                f"the order to empty {', '.join(sorted(withdrawn))} was withdrawn (quire decommission --undo)"
            )
        if left is None and not done.ledgers and not done.failed:
            return _together(rounds)
        left = [each.ledger for each in done.failed] or None
        if left is not None:
            if all(each.gone for each in done.failed):
                listed = await client.store.bookies()
                if all(listed.find(bookie) is not None for bookie in some):
                    _raise_failures(some, done.failed)
            waiting(done.failed)
            await pause(client.reactor, WAIT_S)


async def undo(client: Client, bookie: str) -> bool:
    """Withdraws the order to empty a bookie, which takes new entries again; whether there was one."""
    return await DrainOrders(client.store.records).withdraw(bookie)


async def _check_room(client: Client, some: Sequence[str]) -> None:
    """
    Writers that leave these bookies, or another one, and copies need one to go to: so many bookies must be writable
    without them as the largest ensemble has that names one or is written to.
    """
    listed = await client.store.bookies()
    for bookie in some:
        if listed.find(bookie) is None:
            raise IllegalOp(f"{bookie} is down: `quire decommission {bookie}`, without --drain, copies what it held")
    others = len(listed.writable.keys() - await DrainOrders(client.store.records).bookies() - set(some))
    size, ledger = await widest_ensemble(client, some)
    if size > others:
        raise NotEnoughBookies(
            f"ledger {ledger} has an ensemble of {size}, and without {', '.join(some)} {others} bookies are writable: "
            f"start {size - others} more first"
        )


async def _obeyed(client: Client, bookie: str) -> None:
    """Returns when the bookie is listed as read-only."""
    until = client.reactor.seconds() + OBEYED_S
    while True:
        listed = await client.store.bookies()
        if bookie in listed.read_only and bookie not in listed.writable:
            return
        if client.reactor.seconds() >= until:
            if listed.find(bookie) is None:
                raise IllegalOp(f"{bookie} is ordered to be emptied, and went down; run this again when it is up")
            raise IllegalOp(
                f"{bookie} is not read-only {OBEYED_S:.0f} s after the order to empty it; an Apache bookie knows no "
                "such order: set forceReadOnlyBookie=true in its file, restart it, and run this again"
            )
        await pause(client.reactor, LOOK_S)


def _together(rounds: Iterable[Recovered]) -> Recovered:
    """Sums up what all runs did; the last one, over all ledgers, found nothing to do."""
    rounds = list(rounds)
    last = rounds[-1]
    ledgers = sorted({ledger for each in rounds for ledger in each.ledgers})
    totals = {name: sum(getattr(each.progress, name) for each in rounds) for name in asdict(last.progress)}
    seen = {name: getattr(last.progress, name) for name in ("ledgers_total", "ledgers_seen")}
    counts = {"ledgers_named": len(ledgers), "ledgers_done": len(ledgers), "ledgers_failed": 0}
    return Recovered(last.lost, False, FreeingProgress(**(totals | seen | counts)), (), tuple(ledgers))


def _raise_failures(some: Sequence[str], failed: Sequence[Failed]) -> None:
    if failed:
        named = "; ".join(each.reason for each in failed[:FAILURES_NAMED_MAX])
        more = f"; and {len(failed) - FAILURES_NAMED_MAX} more" if len(failed) > FAILURES_NAMED_MAX else ""
        raise Replication(f"{len(failed)} ledgers still name {', '.join(some)}, or may: {named}{more}")
