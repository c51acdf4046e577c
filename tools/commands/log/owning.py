"""
`quire log own, transfer`: who may append.

Knows: how a log is taken by hand and handed over.  Does not know: what an owner does.

Safety: the log is taken from a living owner only with --force; what that one was acknowledged stays.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from twisted.internet.defer import CancelledError, Deferred

from quire.metadata.clock import pause
from quire.tools.commands.log.shared import Name, name_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, refused

if TYPE_CHECKING:
    from quire.log.api import LogInfo, Logs
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

TRANSFER_S = 30  # that the candidate may take to recover what was left
TRIES = 300


def own(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="take the log from another owner")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="keep it until interrupted")] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Owns a log and resigns: what the owner before left open is recovered and closed. With --hold it resigns when it is
    interrupted, or when the log is taken from it, which is exit status 1.

    \b
    Examples:
      quire log own orders
      quire log own orders --force --hold
    """
    log = name_of(name)

    async def work(_reactor: "ProcessReactor", logs: "Logs") -> dict[str, Any]:
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


def transfer(
    name: Name,
    to: Annotated[
        str | None, typer.Option("--to", metavar="ADDRESS", help="the candidate's address; any candidate if not given")
    ] = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Takes a log from its owner and hands it over to one that waits for it. What the owner before was acknowledged stays;
    what it had not sent fails there.

    \b
    Example:
      quire log transfer orders --to 10.0.0.6:7100
    """
    log = name_of(name)

    async def work(reactor: "ProcessReactor", logs: "Logs") -> "LogInfo":
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
            await pause(reactor, TRANSFER_S / TRIES)
        raise refused(f"no candidate took the log {log!r} within {TRANSFER_S} s: `quire log show` says who has it")

    info = with_logs(metadata, work)
    found = {"log": log, "owner": info.owner, "epoch": info.epoch}
    output.document(json_wanted, found, f"{log} is owned by {info.owner}, epoch {info.epoch}")
