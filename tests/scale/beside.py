"""
The model beside a real cluster: a bookie is killed, and its ledgers are repaired; it comes back, and another one is
drained.

    python -m tests.scale.beside                         6 bookies as processes on this machine, and the model of them
    python -m tests.scale.beside --bookies 24            24 of them
    python -m tests.scale.beside --ledgers 400 --size 500000 --rate 4000000

Both sides begin each event with the same ledgers on the same bookies, and copy with the product's own limit of bytes a
second, below what the machine does.  The model is given the mean time of an answer of the real store; all else it says
by itself.  The auditor, the worker, the command and a client that follows the list of bookies have a handle on the
store each, so that what each of them asks is counted apart.  Prints each figure of both and the error, the model's part
above or below the real one.

Knows: the two events, and what is counted.  Does not know: how the sides work (`sides`).
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from quire.client.api import Client
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.store import BookieList, Watch
from quire.replication.autorecovery.running import Auditor, Candidate
from quire.replication.autorecovery.worker import Worker
from quire.replication.concurrently import Pace
from quire.replication.decommission import drain
from tests.scale.fleet import grouped
from tests.scale.sides import Model, Plan, Real, Side

# SPDX-License-Identifier: Apache-2.0

WRITES = frozenset(("create", "write", "delete", "transact", "use_up"))
LOST, DRAINED = 0, 1  # bookies by number
Figures = dict[str, float]


class Counted:
    """What the store is asked from now on, by role, and the lists that the client is called with."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._lists = 0
        self._watch = side.ask(self._watched)
        side.until(lambda: self._lists > 0)
        self._lists = 0
        self._before = self._calls()
        self._began = side.seconds

    async def _watched(self) -> Watch:
        def heard(_listed: BookieList) -> None:
            self._lists += 1

        return self._side.clients["client"].store.watch_bookies(heard)

    def _calls(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for role, client in self._side.clients.items():
            counters = client.store.counters
            assert counters is not None
            for name, each in counters.calls.named().items():
                found[role, "writes" if name in WRITES else "reads"] += each.times.count + each.failures
        return found

    def begin_time(self) -> None:
        self._began = self._side.seconds

    def figures(self, roles: tuple[str, ...]) -> Figures:
        """The seconds since `begin_time`, and calls since the beginning."""
        found: Figures = {"seconds": self._side.seconds - self._began}
        more = self._calls() - self._before
        for role in (*roles, "client"):
            found |= {f"store calls of the {role}: {kind}": more[role, kind] for kind in ("writes", "reads")}
        self._watch.cancel()
        return found | {"lists that the client is called with": self._lists}


class Recovery:
    """AutoRecovery, its two parts with a client each."""

    def __init__(self, auditing: Client, working: Client, options: AutoRecoveryOptions) -> None:
        self.candidate = Candidate(auditing, "beside", lambda blind: Auditor(auditing, options, blind))
        self.worker = Worker(working, options)

    async def start(self) -> None:
        self.candidate.start()
        self.worker.start()

    async def stop(self) -> None:
        await self.candidate.stop()
        await self.worker.stop()

    @property
    def passes(self) -> int:
        """Looks of the auditor at all ledgers."""
        auditor = self.candidate.auditor
        return auditor.losses.passes if auditor is not None else 0

    @property
    def marked(self) -> int:
        auditor = self.candidate.auditor
        return auditor.losses.marked if auditor is not None else 0


def lose(side: Side, plan: Plan) -> Figures:
    """A bookie is killed; until all that it had is copied."""
    options = AutoRecoveryOptions(
        metadata_uri=side.uri, copies_check_interval_s=0, scrub_interval_s=0, bytes_per_second=plan.rate
    )
    recovery = Recovery(side.clients["auditor"], side.clients["worker"], options)
    side.ask(recovery.start)
    side.until(lambda: recovery.passes > 0)
    named = sum(LOST in each for each in side.ensembles)
    counted = Counted(side)
    side.kill(LOST)
    side.until(lambda: recovery.marked > 0)
    counted.begin_time()
    tally = recovery.worker.tally
    side.until(lambda: tally.repaired >= named and not recovery.worker.working)
    done = {"ledgers marked": recovery.marked, "ledgers repaired": tally.repaired, "bytes copied": tally.bytes}
    figures = done | counted.figures(("auditor", "worker"))
    side.ask(recovery.stop)
    return figures


def empty(side: Side, plan: Plan) -> Figures:
    """A bookie is drained."""
    operator = side.clients["command"]
    counted = Counted(side)
    done = side.ask(lambda: drain(operator, side.ids[DRAINED], pace=Pace(operator.reactor, plan.rate)))
    found = {"ledgers freed": len(done.ledgers), "bytes copied": done.progress.bytes}
    return found | counted.figures(("command",))


EVENTS = {"a bookie lost": lose, "a bookie drained": empty}
Rows = list[tuple[str, float, float]]


def compared(plan: Plan, directory: Path) -> dict[str, Rows]:
    """By event, each figure: real, model."""
    found: dict[str, Rows] = {}
    with Real(plan, directory) as real:
        for name, event in EVENTS.items():
            real.come_back()
            ensembles = real.ensembles
            first = event(real, plan)
            with grouped(1):
                second = event(Model(plan, ensembles, real.latency_s), plan)
            found[name] = [(each, first[each], second[each]) for each in first]
    return found


def error_of(real_one: float, modelled: float) -> float:
    """The model's part above the real one, or below it."""
    return modelled / real_one - 1 if real_one else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scale.beside", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bookies", type=int, default=6)
    parser.add_argument("--ledgers", type=int, default=120)
    parser.add_argument("--size", type=int, default=1 << 20, help="bytes of a ledger")
    parser.add_argument("--rate", type=int, default=8_000_000, help="bytes a second that are copied")
    parser.add_argument("--seed", type=int, default=1, help="of which bookies the ledgers are on")
    options = parser.parse_args()
    plan = Plan(options.bookies, options.ledgers, options.size, options.rate, options.seed)
    with TemporaryDirectory(prefix="quire-scale-") as directory:
        found = compared(plan, Path(directory))
    for event, rows in found.items():
        head = f"{plan.bookies} bookies, {plan.ledgers} ledgers: {event}"
        print(f"\n| {head} | real | model | error |\n|---|--:|--:|--:|")
        for name, one, other in rows:
            digits = 2 if name == "seconds" else 0
            print(f"| {name} | {one:,.{digits}f} | {other:,.{digits}f} | {100 * error_of(one, other):+.1f} % |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
