"""
`quire host`: the bookies of one machine as one unit: start, stop, look.

Knows: what an operator asks.  Does not know: how bookies are run; `daemon` is the process.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.tools.commands.processes import Override, Pidfile, StartedPidfile, StopWithStdin, become, end
from quire.tools.daemons.process import HOST
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, command, group

# SPDX-License-Identifier: Apache-2.0

COLUMNS = {"bookie": 24, "port": 6, "journal": 30, "ledgers": 30, "conf": 40}

Conf = Annotated[
    Path,
    typer.Option("--conf", metavar="FILE", help="the host's configuration", exists=True, dir_okay=False),
]
Bookies = Annotated[int | None, typer.Option("--bookies", metavar="N", help="how many; overrides hostBookies")]

app = group(
    "Run several bookies on this machine as one unit.", "quire host start --conf /etc/quire/host.conf --bookies 4"
)


@command(
    app,
    "quire host start --conf /etc/quire/host.conf",
    "quire host start --conf /etc/quire/host.conf --bookies 2 --daemon --pidfile /run/quire-host.pid",
)
def start(
    conf: Conf,
    bookies: Bookies = None,
    metadata: Override = None,
    daemon: Annotated[bool, typer.Option("--daemon", help="detach; returns when all bookies serve")] = False,
    pidfile: Pidfile = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="F", help="with --daemon; host.log in bookie 0's first journal directory if not given"
        ),
    ] = None,
    stop_with_stdin: StopWithStdin = False,
    json_wanted: Json = False,
) -> None:
    """
    Runs the bookies of this machine, a process for each, in the foreground until SIGTERM. Prints one line when all
    serve; their logs go to standard error, each line with its bookie.

    FILE is a bookie's configuration with hostBookies=N. Bookie 0 to N-1 take bookiePort and the ports after it, and a
    folder bookie-0, bookie-1, … in each directory; `bookie.1.ledgerDirectories=/disk1` is of bookie 1 alone. Together
    they are one fault domain: no two of them hold copies of one entry. A bookie whose process ends is started again.

    The exit status is 0 after a stop that was asked for, 1 when a bookie could not serve, 2 for a bad configuration.
    """
    become(
        HOST,
        {"--conf": conf, "--bookies": bookies, "--metadata": metadata, "--pidfile": pidfile, "--log": log},
        {"--daemon": daemon, "--stop-with-stdin": stop_with_stdin, "--json": json_wanted},
    )


@command(app, "quire host stop --pidfile /run/quire-host.pid")
def stop(
    pidfile: StartedPidfile,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", help="seconds to wait; a clean stop writes checkpoints")
    ] = 60.0,
    json_wanted: Json = False,
) -> None:
    """Stops the bookies of this machine cleanly and waits until they are gone."""
    end(HOST, pidfile, timeout, json_wanted)


@command(
    app,
    "quire host bookies --conf /etc/quire/host.conf",
    "quire bookie check --conf /var/lib/quire/journal/bookie-1/bookie.conf",
)
def bookies(conf: Conf, bookies: Bookies = None, json_wanted: Json = False) -> None:
    """
    Lists the bookies that a host's configuration means, and writes the configuration of each, as a start does: for the
    commands on one bookie that is stopped (`quire bookie check`, `format`, `start --restore`).
    """
    from quire.tools.host.division import load

    division = load(str(conf), os.environ, count=bookies)
    for warning in division.warnings:
        output.note(warning)
    table = output.Table(json_wanted, COLUMNS)
    for part in division.parts:
        part.write()
        made = part.options
        journals, ledgers = made.journal_directories, made.ledger_directories
        row: dict[str, Any] = {"bookie": part.id, "port": made.port, "journal": journals, "ledgers": ledgers}
        row["conf"] = str(part.conf)
        cells = row | {"journal": ",".join(journals), "ledgers": ",".join(ledgers)}
        table.row(row if json_wanted else cells)
