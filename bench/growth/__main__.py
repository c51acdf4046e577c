"""
`make growth`: how figures change as ledgers, entries, clients, sizes, windows and sync times grow.

    python -m bench.growth                                    all curves: about a quarter of an hour
    python -m bench.growth --only 'entry size' --rounds 1     those whose name contains the words
    python -m bench.growth --only 'ledgers on' --points 1000 10000 100000 1000000
    python -m bench.growth --quick                            few and small points: shows that it runs, and no more
    python -m bench.growth --list                             the names of the curves
    python -m bench.growth --json > growth.json               every run; `python -m bench.growth.page` makes the page

Points come by turns, round after round, one bookie or cluster for each where it has to hold something.  The table has
the median of the rounds, the exponent b of y = a * x^b over all points, the law that is wanted, and where a curve
bends.  Exit status 1 when one raises an alarm.
"""

import argparse
import json
import os
import signal
import sys
import time
from typing import Any

from bench.__main__ import told_to_end
from bench.growth import held, ledger_records, streams
from bench.growth.curves import CURVES, Curve
from bench.growth.page import alarms, knees_table, runs_by_point, table
from bench.machine import machine

# SPDX-License-Identifier: Apache-2.0

VERBS = held.VERBS | streams.VERBS | ledger_records.VERBS
QUICK = 0.05  # of the work at each point


def measured(curve: Curve, options: argparse.Namespace) -> dict[str, Any]:
    """The curve as the file of figures has it."""
    points = options.points or (curve.quick if options.quick else curve.points)
    load, began = os.getloadavg()[0], time.monotonic()
    found = VERBS[curve.verb](
        sorted(points), options.rounds or curve.rounds, QUICK if options.quick else 1.0, options.dir
    )
    return {
        "name": curve.name,
        "date": time.strftime("%Y-%m-%d"),
        "load_before": round(load, 1),
        "seconds": round(time.monotonic() - began),
        "points": [{"x": x, "runs": [rounded(run) for run in runs]} for x, runs in sorted(found.items())],
    }


def rounded(run: dict[str, Any]) -> dict[str, Any]:
    """Five digits of each figure; the words of the load stay."""
    return {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in run.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="WORDS", help="curves whose name contains WORDS")
    parser.add_argument("--points", type=float, nargs="+", help="instead of those that the curve has")
    parser.add_argument("--rounds", type=int, help="runs of each point (default 3)")
    parser.add_argument("--quick", action="store_true", help="few and small points, a twentieth of the work at each")
    parser.add_argument("--list", action="store_true", help="the names of the curves, and no more")
    parser.add_argument("--dir", help="where the bookies' directories are (default: the temporary folder)")
    parser.add_argument("--json", action="store_true", help="one JSON document with every run on standard output")
    options = parser.parse_args()
    if options.list:
        print("\n".join(curve.name for curve in CURVES))
        return 0
    chosen = [curve for curve in CURVES if not options.only or any(word in curve.name for word in options.only)]
    signal.signal(signal.SIGTERM, told_to_end)
    facts = machine(options.dir, False)
    found: list[dict[str, Any]] = []
    try:
        for curve in chosen:
            print(f"  {curve.name}", file=sys.stderr, flush=True)
            found.append(measured(curve, options))
    finally:  # a curve that fails does not cost those before it
        if options.json:
            print(json.dumps({"machine": facts, "curves": found}))
        told = "\n".join([*table(found, {}), "", *knees_table(found, {})])
        print(told, file=sys.stderr if options.json else sys.stdout)
    return 1 if any(alarms(each["name"], runs_by_point(each)) for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
