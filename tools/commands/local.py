"""
`quire local`: a cluster on this machine until interrupted.

Knows: what it prints, and when it ends.  Does not know: how the processes are run; see `local_cluster`.
"""

import signal
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Annotated, Any

import typer

from quire.conf.extras import installs
from quire.tools.local_cluster.cluster import LocalCluster, store_kind
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, command, single

# SPDX-License-Identifier: Apache-2.0

LIBRARIES = "jinja2", "pygal"  # of the console
WATCH_INTERVAL_S = 0.5  # between two looks at whether the bookies still run

app = single()


@command(
    app, "quire local --bookies 4 --dir ~/quire", "quire local --autorecovery", "quire local --tls --dir ~/quire-tls"
)
def local(
    bookies: Annotated[
        int | None, typer.Option("--bookies", min=1, help="how many bookies; 4, or as many as DIR holds")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="where everything is kept; without it a temporary place")
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="sqlite|zookeeper|etcd", help="its store; sqlite, or what DIR holds"),
    ] = None,
    autorecovery: Annotated[
        bool, typer.Option("--autorecovery", help="beside the bookies a process that repairs what a lost one held")
    ] = False,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls", help="connections are encrypted, with certificates in DIR/tls; options in DIR/client.conf"
        ),
    ] = False,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="a console beside the bookies, where its extra is installed")
    ] = True,
    json_wanted: Json = False,
) -> None:
    """
    Starts a cluster on this machine and keeps it until Ctrl-C or SIGTERM.

    Prints the metadata URI, the bookies and the console's address first. DIR, new or empty at the first start, keeps
    ports and configurations: a restart reuses them and the data. The bookies are children of this process and stop when
    it ends, however it ends.
    """
    kind = store_kind(metadata)
    stop: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: stop.put(number))
    with tempfile.TemporaryDirectory(prefix="quire-") as temporary:
        place = directory.expanduser() if directory is not None else Path(temporary)
        shows = console and has_console()
        cluster = LocalCluster(place, bookies, kind, autorecovery=autorecovery, tls=tls, console=shows)
        try:
            cluster.start()
            pids = [bookie.pid for bookie in cluster.bookies]
            document = {
                "metadata": cluster.uri,
                "bookies": cluster.ids,
                "directory": str(cluster.directory),
                "pids": pids,
                "client_conf": str(cluster.client_conf) if cluster.client_conf is not None else None,
                "autorecovery": cluster.recovery.pid if cluster.recovery is not None else None,
                "console": console_of(cluster),
            }
            lines = [
                f"metadata  {cluster.uri}",
                *(f"bookie    {bookie.id}  (pid {bookie.pid}, {bookie.log})" for bookie in cluster.bookies),
            ]
            if cluster.recovery is not None:
                lines.append(f"repair    autorecovery  (pid {cluster.recovery.pid}, {cluster.recovery.log})")
            if cluster.console is not None:
                lines.append(
                    f"console   {cluster.console.url}  (any name; the password is in {cluster.console.token_file})"
                )
            where = f"QUIRE_METADATA={cluster.uri}"
            if cluster.client_conf is not None:
                lines.append(f"clients   QUIRE_CONF={cluster.client_conf}")
                where = f"QUIRE_CONF={cluster.client_conf}"
            output.document(json_wanted, document, lines)
            output.note(f"try: {where} quire bookie list; Ctrl-C stops the cluster")
            survived = watch(cluster, stop)
        finally:
            clean = cluster.stop()
        if not survived or not clean:
            raise typer.Exit(1)


def has_console() -> bool:
    """True if the libraries of the console are installed; notes how they are if not."""
    if all(find_spec(library) is not None for library in LIBRARIES):
        return True
    output.note(f"no console beside it: {installs('console')}")
    return False


def console_of(cluster: LocalCluster) -> dict[str, Any] | None:
    """The address, token and process of the console, if there is one."""
    if cluster.console is None:
        return None
    return {"url": cluster.console.url, "token_file": str(cluster.console.token_file), "pid": cluster.console.pid}


def watch(cluster: LocalCluster, stop: SimpleQueue[int]) -> bool:
    """
    Notes processes that end by themselves until a signal is in `stop` (True), or until no bookie is left (False).  A
    signal may come in the midst of a wait here, and its function must not wait for what that holds, as an `Event` does.
    """
    noted: set[str] = set()
    while True:
        with suppress(Empty):
            stop.get(timeout=WATCH_INTERVAL_S)
            return True
        for ended in cluster.ended():
            if ended.id not in noted and stop.empty():
                noted.add(ended.id)
                assert ended.process is not None
                output.note(f"{ended.kind} {ended.id} ended with status {ended.process.returncode}; see {ended.log}")
        if noted.issuperset(cluster.ids):
            output.note("no bookie is left")
            return False
