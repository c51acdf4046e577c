"""
`quire console`: a cluster as pages in a browser.

Knows: its options.  Does not know: what they do; `daemon` is the process that it becomes.
"""

from pathlib import Path
from typing import Annotated

import typer

from quire.tools.commands.processes import StopWithStdin, become
from quire.tools.daemons.process import CONSOLE
from quire.tools.terminal.options import TOKEN_FILE_OPTION, Json, Metadata, command, single

# SPDX-License-Identifier: Apache-2.0

app = single()


@command(
    app,
    "quire console",
    "quire console --host 0.0.0.0 --port 8480 --token-file /etc/quire/admin.token",
)
def console(
    host: Annotated[str, typer.Option("--host", metavar="H", help="the address that it listens on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="its port; 0 takes a free one")
    ] = 8480,
    token_file: Annotated[
        Path | None,
        typer.Option(
            TOKEN_FILE_OPTION,
            metavar="F",
            help="a file with the token that opens the console and that it shows to bookies (or QUIRE_TOKEN_FILE names "
            "it); without one the console makes ~/.config/quire/admin.token, and reads those of bookies on its machine",
        ),
    ] = None,
    conf: Annotated[
        Path | None,
        typer.Option(
            "--conf",
            metavar="FILE",
            help="a file with keys of its HTTP port; a bookie's will do",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="pages make bookies read-only and back, and turn repair off and on")
    ] = False,
    metadata: Metadata = None,
    stop_with_stdin: StopWithStdin = False,
    json_wanted: Json = False,
) -> None:
    """
    Shows a cluster in a browser until Ctrl-C or SIGTERM: bookies, what needs care, ledgers, repair, named logs, charts
    of the last hours. It changes nothing, unless it is allowed to. Prints its address, and the file with the token that
    opens it.

    A browser asks for a name and a password: any name, and the token. --conf has adminTokenFile, adminHosts,
    httpServerTlsEnable and the like, as a bookie's file; port and address are options here. How bookies are reached is
    in the configuration of a client (QUIRE_CONF).

    The exit status is 0 after a stop that was asked for, 1 when it could not serve, 2 for a bad configuration.
    """
    become(
        CONSOLE,
        {
            "--conf": conf,
            "--metadata": metadata,
            "--host": host,
            "--port": port,
            TOKEN_FILE_OPTION: token_file,
        },
        {"--allow-changes": allow_changes, "--stop-with-stdin": stop_with_stdin, "--json": json_wanted},
    )
