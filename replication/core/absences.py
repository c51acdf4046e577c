"""
The bookies that count as lost: those that have been away for the delay, each by its own time (protocol-rules.md 5.3).

Knows: who was there when, the delay, and that an auditor which did not look saw nobody leave.
Does not know: how the lists are had, which ledgers name whom, what is done about a lost bookie.

Safety: a bookie inside its delay is never lost, whoever asks and however many are away: a rolling restart, in which
each of them leaves and comes back in its turn, loses nobody.  What could not be seen is no absence: the time in which
the store did not answer counts for nobody, and neither does the time before a look that missed a change.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class Sight:
    """The result of a look: bookies that count as lost from now on, and lost ones that are there again."""

    lost: tuple[str, ...] = ()
    back: tuple[str, ...] = ()


class Absences:
    """
    Times are seconds of any clock that is never set.  `delay_s`: how long a bookie may stay away; `settle_s`: how long
    after the view was lost nobody counts as lost, for the bookies' sessions may have ended with ours.
    """

    def __init__(self, delay_s: float = 0.0, settle_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._known: set[str] = set()
        self._here: frozenset[str] = frozenset()
        self._since: dict[str, float] = {}  # of those that are away: when that was seen first
        self._lost: set[str] = set()  # of these: whose delay is over
        self.looks = 0  # how many there were
        self._looked = False  # since the view was lost, if ever
        self._settle_s = settle_s
        self._was_lost = False  # the view was, and the next look ends that
        self._settled_at = 0.0  # nobody is lost before that

    @property
    def sees(self) -> bool:
        """True if there was a look since the view was lost."""
        return self._looked

    @property
    def lost(self) -> frozenset[str]:
        """The bookies that count as lost, as the last look or wait has left it."""
        return frozenset(self._lost)

    @property
    def away(self) -> frozenset[str]:
        """The bookies that are away and inside their delay."""
        return frozenset(self._since.keys() - self._lost)

    def expect(self, bookies: Iterable[str]) -> bool:
        """
        There ought to be these, too: they have a cookie, or a ledger names them.  Whether one of them was never heard
        of: it may have come since the last look, so the next one judges.
        """
        before = len(self._known)
        self._known.update(bookies)
        return len(self._known) > before

    def forget(self, bookies: Iterable[str]) -> None:
        """Forgets bookies that were decommissioned and that no ledger names."""
        for bookie in set(bookies) - self._here:
            self._known.discard(bookie)
            self._since.pop(bookie, None)
            self._lost.discard(bookie)

    def see(self, now: float, registered: Collection[str], *, follows: bool = True) -> Sight:
        """
        Both lists of the bookies, as they are now: a read-only bookie is there.  `follows`: all changes since the last
        look show (metadata-rules.md 5.4); if not, those that are away, and not lost yet, may have been back, so their
        absences begin now.
        """
        if not follows:
            self._begin_anew()
        self._here = frozenset(registered)
        self._known.update(registered)
        if self._was_lost:
            self._was_lost, self._settled_at = False, now + self._settle_s
        self._looked = True
        self.looks += 1
        return self._judge(now)

    def lose_sight(self) -> None:
        """No answer, or the session ended: who is away, and not lost yet, is so from the next look on."""
        self._looked, self._was_lost = False, True
        self._begin_anew()

    def wait(self, now: float) -> Sight:
        """Returns the bookies that are lost by now, if none has come back since the last look."""
        return self._judge(now) if self._looked else Sight()

    def set_delay(self, now: float, delay_s: float) -> Sight:
        """The delay is another one.  Who is away is judged by it; who counts as lost already goes on to do so."""
        self._delay_s = delay_s
        return self.wait(now)

    def hurry(self) -> Sight:
        """An operator asked for it: who is away counts as lost, delay or not."""
        lost = tuple(sorted(self.away)) if self._looked else ()
        self._lost.update(lost)
        return Sight(lost)

    @property
    def is_deserted(self) -> bool:
        """True if no bookie at all is there: the cluster is stopped, and none is lost by that."""
        return not self._here

    @property
    def due(self) -> float | None:
        """When the next bookie may be lost: then `wait`.  None: nobody is away, or it can't be seen who is."""
        if not self._looked or not self.away:
            return None
        return max(self._settled_at, min(self._since[bookie] + self._delay_s for bookie in self.away))

    def _begin_anew(self) -> None:
        """The absence of each that is away, and not lost yet, begins with the next judgement."""
        for bookie in self.away:
            del self._since[bookie]

    def _judge(self, now: float) -> Sight:
        back = tuple(sorted(self._lost & self._here))
        self._lost -= self._here
        for bookie in self._since.keys() & self._here:
            del self._since[bookie]
        for bookie in self._known - self._here:
            self._since.setdefault(bookie, now)
        if now < self._settled_at:
            return Sight((), back)
        lost = tuple(sorted(bookie for bookie in self.away if now - self._since[bookie] >= self._delay_s))
        self._lost.update(lost)
        return Sight(lost, back)
