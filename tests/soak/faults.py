"""
What befalls the processes of a soak: drawn all the time, each for a drawn time, and then it is over.

Knows: which faults there are, and how many of them may be at once so that the cluster can go on.
Does not know: what is promised meanwhile.

Some of each kind are spared from kills, so that their lives are as long as the soak.
"""

import heapq
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from random import Random

from tests.soak.processes import Bookie, Daemon, Member, Recovery, Store, Worker
from tests.soak.racks import Namespaces, Racks
from tests.stopped import stop

# SPDX-License-Identifier: Apache-2.0

AWAY_S = (0.5, 2.0, 8.0, 30.0, 60.0)  # of what is killed: shorter and longer than sessions and the delay of repair
PAUSED_S = (0.1, 0.5, 2.0, 10.0, 15.0)
CUT_S = (1.0, 5.0, 15.0, 40.0)
ORDERED_S = (20.0, 60.0)  # read-only, or drained
BOOKIES_MAX = 2  # of which something befalls at once
START_S = 60.0
SPARED = 3  # each third of a kind, at least one


class Faults:
    """The faults of one soak.  `now`: the time; `tell`: what happens, in words."""

    def __init__(
        self,
        members: Sequence[Member],
        racks: Racks,
        uri: str,
        dice: Random,
        now: Callable[[], float],
        tell: Callable[[str], None],
        every_s: float,
    ) -> None:
        self._members, self._racks, self._uri, self._dice = members, racks, uri, dice
        self._now, self._tell, self._every_s = now, tell, every_s
        self.happened: Counter[str] = Counter()
        self._numbers = count()
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._hit: set[object] = set()  # members, and racks by their numbers
        self.wrong: list[str] = []
        self._begun: set[Daemon | Store] = set()
        self._begins: dict[Member, float] = {}  # when each was started last, but for the first time
        self._orders: dict[Bookie, set[tuple[str, ...]]] = {}  # what takes back those that were given
        self._commands: list[subprocess.Popen[bytes]] = []
        self._next = now() + every_s
        self._drawn: list[tuple[int, Callable[[], None]]] = [
            (6, partial(self._kill, Bookie)),
            (3, partial(self._kill, Worker)),
            (2, partial(self._kill, Store)),
            (2, partial(self._kill, Recovery)),
            (6, partial(self._pause, Bookie)),
            (3, partial(self._pause, Worker)),
            (2, partial(self._pause, Store)),
            (1, partial(self._pause, Recovery)),
            (2, self._cut),
            (2, self._read_only),
            (1, self._drain),
        ]

    def step(self) -> None:
        """Ends what is over, and draws what is due."""
        while self._ends and self._ends[0][0] <= self._now():
            heapq.heappop(self._ends)[2]()
        if self._now() >= self._next:
            self._next = self._now() + self._dice.expovariate(1 / self._every_s)
            weights, faults = zip(*self._drawn, strict=True)
            self._dice.choices(faults, weights)[0]()
        self._commands = [command for command in self._commands if command.poll() is None]
        for member in self._members:
            if member.pid is None and member not in self._hit:
                self._ended(member)
                self._again(member)

    def _ended(self, member: Member) -> None:
        """By itself: as a bookie does that finds no store when it starts, and which a supervisor starts again."""
        self._did("ended by itself", member.name)
        starts = isinstance(member, Daemon) and self._now() - self._begins.get(member, 0.0) < START_S
        if not starts:
            self.wrong.append(f"{member.name} ended by itself")

    def calm(self) -> None:
        """Ends all, and waits until everything serves."""
        while self._ends:
            heapq.heappop(self._ends)[2]()
        while self._begun:
            self._begun.pop().ready()
        for bookie, words in self._orders.items():  # the store may have been away when it was taken back
            for undo in words:
                self._command(bookie, *undo)
        for command in self._commands:
            command.wait()

    def _later(self, seconds: Sequence[float], *what: object, end: Callable[[], None]) -> None:
        self._hit.update(what)

        def over() -> None:
            self._hit.difference_update(what)
            end()

        heapq.heappush(self._ends, (self._now() + self._dice.choice(seconds), next(self._numbers), over))

    def _did(self, what: str, whom: str) -> None:
        self.happened[what] += 1
        self._tell(f"{what} {whom}")

    def _one(self, kind: type[Member], spare: bool = False) -> Member | None:
        """One that is well; None where as many of its kind are hit as may be."""
        alike = [member for member in self._members if isinstance(member, kind)]
        hit = sum(member in self._hit or member.rack in self._hit for member in alike)
        size = len(alike)
        most = {Bookie: BOOKIES_MAX, Store: (size - 1) // 2, Worker: size // 2, Recovery: size - 1}[kind]
        well = [member for member in alike if member not in self._hit and member.rack not in self._hit]
        if spare:
            well = [member for member in well if alike.index(member) % SPARED]
        return self._dice.choice(well) if well and hit < most else None

    def _kill(self, kind: type[Member]) -> None:
        if member := self._one(kind, spare=True):
            self._did("kill", member.name)
            member.kill()
            self._later(AWAY_S, member, end=partial(self._again, member))

    def _again(self, member: Member) -> None:
        member.kill()  # what is left of one that ended by itself
        member.begin()
        self._begins[member] = self._now()
        if isinstance(member, Daemon | Store):
            self._begun.add(member)

    def _pause(self, kind: type[Member]) -> None:
        member = self._one(kind)
        if member is not None and (pid := member.pid) is not None:
            self._did("pause", member.name)
            stop(pid)
            self._later(PAUSED_S, member, end=partial(os.kill, pid, signal.SIGCONT))

    def _cut(self) -> None:
        """One rack, while nothing befalls bookies or stores elsewhere."""
        if any(isinstance(hit, Bookie | Store | int) for hit in self._hit):
            return
        rack = self._dice.randrange(self._racks.count)
        self._did("cut off", f"rack {rack}")
        if isinstance(self._racks, Namespaces):
            self._racks.cut(rack)
            self._later(CUT_S, rack, end=partial(self._racks.join, rack))
            return
        stopped = [m for m in self._members if m.rack == rack and m not in self._hit and m.pid is not None]
        pids = [member.pid for member in stopped if member.pid is not None]
        for pid in pids:
            stop(pid)

        def go_on() -> None:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

        self._later(CUT_S, rack, *stopped, end=go_on)

    def _read_only(self) -> None:
        bookie = self._one(Bookie)
        if isinstance(bookie, Bookie):
            self._did("read-only", bookie.name)
            words = ("bookie", "readonly", bookie.id, "--token-file", str(bookie.token_file))
            self._command(bookie, *words, "on")
            self._orders.setdefault(bookie, set()).add((*words, "off"))
            self._later(ORDERED_S, bookie, end=lambda: self._command(bookie, *words, "off"))

    def _drain(self) -> None:
        """For a while; then it is taken back, however far it came."""
        bookie = self._one(Bookie)
        if isinstance(bookie, Bookie):
            self._did("drain", bookie.name)
            undo = ("decommission", "--undo", bookie.id)
            draining = self._command(bookie, "decommission", "--drain", bookie.id)
            self._orders.setdefault(bookie, set()).add(undo)

            def back() -> None:
                if draining.poll() is None:
                    draining.kill()
                draining.wait()
                self._command(bookie, *undo)

            self._later(ORDERED_S, bookie, end=back)

    def _command(self, bookie: Bookie, *words: str) -> "subprocess.Popen[bytes]":
        """Begins a command in the bookie's rack."""
        command = [*self._racks.prefix(bookie.rack), sys.executable, "-m", "quire.tools", *words]
        with bookie.process.directory.joinpath("commands.log").open("ab") as log:
            begun = subprocess.Popen([*command, "--metadata", self._uri], stdout=log, stderr=log)
        self._commands.append(begun)
        return begun
