"""
What happens to a fleet, and what is measured of it.

Knows: the events, when all copies are there again, the curves, and the time that the bytes need at least.
Does not know: how a fleet works (`fleet`), how figures are shown (`page`).

Every scenario begins with a cluster at rest whose auditor has had its first pass over all ledgers, and its clock and
its counts begin at the event.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from math import sqrt
from statistics import fmean, pstdev

from twisted.internet.defer import Deferred

from quire.bookie.lifecycle.start_check import trace_of
from quire.replication.core.balance import Disk, Holdings, Plan
from quire.replication.decommission import drain
from tests.scale.fleet import ENSEMBLE, Bookie, Fleet, Repairer, Shape, grouped
from tests.scale.store import BIN_S

# SPDX-License-Identifier: Apache-2.0

STEP_S = 5.0  # from one look to the next
REST_S_MAX = 7200.0  # until the first pass is over
HOUR_S = 3600.0
FULL = 0.6  # of the disks, when bookies join
STEPS = 25  # of a turnover
MORE_LOST_S = 300.0  # after a rack
Curve = list[tuple[float, float]]


@dataclass
class Outcome:
    """The figures and curves of one scenario; seconds count from its event."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)


class Watched:
    """A fleet from its event on."""

    def __init__(self, name: str, fleet: Fleet) -> None:
        self.fleet = fleet
        self.outcome = Outcome(name)
        self.begun = fleet.timeline.now
        self._calls = fleet.load.calls.copy()
        self._bytes = fleet.load.bytes.copy()
        self._carried = fleet.network.carried()
        self._moved = fleet.moved
        self._heard = fleet.heard
        fleet.load.longest_s = 0.0
        self.first_mark: float | None = None
        self.last_mark = 0.0
        self._marked = 0
        self._risk_s: Counter[int] = Counter()

    @property
    def seconds(self) -> float:
        return self.fleet.timeline.now - self.begun

    def look(self) -> None:
        """One point of each curve."""
        fleet, at, curves = self.fleet, self.seconds, self.outcome.curves
        risk = fleet.at_risk()
        for away in (1, 2, 3):
            curves.setdefault(f"{away} away", []).append((at, risk.get(away, 0)))
            self._risk_s[away] += round(risk.get(away, 0) * STEP_S)
        marked = fleet.marked()
        curves.setdefault("marked", []).append((at, marked))
        if marked > self._marked:
            self.first_mark, self.last_mark = self.first_mark or at, at
        self._marked = marked

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False, step_s: float = STEP_S) -> None:
        """Lets time pass, at most so much."""
        end = self.seconds + seconds
        while self.seconds < end and not until():
            self.fleet.timeline.run(step_s)
            self.look()

    def whole(self) -> bool:
        """True once every copy is there, or nothing can be done for the rest, and the queue is empty."""
        fleet = self.fleet
        return not any(count < 3 for count in fleet.short.values()) and fleet.marked() <= len(fleet.short) * fleet.group

    def done(self, repaired: bool = True) -> Outcome:
        """Sums up."""
        fleet, figures = self.fleet, self.outcome.figures
        calls = fleet.load.calls - self._calls
        moved = fleet.moved - self._moved
        figures["virtual s"] = self.seconds
        if repaired:
            alive = [each for each in fleet.repairers if each.process.alive]
            figures["s to the first mark"] = self.first_mark or 0.0
            figures["s to the last mark"] = self.last_mark
            figures["s to full copies"] = self.seconds
            figures["TB copied"] = moved / 1e12
            figures["s that the bytes need"] = moved / max(1.0, fleet.shape.rates.copier * len(alive))
            figures["ledger hours with 2 copies"] = self._risk_s[1] / HOUR_S
            figures["ledger hours with 1 copy"] = self._risk_s[2] / HOUR_S
            figures["ledgers gone"] = fleet.at_risk().get(3, 0)
        for role in ("AutoRecovery", "bookie", "client", "operator"):
            figures[f"store calls of {role}"] = sum(count for (who, _name), count in calls.items() if who == role)
            figures[f"MB answered to {role}"] = (fleet.load.bytes[role] - self._bytes[role]) / 1e6
        bins = [fleet.load.curve[at] for at in range(int(self.begun / BIN_S), int(fleet.timeline.now / BIN_S) + 1)]
        self.outcome.curves["store calls/s"] = [(at * BIN_S, count / BIN_S) for at, count in enumerate(bins)]
        figures["store calls/s, most"] = max(bins) / BIN_S
        figures["s that a call waited, most"] = fleet.load.longest_s
        figures["lists that a client was called with"] = (fleet.heard - self._heard) / max(1, len(fleet.watchers))
        for kind, carried in fleet.network.carried().items():
            figures[f"TB over {kind}"] = (carried - self._carried.get(kind, 0.0)) / 1e12
        return self.outcome


def fill_of(fleet: Fleet) -> dict[str, float]:
    """How even the fill of the bookies that are up is, and how even draws without a look at the others make it."""
    fill, sizes = fleet.fill(), [fleet.sizes[ledger] for ledger in set().union(*fleet.on.values())]
    mean, each = fmean(fill), len(sizes) * ENSEMBLE / len(fill)
    return {
        "fill, deviation / mean of blind draws": sqrt(fmean(size * size for size in sizes) / each) / fmean(sizes),
        "fill, most / mean": max(fill) / mean,
        "fill, least / mean": min(fill) / mean,
        "fill, deviation / mean": pstdev(fill) / mean,
    }


def at_rest(name: str, shape: Shape) -> Watched:
    """A fleet whose auditor has looked at all ledgers."""
    fleet = Fleet(shape)
    while (auditor := fleet.auditor()) is None or not auditor.losses.passes:
        fleet.timeline.run(STEP_S)
        if fleet.timeline.now > REST_S_MAX:
            raise RuntimeError(f"no auditor's first pass in {REST_S_MAX} s: {fleet.failures[:3]}")
    fleet.timeline.run(STEP_S)
    return Watched(name, fleet)


def fall(fleet: Fleet, bookies: Iterable[Bookie]) -> None:
    """Bookies and what is on their machines give no sign any more."""
    for each in list(bookies):
        each.die()
    for repairer in fleet.repairers:
        if repairer.process.alive and not fleet.up(repairer.host):
            repairer.die()


def of_rack(fleet: Fleet, rack: int) -> list[Bookie]:
    return [each for each in fleet.bookies.values() if each.place.endswith(f"/r{rack}")]


def one(shape: Shape) -> Outcome:
    """A bookie is lost."""
    watched = at_rest("a bookie lost", shape)
    fall(watched.fleet, [watched.fleet.bookies[Fleet.name_of(shape.bookies // 2 + 1)]])
    watched.run(4 * HOUR_S, watched.whole)
    return watched.done()


def slow_store(shape: Shape) -> Outcome:
    """A bookie is lost while the store answers in 200 ms."""
    found = one(replace(shape, latency_s=0.2))
    found.name = "a bookie lost, a store of 200 ms"
    return found


def rack(shape: Shape) -> Outcome:
    """A rack is lost, with the auditor in it."""
    watched = at_rest("a rack lost", shape)
    auditor = next(each for each in watched.fleet.repairers if each.running.candidate.auditor is not None)
    place = watched.fleet.place_of(auditor.host)
    fall(watched.fleet, [each for each in watched.fleet.bookies.values() if each.place == place])
    watched.run(6 * HOUR_S, watched.whole)
    return watched.done()


def disks(shape: Shape) -> Outcome:
    """Bookies with disks of one batch, 3 of 100 anywhere, are lost at the same time."""
    watched = at_rest("a batch of disks lost", shape)
    fleet = watched.fleet
    batch = fleet.random.sample(sorted(fleet.bookies), max(3, shape.bookies * 3 // 100))
    for name in batch:
        fleet.bookies[name].die()
    watched.run(4 * HOUR_S, watched.whole)
    return watched.done()


def rack_and_more(shape: Shape) -> Outcome:
    """A rack is lost, and while its copies are made bookies of other racks, one of 100."""
    watched = at_rest("a rack lost, then more", shape)
    fleet = watched.fleet
    place = fleet.bookies[Fleet.name_of(1)].place
    fall(fleet, [each for each in fleet.bookies.values() if each.place == place])
    watched.run(MORE_LOST_S)
    others = [name for name, each in sorted(fleet.bookies.items()) if each.up]
    fall(fleet, [fleet.bookies[name] for name in fleet.random.sample(others, max(2, shape.bookies // 100))])
    watched.run(6 * HOUR_S, watched.whole)
    return watched.done()


def in_a_row(shape: Shape) -> Outcome:
    """Bookies are lost one after the other, one of 100, a minute apart."""
    watched = at_rest("losses in a row", shape)
    fleet = watched.fleet
    for name in fleet.random.sample(sorted(fleet.bookies), max(3, shape.bookies // 100)):
        fall(fleet, [fleet.bookies[name]])
        watched.run(60.0)
    watched.run(6 * HOUR_S, watched.whole)
    return watched.done()


def region(shape: Shape) -> Outcome:
    """A region is cut off for 20 minutes, inside the delay of lost bookies, and comes back."""
    watched = at_rest("a region cut off", replace(shape, delay_s=3600))
    fleet = watched.fleet
    cut = [each for each in fleet.bookies.values() if each.place.startswith("/g0/")]
    fall(fleet, cut)
    watched.run(1200.0)
    for each in cut:
        each.start()
    for number, repairer in enumerate(fleet.repairers):
        if not repairer.process.alive:
            fleet.repairers[number] = Repairer(fleet, repairer.host, number)
    watched.run(120.0)
    return watched.done(repaired=False)


def rolling(shape: Shape) -> Outcome:
    """Bookies are restarted one after the other, a tenth of them, each away for 20 s, inside the delay."""
    watched = at_rest("a rolling restart", replace(shape, delay_s=300))
    fleet = watched.fleet
    some = list(fleet.bookies.values())[:: 10 if shape.bookies >= 100 else 1]
    for each in some:
        each.stop()
        watched.run(20.0)
        each.start()
        watched.run(STEP_S)
    watched.run(60.0)
    found = watched.done(repaired=False)
    for name in [name for name in found.figures if name.startswith(("store calls of", "MB answered"))]:
        found.figures[f"{name}, each restart"] = found.figures[name] / len(some)
    return found


def out(shape: Shape) -> Outcome:
    """A tenth more bookies join at the same time; each looks whether a ledger names it, as one with a new id does."""
    watched = at_rest("scale out", shape)
    fleet = watched.fleet
    joining = [Fleet.name_of(number) for number in range(shape.bookies, shape.bookies + shape.bookies // 10)]
    looked: list[object] = []
    for name in joining:
        Deferred.fromCoroutine(trace_of(fleet.store, name)).addBoth(looked.append)
    watched.run(4 * HOUR_S, lambda: len(looked) == len(joining))
    if any(looked):
        raise RuntimeError(f"a bookie that is new is not let in: {looked[0]}")
    for number in range(shape.bookies, shape.bookies + len(joining)):
        fleet.add(number)
    watched.run(60.0)
    found = watched.done(repaired=False)
    found.figures["store calls of a bookie's first start"] = found.figures["store calls of operator"] / len(joining)
    return found


def part(shape: Shape, share: int) -> Shape:
    """One of so many parts of the cluster, with as many ledgers on a bookie, each placed by itself."""
    bookies = max(20, shape.bookies // share)
    ledgers = shape.ledgers * bookies // shape.bookies
    return replace(shape, bookies=bookies, ledgers=ledgers, group=1, repairers=0, clients=0)


def fill(shape: Shape) -> Outcome:
    """How even the placement fills bookies."""
    return Outcome("fill", fill_of(Fleet(part(shape, 10))))


def even(shape: Shape) -> Outcome:
    """A tenth more bookies have joined: what evening out moves; bytes are those of the whole cluster."""
    fleet = Fleet(part(shape, 50))
    times = shape.bookies / fleet.shape.bookies
    for number in range(fleet.shape.bookies, fleet.shape.bookies * 11 // 10):
        fleet.add(number)
    return Outcome("scale out, evened out", fill_of(fleet) | evened(fleet, times))


def turnover(shape: Shape, by_free: bool) -> Outcome:
    """
    A tenth more bookies have joined a cluster whose disks are full to `FULL`; the oldest ledgers end and as many come,
    until each of the first ones has gone twice over.  `by_free`: by what bookies report of their disks, once a step.
    """
    name = f"scale out, placed {'by free disk' if by_free else 'by number'}"
    few = part(shape, 10)
    fleet = Fleet(replace(few, ledgers=min(few.ledgers, 50 * few.bookies)))
    before, capacity = len(fleet.bookies), fmean(fleet.fill()) / FULL
    for number in range(before, before * 11 // 10):
        fleet.add(number)
    fleet.timeline.run(1.0)
    fleet.load.on = False
    count, outcome = len(fleet.ensembles), Outcome(name)
    step, curve = count // STEPS, []
    for at in range(2 * STEPS + 1):
        filled = dict(zip(fleet.bookies, fleet.fill(), strict=True))
        levels = list(filled.values())
        curve.append((at / STEPS, 100 * fmean(levels[before:]) / fmean(levels[:before])))
        if by_free:
            fleet.free = {bookie: max(0, int(capacity - size)) for bookie, size in filled.items()}
        for _ in range(step):
            fleet.create()
        if not at:
            chosen = Counter(chain.from_iterable(fleet.ensembles[count:]))
            writes = [chosen[bookie] for bookie in fleet.bookies]
            ratio = fmean(writes[before:]) / fmean(writes[:before])
            outcome.figures["writes of a new bookie / of one before"] = ratio
        for ledger in range(at * step, (at + 1) * step):
            fleet.delete(ledger)
    outcome.curves["level of new ones, %"] = curve
    for percent in (50, 90):
        outcome.figures[f"turnovers to {percent} %"] = next((x for x, y in curve if y >= percent), 2.0)
    outcome.figures |= fill_of(fleet)
    return outcome


def by_number(shape: Shape) -> Outcome:
    """As many new ledgers for each bookie."""
    return turnover(shape, by_free=False)


def by_free(shape: Shape) -> Outcome:
    """New ledgers in proportion to free disks."""
    return turnover(shape, by_free=True)


def evened(fleet: Fleet, times: float) -> dict[str, float]:
    """The plan of the product for an even fill, without its moves; of a cluster so many times as large."""
    capacity = 4 * max(fleet.fill())
    disks_of = {name: Disk(capacity, capacity) for name, each in fleet.bookies.items() if each.up}
    metadata = [fleet.metadata_of(ledger) for ledger in range(len(fleet.ensembles))]
    holdings = Holdings()
    for each in metadata:
        holdings.add(each)
    plan = Plan(holdings, disks_of, lambda *_: True, 0.1)
    while not plan.over:
        before = plan.count
        for ledger, each in enumerate(metadata):
            if plan.over:
                break
            plan.offer(ledger, each)
        if plan.thorough and plan.count == before:
            break
        plan.thorough = True
    mean = fmean(plan.used.values())
    return {
        "TB that evening out moves": plan.bytes * fleet.group * times / 1e12,
        "TB that it has to": plan.least * fleet.group * times / 1e12,
        "fill after that, most / mean": max(plan.used.values()) / mean,
        "fill after that, least / mean": min(plan.used.values()) / mean,
    }


def drained(shape: Shape, count: int, together: bool) -> Outcome:
    """Bookies are emptied while they are up, by one command, or by one each in turn."""
    name = f"drain of {count}, {'together' if together else 'one by one'}"
    watched = at_rest(name, replace(shape, repairers=1, clients=0))
    fleet = watched.fleet
    some = sorted(fleet.bookies)[:count]
    fleet.obey(some)
    for names in [some] if together else [[name] for name in some]:
        ended: list[object] = []
        Deferred.fromCoroutine(drain(fleet.operator, names)).addBoth(ended.append)
        watched.run(72 * HOUR_S, lambda ended=ended: bool(ended), 12 * STEP_S)  # type: ignore[misc]
        if not ended or isinstance(ended[0], BaseException):
            raise RuntimeError(f"the drain did not end: {ended}")
    left = sum(len(fleet.on[name]) for name in some)
    found = watched.done(repaired=False)
    found.figures["s to empty"] = watched.seconds
    found.figures["TB copied"] = fleet.moved / 1e12
    found.figures["ledgers left"] = left * fleet.group
    found.figures["store calls, each bookie"] = found.figures["store calls of operator"] / count
    return found


def drain_each(shape: Shape) -> Outcome:
    """Three bookies are emptied, one after the other."""
    return drained(shape, 3, together=False)


def drain_all(shape: Shape) -> Outcome:
    """A tenth of the bookies is emptied by one command."""
    return drained(shape, max(3, shape.bookies // 10), together=True)


SCENARIOS: Mapping[str, Callable[[Shape], Outcome]] = {
    "one": one,
    "rack": rack,
    "rack-more": rack_and_more,
    "row": in_a_row,
    "disks": disks,
    "region": region,
    "rolling": rolling,
    "slow-store": slow_store,
    "fill": fill,
    "out": out,
    "even": even,
    "by-number": by_number,
    "by-free": by_free,
    "drain-each": drain_each,
    "drain-all": drain_all,
}
FINE = {"one": 64, "slow-store": 64}  # ledgers of a group at most, where few are concerned
LARGE = Shape()
SMALL = Shape(bookies=60, racks=6, ledgers=6000, group=32, repairers=6, clients=3)


def ran(name: str, shape: Shape) -> Outcome:
    """One scenario."""
    shape = replace(shape, group=min(shape.group, FINE.get(name, shape.group)))
    with grouped(shape.group):
        return SCENARIOS[name](shape)
