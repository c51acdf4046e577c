"""
What the commands of logs share: the name of a log, an open cluster, and the question before something is gone.

Knows: how a name looks on a command line.  Does not know: any command.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from quire.tools.terminal.options import client_options, metadata_uri, refused
from quire.tools.terminal.output import note
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.log.api import LogInfo, Logs
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

Name = Annotated[str, typer.Argument(metavar="NAME", help="the log's name, percent-encoded or not")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]


def name_of(given: str) -> str:
    """The name that is meant: what is a percent-encoded name to the letter is decoded."""
    from quire.log.store.paths import decoded, encoded

    name = decoded(given)
    return name if "%" in given and encoded(name) == given else given


def with_logs(
    metadata: str | None,
    work: "Callable[[ProcessReactor, Logs], Awaitable[T]]",
    protocol: str | None = None,
    password: bytes = b"",
) -> T:
    """Runs `work(reactor, logs)` with the logs of the cluster at `metadata`; owners resign afterwards."""

    async def whole(reactor: "ProcessReactor", client: "Client") -> T:
        from quire.conf.log import LogOptions
        from quire.log.api import Logs
        from quire.pipeline.copies.reading import openers

        logs = Logs(client, LogOptions(password=password, openers=openers(reactor)))
        try:
            return await work(reactor, logs)
        finally:
            await logs.close()

    return with_client(metadata_uri(metadata), whole, client_options(protocol))


def asked(yes: bool, what: str) -> None:
    """Says what will be done and asks, unless `yes`; exit status 1 when it is not wanted, or there is no one to ask."""
    note(what)
    if yes:
        return
    if not sys.stdin.isatty():
        raise refused("nothing was done: give --yes where there is no terminal to ask on")
    typer.confirm("Go on?", abort=True, err=True)


def as_document(info: "LogInfo") -> dict[str, Any]:
    """A log as JSON."""
    return info._asdict()
