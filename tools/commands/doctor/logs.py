"""
The check of `quire doctor` for named logs.

Knows: that an open segment without an owner, and a cursor that is far behind, are findings.
Does not know: how a log is read.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from quire.protocol.errors import LedgerError
from quire.tools.commands.doctor.examining import Check, Finding, Scene, Severity, said, unmade

if TYPE_CHECKING:
    from quire.log.api import Candidate, CursorInfo, LogInfo, Logs

# SPDX-License-Identifier: Apache-2.0

LOGS_MAX = 1000  # that are looked at


class LogState(NamedTuple):
    """A log, those that own it or wait for it, and its cursors, as they were at one look."""

    info: "LogInfo"
    candidates: "list[Candidate]"
    cursors: "list[CursorInfo]"


async def logs(scene: Scene) -> AsyncIterator[Finding]:
    """Looks at one after the other, as far as the time allows."""
    async for each in states(scene):
        if isinstance(each, Finding):
            yield each
            continue
        for found in of_a_log(each, scene):
            yield found


async def states(scene: Scene) -> AsyncIterator[LogState | Finding]:
    """Gives the state of one log after the other; a finding instead of each that can't be looked at."""
    from quire.conf.log import LogOptions
    from quire.log.api import Logs
    from quire.pipeline.copies.reading import openers

    opened, count = Logs(scene.client, LogOptions(openers=openers(scene.client.reactor))), 0
    try:
        async for name in opened.names():
            if count == LOGS_MAX:
                yield unmade(
                    "logs", f"only the first {LOGS_MAX} were looked at", Severity.NOTE, "quire log list --long"
                )
                return
            count += 1
            try:
                yield await state_of(opened, name)
            except LedgerError as error:
                yield unmade(name, f"the log was not looked at: {said(error)}", step=f"quire log check {name}")
    finally:
        await opened.close()


async def state_of(opened: "Logs", name: str) -> LogState:
    """The errors of reading."""
    info = await opened.info(name)
    candidates = [each async for each in opened.candidates(name)]
    return LogState(info, candidates, [each async for each in opened.cursors(name)])


def of_a_log(state: LogState, scene: Scene) -> Iterator[Finding]:
    """Finds what is wrong with one, by its state."""
    name = state.info.name
    if state.info.ledger is not None and not any(each.owns for each in state.candidates):
        yield Finding(
            Severity.WARNING,
            name,
            f"the log has no owner, and its last one ended without closing ledger {state.info.ledger}",
            f"start what writes to it, or close it: `quire log own {name}`",
        )
    for cursor in state.cursors:
        if cursor.backlog.ms >= scene.limits.cursor_ms:
            hours = cursor.backlog.ms / 3_600_000
            yield Finding(
                Severity.WARNING,
                name,
                f"the cursor {cursor.name} is {cursor.backlog.records} records and {hours:.1f} hours behind",
                f"start what reads by it, or `quire log cursor delete {name} {cursor.name}`",
            )


LOGS: dict[str, Check[Scene]] = {"logs": Check("owners and cursors of named logs", logs)}
