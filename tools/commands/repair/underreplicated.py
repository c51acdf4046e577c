"""
`quire underreplicated`: the repair queue, as people want to see it.

Knows: what a ledger in the queue waits for, in words.  Does not know: who repairs it, or how.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer
from twisted.internet.defer import Deferred, gatherResults

from quire.metadata.ledger import check_bookie_id
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, command, group, metadata_uri
from quire.tools.terminal.running import with_store

if TYPE_CHECKING:
    from quire.metadata.repair_queue import Shortage
    from quire.metadata.tree_store import MetadataStore
    from quire.replication.autorecovery.notes import Note, Notes

# SPDX-License-Identifier: Apache-2.0

PAGE = 200  # shortages in one look; what is noted of them is asked for together
COLUMNS = {"ledger": 12, "missing": 32, "since": 20, "state": 24, "tries": 5, "next_try": 20, "why": 0}
REPAIRED, QUEUED = "repaired now", "queued"
# By what a worker's note says is next for a ledger (docs/repair.md, "Repair"); the order is that of the counts.
STATES = {
    "GONE": "gone",
    "TOO_LARGE": "metadata too large",
    "WAITS_FOR_SPARE": "waits for a spare",
    "WAITS_FOR_WRITER": "waits for its writer",
    "REPAIRABLE": "to be tried again",
    "FAILED": "to be tried again",
    "found": "found by a scrub",
}

app = group("The repair queue: ledgers that are short of copies.", "quire underreplicated list")


@app.callback()
def queue() -> None:
    """Keeps `list` a word of its own: the only command of a group would take the group's place."""


@command(
    app,
    "quire underreplicated list",
    "quire underreplicated list --missing 10.0.0.7:3181 --json | jq .ledger",
    name="list",
)
def list_(
    missing: Annotated[
        str | None, typer.Option("--missing", metavar="BOOKIE", help="only ledgers that may lack copies on this bookie")
    ] = None,
    excluding: Annotated[
        str | None, typer.Option("--excluding", metavar="BOOKIE", help="only ledgers that lack none on this one")
    ] = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Lists the ledgers that wait for repair: which bookies they may lack copies on, since when, who works on them, what
    was tried, and what they wait for. Then counts them by that.

    \b
    What they wait for:
      queued                nobody has tried yet
      repaired now          a worker has it, on the host that is named
      to be tried again     the last try failed for a reason that passes
      waits for a spare     there is no bookie left to copy to: start one
      waits for its writer  it is written: its writer replaces the bookie
      gone                  entries have no copy but on the lost bookie
      found by a scrub      copies are missing or wrong, and are written again
    """
    for bookie in (missing, excluding):
        if bookie is not None:
            check_bookie_id(bookie)
    table = output.Table(json_wanted, COLUMNS)

    async def work(store: "MetadataStore") -> Counter[str]:
        from quire.replication.autorecovery.notes import Notes

        await store.cluster()
        notes, counted, after = Notes(store.records), Counter[str](), -1
        with ExitStack() as shown:
            progress: output.ProgressBar | None = None
            while page := await store.repairs.shortages(after, PAGE):
                after = page[-1].ledger
                wanted = [each for each in page if each.fits(missing, excluding)]
                for row in await looked_at(store, notes, wanted):
                    counted[row["state"]] += 1
                    table.row(row if json_wanted else as_cells(row))
                if progress is None and len(page) == PAGE and not output.is_terminal():
                    progress = shown.enter_context(output.ProgressBar("looking at the queue", None, "ledgers"))
                if progress is not None:
                    progress.advance(len(page))
        return counted

    found = with_store(metadata_uri(metadata), work)
    output.note(summary(found, missing is not None or excluding is not None))


async def looked_at(store: "MetadataStore", notes: "Notes", shortages: "Sequence[Shortage]") -> list[dict[str, Any]]:
    """Makes the rows of some shortages."""

    async def one(shortage: "Shortage") -> dict[str, Any]:
        worker = await store.repairs.worker(shortage.ledger)
        return row_of(shortage, worker, await notes.read_one(shortage.ledger))

    rows: list[dict[str, Any]] = await gatherResults([Deferred.fromCoroutine(one(each)) for each in shortages])
    return rows


def row_of(shortage: "Shortage", worker: str | None, note: "Note | None") -> dict[str, Any]:
    """One ledger as a document."""
    noted = QUEUED if note is None else STATES.get(note.outlook, note.outlook)
    return {
        "ledger": shortage.ledger,
        "missing": list(shortage.missing),
        "since_ms": shortage.since_ms,
        "state": REPAIRED if worker is not None else noted,
        "worker": worker,
        "tries": 0 if note is None else note.tries,
        "tried_ms": note.at_ms if note is not None and note.tries else None,
        "next_ms": None if note is None or worker is not None else note.due_ms,
        "tried_by": None if note is None else note.host,
        "why": "" if note is None else note.reason,
    }


def as_cells(row: dict[str, Any]) -> dict[str, Any]:
    """Makes a line of the table."""
    why = f"by {row['worker']}" if row["worker"] is not None else row["why"]
    return {
        **row,
        "missing": ", ".join(row["missing"]) or "in the wrong places",
        "since": "-" if row["since_ms"] is None else output.time_text(row["since_ms"]),
        "tries": row["tries"] or "-",
        "next_try": "-" if row["next_ms"] is None else output.time_text(row["next_ms"]),
        "why": why,
    }


def summary(counted: Counter[str], chosen: bool) -> str:
    """How many wait for what."""
    if not counted:
        return "no ledger of the repair queue is like that" if chosen else "the repair queue is empty"
    order = [*dict.fromkeys(STATES.values()), QUEUED, REPAIRED]
    order += sorted(counted.keys() - set(order))
    parts = [f"{counted[state]:,} {state.replace('waits', 'wait')}" for state in order if counted[state]]
    return f"{counted.total():,} ledger{'' if counted.total() == 1 else 's'}: {', '.join(parts)}"
