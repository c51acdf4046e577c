"""
`quire log move`: a log goes to another cluster.

Knows: what an operator is told.  Does not know: how it moves.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.commands.log.shared import Name, app, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, command

if TYPE_CHECKING:
    from quire.log.api import Logs

# SPDX-License-Identifier: Apache-2.0


@command(
    app,
    "quire log move orders eu --metadata directory+zk://home:2181/ledgers",
    "quire log move orders eu --abort --metadata directory+zk://home:2181/ledgers",
)
def move(
    log: Name,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="its name in the directory")],
    abort: Annotated[
        bool, typer.Option("--abort", help="give the move up, before the log was fenced; the copy goes")
    ] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Moves a log to another cluster of a directory (`quire clusters`), with its indexes, its cursors and what its
    producers and publishers have stored. It is copied while it goes on; then its owner is fenced, the rest is copied,
    and it goes on there.

    Owners, readers and cursors that were opened by the directory (`directory+URI`) go on there by themselves; others
    fail, and are told where it is. A command that was ended goes on when it is called again. --abort gives the move up,
    which is possible until the log is fenced.
    """

    async def work(logs: "Logs") -> dict[str, Any]:
        from quire.log.clusters.logs import DirectoryLogs
        from quire.log.clusters.moving import Move

        if not isinstance(logs, DirectoryLogs):
            raise Usage("a log moves between the clusters of a directory: give it as --metadata directory+URI")
        with output.ProgressBar(f"copy {log}", None, "records") as progress:
            done = 0

            def seen(end: int, _of: int) -> None:
                nonlocal done
                progress.advance(max(0, end - done))
                done = max(done, end)

            moving = Move(logs, log, cluster, seen)
            if abort:
                return {"log": log, "cluster": await moving.abort(), "aborted": True}
            return (await moving.run())._asdict()

    found = with_logs(metadata, work)
    output.document(json_wanted, found, said(found))
    for ledger, why in found.get("stayed", {}).items():
        output.note(f"quire: ledger {ledger} stays where the log was: {why}; `quire log tidy` there deletes it")


def said(found: dict[str, Any]) -> str:
    """In a line."""
    log, cluster = found["log"], found["cluster"]
    if found.get("aborted"):
        return f"{log} stays in {cluster}"
    if found["again"]:
        return f"{log} is in {cluster} already"
    return f"{log} is in {cluster} now; appends waited for {found['pause_s']:.3f} s"
