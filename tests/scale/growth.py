"""
What one event costs as a cluster grows: the exponent b of y = a * x^b over clusters of 50 to 400 bookies.

    python -m tests.scale.growth                 all events
    python -m tests.scale.growth --points 25 50  smaller clusters

Clients, processes of AutoRecovery and bookies grow together, so that of what each of them does for each change of
another one there is x^2 in all: such a figure is shown for one of them.  Figures are counts, of calls of the store, of
bytes that it answers, of calls of Python's functions: the same on each machine.

Knows: the events, and what of each figure must grow.  Does not know: how a fleet works (`fleet`).
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# As in `__main__`: the order of sets is a part of what is counted.
if __name__ == "__main__" and os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.scale.growth", *sys.argv[1:]])

from twisted.internet.defer import Deferred

from bench.growth.curves import exponent
from tests.scale.fleet import ENSEMBLE, WISH, Fleet, Shape, grouped

# SPDX-License-Identifier: Apache-2.0

POINTS = (50, 100, 200, 400)
QUIET_S = 60.0
PICKS = 20


def shape_of(bookies: int) -> Shape:
    """A cluster in which everything grows with the bookies; ledgers do not."""
    return Shape(
        bookies=bookies,
        ledgers=640,
        group=32,
        repairers=bookies,
        clients=bookies,
        delay_s=3600,
        options={"ledgers_per_second": 2000},
    )


class Counted:
    """What the store is asked in a while, by role."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._calls, self._bytes = fleet.load.calls.copy(), fleet.load.bytes.copy()
        self._begun = fleet.timeline.now

    def calls(self, role: str) -> float:
        more = self._fleet.load.calls - self._calls
        return float(sum(count for (who, _name), count in more.items() if who == role))

    def bytes(self, role: str) -> float:
        return float(self._fleet.load.bytes[role] - self._bytes[role])

    @property
    def seconds(self) -> float:
        return self._fleet.timeline.now - self._begun


def settled(bookies: int) -> Fleet:
    fleet = Fleet(shape_of(bookies))
    fleet.timeline.run(QUIET_S)
    return fleet


def at_rest(fleet: Fleet) -> dict[str, float]:
    """Nothing happens for a minute."""
    counted = Counted(fleet)
    fleet.timeline.run(QUIET_S)
    each = len(fleet.repairers) * QUIET_S
    return {"at rest: calls of one AutoRecovery a second": counted.calls("AutoRecovery") / each}


def restart(fleet: Fleet) -> dict[str, float]:
    """A bookie leaves, and is back 20 s later."""
    bookie = fleet.bookies[Fleet.name_of(7)]
    counted = Counted(fleet)
    bookie.stop()
    fleet.timeline.run(20.0)
    bookie.start()
    fleet.timeline.run(20.0)
    watchers = len(fleet.watchers)
    return {
        "a bookie restarts: calls of one client": counted.calls("client") / watchers,
        "a bookie restarts: bytes to one client": counted.bytes("client") / watchers,
        "a bookie restarts: calls of bookies": counted.calls("bookie"),
    }


def herd(fleet: Fleet) -> dict[str, float]:
    """The sessions of all bookies end at once, and each registers again."""
    counted, heard = Counted(fleet), fleet.heard
    for bookie in fleet.bookies.values():
        bookie.expire()
    fleet.timeline.run(60.0)
    watchers = len(fleet.watchers)
    return {
        "all bookies register again: calls of one bookie": counted.calls("bookie") / len(fleet.bookies),
        "all bookies register again: calls of one client": counted.calls("client") / watchers,
        "all bookies register again: bytes to one client": counted.bytes("client") / watchers,
        "all bookies register again: lists that one client is called with": (fleet.heard - heard) / watchers,
    }


def election(fleet: Fleet) -> dict[str, float]:
    """Half a minute with the auditor's end in it; what the same time costs without is taken off."""
    counted = Counted(fleet)
    fleet.timeline.run(30.0)
    calls, size = counted.calls("AutoRecovery"), counted.bytes("AutoRecovery")
    auditor = next(each for each in fleet.repairers if each.running.candidate.auditor is not None)
    counted = Counted(fleet)
    auditor.die()
    fleet.timeline.run(30.0)
    assert fleet.auditor() is not None
    return {
        "an auditor ends: calls of all AutoRecoveries": max(1.0, counted.calls("AutoRecovery") - calls),
        "an auditor ends: bytes to all AutoRecoveries": max(1.0, counted.bytes("AutoRecovery") - size),
    }


def votes(fleet: Fleet) -> dict[str, float]:
    """An AutoRecovery in the middle of the queue of candidates loses its session."""
    each = fleet.repairers[len(fleet.repairers) // 2]
    counted = Counted(fleet)
    fleet.timeline.run(10.0)
    calls, size = counted.calls("AutoRecovery"), counted.bytes("AutoRecovery")
    counted = Counted(fleet)
    each.store.expire_session()
    fleet.timeline.run(10.0)
    return {
        "a candidate votes again: calls of all AutoRecoveries": max(1.0, counted.calls("AutoRecovery") - calls),
        "a candidate votes again: bytes to all AutoRecoveries": max(1.0, counted.bytes("AutoRecovery") - size),
    }


def functions(work: Callable[[], object]) -> int:
    """How many of Python's functions a piece of work calls."""
    count = 0

    def called(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def picks(fleet: Fleet) -> dict[str, float]:
    """An ensemble for a new ledger, and a spare in it, from bookies that were chosen from before."""
    choice = fleet.operator.choice
    found: list[Any] = []

    def ensemble() -> None:
        Deferred.fromCoroutine(choice.ensemble(ENSEMBLE, WISH)).addCallback(found.append)

    def replace() -> None:
        Deferred.fromCoroutine(choice.replace(tuple(found[0]), [1], wish=WISH)).addCallback(found.append)

    ensemble()
    fleet.timeline.run(1.0)
    replace()
    fleet.timeline.run(1.0)
    return {
        "an ensemble for a ledger: functions": functions(lambda: [ensemble() for _ in range(PICKS)]) / PICKS,
        "a bookie replaced in one: functions": functions(lambda: [replace() for _ in range(PICKS)]) / PICKS,
    }


EVENTS: Sequence[Callable[[Fleet], dict[str, float]]] = (at_rest, restart, picks, votes, election, herd)
# By the beginning of a figure's name, how it must grow at most; 0 where there is none.
MUST = {
    "a bookie restarts: bytes to one client": 1.0,
    "all bookies register again: calls of one client": 1.0,
    "all bookies register again: bytes to one client": 1.0,
    "an auditor ends: bytes": 1.0,
    "a candidate votes again: bytes": 1.0,
}
SLACK = 0.25


def measured(points: Sequence[int]) -> dict[str, dict[float, float]]:
    """Each figure at each point."""
    found: dict[str, dict[float, float]] = {}
    for bookies in points:
        with grouped(32):
            fleet = settled(bookies)
            for event in EVENTS:
                for name, value in event(fleet).items():
                    found.setdefault(name, {})[float(bookies)] = value
    return found


def must(name: str) -> float:
    """The exponent that a figure may have."""
    return next((most for begin, most in MUST.items() if name.startswith(begin)), 0.0)


def table(found: Mapping[str, Mapping[float, float]]) -> list[str]:
    """A line for each figure."""
    points = sorted(next(iter(found.values())))
    lines = [
        f"| event | {' | '.join(f'{point:g}' for point in points)} | exponent | must | |",
        f"|---|{'--:|' * len(points)}--:|--:|---|",
    ]
    for name, values in found.items():
        grown, most = exponent(values), must(name)
        verdict = "" if grown <= most + SLACK else "**faster**"
        row = " | ".join(f"{values[point]:,.1f}" for point in points)
        lines.append(f"| {name} | {row} | {grown:.2f} | {most:g} | {verdict} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scale.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, nargs="+", default=POINTS)
    options = parser.parse_args()
    print("\n".join(table(measured(options.points))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
