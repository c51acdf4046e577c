"""
Operators who empty bookies that are up, in a history: beside all other faults, or, to show that nobody notices, beside
none.

The code is the product's (`replication/decommission`).  Beside the promises about entries it has to keep these:

| | |
|---|---|
| drain | it changes no state of a ledger: nobody is fenced; when it says that a bookie is empty, nothing names that |
| available | with no other fault no append fails, and every confirmed entry can be read at any moment |
| obeyed | a bookie that serves and is ordered to be emptied is in no list of writable ones, whatever became of it |
"""

from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from quire.metadata.bookies.drain_orders import path_of
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import LedgerClosed, LedgerError
from quire.replication.decommission import drain, undo
from tests.metadata import stored
from tests.metadata.stored import records
from tests.simulation.nodes import SimBookie, SimClient
from tests.simulation.outcome import Outcome
from tests.simulation.truth import REPAIRER

if TYPE_CHECKING:
    from tests.simulation.history import History, Line

DRAINER = f"{REPAIRER}drain"
AT_ONCE = 2
OBEYED_S = 5.0  # an order is heard of by then, whatever the metadata does
READ_S = 20.0


class Draining:
    """One history's."""

    def __init__(self, history: "History") -> None:
        self.history = history
        self.world, self.truth = history.world, history.truth
        self.alone = history.plan.profile.quiet
        self._drains: list[tuple[SimClient, SimBookie]] = []
        self._given: dict[str, float] = {}  # since when an order stands
        self.truth.draining = self

    # Steps

    def do_drain(self, rng: Random) -> None:
        """A bookie is to be emptied, or an operator goes on with one whose drain was cut off."""
        ordered = [bookie for bookie in self.history.bookies if self.is_ordered(bookie) and bookie.serving]
        bookie = rng.choice(ordered) if ordered and rng.random() < 0.5 else self.history.some_bookie(rng)
        if bookie is None or not bookie.serving or len(self.busy()) >= AT_ONCE:
            return
        if not self.is_ordered(bookie) and self.alone:
            self.history.let_pass(OBEYED_S, lambda: not self._unheard())  # two orders at once may be one too many
        self._begin(bookie)

    def _begin(self, bookie: SimBookie) -> None:
        history = self.history
        client = history.new_client(f"{DRAINER}{len(history.clients)}", history.plain_options)
        client.fault_rate = history.plan.fault_rate
        self.world.tell(f"{client.name} drains {bookie.name}")
        self.truth.seen["drain: begun"] += 1
        story = Deferred.fromCoroutine(drain(client.client, bookie.id, waiting=self._waits))
        story.addCallback(self._emptied, bookie, client)
        self._drains.append((client, bookie))
        history.upkeep.begin(story, client)

    def do_drain_undo(self, rng: Random) -> None:
        """The order is withdrawn; the bookie takes entries again."""
        ordered = [bookie for bookie in self.history.bookies if self.is_ordered(bookie)]
        if ordered:
            self._undo(rng.choice(ordered))

    def _undo(self, bookie: SimBookie) -> None:
        self.truth.seen["drain: taken back"] += 1
        client = self.history.new_client(f"u{len(self.history.clients)}", self.history.plain_options)
        Outcome(Deferred.fromCoroutine(undo(client.client, bookie.id)))

    def do_drain_crash(self, rng: Random) -> None:
        """Who drains dies; the order stays."""
        if busy := self.busy():
            self.truth.seen["drain: crashed"] += 1
            rng.choice(busy)[0].crash()

    def do_drain_pause(self, rng: Random) -> None:
        """Who drains stands still; its session may end meanwhile."""
        if busy := self.busy():
            client = rng.choice(busy)[0]
            client.process.pause(rng.choice((0.05, 0.5, 3.0)))
            if rng.random() < 0.3:
                self.truth.seen["drain: lost its session"] += 1
                client.store.expire_session()

    def do_drain_restart(self, rng: Random) -> None:
        """A bookie that is being emptied is killed, and started again."""
        ordered = [bookie for bookie in self.history.bookies if self.is_ordered(bookie) and bookie.serving]
        if ordered:
            self.truth.seen["drain: its bookie was restarted"] += 1
            bookie = rng.choice(ordered)
            bookie.die()
            self.world.timeline.at(rng.choice((0.0, 0.05, 0.5)), bookie.start)

    def do_drain_read(self, rng: Random) -> None:
        """Somebody reads all that is confirmed of a ledger."""
        line = self.history.some_line(rng)
        if line.truth.deleted:
            return
        client = self.history.new_client(f"a{len(self.history.clients)}")
        reading = Outcome(Deferred.fromCoroutine(_read(client, line)))
        if self.alone:
            self.history.let_pass(READ_S, lambda: reading.done)
            if not reading.done or reading.error is not None:
                self.truth.break_("available", f"ledger {line.truth.id} can't be read: {reading.error!r}")
        self.truth.seen["drain: a ledger was read meanwhile"] += bool(self.busy())

    # Judgement

    def is_ordered(self, bookie: SimBookie) -> bool:
        """Whether it is to be emptied."""
        return path_of(bookie.id) in records(self.world.shared)

    def busy(self) -> list[tuple[SimClient, SimBookie]]:
        """Drains that are under way."""
        over = {task.client for task in self.history.upkeep.tasks if task.over}
        return [each for each in self._drains if each[0] not in over]

    def _unheard(self) -> list[SimBookie]:
        return [
            each
            for each in self.history.bookies
            if self.is_ordered(each) and each.id in stored.registrations(self.world.shared)
        ]

    def _waits(self, left: Any) -> None:
        self.truth.seen["drain: a writer was waited for"] += any(each.open for each in left)

    def _emptied(self, _done: object, bookie: SimBookie, client: SimClient) -> None:
        self.world.tell(f"{client.name} says that {bookie.name} is empty")
        self.truth.seen["drain: a bookie was emptied"] += 1
        naming = [
            ledger for ledger, found in stored.Ledgers(self.world.shared).items() if bookie.id in found.value.bookies()
        ]
        if naming and self.alone:  # else a writer may have named it since, by a list from before the order
            self.truth.break_("drain", f"{bookie.name} is said to be empty, and ledgers {naming} name it")

    def changed(self, author: str, ledger: int, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """Somebody wrote metadata."""
        if author.startswith(DRAINER) and before.state is not after.state:
            self.truth.break_(
                "drain", f"{author} makes ledger {ledger} {after.state.name}, which was {before.state.name}"
            )

    def failed(self, line: "Line", error: BaseException) -> None:
        """An append failed."""
        if self.alone and not isinstance(error, LedgerClosed):  # its own user closed it
            self.truth.break_("available", f"an append to ledger {line.truth.id} failed: {error!r}")

    def check(self) -> None:
        """Between two steps."""
        now, shared = self.world.timeline.now, self.world.shared
        for bookie in self.history.bookies:
            if not (self.is_ordered(bookie) and bookie.serving):
                self._given.pop(bookie.id, None)
            elif now - self._given.setdefault(bookie.id, now) > OBEYED_S and bookie.id in stored.registrations(shared):
                process = bookie.process
                if process is not None and process.paused_until < now - OBEYED_S:
                    self.truth.break_("obeyed", f"{bookie.name} is listed as writable, and is to be emptied")

    # The end

    def calm(self) -> None:
        """Faults end: orders are taken back, or carried out to the end."""
        ordered = [bookie for bookie in self.history.bookies if self.is_ordered(bookie)]
        if not self.history.plan.seed % 3:
            for bookie in ordered:
                self._undo(bookie)
        self.history.let_pass(0.5)
        self.history.have_spares()

    def finish(self, settled: bool) -> None:
        """All that can be closed is closed: who still drains comes to the end, unless a ledger stays open."""
        for client, _bookie in self.busy():
            if not settled:
                client.crash()
        if settled and not self.busy():
            for bookie in self.history.bookies:
                if self.is_ordered(bookie) and bookie.serving:
                    self._begin(bookie)


async def _read(client: SimClient, line: "Line") -> None:
    """All that is confirmed by now, byte for byte."""
    truth = line.truth
    confirmed = truth.confirmed
    reader = await client.client.open_ledger(truth.id, recover=False)
    found = await reader.read_unconfirmed(truth.first, confirmed) if confirmed >= truth.first else []
    missing = sorted({*range(truth.first, confirmed + 1)} - {each.entry_id for each in found})
    if missing or any(each.data != truth.payloads[each.entry_id] for each in found):
        raise LedgerError(f"{len(found)} of {confirmed + 1 - truth.first} entries were read; missing: {missing[:5]}")
