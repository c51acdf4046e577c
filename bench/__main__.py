"""
`make bench`: quire beside the yardstick and, where Maven and a JDK are, beside Apache BookKeeper, on this machine and
now.

    python -m bench                              all rows (about six minutes)
    python -m bench --only yardstick --quick     rows whose name contains the word; short runs that say little
    python -m bench --json > figures.json        every single figure
    python -m bench --against ../before          this checkout beside another one, and nothing else
    python -m bench --against ../before --only flush --pairs 15      only what a flush costs in CPU

Every row is pairs of runs side by side (A B, B A, A B, …), E=3 WQ=3 AQ=2, CRC32C, every acknowledgement
after a sync; its ratio is the median over the pairs, with a 95 % bootstrap interval.  Exit status 1 when a row misses
its floor.  Beside another checkout a rate or a p50 is missed only when its whole interval is on the wrong side, CPU per
entry when its median is 3 % above.
"""

import argparse
import contextlib
import json
import platform
import shutil
import sys
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bench.ratios import Comparison
from bench.sides import Java, Load, Quire, Yardstick, flushes, measured, resident_mb, rounds

PAIRS = 5
RESIDENT_MB_MAX = 80.0
CLIENT_CPU_RATIO_MAX = 2.0
CHECKOUT_CPU_RATIO_MAX = 1.03
COPIES = 3
SIDES = ("quire", "java")
SHORT_LEDGERS = {"made": 1.0, "deleted": 1.0}  # floors
FLUSHED = {"flush 100 B": (100_000, 10, 50), "flush 100 B, many ledgers": (20_000, 20_000, 1)}  # entries, ledgers, run
Run = dict[str, Any]


class Bench:
    """The sides, each started when a row first needs it, and the rows found so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rows: list[Comparison] = []
        self.runs: list[dict[str, Any]] = []
        self.left_out: list[str] = []
        self.stack = contextlib.ExitStack()
        self.java_at_hand = not options.no_java and all(shutil.which(tool) for tool in ("mvn", "java", "javac"))

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def wanted(self, row: str) -> bool:
        """Whether this row is asked for and possible; what is asked for and impossible is reported at the end."""
        if self.options.only and not any(word in row for word in self.options.only):
            return False
        if "java" in row and not self.java_at_hand:
            self.left_out.append(
                f"{row}: " + ("--no-java" if self.options.no_java else "no mvn, java or javac on the PATH")
            )
            return False
        return True

    @cached_property
    def quire(self) -> Quire:
        java = self.java_at_hand and self.options.against is None
        return self.stack.enter_context(Quire(self.options.dir, "zookeeper" if java else "sqlite"))

    @cached_property
    def before(self) -> Quire:
        return self.stack.enter_context(Quire(self.options.dir, checkout=self.options.against))

    @cached_property
    def yardstick(self) -> Yardstick:
        return self.stack.enter_context(Yardstick(self.options.dir))

    @cached_property
    def java(self) -> Java:
        java = self.stack.enter_context(Java(self.options.dir))
        self.say("warming up the Java side")
        java.warm_up(share=0.05 if self.options.quick else 1.0)
        return java

    def load(self, size: int, entries: int, window: int, batch: int) -> Load:
        entries = max(batch, entries // (10 if self.options.quick else 1))
        return Load(size, entries - entries % batch, window, batch)

    def side_by_side(self, what: str, sides: dict[str, Callable[[], Run]]) -> list[list[Run]]:
        """All rounds of these sides; each run is printed and kept."""
        found = []
        for number, runs in enumerate(rounds(self.options.pairs, *sides.values()), 1):
            for name, run in zip(sides, runs, strict=True):
                self.runs.append({"row": what, "side": name, **run})
            line = "   ".join(
                f"{name} {run['entries_per_second']:,.0f}/s p50 {run['p50_ms']:.2f} ms"
                for name, run in zip(sides, runs, strict=True)
            )
            self.say(f"  {what} {number}/{self.options.pairs}   {line}")
            found.append(runs)
        return found

    def throughput(self, size: int, entries: int, floors: dict[str, float]) -> None:
        """Window 1000, batch 50, on all sides in the same rounds."""
        names = {side: f"append {size} B, quire / {side}" for side in floors}
        asked = [side for side in floors if self.wanted(names[side])]
        if not asked:
            return
        load = self.load(size, entries, 1000, 50)
        runs = {"yardstick": lambda: self.yardstick.run(load), "java": lambda: self.java.run(load)}
        self.start(*asked)
        found = self.side_by_side(
            f"append {size} B", {"quire": lambda: self.quire.run(load)} | {side: runs[side] for side in asked}
        )
        ours, *others = (column(found, index, "entries_per_second") for index in range(len(asked) + 1))
        for side, theirs in zip(asked, others, strict=True):
            self.rows.append(Comparison(names[side], ours, theirs, floors[side], unit="entries/s"))

    def start(self, *sides: str) -> None:
        """Starts these sides now, so that none starts while another is measured."""
        for side in ("quire", *sides):
            getattr(self, side)

    def beside_yardstick(self, name: str, load: Load, key: str, most: float, unit: str) -> None:
        """A figure of which less is better, of the same load on both."""
        if not self.wanted(name):
            return
        self.start("yardstick")
        found = self.side_by_side(
            name, {"quire": lambda: self.quire.run(load), "yardstick": lambda: self.yardstick.run(load)}
        )
        self.rows.append(Comparison(name, column(found, 0, key), column(found, 1, key), most, at_most=True, unit=unit))

    def one_outstanding(self) -> None:
        self.beside_yardstick(
            "one outstanding append, quire p50 / yardstick p50", self.load(1024, 3000, 1, 1), "p50_ms", 2.0, "ms"
        )

    def client_cpu(self) -> None:
        """
        What the process that appends spends itself, its bookies' share left out; other work on the machine changes it
        little.
        """
        load = self.load(100, 200_000, 1000, 50)
        self.beside_yardstick(
            "append 100 B, client CPU, quire / yardstick",
            load,
            "client_cpu_us_per_entry",
            CLIENT_CPU_RATIO_MAX,
            "us/entry",
        )

    def java_on_quire(self, size: int, entries: int) -> None:
        name = f"java client {size} B, on quire / on java"
        if not self.wanted(name):
            return
        load = self.load(size, entries, 1000, 1)
        self.start("java")
        uri, pids = self.quire.uri, self.quire.pids
        self.java.warm_up(uri, share=0.02 if self.options.quick else 0.2)
        sides = {
            "java on quire": lambda: self.java.run(load, on=uri, pids=pids),
            "java on java": lambda: self.java.run(load),
        }
        found = self.side_by_side(f"java client {size} B", sides)
        self.rows.append(
            Comparison(
                name,
                column(found, 0, "entries_per_second"),
                column(found, 1, "entries_per_second"),
                0.6,
                unit="entries/s",
            )
        )

    def short_ledgers(self) -> None:
        """Of one entry, one at a time; the metadata of each side are in a ZooKeeper of its own."""
        asked = [kind for kind in SHORT_LEDGERS if self.wanted(f"short ledgers {kind}, quire / java")]
        if not asked:
            return
        self.start("java")
        count = 30 if self.options.quick else 300
        self.java.short_ledgers(10 * count)  # it gets faster over thousands of them
        found = []
        for number, runs in enumerate(
            rounds(self.options.pairs, *(partial(side.short_ledgers, count) for side in (self.quire, self.java))), 1
        ):
            self.runs += [{"row": "short ledgers", "side": side, **run} for side, run in zip(SIDES, runs, strict=True)]
            self.say(f"  short ledgers {number}/{self.options.pairs}   {runs}")
            found.append(runs)
        for kind in asked:
            ours, theirs = (column(found, side, f"{kind}_per_second") for side in range(2))
            name = f"short ledgers {kind}, quire / java"
            self.rows.append(Comparison(name, ours, theirs, SHORT_LEDGERS[kind], unit="ledgers/s"))

    def resident(self) -> None:
        name = "resident after start, MB / 80 MB"
        if self.wanted(name):
            found = [resident_mb(pid) for pid in self.quire.pids]
            self.rows.append(Comparison(name, found, [RESIDENT_MB_MAX] * len(found), 1.0, at_most=True, unit="MB"))

    def others(self) -> None:
        """Named logs on the bookies of this checkout, and Spark's tables, each in a process of its own."""
        words = [f"--pairs={self.options.pairs}", *(["--quick"] if self.options.quick else [])]
        for module, first in (("logs", "log"), ("spark", "spark")):
            wanted = [f"--only={word}" for word in self.options.only or [first] if word.startswith(first)]
            if wanted:
                where = [f"--metadata={self.quire.uri}"] if module == "logs" else []
                self.rows += measured(module, *words, *where, *wanted)

    def two_checkouts(self) -> None:
        """Both clients on both kinds of bookies would mix what is compared: each checkout is measured as a whole."""
        rows = {
            "append 100 B": ("write", self.load(100, 300_000, 1000, 50)),
            "append 1024 B": ("write", self.load(1024, 150_000, 1000, 50)),
            "append 100 B, one a call": ("write", self.load(100, 100_000, 1000, 1)),
            "one outstanding append": ("write", self.load(1024, 3000, 1, 1)),
            "read 100 B in order": ("read", self.load(100, 1_000_000, 1, 1)),
            "read 1024 B at random": ("read", self.load(1024, 10_000, 1, 1)),
        }
        for name, (verb, load) in rows.items():
            if not self.wanted(name):
                continue
            self.start("before")
            words = [
                verb,
                *(f"--{key}={value}" for key, value in load.words().items()),
                *(["--random"] if "random" in name else []),
            ]
            # A read right after its write would count the flush of that write too: each side keeps one ledger, written
            # before.
            sides = {
                side: partial(
                    bookies.bench, *words, *([f"--ledger={self.written(bookies, load)}"] if verb == "read" else [])
                )
                for side, bookies in (("this", self.quire), ("before", self.before))
            }
            found = self.side_by_side(name, sides)
            for run in (run for runs in found for run in runs):
                run["cpu"] = run["client_cpu_us_per_entry"] + run["bookie_cpu_us_per_entry"] * (
                    COPIES if verb == "write" else 1
                )
            for figure, goal, most, unit in (
                ("entries_per_second", 1.0, False, "entries/s"),
                ("p50_ms", 1.0, True, "ms"),
                ("cpu", CHECKOUT_CPU_RATIO_MAX, True, "us/entry"),
            ):
                ours, theirs = column(found, 0, figure), column(found, 1, figure)
                self.rows.append(
                    Comparison(
                        f"{name}: {figure}", ours, theirs, goal, at_most=most, by_interval=figure != "cpu", unit=unit
                    )
                )

    def flushes_of_two_checkouts(self) -> None:
        """CPU of the flush alone: the rows above have it only when a flush falls into a run."""
        for name, (entries, ledgers, run) in FLUSHED.items():
            if not self.wanted(name):
                continue
            words = [f"--entries={entries}", f"--ledgers={ledgers}", f"--run={run}"]
            words += ["--flushes=3"] if self.options.quick else []
            sides = {
                side: partial(flushes, checkout, self.options.dir, words)
                for side, checkout in (("this", None), ("before", self.options.against))
            }
            figure = "cpu_us_per_entry"
            found = self.side_by_side(name, sides)
            ours, theirs = column(found, 0, figure), column(found, 1, figure)
            self.rows.append(
                Comparison(f"{name}: cpu", ours, theirs, CHECKOUT_CPU_RATIO_MAX, at_most=True, unit="us/entry")
            )

    def written(self, side: Quire, load: Load) -> int:
        """The id of a ledger with the entries of this load."""
        words = [f"--{key}={value}" for key, value in Load(load.size, load.entries, 1000, 50).words().items()]
        return int(side.bench("write", *words, "--keep")["ledger"])

    def all(self) -> None:
        with self.stack:
            if self.options.against is not None:
                self.two_checkouts()
                self.flushes_of_two_checkouts()
                return
            self.resident()
            self.throughput(100, 200_000, {"yardstick": 0.45, "java": 1.5})
            self.throughput(1024, 100_000, {"yardstick": 0.45, "java": 1.0})
            self.one_outstanding()
            self.client_cpu()
            self.java_on_quire(100, 200_000)
            self.java_on_quire(1024, 100_000)
            self.short_ledgers()
            self.others()

    def table(self) -> str:
        lines = [f"{'row':<52} {'quire':>12} {'beside':>12} {'ratio':>7} {'95 %':>15} {'must be':>9}"]
        for row in self.rows:
            ours, theirs = (sorted(values)[len(values) // 2] for values in (row.ours, row.theirs))
            low, high = row.interval
            bound = f"{'<=' if row.at_most else '>='} {row.goal:g}"
            shown = f"{row.median:>7.2f} {f'{low:.2f} to {high:.2f}':>15} {bound:>9}"
            lines.append(
                f"{row.name:<52} {figure(ours):>12} {figure(theirs):>12} {shown}  {'pass' if row.passed else 'MISS'}"
            )
        return "\n".join(lines + [f"left out: {reason}" for reason in self.left_out])


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def column(found: list[list[Run]], side: int, figure: str) -> list[float]:
    """One figure of one side, over all rounds."""
    return [float(runs[side][figure]) for runs in found]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"rounds of each row (default {PAIRS})")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the entries, little warm-up: shows that it runs, not how fast"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="WORD",
        help="rows whose name contains WORD: 'append 100', yardstick, java, one, CPU, short, resident, flush, log,"
        " 'log tail', spark, 'spark read'",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="this checkout beside that one: rates, p50 and CPU per entry of appends and reads, CPU of flushes",
    )
    parser.add_argument("--no-java", action="store_true", help="leave Apache BookKeeper out")
    parser.add_argument("--dir", help="where journals and ledgers are (default: the temporary folder)")
    parser.add_argument("--json", action="store_true", help="one JSON document with every run on standard output")
    options = parser.parse_args()
    begun = time.monotonic()
    bench = Bench(options)
    bench.all()
    if options.json:
        machine = {
            "python": platform.python_version(),
            "system": platform.platform(),
            "seconds": round(time.monotonic() - begun),
        }
        print(
            json.dumps(
                {
                    "rows": [row.as_json() for row in bench.rows],
                    "runs": bench.runs,
                    "left_out": bench.left_out,
                    "machine": machine,
                },
                indent=1,
            )
        )
    print(bench.table(), file=sys.stderr if options.json else sys.stdout)
    return 0 if all(row.passed for row in bench.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
