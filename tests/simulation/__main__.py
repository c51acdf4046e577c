"""
The simulator's command.

    python -m tests.simulation --seed 17 [--profile mix] [--trace]     one history again
    python -m tests.simulation --seconds 600 [--first N]               a sweep on two processes
    python -m tests.simulation --count 3000 --first 0                  the same, for so many seeds
    python -m tests.simulation --mutants                               each guard taken away in turn (see mutants.py)

Ends with status 1 when a promise was broken, a rare case was not met, or a mutant lived.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from itertools import islice

from tests.simulation.plan import PROFILES, Plan, draw
from tests.simulation.replaying import replay
from tests.simulation.sweep import RARE, Result, beside, every_nth, profile_of, shrink, sweep
from tests.simulation.truth import Violation

# Sets of strings have an order of their own in each process unless this is fixed, and a seed would not be replayed.
if os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])


def command_of(plan: Plan) -> str:
    """The command that shows one history again."""
    return f"python -m tests.simulation --seed {plan.seed} --profile {plan.profile.name!r} --trace"


def tell_broken(plan: Plan, violation: Violation) -> None:
    print(
        f"\nBROKEN  {violation}\n{plan}\nreplay: {command_of(plan)}",
        flush=True,  # before the search for a smaller one, which takes its time
    )
    small = shrink(plan, violation)
    history, again = replay(small, trace=True)
    print(f"smallest: {len(small.steps)} of {len(plan.steps)} steps break {again.invariant if again else 'nothing'}:")
    print("\n".join(history.trace), flush=True)


def one(seed: int, name: str | None, trace: bool) -> int:
    plan = draw(profile_of(seed, name), seed)
    history, violation = replay(plan, trace)
    if trace:
        print("\n".join(history.trace))
    print(f"{plan}: {violation or 'nothing is broken'}")
    if violation is not None and not trace:
        tell_broken(plan, violation)
    return int(violation is not None)


def many(args: argparse.Namespace) -> int:
    first = args.first if args.first is not None else int(time.time()) % 1_000_000_000
    seeds = every_nth(first, args.stride)
    result = sweep(islice(seeds, args.count) if args.count else seeds, args.profile, args.seconds)
    broken = [(plan.seed, plan.profile.name, violation.invariant, str(violation)) for plan, violation in result.broken]
    if args.json:
        print(json.dumps([result.histories, result.seconds, result.seen, broken, result.events]))
        return int(bool(broken))
    return report(first, result, args.profile)


def report(first: int, result: Result, name: str | None) -> int:
    rate = result.histories / max(result.seconds, 0.001) * 60
    print(
        f"{result.histories} histories from seed {first}, {result.events} events, {result.seconds:.0f} s: "
        f"{rate:.0f} "
        f"a minute; {len(result.broken)} broken"
    )
    for case in sorted(result.seen):
        print(f"  {result.seen[case]:8} {case}")
    for plan, violation in result.broken:
        tell_broken(plan, violation)
    for plan, violation in result.broken:  # at the end once more, for a log may be cut before it
        print(f"BROKEN  {violation}\n  {command_of(plan)}")
    unmet = result.unmet if name is None else []
    if unmet:
        print(f"NOT REACHED: {', '.join(unmet)}")
    return int(bool(result.broken or unmet))


def beside_each_other(args: argparse.Namespace) -> int:
    first = args.first if args.first is not None else int(time.time()) % 1_000_000_000
    arguments = ["--profile", args.profile] if args.profile else []
    arguments += ["--count", str(-(-args.count // args.processes))] if args.count else ["--seconds", str(args.seconds)]
    total = Result()
    for process in beside(first, args.processes, arguments):
        output, _ = process.communicate()
        if not output:
            sys.exit(f"a process of the sweep ended with status {process.returncode} and without a result")
        histories, seconds, seen, broken, events = json.loads(output)
        total.histories += histories
        total.events += events
        total.seconds = max(total.seconds, seconds)
        total.seen += Counter(seen)
        total.broken += [
            (draw(PROFILES[profile], seed), Violation(invariant, text)) for seed, profile, invariant, text in broken
        ]
    return report(first, total, args.profile)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="histories of a whole cluster on virtual time"
    )
    parser.add_argument("--seed", type=int, help="replay one history")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="default: all, in turn")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--first", type=int, help="first seed of a sweep; default: fresh ones, by the clock")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--count", type=int, default=0, help="so many histories")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for so long")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one line for the process above")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="take guards away; none named: each in turn")
    args = parser.parse_args()
    if args.seed is not None:
        return one(args.seed, args.profile, args.trace)
    if args.mutants is not None:
        from tests.simulation.mutants import hunt

        return hunt(args.mutants, args.processes)
    if not args.count and args.seconds == float("inf"):
        parser.error("give --seed, --seconds, --count or --mutants")
    return many(args) if args.processes == 1 else beside_each_other(args)


if __name__ == "__main__":
    assert RARE
    sys.exit(main())
