"""
`quire log mirror`: a log kept in another cluster, and its way over and back.

Knows: two clusters on one command line, what an operator sees of a copy.
Does not know: how records are copied, what makes two logs the same.

Safety: what can't be a copy is refused with its indexes; --set-aside keeps it whole under another name.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from twisted.internet.defer import CancelledError, Deferred

from quire.metadata.clock import pause
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogExists, LogTrimmed, MirrorDiverged
from quire.tools.commands.log.shared import Name, app, name_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.jobs import MetricsFile
from quire.tools.terminal.options import Json, Usage, client_options, command, metadata_uri
from quire.tools.terminal.running import bounded

if TYPE_CHECKING:
    from quire.log.api import Logs
    from quire.log.mirror.metrics import MirrorProgress
    from quire.log.mirror.mirror import Mirror

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
CURSORS_S = 30.0


def named(given: str | None) -> str | None:
    """A name that may be left out, percent-encoded or not."""
    return None if given is None else name_of(given)


@command(
    app,
    "quire log mirror orders --to zk://east:2181/ledgers",
    "quire log mirror orders --to zk://east:2181/ledgers --switch",
    "quire log mirror orders --to zk://east:2181/ledgers --promote",
    "quire log mirror orders --from zk://east:2181/ledgers --to zk://west:2181/ledgers --fail-back",
)
def mirror(
    log: Name,
    to: Annotated[str, typer.Option("--to", metavar="URI", help="the metadata store of the cluster that has the copy")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URI",
            envvar="QUIRE_METADATA",
            help="that of the cluster that has the log, or directory+URI, which says where it is",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="the copy's name, if it is another", callback=named)
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="copy what is there now, and end")] = False,
    cursors: Annotated[
        bool, typer.Option("--cursors", help="the copy's cursors follow those of the log, of the same names")
    ] = False,
    switch: Annotated[
        bool, typer.Option("--switch", help="the copy becomes the log and the log its copy, with nothing lost; ends")
    ] = False,
    promote: Annotated[
        bool, typer.Option("--promote", help="the copy takes appends from now on; the log is not asked; ends")
    ] = False,
    fail_back: Annotated[
        bool,
        typer.Option("--fail-back", help="a log at --to that takes appends is fenced, and becomes the copy"),
    ] = False,
    aside: Annotated[
        str | None,
        typer.Option(
            "--set-aside",
            metavar="NEW",
            help="what is at --to and can't be the copy gets this name, with all its records; then a copy is begun",
            callback=named,
        ),
    ] = None,
    every: Annotated[float, typer.Option("--every", min=0.1, metavar="S", help="seconds between two lines")] = 10.0,
    metrics: MetricsFile = None,
    json_wanted: Json = False,
) -> None:
    """
    Keeps a copy of a log in another cluster: the same records at the same indexes, each once. It begins where the copy
    ends, and follows the log until it is interrupted, or the log is terminated. Of two mirrors of one copy the second
    waits.
    """
    check_is_cluster(to)
    if promote and (switch or until_end or fail_back or aside):
        raise Usage("--promote is for a copy whose log can't be asked: give it without the other options")
    if promote:
        promoted(name or log, to, json_wanted)
        return
    shown = Shown(log, name or log, every, metrics, json_wanted)

    async def work(logs: "Logs", copy: "Logs") -> dict[str, Any]:
        from quire.log.mirror.mirror import Mirror

        made = Mirror(logs, log, copy, name or log, fail_back=fail_back or aside is not None)
        showing: Deferred[None] | None = None
        if switch and (index := await made.switched()) is not None:  # by a command that was cut off
            return shown.found(made.progress) | {"switched": index}
        try:
            await begun(made, copy, aside, switch)
            showing = Deferred.fromCoroutine(shown.run(made, copy.bk.reactor, cursors)).addErrback(
                lambda _failure: None
            )
            if switch:
                await made.catch_up()
                index = await made.switch(cursors)
                return shown.found(made.progress) | {"switched": index}
            if until_end:
                await made.copy_until()
            else:
                await made.follow()
            if cursors:
                await made.copy_cursors()
        except CancelledError:
            return shown.found(made.progress)
        finally:
            if showing is not None:
                showing.cancel()
            await made.close()
            shown.store(made.progress)
        return shown.found(made.progress)

    found = with_both(source, log, to, work)
    text = shown.line(found)
    if "switched" in found and found["terminated"]:
        text = (
            f"{shown.copy} at {to} has all of {log}, which was terminated at index {found['switched']}: neither takes "
            "appends"
        )
    elif "switched" in found:
        text = f"{shown.copy} at {to} is the log from index {found['switched']} on; {log} is its copy"
    elif found["terminated"] and not found["lag_records"]:
        text = f"{text}; {log} was terminated, and all of it is copied"
    output.document(json_wanted, found, text)


def promoted(name: str, to: str, json_wanted: bool) -> None:
    """Lets the copy take appends."""

    async def work(copy: "Logs") -> int:
        from quire.log.mirror.turning import promote

        return await promote(copy, name)

    index = with_logs(to, work)
    output.document(
        json_wanted,
        {"log": name, "end": index},
        f"{name} takes appends from index {index} on: records before it are those of the log that it was a copy of",
    )


def check_is_cluster(to: str) -> None:
    """`Usage` for a directory: it would place the copy by the name that it has the log by."""
    from quire.log.clusters.directory import PREFIX, is_directory

    if is_directory(to):
        raise Usage(
            f"--to is the cluster in which the copy is, not a directory: give its own URI in place of {to}, as `quire "
            f"clusters list --metadata {to.removeprefix(PREFIX)}` shows it"
        )


def with_both(source: str | None, log: str, to: str, work: "Callable[[Logs, Logs], Awaitable[T]]") -> T:
    """Runs `work(logs, copy)` with the logs of both clusters; a directory leads to the one that holds the log."""
    uri = metadata_uri(source)

    async def whole(copy: "Logs") -> T:
        from quire.log.clusters.logs import DirectoryLogs, connect

        reactor = copy.bk.reactor
        opening = Deferred.fromCoroutine(connect(reactor, uri, copy.options, client_options()))
        logs = await bounded(reactor, opening, uri)
        try:
            if isinstance(logs, DirectoryLogs):
                await logs.info(log)  # where it is by now
                return await work((await logs.locate(log)).logs, copy)
            return await work(logs, copy)
        finally:
            await logs.close()

    return with_logs(to, whole)


async def begun(made: "Mirror", copy: "Logs", aside: str | None, switches: bool) -> None:
    """Begins; sets aside what can't be the copy, if that is wanted."""
    from quire.log.mirror.turning import set_aside

    try:
        await made.begin()
        if await made.is_switching() and not switches:
            output.note(f"quire: {made.name} takes no appends, for a way over to this copy was begun: --switch ends it")
    except (LogExists, LogTrimmed, MirrorDiverged) as error:
        if aside is None:
            raise
        output.note(f"quire: {error}")
        await set_aside(copy, made.copy_name, aside)
        output.note(f"quire: it is {aside} now, and a copy is begun")
        await made.begin()


class Shown:
    """Shows a log that is copied to an operator: a line now and then, and a file for Prometheus."""

    def __init__(self, log: str, copy: str, every: float, metrics: Path | None, json_wanted: bool) -> None:
        self.copy = copy
        self._log = log
        self._every = every
        self._metrics = metrics
        self._json = json_wanted
        self._trouble = ""

    async def run(self, made: "Mirror", clock: Any, cursors: bool) -> None:
        """Until it is cancelled."""
        cursors_at = clock.seconds()
        while True:
            progress = made.progress
            found = self.found(progress)
            output.document(self._json, found, self.line(found))
            self.store(progress)
            if progress.trouble != self._trouble:
                self._trouble = progress.trouble
                output.note(f"quire: {progress.trouble or f'{self._log} is copied again'}")
            if cursors and clock.seconds() >= cursors_at:
                cursors_at = clock.seconds() + CURSORS_S
                try:
                    await made.copy_cursors()
                except LedgerError as error:
                    output.note(f"quire: the cursors of {self._log} are not copied now: {error}")
            await pause(clock, self._every)

    def found(self, progress: "MirrorProgress") -> dict[str, Any]:
        """As JSON."""
        return {"log": self._log, "copy": self.copy, **progress._asdict()}

    def line(self, found: dict[str, Any]) -> str:
        """For people."""
        return (
            f"{self.copy}: index {found['begin']} to {found['end']}, {found['records']} records "
            f"({output.size_text(found['bytes'])}) copied; {found['lag_records']} records and "
            f"{found['lag_ms'] / 1000:.1f} s behind {self._log}"
        )

    def store(self, progress: "MirrorProgress") -> None:
        """Replaces the file for Prometheus."""
        if self._metrics is None:
            return
        from prometheus_client import CollectorRegistry, write_to_textfile

        from quire.log.mirror.metrics import MirrorMetrics

        registry = CollectorRegistry()
        registry.register(MirrorMetrics(lambda: [(self.copy, progress)]))
        write_to_textfile(str(self._metrics), registry)
