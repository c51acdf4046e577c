"""
The model beside a real cluster: one bookie of a few is killed, and its ledgers are repaired by one AutoRecovery.

    python -m tests.scale.beside                         6 bookies as processes on this machine, and the model of them
    python -m tests.scale.beside --bookies 24            24 of them
    python -m tests.scale.beside --ledgers 400 --size 500000 --rate 4000000

Both sides have the same ledgers on the same bookies, and AutoRecovery's own limit of bytes a second, below what the
machine does.  The model is given the mean time of an answer of the real store; all else it says by itself.  Prints each
figure of both and the error, the model's part above or below the real one.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from quire.client.api import Client, connect
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.client import ClientOptions
from quire.metadata.counters import SessionCounters
from quire.replication.autorecovery.running import AutoRecovery
from quire.tools.local_cluster.cluster import LocalCluster
from tests.reactor import between_looks, reactor, run
from tests.scale.fleet import ENTRY_BYTES, Fleet, Shape, grouped
from tests.scale.network import Rates

# SPDX-License-Identifier: Apache-2.0

SESSION_MS = 2000
LOOK_S = 0.1  # of the model; the real cluster is looked at about as often
KEYS = {"zkTimeout": str(SESSION_MS), "journalSegmentSizeMB": "4", "dbStorage_writeCacheMaxSizeMb": "16"}


@dataclass(frozen=True)
class Plan:
    """The scene: so many ledgers of so many bytes, and the limit of AutoRecovery."""

    bookies: int
    ledgers: int
    size: int
    rate: int


@dataclass
class Side:
    """What one side took.  `latency_s`: of an answer of the store, in the mean."""

    figures: dict[str, float]
    ensembles: Sequence[Sequence[int]] = ()
    latency_s: float = 0.0


def options_of(plan: Plan, uri: str) -> AutoRecoveryOptions:
    return AutoRecoveryOptions(
        metadata_uri=uri, copies_check_interval_s=0, scrub_interval_s=0, bytes_per_second=plan.rate
    )


def calls_of(counters: SessionCounters) -> Counter[str]:
    return Counter({name: each.times.count + each.failures for name, each in counters.calls.named().items()})


def figures_of(seconds: float, copied: int, repaired: int, calls: Counter[str]) -> dict[str, float]:
    found = {
        "s from the first mark to full copies": seconds,
        "bytes copied": copied,
        "ledgers repaired": repaired,
        "store calls": calls.total(),
    }
    return found | {f"store calls: {name}": count for name, count in sorted(calls.items())}


# -- the real one --------------------------------------------------------------------------------------------------


async def _written(client: Client, plan: Plan) -> list[int]:
    ledgers = []
    for _ in range(plan.ledgers):
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append_many([bytes(ENTRY_BYTES)] * max(1, plan.size // ENTRY_BYTES))
        await writer.close()
        ledgers.append(writer.id)
    return ledgers


def real(plan: Plan, directory: Path) -> Side:
    """Runs bookies as processes, AutoRecovery here."""
    with LocalCluster(directory, plan.bookies, "sqlite", KEYS) as cluster:
        options = ClientOptions(session_timeout_ms=SESSION_MS)
        client = run(lambda: connect(reactor, cluster.uri, options))
        repairing = run(lambda: connect(reactor, cluster.uri, options))
        try:
            ledgers = run(lambda: _written(client, plan), 600.0)
            numbers = {bookie: number for number, bookie in enumerate(cluster.ids)}
            found = [run(lambda each=each: client.metadata(each)) for each in ledgers]  # type: ignore[misc]
            ensembles = [[numbers[bookie] for bookie in each.last_fragment.bookies] for each in found]
            recovery = AutoRecovery(repairing, "beside", options_of(plan, cluster.uri))
            run(lambda: _begun(recovery))
            while (auditor := recovery.candidate.auditor) is None or not auditor.losses.passes:
                between_looks()
            named = sum(0 in each for each in ensembles)
            calls = calls_of(repairing.store.counters)
            cluster.kill(cluster.ids[0])
            while not auditor.losses.marked:
                between_looks()
            began = reactor.seconds()  # type: ignore[attr-defined]
            while recovery.worker.tally.repaired < named:
                between_looks()
            seconds = reactor.seconds() - began  # type: ignore[attr-defined]
            more = calls_of(repairing.store.counters) - calls
            times = [each.times for each in repairing.store.counters.calls.named().values()]
            latency_s = sum(each.sum for each in times) / max(1, sum(each.count for each in times))
            tally = recovery.worker.tally
            figures = figures_of(seconds, tally.bytes, tally.repaired, more)
            run(recovery.stop)
            return Side(figures, ensembles, latency_s)
        finally:
            run(client.close)
            run(repairing.close)


async def _begun(recovery: AutoRecovery) -> None:
    recovery.start()


# -- the model ------------------------------------------------------------------------------------------------------


def model(plan: Plan, ensembles: Sequence[Sequence[int]], latency_s: float) -> Side:
    """The same in virtual time."""
    shape = Shape(
        bookies=plan.bookies,
        racks=1,
        regions=1,
        ledgers=plan.ledgers,
        group=1,
        repairers=1,
        clients=0,
        latency_s=latency_s,
        rates=Rates(copier=10 * plan.rate),
        options={"ledgers_per_second": 2000, "bytes_per_second": plan.rate},
        sizes=(plan.size,),
        ensembles=tuple(map(tuple, ensembles)),
        repairers_from=1,
    )
    with grouped(1):
        fleet = Fleet(shape)
        (repairer,) = fleet.repairers
        running, timeline = repairer.running, fleet.timeline
        while (auditor := running.candidate.auditor) is None or not auditor.losses.passes:
            timeline.run(LOOK_S)
        calls = calls_of(repairer.store.counters)
        fleet.bookies[Fleet.name_of(0)].die()
        timeline.run(3600.0, lambda: auditor.losses.marked > 0)
        began = timeline.now
        named = sum(0 in each for each in ensembles)
        timeline.run(3600.0, lambda: running.worker.tally.repaired >= named)
        more = calls_of(repairer.store.counters) - calls
        tally = running.worker.tally
        return Side(figures_of(timeline.now - began, tally.bytes, tally.repaired, more))


def compared(plan: Plan, directory: Path) -> list[tuple[str, float, float]]:
    """Each figure: real, model."""
    first = real(plan, directory)
    second = model(plan, first.ensembles, first.latency_s)
    names = dict.fromkeys((*first.figures, *second.figures))
    return [(name, first.figures.get(name, 0.0), second.figures.get(name, 0.0)) for name in names]


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
    parser.add_argument("--rate", type=int, default=8_000_000, help="bytes a second that AutoRecovery copies")
    options = parser.parse_args()
    plan = Plan(options.bookies, options.ledgers, options.size, options.rate)
    with TemporaryDirectory(prefix="quire-scale-") as directory:
        rows = compared(plan, Path(directory))
    print(f"| {plan.bookies} bookies, {plan.ledgers} ledgers | real | model | error |\n|---|--:|--:|--:|")
    for name, one, other in rows:
        print(f"| {name} | {one:,.2f} | {other:,.2f} | {100 * error_of(one, other):+.1f} % |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
