"""
`make scale`: a cluster of a thousand bookies and a million ledgers, in virtual time (docs/scale.md).

    python -m tests.scale                            all scenarios: some minutes
    python -m tests.scale --only rack --seed 7       one of them, from another seed
    python -m tests.scale --small                    60 bookies: shows that it runs, and no more
    python -m tests.scale --set bookies=500 --set latency_s=0.01
    python -m tests.scale --json scale.json          figures and curves as a file; `python -m tests.scale.page` draws it

The same seed gives the same figures.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

# Sets of strings have an order of their own in each process unless this is fixed, and a seed would not be replayed.
if os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.scale", *sys.argv[1:]])

from tests.scale.scenarios import LARGE, SCENARIOS, SMALL, Outcome, ran

# SPDX-License-Identifier: Apache-2.0


def shown(found: Outcome) -> str:
    return "\n".join([found.name, *(f"  {name:42s} {value:16,.3f}" for name, value in found.figures.items())])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="scenarios by name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="60 bookies")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=NUMBER", help="a part of the cluster's shape"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also writes figures and curves there")
    options = parser.parse_args()
    shape = replace(SMALL if options.small else LARGE, seed=options.seed)
    for each in options.set:
        name, _, value = each.partition("=")
        shape = replace(shape, **{name: type(getattr(shape, name))(value)})
    outcomes = []
    for name in options.only or SCENARIOS:
        began = time.process_time()
        outcomes.append(ran(name, shape))
        outcomes[-1].figures["CPU s"] = time.process_time() - began
        print(shown(outcomes[-1]), flush=True)
        if options.json is not None:  # with each, for all together take long
            document = {"shape": asdict(shape), "outcomes": [asdict(each) for each in outcomes]}
            options.json.write_text(json.dumps(document), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
