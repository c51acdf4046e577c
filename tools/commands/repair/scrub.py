"""
`quire scrub`: every copy of every ledger read, its digest checked, the copies compared; with --repair mended.

Knows: what an operator sees, when the exit status is 1, under which name a scrub is gone on with.
Does not know: how copies are looked at and mended; that is `quire.replication`.
"""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from zlib import crc32

import typer

from quire.tools.commands.repair.progress import Shown
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, client_options, command, metadata_uri, refused, single
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quire.client.api import Client
    from quire.replication.scrub.run import Judged, Point, Scrubbed
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

app = single()


@command(app, "quire scrub --rate 20000000", "quire scrub --repair", "quire scrub --ledgers 0,1-3 --json")
def scrub(
    repair: Annotated[bool, typer.Option("--repair", help="mends what is wrong, from good copies")] = False,
    rate: Annotated[
        int | None,
        typer.Option("--rate", min=1, metavar="B/s", help="bytes read in a second, from all bookies together"),
    ] = None,
    ledgers: Annotated[str, typer.Option("--ledgers", metavar="IDS", help="`7,9-20`, or `all`")] = "all",
    settle: Annotated[
        float, typer.Option("--settle", min=0, metavar="SECONDS", help="time for copies that are on their way")
    ] = 15.0,
    restart: Annotated[
        bool, typer.Option("--restart", help="begins with the first ledger, not where an earlier scrub was cut off")
    ] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Reads every copy of every entry from its bookie, checks its digest, compares the copies; looks at metadata, too.

    Of ledgers that are being written what is confirmed is read. Fences nothing; writers go on undisturbed. Without
    --repair nothing is changed. With it copies that are missing or wrong are made again from good ones, under the
    ledger's repair lock, and looked at once more; what can't be mended is named with the reason, and holds up nothing.
    Exit status 1 when something is wrong, with --repair when something still is.

    How far it is, is kept in the metadata store: one that was interrupted goes on there when it is started again with
    the same --repair and --ledgers, on any machine.

    With --json, standard output has a line for each finding, and at the end one with what all came to; standard error
    has an event a line every five seconds and at the end: how much is done, of how much, how fast, the seconds left.
    """
    from quire.pipeline.core.selection import Selection

    try:
        ranges = Selection.parse(ledgers).ranges
    except ValueError as error:
        raise Usage(f"--ledgers: {error}") from None

    async def work(_reactor: "ProcessReactor", client: "Client") -> "Scrubbed":
        from quire.replication.concurrently import Pace
        from quire.replication.mending import Mending, answered
        from quire.replication.scrub.run import Points, ScrubRun, Told, only_found
        from quire.replication.scrub.whole import Scrubbing

        pace = Pace(client.reactor, rate)
        answer = partial(answered, client, how=Mending(pace=pace)) if repair else only_found
        points = Points(client.store.records, name_of(repair, ranges))
        with Shown("scrub", json_wanted) as shown:
            told = Told(shown, partial(tell, json_wanted), goes_on)
            run = ScrubRun(client, points, told, Scrubbing(settle_s=settle), pace, answer)
            return await run.run(ranges, anew=restart)

    done = with_client(metadata_uri(metadata), work, client_options())
    if not done.counts["ledgers"] and ledgers.strip().lower() != "all":
        raise refused(f"there is no ledger {ledgers}: `quire ledger list` shows those that there are")
    show(done, repair, json_wanted)


def name_of(repair: bool, ranges: "Sequence[tuple[int, int]]") -> str:
    """Scrubs of one name go on where another one was cut off."""
    return f"{'repair' if repair else 'look'}-{crc32(repr(ranges).encode()):08x}"


def goes_on(point: "Point") -> None:
    """Says that the first ledgers are not looked at again."""
    output.note(
        f"quire: goes on above ledger {point.after} with the scrub of {output.time_text(point.begun_ms)}, which had "
        f"{point.counts.get('findings', 0):,} findings; --restart begins anew"
    )


def tell(json_wanted: bool, judged: "Judged") -> None:
    """Prints a finding and what became of it."""
    found = judged.finding
    if json_wanted:
        state = {"mended": judged.mended, "reason": judged.reason}
        print(output.as_json({"event": "finding", **asdict(found), **state}), flush=True)
        return
    where = f" entries {found.first} to {found.last}" if found.entries else ""
    text = f"ledger {found.ledger}{where} {found.kind} {found.bookie}: {found.detail}"
    if judged.mended:
        text += "; mended"
    elif judged.reason and judged.reason != found.detail:
        text += f"; not mended: {judged.reason}"
    print(text, flush=True)


def show(done: "Scrubbed", repair: bool, json_wanted: bool) -> None:
    """Prints what all came to; exit status 1 when something is wrong."""
    counts: dict[str, Any] = done.counts
    text = (
        f"{counts['ledgers']:,} ledgers, {counts['copies']:,} copies, {output.size_text(counts['bytes'])} read: "
        f"{counts['findings']:,} findings"
    )
    if repair:
        text += f", {counts['mended']:,} mended, {counts['left']:,} left"
    value = {"event": "scrubbed", "repair": repair, "begun_ms": done.begun_ms, "went_on_after": done.after, **counts}
    output.document(json_wanted, value, text)
    if counts["left"]:
        output.note(
            "quire: what is left has its reason above"
            if repair
            else "quire: copies that are wrong are mended by `quire scrub --repair`"
        )
        raise typer.Exit(1)
