"""
`quire recover` and `quire decommission`: making good what a lost bookie held.

Knows: what an operator sees and when the exit status is 1.  Does not know: how copies are made; that is
`quire.replication`.

Safety: a bookie that is registered is refused, for what is still written to it would be fenced under its writer.  An
open ledger is fenced only if its last ensemble names the lost bookie.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.metadata.ledger import check_bookie_id
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, client_options, metadata_uri, single
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.replication.lost_bookies import Progress, Recovered
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

FAILURES_TOLD_MAX = 20

recover_app = single()
decommission_app = single()


@recover_app.command()
def recover(
    bookies: Annotated[
        list[str], typer.Argument(metavar="BOOKIE…", help="the lost bookies' ids, as `quire bookie list` prints them")
    ],
    ledger: Annotated[
        int | None, typer.Option("--ledger", min=0, metavar="ID", help="only this ledger; every one if not given")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count what would be copied")] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Copies what lost bookies held to others, and names those in the metadata instead.

    Refuses bookies that are up. An open ledger is fenced and closed only if its last ensemble names a lost bookie. May
    be interrupted and run again: what is done stays done. Exit status 1 when a ledger could not be freed from the lost
    bookies.

    \b
    Examples:
      quire recover 10.0.0.5:3181 --dry-run
      quire recover 10.0.0.5:3181
    """
    for bookie in bookies:
        check_bookie_id(bookie)

    async def work(_reactor: "ProcessReactor", client: "Client") -> "Recovered":
        from quire.replication.lost_bookies import check_known, recover_bookies

        await check_known(client, bookies)
        with output.Progress("recover", None) as progress:
            return await recover_bookies(client, bookies, ledger, dry_run, shower(progress))

    show(with_client(metadata_uri(metadata), work, client_options()), json_wanted)


@decommission_app.command()
def decommission(
    bookie: Annotated[
        str, typer.Argument(metavar="BOOKIE", help="the id of a bookie that is down and will not come back")
    ],
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Takes a bookie that is down out of the cluster for good.

    Copies everything it held to others, reads the copies back, makes sure that no ledger names it any more, and removes
    its cookie. Refuses while it is up. May be interrupted and run again.

    \b
    Example:
      quire decommission 10.0.0.5:3181
    """
    check_bookie_id(bookie)

    async def work(_reactor: "ProcessReactor", client: "Client") -> "Recovered":
        from quire.replication.decommission import decommission as drain
        from quire.replication.lost_bookies import check_known

        await check_known(client, [bookie])
        with output.Progress(f"decommission {bookie}", None) as progress:
            return await drain(client, bookie, shower(progress))

    show(with_client(metadata_uri(metadata), work, client_options()), json_wanted, "its cookie is removed")


def shower(progress: output.Progress) -> "Any":
    """What shows a run's progress."""

    def seen(now: "Progress") -> None:
        progress.advance(now.entries - progress.done)

    return seen


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
        lines.append(f"{lost} is out of the cluster; {closing}")
    output.document(json_wanted, value, lines)
    if found.failed:
        for each in found.failed[:FAILURES_TOLD_MAX]:
            output.note(f"quire: ledger {each.ledger}: {each.reason}")
        output.note(f"quire: {len(found.failed)} ledgers still name {lost}; run this again when the cause is mended")
        raise typer.Exit(1)
