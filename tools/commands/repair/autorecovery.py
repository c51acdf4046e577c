"""
`quire autorecovery`: start and stop a process that repairs, and steer the repair of a cluster.

Knows: what an operator asks.  Does not know: how a ledger is repaired; `daemons.autorecovery` is the process.

Everything but `start` and `stop` acts on the metadata store, so it holds for every process that repairs this cluster,
Apache's too.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.metadata.auditing import Periodic
from quire.tools.commands.processes import Override, Pidfile, StartedPidfile, StopWithStdin, become, end
from quire.tools.daemons.process import AUTORECOVERY
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, command, group, metadata_uri
from quire.tools.terminal.running import with_store

if TYPE_CHECKING:
    from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

PAGE = 1000  # shortages in one look
CHECKS = {Periodic.COPIES: "copies", Periodic.PLACEMENT: "placement", Periodic.REPLICAS: "replicas"}

app = group("Repair by itself: start, look, steer.", "quire autorecovery start --conf /etc/quire/bookie.conf")


@command(app, "quire autorecovery start --conf /etc/quire/bookie.conf --daemon --pidfile /run/quire-autorecovery.pid")
def start(
    conf: Annotated[
        Path | None,
        typer.Option(
            "--conf",
            metavar="FILE",
            help="its configuration, or a bookie's; without one, BK_<key> variables say everything",
        ),
    ] = None,
    metadata: Override = None,
    daemon: Annotated[bool, typer.Option("--daemon", help="detach; returns when it takes part in the repair")] = False,
    pidfile: Pidfile = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="F", help="with --daemon; autorecovery.log in this directory if not given"),
    ] = None,
    stop_with_stdin: StopWithStdin = False,
    json_wanted: Json = False,
) -> None:
    """
    Runs AutoRecovery in the foreground until SIGTERM. Prints one line when it takes part; logs go to standard error.

    Several may run, beside Apache's too: one of them is the auditor, which finds ledgers short of copies; all repair.
    It waits for a metadata store that is away, for however long. The exit status is 0 after a stop that was asked for,
    1 when it could not start, 2 for a bad configuration.
    """
    become(
        AUTORECOVERY,
        {"--conf": conf, "--metadata": metadata, "--pidfile": pidfile, "--log": log},
        {"--daemon": daemon, "--stop-with-stdin": stop_with_stdin, "--json": json_wanted},
    )


@command(app, "quire autorecovery stop --pidfile /run/quire-autorecovery.pid")
def stop(
    pidfile: StartedPidfile,
    timeout: Annotated[float, typer.Option("--timeout", metavar="S", help="seconds to wait")] = 60.0,
    json_wanted: Json = False,
) -> None:
    """Stops AutoRecovery cleanly and waits until it is gone. What it was repairing stays in the queue for others."""
    end(AUTORECOVERY, pidfile, timeout, json_wanted)


@command(app, "quire autorecovery status")
def status(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Shows who audits, whether repair is on, the delay of lost bookies, when ledgers were checked last, and how many
    are queued.
    """
    from quire.replication.scrub.run import AUDITOR, Points

    async def work(store: "MetadataStore") -> dict[str, Any]:
        await store.cluster()
        election = await store.auditing.election()
        value: dict[str, Any] = {
            "auditor": election.auditor,
            "candidates": len(election.votes),
            "enabled": await store.repairs.enabled(),
            "delay_s": await store.auditing.delay(),
        }
        for check, name in CHECKS.items():
            value[f"{name}_checked_ms"] = await store.auditing.checked(check)
        scrubs = Points(store.records, AUDITOR, lasting=True)
        point = await scrubs.read()
        value["scrub_checked_ms"] = await scrubs.ended()
        value["scrub_after"] = None if point is None else point.after
        value["queued"] = await queued(store)
        return value

    value = with_store(metadata_uri(metadata), work)
    delay = value["delay_s"]
    lines = [
        f"auditor:   {value['auditor'] or 'none: start one with `quire autorecovery start`'}",
        f"runs:      {value['candidates']:,} process{'' if value['candidates'] == 1 else 'es'}",
        f"repair:    {'on' if value['enabled'] else 'off: `quire autorecovery enable` turns it on'}",
        f"delay:     {'not set' if delay is None else f'{delay:,} s'}",
        *(f"{name + ':':<10} {when(value[f'{name}_checked_ms'])}" for name in CHECKS.values()),
        f"scrub:     {scrub_text(value['scrub_checked_ms'], value['scrub_after'])}",
        f"queued:    {value['queued']:,} ledger{'' if value['queued'] == 1 else 's'}"
        + ("; `quire underreplicated list` shows them" if value["queued"] else ""),
    ]
    output.document(json_wanted, value, lines)


@command(app, "quire autorecovery enable")
def enable(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Turns repair on: workers take ledgers from the queue, the auditor looks for lost bookies."""
    switch(metadata, True, json_wanted)


@command(app, "quire autorecovery disable", "quire autorecovery enable")
def disable(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Turns repair off for the whole cluster, until `enable`. What is being repaired now is repaired to its end.

    For work on bookies it is better to set a delay: nothing is forgotten then.
    """
    switch(metadata, False, json_wanted)


@command(app, "quire autorecovery trigger")
def trigger(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Asks the auditor for a look at all ledgers now. It sets the delay of lost bookies again to the value that it has,
    which every auditor, Apache's too, takes for that request.
    """

    async def work(store: "MetadataStore") -> str | None:
        await store.cluster()
        auditor = (await store.auditing.election()).auditor
        await store.auditing.ask()
        return auditor

    auditor = with_store(metadata_uri(metadata), work)
    output.document(json_wanted, {"asked": auditor}, f"asked {auditor}" if auditor else "asked")
    if auditor is None:
        output.note("no auditor is there; `quire autorecovery start` starts one, which looks at all ledgers first")


@command(app, "quire autorecovery delay 600", "quire autorecovery delay 0")
def delay(
    seconds: Annotated[
        int | None, typer.Argument(metavar="[SECONDS]", min=0, help="the new delay; only shows it if not given")
    ] = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Shows or sets how long a bookie may stay away before its ledgers are repaired, for the whole cluster.

    A second bookie that leaves meanwhile waits as long by itself where ours audits; Apache's auditor takes two at once
    for a loss. Set it to 0 again after the work.
    """

    async def work(store: "MetadataStore") -> int | None:
        if seconds is not None:
            await store.auditing.set_delay(seconds)
        return await store.auditing.delay()

    now = with_store(metadata_uri(metadata), work)
    output.document(json_wanted, {"delay_s": now}, "not set: 0 s" if now is None else f"{now:,} s")


def switch(metadata: str | None, enabled: bool, json_wanted: bool) -> None:
    """Sets the switch of the queue."""

    with_store(metadata_uri(metadata), lambda store: store.repairs.set_enabled(enabled))
    output.document(json_wanted, {"enabled": enabled}, f"repair is {'on' if enabled else 'off'}")


async def queued(store: "MetadataStore") -> int:
    """How many ledgers are in the repair queue; says how far it is when they are many."""
    page = await store.repairs.shortages(-1, PAGE)
    if len(page) < PAGE:
        return len(page)
    with output.ProgressBar("counting the queue", None, "ledgers") as progress:
        while page:
            progress.advance(len(page))
            page = await store.repairs.shortages(page[-1].ledger, PAGE)
        return progress.done


def scrub_text(ms: int | None, after: int | None) -> str:
    """How far the auditor's scrub is, or when the last one began."""
    return when(ms) if after is None else f"under way, has come to ledger {after}"


def when(ms: int | None) -> str:
    """A time of a check."""
    return "never checked" if ms is None else f"checked {output.time_text(ms)}"
