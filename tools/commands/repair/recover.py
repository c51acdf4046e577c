"""
`quire recover` and `quire decommission`: making good what a lost bookie held, or what one that is up still has.

Knows: what an operator sees and when the exit status is 1; that entries without a copy are let go only by who has seen
which they are and has named the cluster.  Does not know: how copies are made; that is `quire.replication`.

Safety: a bookie that is registered is refused, unless it is to be drained, for what is still written to it would be
fenced under its writer.  An open ledger is fenced only if its last ensemble names the lost bookie.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from quire.metadata.ledger import check_bookie_id
from quire.metadata.store import WrongCluster
from quire.protocol.errors import MetadataSerialization, MetaStoreRefused, NoSuchLedger
from quire.tools.commands.repair.progress import TOLD_MAX, Shown
from quire.tools.terminal import output
from quire.tools.terminal.input import answer_to
from quire.tools.terminal.options import Json, Metadata, Usage, client_options, command, metadata_uri, single
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.replication.freeing.run import Failed, Ranges, Recovered
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="let go of entries without a copy, once they are listed")
]
ClusterId = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ID", help="with --accept-loss: the cluster's id; asked for if not given"),
]

Rate = Annotated[
    int | None,
    typer.Option("--rate", min=1, metavar="B/s", help="bytes copied in a second at most; else what bookies have left"),
]

recover_app = single()
decommission_app = single()


@command(recover_app, "quire recover 10.0.0.7:3181 --dry-run", "quire recover 10.0.0.7:3181")
def recover(
    bookies: Annotated[
        list[str], typer.Argument(metavar="BOOKIE…", help="the lost bookies' ids, as `quire bookie list` prints them")
    ],
    ledger: Annotated[
        int | None, typer.Option("--ledger", min=0, metavar="ID", help="only this ledger; every one if not given")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count what would be copied")] = False,
    accept_loss: AcceptLoss = False,
    cluster: ClusterId = None,
    rate: Rate = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Copies what lost bookies held to others, and names those in the metadata instead.

    Refuses bookies that are up. An open ledger is fenced and closed only if its last ensemble names a lost bookie. May
    be interrupted and run again: what is done stays done, and the locks of a process that was killed are waited for
    (two zkTimeout). Exit status 1 when a ledger could not be freed from the lost bookies.

    The metadata of all ledgers is looked at first, so that what is to be done is known from then on. With --json,
    standard error has an event a line every five seconds and at the end: how much is done, of how much, how fast, and
    the seconds left.

    It takes what the bookies have left beside appends, and everything when nobody appends.

    --accept-loss is for entries that have no copy left: lists them, asks for the cluster's id, and lets go of them.
    Readers get an error for each of them, never a wrong end; what is left is copied. A ledger that is not closed and
    whose end nobody can tell is not let go: `quire ledger delete`.
    """
    for bookie in bookies:
        check_bookie_id(bookie)

    async def work(reactor: "ProcessReactor", client: "Client") -> "Recovered":
        from quire.replication.concurrently import Pace
        from quire.replication.lost_bookies import check_known, recover_bookies

        await check_known(client, bookies)
        accept = partial(accepted_losses, reactor, client, bookies, cluster) if accept_loss else None
        with Shown("recover", json_wanted) as shown:
            pace = Pace(client.reactor, rate)
            return await recover_bookies(client, bookies, ledger, dry_run, shown, accept=accept, pace=pace)

    show(with_client(metadata_uri(metadata), work, client_options()), json_wanted)


@command(
    decommission_app,
    "quire decommission 10.0.0.7:3181",
    "quire decommission --drain 10.0.0.6:3181",
    "quire decommission --undo 10.0.0.6:3181",
)
def decommission(
    bookies: Annotated[
        list[str],
        typer.Argument(metavar="BOOKIE…", help="the ids of bookies that are down and will not come back"),
    ],
    drained: Annotated[
        bool, typer.Option("--drain", help="empty it while it is up; it is read-only from now on")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="it is not to be drained any more: it takes entries again")
    ] = False,
    accept_loss: AcceptLoss = False,
    cluster: ClusterId = None,
    rate: Rate = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Takes a bookie that is down out of the cluster for good; with --drain, empties one that is up before that.

    Copies everything it held to others, reads the copies back, makes sure that no ledger names it any more, and removes
    its cookie. Refuses while it is up. May be interrupted and run again.

    The cluster remembers the id, which is the address unless the configuration has a bookieId: a new bookie on that
    machine begins under another bookieId, or with `quire bookie start --restore`.

    Several at once cost as many looks at all ledgers as one, and nothing is copied from one of them to another.

    With --drain the bookie turns read-only by an order in the metadata store, which holds when it is restarted, and
    serves reads; what it has is copied until no ledger names it. Nobody is fenced: the writer of an open ledger is
    waited for, and leaves the bookie with its next appends, or when it closes the ledger. An Apache bookie knows no
    such order: give it forceReadOnlyBookie=true and restart it first. Then stop the bookie and run this without
    --drain.

    --accept-loss is for entries that have no copy left: lists them, asks for the cluster's id, and lets go of them.
    Readers get an error for each of them, never a wrong end; what is left is copied. A ledger that is not closed and
    whose end nobody can tell is not let go: `quire ledger delete`.
    """
    for each in bookies:
        check_bookie_id(each)
    bookie = ", ".join(bookies)
    if undo and len(bookies) > 1:
        raise Usage("--undo takes one bookie")
    if drained + undo + accept_loss > 1:
        raise Usage("one of --drain, --undo and --accept-loss")
    uri, verb = metadata_uri(metadata), "drain" if drained else "decommission"

    async def work(reactor: "ProcessReactor", client: "Client") -> "Recovered":
        from quire.replication import decommission as going
        from quire.replication.concurrently import Pace
        from quire.replication.lost_bookies import check_known

        await check_known(client, bookies)
        pace = Pace(client.reactor, rate)
        with Shown(f"{verb} {bookie}", json_wanted) as shown:
            if drained:
                return await going.drain(client, bookies, shown, shown.waits, pace)
            accept = partial(accepted_losses, reactor, client, bookies, cluster) if accept_loss else None
            return await going.decommission(client, bookies, shown, accept, pace)

    async def withdraw(_reactor: "ProcessReactor", client: "Client") -> bool:
        from quire.replication.decommission import undo as withdrawn

        return await withdrawn(client, bookie)

    if undo:
        stood = with_client(uri, withdraw, client_options())
        text = f"{bookie} takes new entries again" if stood else f"{bookie} was not being drained"
        output.document(json_wanted, {"bookie": bookie, "undone": stood}, [text])
        return
    closing = (
        f"no ledger names {bookie} any more: stop it (quire bookie stop, on its machine), then `quire decommission "
        f"{' '.join(bookies)}` removes its cookie"
        if drained
        else f"{bookie} is out of the cluster; its cookie is removed.  A new bookie there needs another bookieId: an "
        "empty one is refused under this id, except with --restore"
    )
    show(with_client(uri, work, client_options()), json_wanted, closing)


async def accepted_losses(
    reactor: "ProcessReactor",
    client: "Client",
    bookies: Sequence[str],
    cluster: str | None,
    failed: "Sequence[Failed]",
) -> "dict[int, Ranges]":
    """
    Lists the entries without a copy of the ledgers that could not be freed, and returns them by ledger once the cluster
    was named.  `WrongCluster` when another one was.
    """
    from quire.replication.concurrently import about_one
    from quire.replication.lost_bookies import gone_of

    lost = []
    for one in failed:
        try:
            gone = await gone_of(client, one.ledger, bookies)
        except (NoSuchLedger, MetadataSerialization, MetaStoreRefused) as error:
            await about_one(client.store, error)  # it stays with the reason for which it failed
            continue
        lost += [gone] if gone.ranges else []
    if not lost:
        return {}
    for each in lost:
        ranges = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in each.ranges)
        output.note(f"ledger {each.ledger}: {each.entries:,} entries have no copy left: {ranges}")
    here = (await client.store.cluster()).instance_id
    what = f"{sum(each.entries for each in lost):,} entries of {len(lost):,} ledgers are let go for good"
    named = cluster if cluster is not None else await answer_to(reactor, f"{what}. The cluster's id")
    if named.strip().lower() != here:
        raise WrongCluster(
            f"{client.store.uri} holds another cluster than {named.strip()!r}; nothing was let go. `quire metadata "
            "show` prints its id"
        )
    return {each.ledger: each.ranges for each in lost}


def show(found: "Recovered", json_wanted: bool, closing: str = "") -> None:
    """Prints what was done; exit status 1 when something was not."""
    done = found.progress
    value = {
        "bookies": list(found.lost),
        "dry_run": found.dry_run,
        "ledgers_seen": done.ledgers_seen,
        "ledgers": list(found.ledgers),
        "ledgers_fenced": done.ledgers_recovered,
        "fragments": done.fragments,
        "entries": done.entries,
        "bytes": done.bytes,
        "failed": [{"ledger": each.ledger, "reason": each.reason} for each in found.failed],
    }
    lost = ", ".join(found.lost)
    would = "would be " if found.dry_run else ""
    copied = f"{done.entries:,} entries in {done.fragments:,} fragments {would}copied" + (
        "" if found.dry_run else f", {output.size_text(done.bytes)}"
    )
    lines = [
        (
            f"{lost}: named by {len(found.ledgers):,} of {done.ledgers_seen:,} ledgers; {copied}; "
            f"{done.ledgers_recovered:,} ledgers {would}closed"
        )
    ]
    if closing and not found.failed:
        lines.append(closing)
    output.document(json_wanted, value, lines)
    if found.failed:
        for each in found.failed[:TOLD_MAX]:
            output.note(f"quire: ledger {each.ledger}: {each.reason}")
        output.note(
            f"quire: {len(found.failed)} ledgers still name {lost}, or may; run this again when the cause is mended"
        )
        raise typer.Exit(1)
