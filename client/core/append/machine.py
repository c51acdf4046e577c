"""
One ledger's writer: which adds go where, when an entry is acknowledged, what a failed bookie leads to.

Knows: protocol-rules.md 2 with D1, D10 to D12, D15 to D17, for a writer and for the adds of a recovery.
Does not know: sockets, timers, Deferreds, placement, the metadata store.  `client.writer` performs the effects and
feeds what came of them back in.  One input and a few effects per batch, never per entry.

Safety: an entry is acknowledged when `ack` bookies of its write set in the current ensemble said so and every lower id
is acknowledged, and never while an ensemble change is under way; so the first id of a new fragment, LAC + 1, can't be
overtaken.  Nothing is acknowledged outside OPEN, and no row leads back from CLOSING, CLOSED or DEAD.  Closing over
IN_RECOVERY is not possible (D1): a writer that lost its ledger writes no metadata.

Long: the table at the end names its steps, and the steps call each other in a circle: a failed bookie leads to an
ensemble change, that to sending again, that to a full backlog, that to a failed bookie.  A part of them would have to
call back, so they are one object, in two files: the steps that send are in its base, `sending`.  What asks no step
(the ensemble, the window, the time-out) is a part of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from quire.client.core.append.messages import (
    LEDGER_CODES,
    Acked,
    AddRefused,
    Alarm,
    AlarmFired,
    Append,
    BookiesSeen,
    ChangeRefused,
    ChannelLost,
    Close,
    CloseChannel,
    CloseRefused,
    CloseStored,
    Effect,
    Ended,
    EnsembleChanged,
    FailPending,
    Fatal,
    Forced,
    Input,
    KeepEnsemble,
    Refuse,
    ReleaseAcks,
    SetAlarm,
    Shutdown,
    State,
    StopAlarm,
    StoreClose,
    StoreEnsemble,
    WatchBookies,
)
from quire.client.core.append.replica import Replica, Standing
from quire.client.core.append.sending import WRITABLE, Sending
from quire.protocol.errors import (
    AddEntryQuorumTimeout,
    ClientClosed,
    LedgerClosed,
    LedgerFenced,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    Timeout,
    UnauthorizedAccess,
    Write,
    WriteOnReadOnlyBookie,
    name_of,
)

# SPDX-License-Identifier: Apache-2.0


class IllegalInput(Exception):
    """An input that can't come in this state: our bug, so it ends the handle."""


class AppendMachine(Sending):
    """The writer of one ledger.  `handle` is the only way in; what it returns must be performed in order."""

    # The one verb.

    def handle(self, given: Input) -> list[Effect]:
        """
        Takes one input, returns the effects to perform in order.  An exception out of here is a bug: the machine is
        DEAD afterwards and acknowledges nothing more.
        """
        effects: list[Effect] = []
        try:
            row = TRANSITIONS.get((self.state, type(given)))
            if row is None:
                raise IllegalInput(f"{type(given).__name__} in {self.state.name}")
            row.step(self, given, effects)
            assert self.state in row.after, f"{type(given).__name__} led to {self.state.name}"
        except BaseException:
            self.state = State.DEAD
            raise
        return effects

    # Acknowledgements.

    def _acked(self, given: Acked, effects: list[Effect]) -> None:
        replica = self._channels.get(given.channel)
        if replica is None:  # replaced meanwhile
            return
        first, last = given.first, min(given.first + given.count - 1, replica.sent)
        if first > last:  # these were not sent
            return
        if self.advanced:
            news = False
            for entry in range(first, last + 1):
                if entry in self._ids:
                    news |= replica.acknowledge(entry, entry, self.head, self.quorums)
        else:
            news = replica.acknowledge(first, last, self.head, self.quorums)
        if news:
            if last > self.head and self.state is State.OPEN:
                self._walk(effects)
            if self._stalled:
                self._unstall(effects)

    def _walk(self, effects: list[Effect]) -> None:
        """Moves the head over every entry that is at its ack quorum, and releases it."""
        replicas, domains = self._replicas, self.domains
        head = self.head if domains else self.quorums.confirmed([replica.watermark for replica in replicas], self.head)
        scattered = [replica for replica in replicas if replica.stragglers]
        if domains or scattered:
            at_quorum, last = self._ensemble.at_quorum, self._window.sent_last
            while head < last and (not self.advanced or head + 1 in self._ids) and at_quorum(head + 1):
                head += 1
        head = min(head, self._window.sent_last)
        if head <= self.head:
            return
        if self.advanced:
            self._ids.difference_update(range(self.head + 1, head + 1))
        self.head = head
        if not self.deferred_sync:
            self.lac = head
        self._window.settle(head)
        for replica in scattered:
            replica.settle(head, self.quorums)
        effects.append(ReleaseAcks(head))
        if self._window.waiting:
            self._pump(effects)

    def _unstall(self, effects: list[Effect]) -> None:
        """Goes on once every backlog is down to half its bound."""
        half = self.limits.replica_backlog_bytes_max // 2
        if self._stalled and all(replica.backlog <= half for replica in self._channels.values()):
            self._stalled = False
            effects.append(StopAlarm(Alarm.STALL))
            self._pump(effects)

    # Failures of a bookie.

    def _add_refused(self, given: AddRefused, effects: list[Effect]) -> None:
        replica = self._channels.get(given.channel)
        if replica is None:
            return
        last = min(given.first + given.count - 1, replica.sent)
        first = max(given.first, self.head + 1)
        entries = self.quorums.entries_of(replica.index, first, last) if first <= last else ()
        open_entries = [entry for entry in entries if not self._ensemble.at_quorum(entry)]
        if open_entries and given.code in LEDGER_CODES:
            reason = {
                LedgerFenced.code: "another client opened the ledger for recovery; open it to see where it ends",
                UnauthorizedAccess.code: "it knows the ledger under another password, so another ledger had this id "
                "before and another one has to be created; or it gives this client no right to that (its log says "
                "which)",
            }.get(given.code, "it does not serve adds of this kind (protocol or deferred sync)")
            self._end(given.code, f"bookie {replica.bookie} refused entry {open_entries[0]}: {reason}", effects)
            return
        self._fail(
            replica,
            given.code,
            f"bookie {replica.bookie} refused entry {given.first}",
            bool(open_entries) or self._has_pending(replica),
            True,
            effects,
        )

    def _channel_lost(self, given: ChannelLost, effects: list[Effect]) -> None:
        replica = self._channels.get(given.channel)
        if replica is None:
            return
        awaited = self._has_pending(replica)
        if given.code == ClientClosed.code or (awaited and given.code == UnauthorizedAccess.code):
            self._end(given.code, given.reason, effects)
        else:
            self._fail(replica, given.code, given.reason, awaited, bool(replica.unanswered), effects)

    def _has_pending(self, replica: Replica) -> bool:
        """Whether entries that are not acknowledged to the caller wait for an answer of this replica."""
        return self.quorums.next_of(replica.index, max(replica.watermark, self.head)) <= self._window.sent_last

    def _fail(
        self, replica: Replica, code: int, reason: str, awaited: bool, missed: bool, effects: list[Effect]
    ) -> None:
        """
        A bookie can't be used any more.  `awaited`: it owes an answer for an entry that is not acknowledged to the
        caller; `missed`: it owes one at all.
        """
        del self._channels[replica.channel]
        self._live.clear()
        replica.failure = f"{reason} ({name_of(code)})"
        replica.failure_code = code
        if replica.heard:  # it worked until now, so it may be back soon
            self._retry_ms = self.limits.stall_ms_max
        if replica.opened:
            effects.append(CloseChannel(replica.channel))
        spared = self.state is State.OPEN and self._spared(replica, code)
        if self.deferred_sync and not spared:
            self._give_up(
                Write.code, f"{replica.failure}, and a ledger with DEFERRED_SYNC can't change its ensemble", effects
            )
            return
        if spared:
            self._set_aside(replica, effects)
        elif awaited or self.state is State.CHANGING:
            replica.standing = Standing.FAILED
            if self.state is State.OPEN:
                self._change(effects)
        else:  # whether it matters shows at the next append (protocol-rules.md 2.5, last paragraph)
            replica.standing = Standing.LAPSED
            replica.missed = missed
        self._unstall(effects)

    def _spared(self, replica: Replica, code: int) -> bool:
        """
        Whether a bookie that failed keeps its place, and the ledger goes on without it until it is back
        (protocol-rules.md 2.5, modes).
        """
        if self.limits.keep_ensemble:  # a recovery doesn't wait for those that it can't do without
            return not self.deferred_sync and (not self.recovery or self._ensemble.can_lose([replica]))
        return self.limits.delay_change and code != WriteOnReadOnlyBookie.code and self._ensemble.can_lose([replica])

    def _set_aside(self, replica: Replica, effects: list[Effect]) -> None:
        replica.standing = Standing.OUT
        if not self._watching:
            self._seen = None
        if not self.deferred_sync:  # what it missed could not be made durable later (D15)
            self._follow_bookies(True, effects)

    # The ensemble change (protocol-rules.md 2.5).

    def _change(self, effects: list[Effect]) -> None:
        if (
            self.limits.keep_ensemble and not self.recovery and not self.deferred_sync
        ):  # since a moment ago: they failed before that
            for replica in self._ensemble.standing(Standing.FAILED):
                self._set_aside(replica, effects)
            return
        if 0 <= self.limits.changes_max <= self.changes and not self.recovery:
            reason = (
                f"the ensemble was changed {self.changes} times already, which is the maximum (maxNumEnsembleChanges)"
            )
            self._give_up(Write.code, f"{self._ensemble.failures(Standing.FAILED)}, and {reason}", effects)
            return
        if self.limits.keep_ensemble:
            reason = (
                f"without them some entries miss the ack quorum of {self.quorums.ack}, and ensemble changes are "
                "disabled (disableEnsembleChange)"
            )
            self._give_up(
                self._ensemble.shortage(Standing.FAILED, Standing.OUT),
                f"{self._ensemble.failures(Standing.FAILED, Standing.OUT)}; {reason}",
                effects,
            )
            return
        self.state = State.CHANGING
        self._round = tuple(self._ensemble.standing(Standing.FAILED, Standing.OUT))
        indexes = {replica.index for replica in self._round}
        failed = tuple((replica.index, replica.bookie) for replica in self._round)
        effects.append(StoreEnsemble(self.head + 1, failed, self.bookies, not self._ensemble.writable_without(indexes)))

    def _ensemble_changed(self, given: EnsembleChanged, effects: list[Effect]) -> None:
        assert len(given.bookies) == self.quorums.ensemble
        replaced = False
        for replica in self._round:
            bookie = given.bookies[replica.index]
            if bookie == replica.bookie and bookie not in given.begun_again:
                replica.standing = Standing.OUT
            else:
                self._install(replica.index, bookie).standing = Standing.FRESH
                replaced |= bookie != replica.bookie
        self.changes += replaced
        if not self._watching:  # else the watch says it; and whom a choice did not see, or could not, may be there
            self._seen = given.seen or None  # empty: the store could not be asked, so nobody who is seen next is new
        self._round = ()
        if self._ensemble.standing(Standing.FAILED):  # failed meanwhile: the change goes on
            self._change(effects)
            if not self.limits.keep_ensemble or self.state is not State.CHANGING:
                return
        out = self._ensemble.standing(Standing.OUT)
        lost = {replica.index for replica in out}
        if (
            (out or self.domains is not None)
            and not self.limits.keep_ensemble
            and not self._ensemble.writable_without(lost)
        ):
            reasons = [self._ensemble.failures(Standing.OUT)] if out else []
            if self.domains is not None and self.quorums.writable_without(lost):
                reasons.append(self.domains.lack([replica.bookie for replica in self._replicas if replica not in out]))
            else:
                reasons.append(
                    f"no bookie can replace them ({given.shortage}), and without them some entries miss the ack "
                    f"quorum of {self.quorums.ack}"
                )
            code = self._ensemble.shortage(Standing.OUT)
            step = "start bookies" if code == NotEnoughBookies.code else "mend what was refused"
            self._give_up(code, "; ".join(reasons), effects, step)
            return
        self.state = State.OPEN
        self._live.clear()
        for replica in self._ensemble.standing(Standing.FRESH):
            replica.standing = Standing.LIVE
            self._open(replica, effects)
            self._resend(replica, effects)
        self._follow_bookies(bool(out), effects)
        self._walk(effects)
        self._unstall(effects)
        self._pump(effects)

    def _follow_bookies(self, on: bool, effects: list[Effect]) -> None:
        """Starts or stops watching for bookies that register (D17): some bookie is out, or none is any more."""
        if on and not self.recovery:
            if not self._watching:
                effects.append(WatchBookies(True))
            effects.append(SetAlarm(Alarm.RETRY, self._retry_ms))
            self._retry_ms = min(2 * self._retry_ms, self.limits.retry_ms_max)
        elif self._watching:
            effects += (WatchBookies(False), StopAlarm(Alarm.RETRY))
        self._watching = on and not self.recovery

    def _change_refused(self, given: ChangeRefused, effects: list[Effect]) -> None:
        reason = f"{self._ensemble.failures(Standing.FAILED, Standing.OUT)}, and {given.reason}"
        if given.code in (LedgerClosed.code, LedgerFenced.code, NoSuchLedgerExistsOnMetadataServer.code):
            self._end(given.code, reason, effects, ours=False)
        else:
            self._give_up(given.code, reason, effects)

    def _bookies_seen(self, given: BookiesSeen, effects: list[Effect]) -> None:
        new = given.writable - (given.writable if self._seen is None else self._seen)
        self._seen = given.writable
        if self.state is State.OPEN:
            self._return(new, effects)

    def _return(self, candidates: frozenset[str], effects: list[Effect]) -> None:
        """Takes back those that are out and among the candidates; if others are, changes the ensemble for the rest."""
        out = self._ensemble.standing(Standing.OUT)
        if not out or self.deferred_sync:  # what it missed could not be made durable later (D15)
            return
        for replica in out:
            if (
                replica.bookie in candidates
            ):  # the same one: no metadata change, what it missed below the LAC is left for repair
                back = self._install(replica.index, replica.bookie)
                self._open(back, effects)
                self._resend(back, effects)
        away = self._ensemble.standing(Standing.OUT)
        fixed = self.limits.delay_change or self.limits.keep_ensemble or 0 <= self.limits.changes_max <= self.changes
        if away and candidates - set(self.bookies) and not fixed:
            self._change(effects)
            return
        self._follow_bookies(bool(away), effects)

    def _keep_ensemble(self, given: KeepEnsemble, effects: list[Effect]) -> None:
        self.limits = replace(self.limits, keep_ensemble=given.on)
        if self.state is State.OPEN and not given.on:
            self._return(self._seen or frozenset(), effects)

    def _alarm_fired(self, given: AlarmFired, effects: list[Effect]) -> None:
        if given.alarm is Alarm.RETRY:
            if self.state is State.OPEN:
                self._return(self._seen or frozenset(), effects)
            return
        if given.alarm is Alarm.QUORUM:
            self._look_at_quorum(effects)
            return
        if not self._stalled:
            return
        full = self.limits.replica_backlog_bytes_max // 2
        laggards = [replica for replica in self._channels.values() if replica.backlog > full]
        if laggards and self._ensemble.can_lose(laggards):
            for replica in laggards:
                if replica.channel in self._channels:
                    self._fail(
                        replica,
                        Timeout.code,
                        f"bookie {replica.bookie} held up the writer with a backlog of {replica.backlog} bytes",
                        True,
                        True,
                        effects,
                    )
        if self._stalled:
            effects.append(SetAlarm(Alarm.STALL, self.limits.stall_ms_max))

    def _look_at_quorum(self, effects: list[Effect]) -> None:
        """Half the time-out is over once more: what waits since the last look but one waits for too long."""
        overdue = self._quorum_timeout.alarm_fired(self._unsettled())
        late = self.head + 1
        if isinstance(overdue, frozenset):  # one that waits for a gap below it has its quorum
            late = min(
                (
                    entry
                    for entry in overdue & self._ids
                    if entry > self._window.sent_last or not self._ensemble.at_quorum(entry)
                ),
                default=-1,
            )
            overdue = late
        if late <= overdue and late >= 0:
            mute = [self._replicas[index] for index in self.quorums.write_set(late)]
            silent = "; ".join(
                replica.failure or f"no answer from {replica.bookie}" for replica in mute if not replica.holds(late)
            )
            reason = (
                f"entry {late} missed its ack quorum of {self.quorums.ack} for {self.limits.quorum_ms_max} ms "
                f"(addEntryQuorumTimeoutSec): {silent}"
            )
            self._give_up(AddEntryQuorumTimeout.code, reason, effects)
        elif self.idle and not self._ids:
            self._quorum_timeout.waiting = False
        else:
            self._quorum_timeout.set_alarm(effects)

    # The end (protocol-rules.md 2.7, 2.8).

    def _give_up(self, code: int, reason: str, effects: list[Effect], first: str = "") -> None:
        """
        The ledger can't be written any more; the error says what to do about it.  `first`: what helps a recovery
        too.
        """
        steps = [first] if first else []
        if not self.recovery:
            steps.append("open the ledger to see where it ends, and write another one")
        self._end(code, "; ".join([reason, ", then ".join(steps)] if steps else [reason]), effects)

    def _end(self, code: int, reason: str, effects: list[Effect], ours: bool = True, finish: bool = False) -> None:
        """
        Fails everything pending with one code, then closes the ledger at the LAC; unless it is not `ours` to close any
        more, or a recovery's, which ends with its own step.
        """
        self.ended_by = (code, reason)
        lac, length = self.lac, self._lac_length if self.deferred_sync else self.length_at_head()
        effects.append(FailPending(code, reason))
        effects += [CloseChannel(replica.channel, finish) for replica in self._channels.values() if replica.opened]
        if self._watching:
            effects += (WatchBookies(False), StopAlarm(Alarm.RETRY))
        if self._stalled:
            effects.append(StopAlarm(Alarm.STALL))
        if self._quorum_timeout.waiting:
            effects.append(StopAlarm(Alarm.QUORUM))
            self._quorum_timeout.waiting = False
        self._channels.clear()
        self._live.clear()
        self._window.clear(lac, length)
        self._ids.clear()
        self._watching = self._stalled = False
        self.pushed = self.head = lac
        self._lac_length = length
        lost = (LedgerFenced.code, ClientClosed.code, NoSuchLedgerExistsOnMetadataServer.code)
        if self.recovery or not ours or code in lost:
            self.state = State.DEAD
            effects.append(Ended(code, reason))
        else:
            self.state = State.CLOSING
            effects.append(StoreClose(lac, length))

    def _fatal(self, given: Fatal, effects: list[Effect]) -> None:
        self._end(given.code, given.reason, effects)

    def _close(self, given: Close, effects: list[Effect]) -> None:
        self._end(LedgerClosed.code, "the ledger was closed before this append was acknowledged", effects, finish=True)

    def _shutdown(self, given: Shutdown, effects: list[Effect]) -> None:
        self._end(ClientClosed.code, "the client was closed", effects)

    def _abandon(self, given: Shutdown, effects: list[Effect]) -> None:
        self.state = State.DEAD
        self.ended_by = (ClientClosed.code, "the client was closed while the ledger's end was being stored")
        effects.append(Ended(*self.ended_by))

    def _forced(self, given: Forced, effects: list[Effect]) -> None:
        assert given.last <= self.head
        if given.last > self.lac:
            self.lac, self._lac_length = given.last, given.length

    def _close_stored(self, given: CloseStored, effects: list[Effect]) -> None:
        self.state = State.CLOSED
        effects.append(Ended(0, "closed"))

    def _close_refused(self, given: CloseRefused, effects: list[Effect]) -> None:
        self.state = State.DEAD
        self.ended_by = (given.code, given.reason)
        effects.append(Ended(*self.ended_by))

    def _refuse(self, given: Append, effects: list[Effect]) -> None:
        effects.append(Refuse(given.token, *self.final_error))

    @property
    def final_error(self) -> tuple[int, str]:
        """What is answered to whatever comes after the end: a code, and why it ended."""
        code, reason = self.ended_by
        if code == ClientClosed.code:
            return code, reason
        if code == LedgerClosed.code and self.state is not State.DEAD:
            return code, "the ledger is closed; create another to go on"
        return LedgerClosed.code, f"this writer has ended: {reason}"

    def _ignore(self, given: Input, effects: list[Effect]) -> None:
        """A late answer finds a writer that has ended, and changes nothing."""


class Row(NamedTuple):
    step: Callable[[AppendMachine, Any, list[Effect]], None]
    after: frozenset[State]


S, M = State, AppendMachine
_ANY_LIVE = frozenset((S.OPEN, S.CHANGING, S.CLOSING, S.DEAD))  # a failure may start a change, or end the handle
_ENDING = frozenset((S.CLOSING, S.DEAD))


def _stay(state: State) -> Row:
    return Row(M._ignore, frozenset((state,)))


TRANSITIONS: dict[tuple[State, type], Row] = {
    (S.OPEN, Append): Row(M._append, _ANY_LIVE),
    (S.OPEN, Acked): Row(M._acked, _ANY_LIVE),
    (S.OPEN, AddRefused): Row(M._add_refused, _ANY_LIVE),
    (S.OPEN, ChannelLost): Row(M._channel_lost, _ANY_LIVE),
    (S.OPEN, BookiesSeen): Row(M._bookies_seen, WRITABLE),
    (S.OPEN, AlarmFired): Row(M._alarm_fired, _ANY_LIVE),
    (S.OPEN, Forced): Row(M._forced, frozenset((S.OPEN,))),
    (S.OPEN, KeepEnsemble): Row(M._keep_ensemble, WRITABLE),
    (S.OPEN, Fatal): Row(M._fatal, _ENDING),
    (S.OPEN, Close): Row(M._close, _ENDING),
    (S.OPEN, Shutdown): Row(M._shutdown, frozenset((S.DEAD,))),
    # Adds go on to those that live; no acknowledgement is released before the change ends.
    (S.CHANGING, Append): Row(M._append, frozenset((S.CHANGING,))),
    (S.CHANGING, Acked): Row(M._acked, frozenset((S.CHANGING,))),
    # A second failure joins the change under way; it starts no other.
    (S.CHANGING, AddRefused): Row(M._add_refused, frozenset((S.CHANGING, S.CLOSING, S.DEAD))),
    (S.CHANGING, ChannelLost): Row(M._channel_lost, frozenset((S.CHANGING, S.CLOSING, S.DEAD))),
    (S.CHANGING, BookiesSeen): Row(M._bookies_seen, frozenset((S.CHANGING,))),
    (S.CHANGING, AlarmFired): Row(M._alarm_fired, frozenset((S.CHANGING, S.CLOSING, S.DEAD))),
    (S.CHANGING, Forced): Row(
        M._forced, frozenset((S.CHANGING,))
    ),  # of a handle without deferred sync: it moves nothing
    (S.CHANGING, KeepEnsemble): Row(M._keep_ensemble, frozenset((S.CHANGING,))),  # the change under way goes on
    (S.CHANGING, EnsembleChanged): Row(M._ensemble_changed, _ANY_LIVE),
    (S.CHANGING, ChangeRefused): Row(M._change_refused, _ENDING),
    (S.CHANGING, Fatal): Row(M._fatal, _ENDING),
    (S.CHANGING, Close): Row(M._close, _ENDING),
    (S.CHANGING, Shutdown): Row(M._shutdown, frozenset((S.DEAD,))),
    (S.CLOSING, CloseStored): Row(M._close_stored, frozenset((S.CLOSED,))),
    (S.CLOSING, CloseRefused): Row(M._close_refused, frozenset((S.DEAD,))),
    (S.CLOSING, Shutdown): Row(M._abandon, frozenset((S.DEAD,))),
    (S.CLOSED, Shutdown): _stay(S.CLOSED),
    (S.DEAD, Shutdown): _stay(S.DEAD),
    # The close went on while the client was being closed.
    (S.DEAD, CloseStored): _stay(S.DEAD),
    (S.DEAD, CloseRefused): _stay(S.DEAD),
}
for _state in (S.CLOSING, S.CLOSED, S.DEAD):
    TRANSITIONS[_state, Append] = Row(M._refuse, frozenset((_state,)))
    for _late in (
        Acked,
        AddRefused,
        ChannelLost,
        BookiesSeen,
        AlarmFired,
        EnsembleChanged,
        ChangeRefused,
        KeepEnsemble,
        Forced,
        Fatal,
        Close,
    ):
        TRANSITIONS[_state, _late] = _stay(_state)

# Reaching one of these is our bug, so it raises instead of being ignored.
ILLEGAL: set[tuple[State, type]] = {
    (S.OPEN, EnsembleChanged),
    (S.OPEN, ChangeRefused),
    (S.OPEN, CloseStored),
    (S.OPEN, CloseRefused),
    (S.CHANGING, CloseStored),
    (S.CHANGING, CloseRefused),
    (S.CLOSED, CloseStored),
    (S.CLOSED, CloseRefused),
}
