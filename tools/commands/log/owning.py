"""
`quire log own, transfer, txns, janitor, adopt`: owners, publishers of closed ledgers, and plain ledgers taken in.

Knows: how a log is taken by hand and handed over, what an operator sees of a publisher.
Does not know: what an owner does, how a batch is published.

Safety: the log is taken from a living owner only with --force; what that one was acknowledged stays.  The janitor
deletes only what can't be published any more.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from twisted.internet.defer import CancelledError, Deferred

from quire.metadata.clock import pause
from quire.tools.commands.log.shared import Name, app, time_text, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, command, refused

if TYPE_CHECKING:
    from quire.log.api import LogInfo, Logs

# SPDX-License-Identifier: Apache-2.0

TRANSFER_S = 30  # that the candidate may take to recover what was left
TRIES = 300


@command(app, "quire log own orders", "quire log own orders --force --hold")
def own(
    log: Name,
    force: Annotated[bool, typer.Option("--force", help="take the log from another owner")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="keep it until interrupted")] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Owns a log and resigns: what the owner before left open is recovered and closed. With --hold it resigns when it is
    interrupted, or when the log is taken from it, which is exit status 1.
    """

    async def work(logs: "Logs") -> dict[str, Any]:
        owner = await logs.own(log, wait_s=0, force=force)
        found = {"log": log, "epoch": owner.epoch, "end": owner.end.index, "token": owner.token, "lost": False}
        if hold:
            lost: Deferred[None] = Deferred()
            owner.on_lost = lambda: lost.callback(None)
            output.document(json_wanted, found, f"{log} is owned, epoch {owner.epoch}, end {owner.end.index}")
            try:
                await lost
            except CancelledError:
                await owner.close()
                return found
            return found | {"lost": True}
        await owner.close()
        return found

    found = with_logs(metadata, work)
    if found["lost"]:
        output.note(f"quire: another one owns the log {log!r} now")
        raise typer.Exit(1)
    if not hold:
        output.document(json_wanted, found, f"{log}: epoch {found['epoch']}, closed at index {found['end']}")


@command(app, "quire log transfer orders --to 10.0.0.6:7100")
def transfer(
    log: Name,
    to: Annotated[
        str | None, typer.Option("--to", metavar="ADDRESS", help="the candidate's address; any candidate if not given")
    ] = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Takes a log from its owner and hands it over to one that waits for it. What the owner before was acknowledged stays;
    what it had not sent fails there.
    """

    async def work(logs: "Logs") -> "LogInfo":
        waiting = [each async for each in logs.candidates(log) if to in {None, each.address} and not each.owns]
        if not waiting:
            where = "" if to is None else f" at {to}"
            raise refused(f"no candidate{where} waits for the log {log!r}: nothing was done")
        best = max(waiting, key=lambda each: each.priority)
        owner = await logs.own(log, force=True)
        await owner.transfer(best.token)
        for _ in range(TRIES):
            info = await logs.info(log)
            if info.owner is not None:
                return info
            await pause(logs.bk.reactor, TRANSFER_S / TRIES)
        raise refused(f"no candidate took the log {log!r} within {TRANSFER_S} s: `quire log show` says who has it")

    info = with_logs(metadata, work)
    found = {"log": log, "owner": info.owner, "epoch": info.epoch}
    output.document(json_wanted, found, f"{log} is owned by {info.owner}, epoch {info.epoch}")


COLUMNS = {"txn": 36, "run": 36, "claim": 5, "last": 8, "first": 12, "end": 12, "aborted": 8, "at": 0}


@command(app, "quire log txns orders")
def txns(log: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Lists the publishers of a log: each one's run, its last batch, and which indexes that became."""
    table = output.Table(json_wanted, COLUMNS)

    async def work(logs: "Logs") -> None:
        async for txn in logs.txns(log):
            row: dict[str, Any] = {
                "txn": txn.txn,
                "run": txn.run,
                "claim": txn.claim,
                "last": txn.last,
                "first": None if txn.receipt is None else txn.receipt.first,
                "end": None if txn.receipt is None else txn.receipt.end,
                "aborted": None if txn.aborted is None else txn.aborted.batch,
                "at": time_text(txn.at),
            }
            table.row(row)

    with_logs(metadata, work)
    table.end(f"{log} has no publishers")


@command(app, "quire log create archive", "quire log adopt archive 1")
def adopt(
    log: Name,
    ledgers: Annotated[list[int], typer.Argument(metavar="LEDGER…", min=0, help="the ledgers' ids, in their order")],
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Takes closed plain ledgers into a log, each of their entries a record. Their deletion is the log's from then on.
    """
    done = with_logs(metadata, lambda logs: logs.adopt(log, ledgers))
    found = {"log": log, "first": done.first, "end": done.end, "segments": list(done.segments), "again": done.again}
    output.document(json_wanted, found, f"{log}: {len(ledgers)} ledgers are index {done.first} to {done.end - 1}")


@command(app, "quire log janitor orders")
def janitor(log: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Deletes what tasks of publishers wrote and what can't be published any more, or was left by a publisher that is
    silent for too long: 90 days, a day for a batch query of Spark. May be run at any time, beside them. `quire log
    tidy` does it, too. Exit status 1 when a ledger could not be deleted: `quire log tidy --abandon` deletes it
    nevertheless.
    """
    done = with_logs(metadata, lambda logs: logs.janitor(log))
    found = {"log": log, "txns": done.publishers, "parts": done.parts, "forgotten": done.forgotten}
    text = f"{log}: {done.parts} parts of {done.publishers} publishers were deleted, {done.forgotten} forgotten"
    output.document(json_wanted, found | {"stayed": done.stayed}, text)
    for ledger, why in done.stayed.items():
        output.note(f"quire: ledger {ledger} stays: {why}")
    if done.stayed:
        raise typer.Exit(1)
