"""
The owner of a log: who may append, which ledger the appends go to, and what becomes of them when that is lost.

Knows: the states of a candidate and an owner (docs/logs.md, "The owner"), what waits to be sent and what is sent.
Does not know: metadata, ledgers, time, what a record is.  `owner.handle` performs the effects and feeds what comes of
them back in.

Safety: an item is released only when its entry is acknowledged in a segment that the manifest names, or is at or below
the end of its closed ledger; it fails as not in the log only when it was never sent, or its ledger is closed below it.
Nothing here is safe because of the claim: who owns is in the manifest, and who may write is decided by the fence.

Long: the table at the end names its steps, and each of them reads and writes the same few fields; parts of their own
would have to share these, and a step would be harder to check.
"""

from collections import deque
from enum import auto

from quire.client.core.machine import Machine, MachineState, Table
from quire.log.core import ownership_messages as m
from quire.log.core.values import Counts
from quire.protocol.errors import LedgerError, error_of
from quire.protocol.log_errors import AppendUnknown, LogError, LogFenced, NotOwner

# SPDX-License-Identifier: Apache-2.0


class State(MachineState):
    OUT = auto()
    WAITING = auto()  # a candidate
    CLAIMING = auto()  # the claim is this handle's; the manifest is to say so
    SETTLING = auto()  # the open segment of the owner before is brought to its end
    IDLE = auto()
    OPENING = auto()  # a ledger is made and named
    WRITING = auto()
    ROLLING = auto()  # the segment ends: its acknowledgements, its ledger's close, its last edit
    FENCED = auto()  # the ledger ended, not by this handle: what is in it?
    MOVING = auto()  # on the way out
    LOST = auto()  # deposed: what is in the ledger that was this handle's?


OWNING = frozenset(
    {State.SETTLING, State.IDLE, State.OPENING, State.WRITING, State.ROLLING, State.FENCED, State.MOVING}
)


TABLE = Table(State, m.Input)


class Ownership(Machine[State, m.Input, m.Effect]):
    """One handle's way from candidate to owner and out."""

    table = TABLE
    ruined = State.OUT

    def __init__(self, log: str = "") -> None:
        super().__init__(State.WAITING)
        self._log = log  # its name, for errors
        self.epoch = 0
        self.items: deque[m.Item] = deque()  # those that are sent first, then those that wait
        self.sent = 0
        self.segment: int | None = None  # the open segment that is this handle's
        self.ledger: int | None = None  # of it
        self.error: LedgerError | None = None  # why the last try failed, or why the log was lost
        self._settling: tuple[int, int] | None = None  # number and ledger of what the owner before left open
        self._making: int | None = None  # a ledger that is not named yet
        self._ends: tuple[int, Counts] | None = None  # a segment whose ledger is closed, but not yet in the manifest
        self._leaving: str | None = None  # to whom, once the present step is over
        self._again = False  # whether `Again` is waited for
        self._recovered = False  # in FENCED and MOVING: what is in the ledger is known
        self._closing = False  # `CloseLedger` was asked for
        self._cut = False  # the ledger ended, and not by this handle

    @property
    def ending(self) -> int | None:
        """The number of a segment whose ledger is closed, but which the manifest may still say is open."""
        return None if self._ends is None else self._ends[0]

    def poison(self) -> None:
        """A step, or an effect, has failed: what the machine knows counts no more."""
        super().poison()
        self.items.clear()
        self.sent = 0

    # -- candidate -------------------------------------------------------------------------------------------------

    def _claim(self, given: m.ClaimFree | m.ClaimGone) -> None:
        self.effects.append(m.MakeClaim())

    def _have_claim(self, given: m.ClaimMine) -> None:
        self.state = State.CLAIMING
        self.effects.append(m.EditClaim())

    def _lose_claim(self, given: m.ClaimGone | m.ClaimTaken) -> None:
        self.state = State.WAITING
        if isinstance(given, m.ClaimGone):
            self.effects.append(m.MakeClaim())

    def _claimed(self, given: m.Claimed) -> None:
        self.epoch = given.epoch
        if given.open_segment is None:
            self._own()
        else:
            self.state = State.SETTLING
            self._settling = given.open_segment
            self.effects.append(m.Recover(*given.open_segment))

    def _refuse_claim(self, given: m.Refused | m.Deposed) -> None:
        self._out(given.error)

    def _stop(self, given: m.Transfer | m.Resigned) -> None:
        self._out(None)

    def _out(self, error: LedgerError | None, left: LedgerError | None = None) -> None:
        self.state = State.OUT
        self.error = error
        self._fail(self._take(len(self.items)), error or self._not_owner("was closed"))
        self.effects += (m.ReleaseClaim(), m.End(error, left))

    # -- settling what another left --------------------------------------------------------------------------------

    def _settle_recovered(self, given: m.Recovered) -> None:
        if self._is_settling(given.n):
            self.effects.append(m.EditClose(given.n, given.counts))

    def _is_settling(self, number: int) -> bool:
        return self._settling is not None and self._settling[0] == number

    def _settle_failed(self, given: m.RecoverFailed) -> None:
        if self._is_settling(given.n):
            self.error = given.error
            self._wait("recover")

    def _settle_again(self, given: m.Again) -> None:
        if self._again and self._settling is not None:
            self._again = False
            self.effects.append(m.Recover(*self._settling))

    def _settle_vanished(self, given: m.LedgerVanished) -> None:
        if not self._is_settling(given.n):
            return
        if given.error is None:
            self._own()
        else:
            self._out(given.error)

    def _settled(self, given: m.SegmentClosed | m.SegmentEnded) -> None:
        if self._is_settling(given.n):
            self._own()

    def _settle_too_long(self, given: m.Expired) -> None:
        if given.patience and self.error is not None:
            self._out(self.error)

    def _own(self) -> None:
        self._settling = None
        self._again = False
        self.error = None
        self.state = State.IDLE
        self.effects.append(m.BecomeOwner())
        self._go_on()

    # -- appending -------------------------------------------------------------------------------------------------

    def _keep(self, given: m.Append) -> None:
        self.items.extend(given.items)

    def _append_idle(self, given: m.Append) -> None:
        self.items.extend(given.items)
        self._go_on()

    def _append(self, given: m.Append) -> None:
        self.items.extend(given.items)
        self._send()

    def _refuse(self, given: m.Append) -> None:
        lost = self.error if self.state in {State.LOST, State.OUT} else None
        self._fail([*given.items], lost or self._not_owner("does not own it, or hands it over"))

    def _send(self) -> None:
        fresh = [self.items[number] for number in range(self.sent, len(self.items))]
        if fresh:
            self.sent = len(self.items)
            self.effects.append(m.Send(fresh))

    def _acked(self, given: m.Acked) -> None:
        if given.n == self.segment:
            self._release(given.entry)
            self._drained()

    def _release(self, last: int) -> None:
        """Releases the items that are in the ledger up to that entry."""
        count = 0
        while count < self.sent and self.items[count].last <= last:
            count += 1
        if count:
            self.effects.append(m.Release(self._take(count)))

    def _take(self, count: int) -> list[m.Item]:
        self.sent = max(0, self.sent - count)
        return [self.items.popleft() for _ in range(count)]

    def _take_unsent(self) -> list[m.Item]:
        """Takes the items that wait."""
        return [self.items.pop() for _ in range(len(self.items) - self.sent)][::-1]

    def _end_sending(self) -> None:
        """Nothing more goes to the ledger's writer: what that had no room for waits, and was not sent."""
        while self.sent and self.items[self.sent - 1].last == m.UNSENT:
            self.sent -= 1

    def _not_owner(self, why: str) -> NotOwner:
        return NotOwner(
            f"the log {self._log!r}: this handle {why}; this was not sent: own the log again, and append it"
        )

    def _fail(self, items: list[m.Item], error: LedgerError) -> None:
        if items:
            self.effects.append(m.Fail(items, error))

    # -- segments --------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """From IDLE: to a ledger for what waits, or out."""
        if self._leaving is not None:
            self._move(self._leaving)
        elif self.items:
            self.state = State.OPENING
            self.effects.append(m.CreateLedger())

    def _created(self, given: m.LedgerCreated) -> None:
        self._making = given.ledger
        self.effects.append(m.EditOpen(given.ledger, self._ends))

    def _create_failed(self, given: m.CreateFailed) -> None:
        self.error = given.error
        self._wait("create")

    def _create_again(self, given: m.Again) -> None:
        if not self._again:
            return
        self._again = False
        if self._leaving is not None and not self.items:
            self._move(self._leaving)
        else:
            self.effects.append(m.CreateLedger())

    def _create_anew(self, given: m.NewLedgerVanished) -> None:
        self._making = None
        self.effects.append(m.CreateLedger())

    def _opened(self, given: m.Opened) -> None:
        self.state = State.WRITING
        self.segment, self.ledger = given.n, self._making
        self._making = self._ends = self.error = None
        self._closing = self._again = self._recovered = self._cut = False
        self._send()
        if self._leaving is not None:
            self._move(self._leaving)

    def _closed_before(self, given: m.SegmentClosed | m.SegmentEnded) -> None:
        """The segment before the one that is opened was closed by a publisher."""
        if self._ends is not None and self._ends[0] == given.n:
            self._ends = None

    def _roll(self, given: m.RollDue) -> None:
        self.state = State.ROLLING
        self._drained()

    def _drained(self) -> None:
        """Closes the ledger once nothing is under way in it."""
        ending = self.state is State.ROLLING or (self.state is State.MOVING and not self._recovered)
        if ending and not self.sent and self.segment is not None and not self._closing:
            self._closing = True
            self.effects.append(m.CloseLedger(self.segment))

    def _rolled(self, given: m.LedgerClosed) -> None:
        if given.n != self.segment:
            return
        self._ends = given.n, given.counts
        self.segment = self.ledger = None
        if self.items:
            self.state = State.OPENING
            self.effects.append(m.CreateLedger())
        else:
            self.effects.append(m.EditClose(given.n, given.counts))

    def _close_edited(self, given: m.SegmentClosed | m.SegmentEnded) -> None:
        """The manifest has the counts of the segment that ended."""
        if self._ends is not None and self._ends[0] == given.n:
            self._ends = None
            self.state = State.IDLE
            self._go_on()

    # -- a fence without a new owner -------------------------------------------------------------------------------

    def _fenced(self, given: m.WriterEnded | m.LedgerNotOpen) -> None:
        if given.n == self.segment:
            self._begin_fenced()
            self._recover()

    def _recover(self) -> None:
        assert self.segment is not None
        assert self.ledger is not None
        self.effects.append(m.Recover(self.segment, self.ledger))

    def _begin_fenced(self) -> None:
        self._end_sending()
        if self.state is State.MOVING:
            self._fail(self._take_unsent(), self._not_owner("hands it over"))
        else:
            self.state = State.FENCED
        self._recovered = self._again = False
        self._cut = True

    def _ended(self, given: m.SegmentEnded) -> None:
        """The manifest says what is in the ledger, so it need not be recovered."""
        if given.n == self.segment:
            self._begin_fenced()
            self._known(given.entries - 1, None)

    def _recover_done(self, given: m.Recovered) -> None:
        if given.n == self.segment and not self._recovered:
            self._known(given.last, (given.n, given.counts))

    def _known(self, last: int, ends: tuple[int, Counts] | None) -> None:
        """Releases what is in the ledger up to its last entry; the rest is sent again, in order."""
        self._release(last)
        self._recovered, self._again = True, False
        self._ends = ends
        if self.state is State.MOVING:
            self._fail(
                self._take(len(self.items)),
                LogFenced(f"a ledger of the log {self._log!r} ended before this was stored: append it again"),
            )
            self._leave()
            return
        for item in self.items:
            item.last = m.UNSENT
        self.sent = 0
        self._wait("fence")

    def _ended_late(self, given: m.SegmentEnded) -> None:
        if given.n != self.segment:
            return
        if self._recovered:
            self._ends = None
        else:
            self._ended(given)

    def _ended_or_edited(self, given: m.SegmentEnded) -> None:
        """A publisher has closed the segment: before its ledger was closed by us, or after."""
        self._ended(given)
        if self.state is State.ROLLING:
            self._close_edited(given)

    def _recover_failed(self, given: m.RecoverFailed) -> None:
        if given.n == self.segment and not self._recovered:
            self.error = given.error
            self._wait("recover")

    def _vanished(self, given: m.LedgerVanished) -> None:
        if given.n != self.segment or self._recovered:
            return
        self._fail_unknown(self.sent)
        if given.error is not None:
            self._out(given.error)
        else:
            self._known(-1, None)

    def _fail_unknown(self, count: int) -> None:
        self._fail(
            self._take(count),
            AppendUnknown(
                f"the log {self._log!r} may have this, or not: the end of the ledger that it was sent to could not be "
                "learned in append_ms; once another owner has the log, reading it tells"
            ),
        )

    def _fenced_again(self, given: m.Again) -> None:
        if not self._again:
            return
        self._again = False
        if not self._recovered:
            self._recover()
            return
        self.segment = None
        if self.items:
            self.state = State.OPENING
            self.effects.append(m.CreateLedger())
        elif self._ends is not None:
            self.state = State.ROLLING
            self.effects.append(m.EditClose(*self._ends))
        else:
            self.state = State.IDLE
            self._go_on()

    def _fenced_late(self, given: m.Expired) -> None:
        """Fails what was sent and is not known in time; it is not sent again."""
        count = 0
        while count < self.sent and self.items[count].deadline <= given.now:
            count += 1
        if count and not self._recovered:
            self._fail_unknown(count)

    def _fenced_too_long(self, given: m.Expired) -> None:
        """Fails what is not known in time; a handle that is to leave leaves that to the next owner."""
        self._fenced_late(given)
        if not self.sent:
            self._unsent_late(given)
        stuck = given.patience and not self._recovered and not self.sent and self.error is not None
        if self._leaving is not None and stuck:
            self._move(self._leaving)

    def _rolling_late(self, given: m.Expired) -> None:
        """Fails what waits for the end of the segment; what is under way has its writer's time-out."""
        if not self.sent:
            self._unsent_late(given)

    def _unsent_late(self, given: m.Expired) -> None:
        """Nothing is under way: what waits too long fails, never sent."""
        count = 0
        while count < len(self.items) and self.items[count].deadline <= given.now:
            count += 1
        found = self.error or LogError("`quire bookie list` shows whether there are enough bookies")
        said = f"no segment of the log {self._log!r} could be opened in append_ms, so this is not in the log: {found}"
        self._fail(self._take(count), error_of(found.code, said))

    # -- leaving ---------------------------------------------------------------------------------------------------

    def _leave_later(self, given: m.Transfer | m.ClaimTaken) -> None:
        self._leaving = given.to if isinstance(given, m.Transfer) else given.token

    def _leave_now(self, given: m.Transfer | m.ClaimTaken) -> None:
        self._move(given.to if isinstance(given, m.Transfer) else given.token)

    def _move(self, to: str) -> None:
        before, self.state = self.state, State.MOVING
        self._recovered = self._again = self._cut = False
        self._closing = False  # a close before a fence came to nothing
        if to and before is not State.SETTLING:
            self.effects.append(m.EditAnnounce(to))
        self._fail(self._take_unsent(), self._not_owner("hands it over"))
        if self.segment is None:
            self._leave()
        else:
            self._drained()

    def _leave(self) -> None:
        self.effects.append(m.EditResign(self._ends))

    def _moved_closed(self, given: m.LedgerClosed) -> None:
        if given.n == self.segment and not self._recovered:
            self._recovered = True
            self._ends = given.n, given.counts
            self._leave()

    def _moving_again(self, given: m.Again) -> None:
        if self._again and not self._recovered:
            self._again = False
            self._recover()

    def _moving_late(self, given: m.Expired) -> None:
        if not self._cut:
            return
        self._fenced_late(given)
        if given.patience and not self._recovered and not self.sent and self.error is not None:
            self._recovered = True
            self._leave()

    def _moving_fenced(self, given: m.WriterEnded | m.LedgerNotOpen) -> None:
        if given.n == self.segment and not self._cut and not self._recovered:
            self._begin_fenced()
            self._recover()

    def _give_up(self, given: m.GiveUp) -> None:
        """Leaves what is left to be done to the next owner; items have a time of their own, after which they fail."""
        if not self.items:
            self._out(None, given.error)

    # -- lost ------------------------------------------------------------------------------------------------------

    def _deposed(self, given: m.Deposed | m.Refused) -> None:
        self.error = given.error
        self._end_sending()
        self._fail(self._take_unsent(), given.error)
        if isinstance(given, m.Refused):
            self._discard()
        if not self.sent:
            self._out(given.error)
            return
        self.state = State.LOST
        assert self.segment is not None
        assert self.ledger is not None
        self.effects.append(m.Settle(self.segment, self.ledger))

    def _discard(self) -> None:
        """A ledger whose naming was refused for good was never named."""
        making, self._making = self._making, None
        if making is not None:
            self.effects.append(m.Discard(making))

    def _discard_refused(self, given: m.Refused) -> None:
        self._discard()

    def _discard_created(self, given: m.LedgerCreated) -> None:
        self.effects.append(m.Discard(given.ledger))

    def _named_after_all(self, given: m.Opened) -> None:
        self._making = None

    def _lost_acked(self, given: m.Acked) -> None:
        if given.n == self.segment:
            self._release(given.entry)
            if not self.sent:
                self._out(self.error)

    def _lost_settled(self, given: m.Settled | m.SegmentEnded | m.Recovered) -> None:
        if given.n != self.segment:
            return
        self._release(given.entries - 1 if isinstance(given, m.SegmentEnded) else given.last)
        self._out(self.error)

    def _lost_unknown(self, given: m.LedgerVanished) -> None:
        if given.n == self.segment:
            self._fail_unknown(self.sent)
            self._out(self.error)

    def _lost_late(self, given: m.Expired) -> None:
        self._fenced_late(given)
        if not self.sent:
            self._out(self.error)

    # -- the rest --------------------------------------------------------------------------------------------------

    def _wait(self, why: str) -> None:
        self._again = True
        self.effects.append(m.Wait(why))


S, M = State, Ownership
_CANDIDATE = (S.OUT, S.WAITING, S.CLAIMING)
_READY = (S.IDLE, S.OPENING, S.MOVING)  # nothing is left to be settled
_PASSING = (S.OPENING, S.ROLLING, S.FENCED)  # a step is under way that comes to its end
_AFTER = (S.MOVING, S.LOST, S.OUT)  # what was asked for before is answered yet
_GONE = (S.LOST, S.OUT)
on, ignore, rule_out = TABLE.on, TABLE.ignore, TABLE.rule_out

on(S.WAITING, m.ClaimFree, M._claim)
on(S.WAITING, m.ClaimMine, M._have_claim, S.CLAIMING)
on(S.CLAIMING, m.Claimed, M._claimed, S.SETTLING, *_READY)
on(S.CLAIMING, m.ClaimGone, M._lose_claim, S.WAITING)
on(S.CLAIMING, m.ClaimTaken, M._lose_claim, S.WAITING)
for _state in (S.WAITING, S.CLAIMING):
    on(_state, m.Refused, M._refuse_claim, S.OUT)
    on(_state, m.Deposed, M._refuse_claim, S.OUT)
    on(_state, m.Transfer, M._stop, S.OUT)

for _state in OWNING:
    on(_state, m.Refused, M._deposed, *_GONE)
    on(_state, m.Deposed, M._deposed, *_GONE)
for _state in OWNING - {S.MOVING}:
    on(_state, m.ClaimGone, M._claim)
for _state in (S.SETTLING, S.IDLE, S.WRITING):
    on(_state, m.ClaimTaken, M._leave_now, S.MOVING)
    on(_state, m.Transfer, M._leave_now, S.MOVING)
for _state in _PASSING:
    on(_state, m.ClaimTaken, M._leave_later)
    on(_state, m.Transfer, M._leave_later)
for _state in (*_PASSING, S.MOVING):
    on(_state, m.GiveUp, M._give_up, _state, S.OUT)

on(S.IDLE, m.Append, M._append_idle, *_READY)
on(S.WRITING, m.Append, M._append)
for _state in (S.SETTLING, *_PASSING):
    on(_state, m.Append, M._keep)
for _state in (S.WAITING, S.CLAIMING, *_AFTER):
    on(_state, m.Append, M._refuse)
for _state in (S.WRITING, S.ROLLING, S.FENCED, S.MOVING):
    on(_state, m.Acked, M._acked)

on(S.SETTLING, m.Recovered, M._settle_recovered)
on(S.SETTLING, m.RecoverFailed, M._settle_failed)
on(S.SETTLING, m.Again, M._settle_again)
on(S.SETTLING, m.LedgerVanished, M._settle_vanished, S.SETTLING, S.OUT, *_READY)
on(S.SETTLING, m.SegmentClosed, M._settled, S.SETTLING, *_READY)
on(S.SETTLING, m.SegmentEnded, M._settled, S.SETTLING, *_READY)
on(S.SETTLING, m.Expired, M._settle_too_long, S.SETTLING, S.OUT)

on(S.OPENING, m.LedgerCreated, M._created)
on(S.OPENING, m.CreateFailed, M._create_failed)
on(S.OPENING, m.NewLedgerVanished, M._create_anew)
on(S.OPENING, m.Again, M._create_again, S.OPENING, S.MOVING)
on(S.OPENING, m.Opened, M._opened, S.WRITING, S.MOVING)
on(S.OPENING, m.SegmentClosed, M._closed_before)
on(S.OPENING, m.SegmentEnded, M._closed_before)
on(S.OPENING, m.Expired, M._unsent_late)

on(S.WRITING, m.RollDue, M._roll, S.ROLLING)
on(S.WRITING, m.SegmentEnded, M._ended, S.WRITING, S.FENCED)
on(S.ROLLING, m.Expired, M._rolling_late)
on(S.ROLLING, m.LedgerClosed, M._rolled, S.ROLLING, S.OPENING)
on(S.ROLLING, m.SegmentClosed, M._close_edited, S.ROLLING, *_READY)
on(S.ROLLING, m.SegmentEnded, M._ended_or_edited, S.ROLLING, S.FENCED, *_READY)
for _state in (S.WRITING, S.ROLLING):
    on(_state, m.WriterEnded, M._fenced, _state, S.FENCED)
    on(_state, m.LedgerNotOpen, M._fenced, _state, S.FENCED)

on(S.FENCED, m.Again, M._fenced_again, S.FENCED, S.ROLLING, *_READY)
on(S.FENCED, m.Expired, M._fenced_too_long, S.FENCED, S.MOVING)
for _state in (S.FENCED, S.MOVING):
    on(_state, m.Recovered, M._recover_done)
    on(_state, m.RecoverFailed, M._recover_failed)
    on(_state, m.LedgerVanished, M._vanished, _state, S.OUT)
    on(_state, m.SegmentEnded, M._ended_late)

on(S.MOVING, m.LedgerClosed, M._moved_closed)
on(S.MOVING, m.WriterEnded, M._moving_fenced)
on(S.MOVING, m.LedgerNotOpen, M._moving_fenced)
on(S.MOVING, m.Again, M._moving_again)
on(S.MOVING, m.Expired, M._moving_late)
on(S.MOVING, m.Resigned, M._stop, S.OUT)

on(S.LOST, m.Acked, M._lost_acked, *_GONE)
on(S.LOST, m.Settled, M._lost_settled, *_GONE)
on(S.LOST, m.SegmentEnded, M._lost_settled, *_GONE)
on(S.LOST, m.Recovered, M._lost_settled, *_GONE)
on(S.LOST, m.LedgerVanished, M._lost_unknown, *_GONE)
on(S.LOST, m.Expired, M._lost_late, *_GONE)
for _state in _GONE:
    on(_state, m.Refused, M._discard_refused)
    on(_state, m.LedgerCreated, M._discard_created)
    on(_state, m.Opened, M._named_after_all)

# What is said is old, or is no news in that state.
ignore(set(S) - {S.WAITING}, m.ClaimFree, m.ClaimMine)  # looked at besides the watch
ignore((S.WAITING, *_AFTER), m.ClaimGone, m.ClaimTaken)
ignore(set(S) - {S.CLAIMING}, m.Claimed)  # of a claim that was lost before its edit was answered
ignore((S.IDLE, S.WRITING, S.FENCED, *_AFTER), m.SegmentClosed)  # a publisher's end was seen first
ignore((*_CANDIDATE, S.IDLE), m.SegmentEnded)
ignore((S.MOVING,), m.Opened)
ignore(_AFTER, m.Announced, m.Transfer)
ignore(_GONE, m.Resigned, m.Deposed, m.CreateFailed, m.NewLedgerVanished, m.GiveUp)
ignore((S.IDLE, S.OPENING, S.OUT), m.Acked)  # of a segment before
ignore((S.IDLE, S.OPENING, S.FENCED, *_GONE), m.WriterEnded, m.LedgerNotOpen)
ignore((S.IDLE, S.OPENING, S.WRITING, S.FENCED, *_GONE), m.LedgerClosed)
ignore((S.IDLE, S.OPENING, S.WRITING, S.ROLLING, S.OUT), m.Recovered, m.LedgerVanished)  # the manifest said it first
ignore((S.IDLE, S.OPENING, S.WRITING, S.ROLLING, *_GONE), m.RecoverFailed)
ignore((S.OUT,), m.Settled)
ignore(set(S) - {S.WRITING}, m.RollDue)  # an end that is asked for too late
ignore((S.IDLE, S.WRITING, S.ROLLING, *_GONE), m.Again)  # what it was for is over
ignore((*_CANDIDATE, S.IDLE, S.WRITING), m.Expired)  # writers and claims have time-outs of their own

# An answer to an effect that was not asked for in this state, nor before it.
rule_out(set(S) - {*_GONE}, m.Settled)
rule_out(set(S) - {S.OPENING, *_GONE}, m.LedgerCreated, m.CreateFailed, m.NewLedgerVanished)
rule_out(set(S) - {S.OPENING, *_AFTER}, m.Opened)
rule_out(set(S) - {*_AFTER}, m.Announced, m.Resigned)
rule_out(set(S) - {*_PASSING, *_AFTER}, m.GiveUp)
rule_out((S.WAITING, S.CLAIMING, S.SETTLING), m.Acked, m.WriterEnded, m.LedgerNotOpen, m.LedgerClosed)
rule_out((S.WAITING, S.CLAIMING), m.Recovered, m.RecoverFailed, m.LedgerVanished, m.SegmentClosed, m.Again)
