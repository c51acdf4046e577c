"""
`quire rebalance`: evening out how full bookies are.

Knows: what an operator sees and when the exit status is 1.  Does not know: what is moved, and how; that is
`quire.replication`.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.commands.repair.progress import Shown
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, client_options, command, metadata_uri, single
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from quire.replication.freeing.rebalancing import Rebalanced

# SPDX-License-Identifier: Apache-2.0

FAILURES_TOLD_MAX = 20
UNITS = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}

app = single()


@command(
    app,
    "quire rebalance --dry-run",
    "quire rebalance --rate 50M",
    "quire rebalance --capacity 10.0.0.5:3181=500G --capacity 10.0.0.6:3181=500G",
)
def rebalance(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be moved, with bytes")] = False,
    within: Annotated[
        int, typer.Option("--within", min=1, max=100, metavar="PERCENT", help="how far apart levels may be in the end")
    ] = 10,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="B/s", help="bytes a second at most, 50M say; no limit if not given")
    ] = None,
    under_way: Annotated[
        str, typer.Option("--under-way", metavar="BYTES", help="that are read and not stored yet, at most")
    ] = "64M",
    capacities: Annotated[
        list[str] | None,
        typer.Option(
            "--capacity", metavar="BOOKIE=BYTES", help="in place of what the bookie says of its disks; may be repeated"
        ),
    ] = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Moves fragments of closed ledgers from full to empty bookies.

    A bookie's level is the bytes that the metadata of closed ledgers assigns to it, by the size of its disks. As few
    bytes are moved as bring all levels near enough to each other, those of large ledgers first; the rules of the
    placement are kept. Nothing goes to a bookie that is read-only or away, or into the last twentieth of its disks.
    Open ledgers stay. May be interrupted and run again: what was moved stays so. The bookies drop their old copies by
    themselves, a day later. Exit status 1 when something could not be moved.
    """
    most = None if rate is None else bytes_in(rate, "--rate")
    room = bytes_in(under_way, "--under-way")
    known = dict(capacity_in(each) for each in capacities or [])

    async def even_out(_reactor: object, client: Any) -> "Rebalanced":
        from quire.replication.freeing import rebalancing

        return await rebalancing.rebalance(client, rebalancing.Manner(within / 100, dry_run, known, room, most), shown)

    with Shown("rebalance", json_wanted) as shown:
        found = with_client(metadata_uri(metadata), even_out, client_options())
    show(found, dry_run, json_wanted)


def bytes_in(text: str, option: str) -> int:
    """A number of bytes, with k, M, G or T for powers of 1000.  `Usage`."""
    found = re.fullmatch(r"(\d+)([kMGT]?)", text)
    if found is None or not int(found[1]):
        raise Usage(f"{option} {text}: a number of bytes is wanted, with k, M, G or T behind it for powers of 1000")
    return int(found[1]) * UNITS[found[2]]


def capacity_in(text: str) -> tuple[str, int]:
    bookie, equals, size = text.rpartition("=")
    if not equals:
        raise Usage(f"--capacity {text}: BOOKIE=BYTES is wanted, 10.0.0.5:3181=500G say")
    return bookie, bytes_in(size, f"--capacity {bookie}")


def show(found: "Rebalanced", dry_run: bool, json_wanted: bool) -> None:
    """Prints what was done; exit status 1 when something was not."""
    value: dict[str, Any] = {
        "dry_run": dry_run,
        "more": found.more,
        "ledgers_seen": found.ledgers,
        "ledgers_unclosed": found.unclosed,
        "ledgers": found.progress.ledgers_done - found.progress.ledgers_failed,
        "fragments": found.progress.fragments,
        "bytes": sum(found.moved.values()),
        "bookies": [
            {"bookie": each.bookie, "capacity": each.capacity, "before": each.before, "after": each.after}
            for each in found.levels
        ],
        "moves": [
            {"from": source, "to": target, "bytes": size} for (source, target), size in sorted(found.moved.items())
        ],
        "left_out": dict(found.left_out),
        "failed": [{"ledger": each.ledger, "reason": each.reason} for each in found.failed],
    }
    output.document(json_wanted, value, lines_of(found, dry_run))
    if found.failed:
        for each in found.failed[:FAILURES_TOLD_MAX]:
            output.note(f"quire: {each.reason}")
        output.note(f"quire: {len(found.failed)} ledgers could not be moved; run this again when the cause is mended")
        raise typer.Exit(1)


def lines_of(found: "Rebalanced", dry_run: bool) -> list[str]:
    """For people: levels, moves, a sum."""
    width = max((len(each.bookie) for each in found.levels), default=0)
    lines = [
        f"{each.bookie:<{width}}  {output.size_text(each.before):>9} -> {output.size_text(each.after):>9}"
        f"  of {output.size_text(each.capacity)}"
        for each in found.levels
    ]
    lines += [f"{bookie}: left out, {reason}" for bookie, reason in found.left_out.items()]
    lines += [
        f"{source} -> {target}: {output.size_text(size)}" for (source, target), size in sorted(found.moved.items())
    ]
    unclosed = f"; {found.unclosed:,} ledgers are not closed, and stay" if found.unclosed else ""
    would = "would be " if dry_run else ""
    lines.append(
        f"{output.size_text(sum(found.moved.values()))} of {found.progress.ledgers_done:,} ledgers {would}moved; "
        f"{found.ledgers:,} were looked at{unclosed}"
    )
    if found.more:
        lines.append("more is to be moved than one plan has room for: a run makes the next plan after it")
    return lines
