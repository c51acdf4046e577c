"""
Common to the benchmarks that are scripts: their command lines, turns, and rows of pairs.

Knows: how a default says what an option takes, how rows are printed.  Does not know: what is measured.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from bench.ratios import Comparison

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Pair = tuple[float, float]  # ours, and what is beside it


def words(doc: str | None, argv: Sequence[str] | None = None, **options: Any) -> argparse.Namespace:
    """
    Reads a command line.  An option is its default, which says what it takes (False: a flag, None: a text), or that and
    its help; a dictionary has argparse's own words.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, option in options.items():
        default, text = option if isinstance(option, tuple) else (option, None)
        if isinstance(default, dict):
            more = default
        elif default is False:
            more = {"action": "store_true"}
        else:
            more = {"default": default, "type": str if default is None else type(default)}
        parser.add_argument(f"--{name.replace('_', '-')}", **{"help": text, **more})
    return parser.parse_args(argv)


def folder(directory: str | None, name: str) -> "tempfile.TemporaryDirectory[str]":
    """Makes a temporary folder, in `directory` if that is given."""
    return tempfile.TemporaryDirectory(dir=directory, prefix=f"quire-{name}-", ignore_cleanup_errors=True)


def by_turns(count: int, items: Sequence[T]) -> Iterator[T]:
    """Yields all items, `count` times, every other time in reverse order, so that none always comes first."""
    for number in range(count):
        yield from items if number % 2 == 0 else reversed(items)


class Timed:
    """Seconds on the clock and of this process's CPU, from `with` to its end."""

    def __enter__(self) -> "Timed":
        self._clock, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._clock
        self.cpu = time.process_time() - self._cpu


class PairRows:
    """Rows of pairs, each measured when it is wanted.  `share`: of the work of a full run."""

    def __init__(self, pairs: int, share: float, wanted: Callable[[str], bool]) -> None:
        self.rows: list[Comparison] = []
        self.pairs, self.share, self.wanted = pairs, share, wanted

    def some(self, count: int, least: int = 10) -> int:
        """Returns as much of `count` as is measured."""
        return max(least, int(count * self.share))

    def say(self, name: str, found: Sequence[Pair], unit: str) -> None:
        """Prints the last pair of a row."""
        ours, theirs = found[-1]
        turn = f"{len(found)}/{self.pairs}"
        print(f"  {name} {turn}   {ours:,.2f} beside {theirs:,.2f} {unit}", file=sys.stderr)

    def add(self, name: str, found: Sequence[Pair], goal: float, unit: str, at_most: bool) -> None:
        """Notes a row that was measured."""
        ours, theirs = zip(*found, strict=True)
        self.rows.append(Comparison(name, ours, theirs, goal, at_most=at_most, unit=unit))


def row_options(doc: str | None, where: str, argv: Sequence[str] | None = None, **more: Any) -> argparse.Namespace:
    """Reads the command line of a script of rows; `where`: the bookies that it has by default."""
    return words(
        doc,
        argv,
        metadata=(None, f"of bookies that run (default: {where})"),
        pairs=(5, "rounds of each row (default 5)"),
        quick=(False, "a tenth of the work"),
        only={"action": "append", "default": [], "metavar": "WORDS", "help": "rows whose name contains them"},
        json=(False, "one JSON document on standard output"),
        **more,
    )


def asked(options: argparse.Namespace) -> tuple[int, float, Callable[[str], bool]]:
    """Returns what `PairRows` wants of a command line."""
    share = 0.1 if options.quick else 1.0
    return options.pairs, share, lambda name: not options.only or any(word in name for word in options.only)


def report(rows: Sequence[Comparison], as_json: bool) -> int:
    """Prints the rows; returns the exit status."""
    if as_json:
        print(json.dumps([row.as_json() for row in rows]))
        return 0
    for row in rows:
        bound = f"{'<=' if row.at_most else '>='} {row.goal:.2f}"
        print(f"{row.name:<70} {row.median:>8.2f}  must be {bound}  {'pass' if row.passed else 'MISS'}")
    return 0 if all(row.passed for row in rows) else 1


def hidden(**more: Any) -> dict[str, Any]:
    """An option that the help does not show: for processes that a script starts of itself."""
    return {"help": argparse.SUPPRESS, **more}
