"""
Bookies that come back empty under their ids (D19, S34): decommissioned, by quire or by Apache's tool, which leaves no
note; with a cookie that somebody deleted; and another machine's directories that lost the race of two first starts.

The commands are the product's, and so is what a start decides.  What follows is judged by the promises about entries,
fences and denials (`truth`), but for one: an id that quire took out of the cluster is refused to an empty bookie.

In some histories the writers are Apache's, which know no incarnation: then no bookie comes back but by what protects
them, too.
"""

from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.start_check import new_incarnation, stamp
from quire.metadata.ledger import LedgerState
from quire.metadata.retired_ids import path_of
from quire.metadata.store import ANY
from quire.replication.decommission import decommission
from tests.metadata import stored
from tests.metadata.stored import COOKIES, cookies, remove
from tests.simulation.nodes import SimBookie, SimClient
from tests.simulation.truth import REPAIRER

if TYPE_CHECKING:
    from tests.simulation.history import History

APACHES_EVERY = 3  # of the histories
TAKEN_OUT_S = 5.0  # so long somebody tries to take a bookie out of the cluster
STARTED_S = 1.0


class Returning:
    """One history's."""

    def __init__(self, history: "History") -> None:
        self.history = history
        self.world, self.truth = history.world, history.truth
        self._apaches = history.plan.seed % APACHES_EVERY == 0 and "return_empty" in history.plan.profile.weights

    def writer_begins(self, client: SimClient) -> None:
        """Apache's clients do not ask which incarnation answers."""
        if not self._apaches:
            return
        add_channel = client.client.pool.add_channel

        def without(bookie: str, ledger: int, sink: Any, secure: bool = False, _incarnations: Any = None) -> Any:
            return add_channel(bookie, ledger, sink, secure)

        client.client.pool.add_channel = without  # type: ignore[method-assign]

    # Steps

    def do_return_empty(self, rng: Random) -> None:
        """
        Bookies of a ledger's last ensemble are taken out of the cluster one after the other, and each begins again,
        empty, under its id, while the writer sleeps.
        """
        line = self.history.some_line(rng)
        metadata = self.world.metadata(line.truth.id)
        if metadata is None:
            return
        members = [bookie for bookie in self.history.bookies if bookie.id in metadata.last_fragment.bookies]
        noted = self._apaches or rng.random() < 0.5
        for bookie in members[: rng.choice((1, len(members), len(members)))]:
            if not bookie.gone and not bookie.leaving:
                self._take_out(bookie, noted)

    def _take_out(self, bookie: SimBookie, noted: bool) -> None:
        history = self.history
        bookie.die()
        bookie.leaving = True
        history.have_spares()
        history.let_pass(0.3)
        client = history.new_client(f"{REPAIRER}{len(history.clients)}", history.plain_options)
        self.world.tell(f"{client.name} decommissions {bookie.name}")
        story = history.upkeep.judged(client, Deferred.fromCoroutine(decommission(client.client, bookie.id)))
        task = history.upkeep.begin(story, client)
        history.let_pass(TAKEN_OUT_S, lambda: task.over)
        if not task.over:
            client.crash()
        bookie.leaving = False
        if bookie.id in cookies(self.world.shared):
            return  # it was not possible now: a ledger needs it
        self._come_back(bookie, noted)

    def _come_back(self, bookie: SimBookie, noted: bool) -> None:
        """On an empty disk.  Not `noted`: it was Apache's tool that took it out."""
        stuck = any(each.value.state is LedgerState.IN_RECOVERY for each in stored.Ledgers(self.world.shared).values())
        noted = noted or stuck  # what a recovery under way has written there no note of a ledger says
        if not noted:
            self._forget_note(bookie)
        bookie.begin_again()
        self._start(bookie)
        if bookie.serving:
            self.truth.seen["return: a bookie came back empty, as a new one"] += 1
            if noted:
                self.truth.break_("retired", f"{bookie.name} was decommissioned, and serves as a new bookie")
        else:
            self._restore(bookie)

    def do_return_forgotten(self, rng: Random) -> None:
        """Somebody deletes the cookie of a bookie whose disk is lost, and starts it on an empty one."""
        bookie = self.history.some_bookie(rng)
        # one that is being restored has no cookie yet
        if bookie is None or bookie.id not in cookies(self.world.shared) or not self.history.may_lose(bookie):
            return
        bookie.begin_again()
        remove(self.world.shared, f"{COOKIES}/{bookie.id}")
        named = any(bookie.id in each.value.bookies() for each in stored.Ledgers(self.world.shared).values())
        stuck = any(each.value.state is LedgerState.IN_RECOVERY for each in stored.Ledgers(self.world.shared).values())
        if named or not (stuck or self._apaches):
            self._start(bookie)
        if bookie.serving:
            self.truth.seen["return: a bookie came back empty, as a new one"] += 1
            return
        bookie.die()
        self.truth.seen["return: an empty bookie was refused, for a ledger names it"] += named
        if named:
            self._restore(bookie)
        else:
            bookie.alien, bookie.gone = False, True
            bookie.leaving = True  # nobody starts it later: as long as no ledger names it, it would be a new bookie

    def do_return_twin(self, rng: Random) -> None:
        """Another machine's directories are started, whose first start under the id was overtaken; then its own."""
        bookie = self.history.some_bookie(rng)
        if bookie is None or bookie.alien or bookie.vanished:
            return
        bookie.die()
        own, instance_id = bookie.disk, stored.instance_id(self.world.shared)
        bookie.disk = bookie.new_disk()
        twins = Cookie.expected(bookie.options, bookie.id, instance_id).of(new_incarnation(bookie.disk))
        stamp(bookie.disk, bookie.options, twins)
        bookie.alien, refused = True, bookie.refused
        self._start(bookie)
        if bookie.refused > refused:
            self.truth.seen["return: directories of another incarnation were refused"] += 1
        if not bookie.serving:
            bookie.die()
            bookie.disk, bookie.alien = own, False
            bookie.start()

    # How

    def _start(self, bookie: SimBookie) -> None:
        refused = bookie.refused
        bookie.start()
        self.history.let_pass(STARTED_S, lambda: bookie.serving or bookie.refused > refused)

    def _restore(self, bookie: SimBookie) -> None:
        """Let in on purpose: what it may lack is in limbo, and what is not open is fenced."""
        self.truth.seen["return: a bookie came back empty, with a restore"] += 1
        bookie.alien, bookie.amnesia = False, True
        bookie.start()

    def _forget_note(self, bookie: SimBookie) -> None:
        client = self.history.new_client(f"n{len(self.history.clients)}", self.history.plain_options)
        client.store.records.delete(path_of(bookie.id), ANY).addErrback(lambda _failure: None)
        self.history.let_pass(0.1)
