"""
`make bench`: quire beside the yardstick and, where Maven and a JDK are, beside Apache BookKeeper, on this machine and
now.

    python -m bench                              all rows (most of an hour)
    python -m bench --only 'append 100' --quick  rows whose name contains the words; short runs that say little
    python -m bench --list                       the names of the rows
    python -m bench --json > figures.json        every single figure; `python -m bench.page` makes the page of them
    python -m bench --against ../before          this checkout beside another one, and nothing else
    python -m bench --against ../before --only flush --pairs 15      only what a flush costs in CPU

Every row is pairs of runs side by side (A B, B A, A B, …) after one that is not counted, E=3 WQ=3 AQ=2, CRC32C, every
acknowledgement after a sync; its ratio is the median over the pairs, with a 95 % bootstrap interval.  Exit status 1
when a row misses its floor.  Beside another checkout a rate or a p50 is missed only when its whole interval is on the
wrong side, CPU per entry when its median is 3 % above.
"""

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.ratios import Comparison
from bench.rows import (
    CHECKOUT_ROWS,
    DLEDGER,
    JAVA,
    JAVA_TLS,
    ON_QUIRE,
    P99_PAIRS,
    PAIRS,
    ROCKETMQ,
    ROWS,
    TLS,
    TUNED,
    Row,
)
from bench.sides import Bare, Java, JavaOnQuire, Quire, Run, Side, measured, rounds

# SPDX-License-Identifier: Apache-2.0

QUICK = 0.05  # of the Java side's warm-up
OTHERS = {
    "calls": "calls",
    "logs": "log",
    "messages": "messages",
    "spark": "spark",
}  # modules with rows, and how these begin
TOLD = ("entries_per_second", "p50_ms", "p99_ms", "made_per_second", "resident_mb", "cpu_us_per_entry")
Runs = Mapping[str, Sequence[Run]]


class Bench:
    """The sides, each started when a row first needs it and ended after the last, and the rows found so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.found: list[dict[str, Any]] = []
        self.rows: list[Comparison] = []
        self.left_out: list[str] = []
        self.sides: dict[tuple[str, int], Side] = {}
        self.java_at_hand = not options.no_java and all(shutil.which(tool) for tool in ("mvn", "java", "javac"))
        self.no_java = "--no-java" if options.no_java else "no mvn, java or javac on the PATH"

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def wanted(self, name: str) -> bool:
        return not self.options.only or any(word in name for word in self.options.only)

    def at_hand(self, row: Row) -> tuple[str, ...]:
        """The row's sides that can be measured here; () when ours is none of them."""
        if self.java_at_hand:
            return row.sides
        there = tuple(side for side in row.sides if JAVA not in side)
        if there != row.sides:
            theirs = {DLEDGER: "DLedger", ROCKETMQ: "RocketMQ"}.get(row.sides[-1], "Apache BookKeeper")
            self.left_out.append(f"{row.name}, beside {theirs}: {self.no_java}")
        return there if there[:1] == row.sides[:1] else ()

    # -- sides -----------------------------------------------------------------------------------------------------

    def side(self, name: str, bookies: int) -> Side:
        """Returns a side, started."""
        if (name, bookies) not in self.sides:
            self.say(f"starting {name}")
            self.sides[name, bookies] = self.made(name, bookies).__enter__()
        return self.sides[name, bookies]

    def made(self, name: str, bookies: int) -> Side:
        directory, warm_up = self.options.dir, QUICK if self.options.quick else 1.0
        if name in ("quire", TLS):
            store = "zookeeper" if self.java_at_hand else "sqlite"
            return Quire(directory, store, bookies=bookies, tls=name == TLS)
        if name in ("this", "before"):
            checkout = self.options.against if name == "before" else None
            return Quire(directory, self.options.store, checkout, bookies)
        if name == "bare":
            return Bare(directory)
        if name == ON_QUIRE:
            java, quire = self.side(JAVA, bookies), self.side("quire", bookies)
            assert isinstance(java, Java)
            assert isinstance(quire, Quire)
            return JavaOnQuire(java, quire)
        settings = {"journalFlushWhenQueueEmpty": "true"} if name == TUNED else {}
        return Java(directory, bookies, settings, warm_up, tls=name == JAVA_TLS)

    def end_sides(self, rows: Sequence[Row]) -> None:
        """Ends those that no row of these needs: an idle Java side takes CPU."""
        needed = {(side, row.bookies) for row in rows if not row.module for side in row.sides}
        needed |= {(name, bookies) for side, bookies in needed if side == ON_QUIRE for name in ("quire", JAVA)}
        for key in reversed([key for key in self.sides if key not in needed]):
            self.sides.pop(key).__exit__()

    # -- rows ------------------------------------------------------------------------------------------------------

    def side_by_side(self, row: Row, names: Sequence[str]) -> Runs:
        """All rounds of these sides; one before is not counted."""
        pairs = self.options.pairs or row.pairs
        words = row.scaled(self.options.quick)
        sides = [self.side(name, row.bookies) for name in names]  # none starts while another is measured
        calls = [partial(side.run, row.verb, **words) for side in sides]
        if row.verb not in ("memory", "flush"):
            for call in calls:
                call()
        found: dict[str, list[Run]] = {name: [] for name in names}
        for number, runs in enumerate(rounds(pairs, *calls), 1):
            for name, run in zip(names, runs, strict=True):
                found[name].append(run)
                told = "  ".join(f"{key} {run[key]:,}" for key in TOLD if run.get(key))
                self.say(f"  {row.name} {number}/{pairs}   {name}: {told}")
        return found

    def by_module(self, row: Row, names: Sequence[str]) -> Runs:
        """The rounds of a module that measures by itself."""
        words: dict[str, object] = {"pairs": self.options.pairs or row.pairs}
        words |= row.scaled(self.options.quick) | ({"directory": self.options.dir} if self.options.dir else {})
        alone = ["--alone"] if names != row.sides else []
        self.say(f"  {row.name}")
        runs: Runs = measured(row.verb, *(f"--{name}={value}" for name, value in words.items()), *alone)["runs"]
        return runs

    def measure(self, row: Row) -> None:
        names = self.at_hand(row)
        if not names:
            return
        runs = self.by_module(row, names) if row.module else self.side_by_side(row, names)
        ours = runs[row.sides[0]]
        comparisons = [
            each.comparison(row.name, ours, runs.get(each.beside, ()))
            for each in row.wanted
            if each.limit or each.beside in runs
        ]
        self.rows += comparisons
        self.found.append(
            {
                "name": row.name,
                "words": row.scaled(self.options.quick),
                "ours": row.sides[0],
                "runs": runs,
                "wanted": [each.as_json() for each in comparisons],
            }
        )

    def others(self) -> None:
        """Named logs and message stores on bookies of this checkout, and Spark's tables, each in its own process."""
        words = [f"--pairs={self.options.pairs or PAIRS}", *(["--quick"] if self.options.quick else [])]
        for module, first in OTHERS.items():
            wanted = [f"--only={word}" for word in self.options.only or [first] if word.startswith(first)]
            if wanted:
                where = [f"--metadata={self.side('quire', 3).uri}"] if module in ("logs", "messages") else []
                keys = ("name", "ours", "theirs", "goal", "at_most", "unit")
                for each in measured(module, "--json", *words, *where, *wanted):
                    self.rows.append(Comparison(**{key: each[key] for key in keys}))
                    self.found.append({"name": each["name"], "runs": {}, "wanted": [each]})

    def all(self) -> None:
        rows = [row for row in (CHECKOUT_ROWS if self.options.against else ROWS) if self.wanted(row.name)]
        try:
            for number, row in enumerate(rows):
                self.measure(row)
                self.end_sides(rows[number + 1 :])
            if not self.options.against:
                self.others()
        finally:
            self.end_sides(())

    def table(self) -> str:
        width = max((len(row.name) for row in self.rows), default=3)
        lines = [f"{'row':<{width}} {'quire':>12} {'beside':>12} {'ratio':>7} {'95 %':>15} {'must be':>9}"]
        for row in self.rows:
            ours, theirs = (sorted(values)[len(values) // 2] for values in (row.ours, row.theirs))
            low, high = row.interval
            bound = f"{'<=' if row.at_most else '>='} {row.goal:g}"
            shown = (
                f"{row.median:>7.2f} {f'{low:.2f} to {high:.2f}':>15} {bound:>9}  {'pass' if row.passed else 'MISS'}"
            )
            lines.append(f"{row.name:<{width}} {figure(ours):>12} {figure(theirs):>12} {shown}")
        return "\n".join(lines + [f"left out: {reason}" for reason in self.left_out])


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def told_to_end(number: int, _frame: object) -> None:
    """Once: the rows so far are printed, and all sides ended."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs", type=int, help=f"rounds of each row (default {PAIRS}, {P99_PAIRS} of a p99, or the row's own)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the work, little warm-up: shows that it runs, not how fast"
    )
    parser.add_argument(
        "--only", action="append", metavar="WORDS", help="rows whose name contains WORDS; log, messages, spark"
    )
    parser.add_argument("--list", action="store_true", help="the names of the rows, and no more")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="this checkout beside that one: rates, p50 and CPU per entry of appends and reads, CPU of flushes, "
        "metadata of ledgers, recoveries, takeovers",
    )
    parser.add_argument(
        "--store", choices=("sqlite", "zookeeper"), default="sqlite", help="of both checkouts (default: sqlite)"
    )
    parser.add_argument("--no-java", action="store_true", help="leave Apache BookKeeper out")
    parser.add_argument("--dir", help="where journals and ledgers are (default: the temporary folder)")
    parser.add_argument("--json", action="store_true", help="one JSON document with every run on standard output")
    options = parser.parse_args()
    if options.list:
        print("\n".join(row.name for row in ROWS))
        return 0
    signal.signal(signal.SIGTERM, told_to_end)
    begun = time.monotonic()
    bench = Bench(options)
    described = machine(options.dir, bench.java_at_hand) if options.json else {}
    try:
        bench.all()
    finally:
        if options.json:
            described["seconds"] = round(time.monotonic() - begun)
            print(json.dumps({"rows": bench.found, "left_out": bench.left_out, "machine": described}, indent=1))
        print(bench.table(), file=sys.stderr if options.json else sys.stdout)
    return 0 if all(row.passed for row in bench.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
