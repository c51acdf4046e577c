"""
Commands of logs where a log has partitions: which of them are meant, and how they are shown.

Knows: the option --partition, columns and rows of partitions.
Does not know: how a log is partitioned.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.commands.log.shared import RecordPrinter, as_document
from quire.tools.terminal import output
from quire.tools.terminal.options import Usage

if TYPE_CHECKING:
    from quire.log.api import Logs, PartitionedReader

# SPDX-License-Identifier: Apache-2.0

Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, metavar="N", help="of a partitioned log this one only; may be given again"),
]

COLUMNS = {"partition": 10, "owner": 20, "epoch": 6, "begin": 12, "end": 12, "segments": 9, "bytes": 0}


async def parts_of(logs: "Logs", log: str) -> list[str]:
    """The names of the partitions; none of a log without."""
    names = await logs.partitions(log)
    return [] if names == [log] else names


async def one_of(logs: "Logs", log: str, chosen: Sequence[int] | None) -> str | None:
    """The log that is meant where it is one: the log itself, or its one partition that was chosen; else None."""
    names = await parts_of(logs, log)
    if not names:
        if chosen:
            raise Usage(f"--partition is for a partitioned log, and {log} has no partitions")
        return log
    wrong = [each for each in chosen or () if each >= len(names)]
    if wrong:
        raise Usage(f"{log} has no partition {wrong[0]}: they are 0 to {len(names) - 1}")
    return names[chosen[0]] if chosen and len(set(chosen)) == 1 else None


def only_for_one(log: str, options: dict[str, bool]) -> None:
    """`Usage` for an option that was given and is about one log."""
    for option, given in options.items():
        if given:
            raise Usage(f"{option} is for one partition: name it, as {log}/0, or choose it with --partition 0")


async def print_all(reader: "PartitionedReader", printer: RecordPrinter, timeout: float | None) -> None:
    """Records of partitions, each with its partition: those that are there, or with `timeout` those that come, too."""
    found = reader.batches() if timeout is None else reader.tail(timeout)
    async with aclosing(found) as each_batch:
        async for partition, batch in each_batch:
            printer.records(batch.records(), partition)


async def described(logs: "Logs", log: str) -> list[dict[str, Any]]:
    """Each partition as `show` has it."""
    return [
        {"partition": number} | as_document(await logs.info(name))
        for number, name in enumerate(await parts_of(logs, log))
    ]


def show_partitions(found: Sequence[dict[str, Any]]) -> None:
    """A row for each."""
    table = output.Table(False, COLUMNS)
    for each in found:
        table.row(each)


async def cursor_rows(logs: "Logs", log: str) -> AsyncIterator[dict[str, Any]]:
    """The cursors of a log, or of each of its partitions."""
    names = await parts_of(logs, log)
    for number, name in enumerate(names or [log]):
        async for each in logs.cursors(name):
            row = {"cursor": each.name, "mark": each.mark, **each.backlog._asdict(), "touched_ms": each.touched_ms}
            yield {"partition": number} | row if names else row
