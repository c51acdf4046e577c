"""
The cluster as the console's pages show it, looked at in the background by the checks of `quire doctor`.

Knows: which looks there are and how often they are made; that one request for a bookie's metrics serves findings and
numbers alike.  Does not know: pages; single ledgers, which are read when they are asked for.

Safety: nothing is changed, but for an order that a user gives.  A bookie is asked once in `BOOKIES_S`, however many
pages are open.
"""

from collections import Counter, deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.threads import deferToThreadPool

from quire.bookie.admin.bookie_paths import READONLY
from quire.console.history import METRICS, History, latest
from quire.console.rounds import Round
from quire.metadata.clock import time_of_day
from quire.protocol.errors import OK, error_of
from quire.tools.commands.doctor.bookies import Visit, answers, differing, of_a_bookie
from quire.tools.commands.doctor.cluster import CLUSTER, MACHINE
from quire.tools.commands.doctor.command import scene_of
from quire.tools.commands.doctor.examining import Finding, Machine, Scene, examine, said, worst_first
from quire.tools.commands.doctor.logs import LogState, of_a_log, states
from quire.tools.terminal.bookie_http import asked_of

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.metadata.store import ServiceInfo

# SPDX-License-Identifier: Apache-2.0

BOOKIES_S = 15.0
CARE_S = 60.0
LOGS_S = 60.0
COUNT_S = 60.0
LOGS_SHARE, COUNT_SHARE = 0.1, 0.02  # of the time, at most, for looking at very many
COUNT_PAGE = 10_000  # ids of ledgers in one look
NEWEST = 200  # of the highest ids that are kept
TAKEOVERS_MAX = 200  # that are remembered


class BookieState(NamedTuple):
    """
    One bookie at the last look.  `state`: writable, read-only, silent (it is listed and does not answer) or down;
    `why`: what it says of being read-only, or why it could not be asked; `numbers`: by the keys of quantities.
    """

    bookie: str
    rack: str
    state: str
    draining: bool
    info: "ServiceInfo | None"
    total: int | None
    free: int | None
    version: str | None
    why: str
    numbers: dict[str, float]

    def number(self, key: str) -> float | None:
        """Returns its number of a quantity, if it is known."""
        return latest(self.numbers, key)


class Bookies(NamedTuple):
    """All bookies that are known, by rack, and what is wrong with those that were asked."""

    rows: list[BookieState]
    findings: list[Finding]

    @property
    def racks(self) -> dict[str, list[BookieState]]:
        """The bookies of each rack."""
        found: dict[str, list[BookieState]] = {}
        for row in self.rows:
            found.setdefault(row.rack, []).append(row)
        return found

    @property
    def states(self) -> dict[str, str]:
        """The state of each bookie."""
        return {row.bookie: row.state for row in self.rows}

    @property
    def counts(self) -> Counter[str]:
        """How many bookies are in each state."""
        return Counter(row.state for row in self.rows)

    def total(self, key: str) -> float | None:
        """The sum of a quantity, if any bookie says it."""
        known = [value for row in self.rows if (value := row.number(key)) is not None]
        return sum(known) if known else None

    def most(self, key: str) -> float | None:
        """The largest of a quantity, if any bookie says it."""
        return max((value for row in self.rows if (value := row.number(key)) is not None), default=None)


class Ledgers(NamedTuple):
    """How many ledgers there are, and the highest ids, ascending."""

    total: int
    newest: list[int]


class Takeover(NamedTuple):
    """A log that got another owner while the console watched.  `at_ms`: when that was seen."""

    at_ms: float
    log: str
    epoch: int
    owner: str | None


class Logs(NamedTuple):
    """Named logs by name, and those that could not be looked at."""

    states: dict[str, LogState]
    findings: list[Finding]


class Cluster:
    """The background of one console.  `token_file`: as `quire doctor --token-file`."""

    def __init__(self, client: "Client", token_file: Path | None = None) -> None:
        clock = client.reactor
        self.client = client
        self.history = History()
        self.takeovers: deque[Takeover] = deque(maxlen=TAKEOVERS_MAX)
        self._token_file = token_file
        self.bookies = Round(clock, "looking at the bookies", BOOKIES_S, self._bookies)
        self.care = Round(clock, "the checks of the cluster", CARE_S, self._care)
        self.logs = Round(clock, "looking at named logs", LOGS_S, self._logs, LOGS_SHARE)
        self.ledgers = Round(clock, "counting ledgers", COUNT_S, self._ledgers, COUNT_SHARE)
        self.rounds: tuple[Round[Any], ...] = (self.bookies, self.care, self.logs, self.ledgers)

    def start(self) -> None:
        """Begins all looks."""
        for each in self.rounds:
            each.start()

    async def stop(self) -> None:
        """Ends them."""
        for each in self.rounds:
            await each.stop()

    async def order_read_only(self, bookie: str, on: bool) -> str:
        """Asks a bookie to take no new entries, or to take them as its disks allow; why it did not, or nothing."""
        found = (await self.client.store.bookies()).find(bookie)
        reactor: Any = self.client.reactor
        ask = partial(asked_of, bookie, found, READONLY, self._token_file, {"readOnly": on})
        answer = await deferToThreadPool(reactor, reactor.getThreadPool(), ask)
        return answer if isinstance(answer, str) else ""

    @property
    def findings(self) -> list[Finding]:
        """Everything that needs care, the worst first."""
        found: list[Finding] = []
        for part in (self.bookies.value, self.logs.value):
            found += part.findings if part is not None else []
        return worst_first([*found, *(self.care.value or [])])

    async def _scene(self) -> Scene:
        return await scene_of(self.client, self._token_file, metrics=METRICS)

    async def _bookies(self) -> Bookies:
        scene = await self._scene()
        listed, topology = scene.bookies, self.client.topology
        await topology.learn({**listed.writable, **listed.read_only})
        visits: dict[str, Visit] = {}
        versions: dict[str, list[str]] = {}
        findings: list[Finding] = []
        async for visit in answers(scene):
            visits[visit.bookie] = visit
            findings += of_a_bookie(visit, scene)
            if version := (visit.state or {}).get("version"):
                versions.setdefault(str(version), []).append(visit.bookie)
        findings += differing(versions)
        numbers = self.history.take(time_of_day(), visits.values())
        rows = [
            state_of(each, topology.place_of(each), scene, visits.get(each), numbers.get(each, {}))
            for each in sorted({*scene.known, *listed.writable, *listed.read_only})
        ]
        return Bookies(sorted(rows, key=lambda row: (row.rack, row.bookie)), findings)

    async def _care(self) -> list[Finding]:
        scene = await self._scene()
        machine = Machine(clock=scene.clock, options=scene.options, limits=scene.limits)
        return [*await examine(CLUSTER, scene), *await examine(MACHINE, machine)]

    async def _logs(self) -> Logs:
        scene = await self._scene()
        found, findings = dict[str, LogState](), list[Finding]()
        async for each in states(scene):
            if isinstance(each, Finding):
                findings.append(each)
            else:
                found[each.info.name] = each
                findings += of_a_log(each, scene)
        self._note_takeovers(found)
        return Logs(dict(sorted(found.items())), findings)

    def _note_takeovers(self, found: dict[str, LogState]) -> None:
        known = self.logs.value.states if self.logs.value is not None else {}
        for name, state in found.items():
            before = known.get(name)
            if before is not None and before.info.id == state.info.id and state.info.epoch > before.info.epoch:
                self.takeovers.append(Takeover(1000 * time_of_day(), name, state.info.epoch, state.info.owner))

    async def _ledgers(self) -> Ledgers:
        after, count, newest = -1, 0, deque[int](maxlen=NEWEST)
        await self.client.store.cluster()
        while page := await self.client.store.ledger_ids(after, COUNT_PAGE):
            after, count = page[-1], count + len(page)
            newest.extend(page[-NEWEST:])
        return Ledgers(count, list(newest))


def state_of(bookie: str, rack: str, scene: Scene, visit: Visit | None, numbers: dict[str, float]) -> BookieState:
    """Makes the row of one bookie; without `visit` it is not listed, and so was not asked."""
    listed = scene.bookies
    state, why, version = "down", "", None
    total = free = None
    if visit is not None:
        state = "writable" if bookie in listed.writable else "read-only"
        own = visit.state or {}
        why = "; ".join(map(str, own.get("readOnlyReasons") or [])) or visit.why
        version = str(own["version"]) if own.get("version") else None
        total, free = visit.info.total_bytes, visit.info.free_bytes
        if visit.info.code != OK:
            state, why = "silent", said(error_of(visit.info.code, ""))
    info, draining = listed.find(bookie), bookie in (scene.draining or ())
    return BookieState(bookie, rack, state, draining, info, total, free, version, why, numbers)
