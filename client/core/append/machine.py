"""
One ledger's writer: which adds go where, when an entry is acknowledged, what a failed bookie leads to.

Knows: protocol-rules.md 2 with D1, D10 to D12, D15 to D17, for a writer and for the adds of a recovery.
Does not know: sockets, timers, Deferreds, placement, the metadata store.  `handles.writer` performs the effects
and feeds what came of them back in.  One input and a few effects per batch, never per entry.

Safety: an entry is acknowledged when `ack` bookies of its write set in the current ensemble said so and every lower id
is acknowledged, and never while an ensemble change is under way; so the first id of a new fragment, LAC + 1, can't be
overtaken.  Nothing is acknowledged outside OPEN, and no row leads back from CLOSING, CLOSED or DEAD.  Closing over
IN_RECOVERY is not possible (D1): a writer that lost its ledger writes no metadata.

Long: the table at the end names its steps, and the steps call each other in a circle: a failed bookie leads to an
ensemble change, that to sending again, that to a full backlog, that to a failed bookie.  A part of them would have to
call back, so they are one object, in two files: the steps that send are in its base, `sending`.  What asks no step
(the ensemble, the window, the time-out) is a part of its own.
"""

from dataclasses import replace
from operator import attrgetter

from quire.client.core.append import messages as m
from quire.client.core.append.ensemble import Replica, Standing
from quire.client.core.append.sending import Sending
from quire.client.core.machine import Table
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


TABLE = Table(m.State, m.Input)
WATERMARK, STRAGGLERS = attrgetter("watermark"), attrgetter("stragglers")


class AppendMachine(Sending):
    """The writer of one ledger; after a bug it is DEAD, and acknowledges nothing more."""

    table = TABLE
    ruined = m.State.DEAD

    # Acknowledgements.

    def _acked(self, given: m.Acked) -> None:
        if given.channel not in self._channels:  # replaced meanwhile
            return
        replica = self._channels[given.channel]
        first, last = given.first, given.first + given.count - 1
        if last > replica.sent:  # noqa: PLR1730  # no call
            last = replica.sent
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
            if last > self.head and self.state is m.State.OPEN:
                self._walk()
            if self._stalled:
                self._unstall()

    def _walk(self) -> None:
        """Moves the head over every entry that is at its ack quorum, and releases it."""
        replicas, domains = self._replicas, self.domains
        head = self.head if domains else self.quorums.confirmed(list(map(WATERMARK, replicas)), self.head)
        scattered = list(filter(STRAGGLERS, replicas))
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
        self.effects.append(m.ReleaseAcks(head))
        if self._window.waiting:
            self._pump()

    def _unstall(self) -> None:
        """Goes on once every backlog is down to half its bound."""
        half = self.limits.replica_backlog_bytes_max // 2
        if self._stalled and all(replica.backlog <= half for replica in self._channels.values()):
            self._stalled = False
            self.effects.append(m.StopAlarm(m.Alarm.STALL))
            self._pump()

    # Failures of a bookie.

    def _add_refused(self, given: m.AddRefused) -> None:
        replica = self._channels.get(given.channel)
        if replica is None:
            return
        last = min(given.first + given.count - 1, replica.sent)
        first = max(given.first, self.head + 1)
        entries = self.quorums.entries_of(replica.index, first, last) if first <= last else ()
        open_entries = [entry for entry in entries if not self._ensemble.at_quorum(entry)]
        if open_entries and given.code in m.LEDGER_CODES:
            reason = {
                LedgerFenced.code: "another client opened the ledger for recovery; open it to see where it ends",
                UnauthorizedAccess.code: "it knows the ledger under another password, so another ledger had this id "
                "before and another one has to be created; or it gives this client no right to that (its log says "
                "which)",
            }.get(given.code, "it does not serve adds of this kind (protocol or deferred sync)")
            self._end(given.code, f"bookie {replica.bookie} refused entry {open_entries[0]}: {reason}")
            return
        self._fail(
            replica,
            given.code,
            f"bookie {replica.bookie} refused entry {given.first}",
            bool(open_entries) or self._has_pending(replica),
            True,
        )

    def _channel_lost(self, given: m.ChannelLost) -> None:
        replica = self._channels.get(given.channel)
        if replica is None:
            return
        awaited = self._has_pending(replica)
        if given.code == ClientClosed.code or (awaited and given.code == UnauthorizedAccess.code):
            self._end(given.code, given.reason)
        else:
            self._fail(replica, given.code, given.reason, awaited, replica.owes)

    def _has_pending(self, replica: Replica) -> bool:
        """True if entries that are not acknowledged to the caller wait for an answer of this replica."""
        return self.quorums.next_of(replica.index, max(replica.watermark, self.head)) <= self._window.sent_last

    def _fail(self, replica: Replica, code: int, reason: str, awaited: bool, missed: bool) -> None:
        """A bookie can't be used any more.  `missed`: it owes an answer, `awaited`: for what is not acknowledged."""
        del self._channels[replica.channel]
        self._live.clear()
        replica.failure = f"{reason} ({name_of(code)})"
        replica.failure_code = code
        if replica.heard:  # it worked until now, so it may be back soon
            self._retry_ms = self.limits.stall_ms_max
        if replica.opened:
            self.effects.append(m.CloseChannel(replica.channel))
        spared = self.state is m.State.OPEN and self._spared(replica, code)
        if self.deferred_sync and not spared:
            self._give_up(Write.code, f"{replica.failure}, and a ledger with DEFERRED_SYNC can't change its ensemble")
            return
        if spared:
            self._set_aside(replica)
        elif awaited or self.state is m.State.CHANGING:
            replica.standing = Standing.FAILED
            if self.state is m.State.OPEN:
                self._change()
        else:  # whether it matters shows at the next append (protocol-rules.md 2.5, last paragraph)
            replica.standing = Standing.LAPSED
            replica.missed = missed
        self._unstall()

    def _spared(self, replica: Replica, code: int) -> bool:
        """True if a failed bookie keeps its place until it is back (protocol-rules.md 2.5, modes)."""
        if self.limits.keep_ensemble:  # a recovery doesn't wait for those that it can't do without
            return not self.deferred_sync and (not self.recovery or self._ensemble.can_lose([replica]))
        return self.limits.delay_change and code != WriteOnReadOnlyBookie.code and self._ensemble.can_lose([replica])

    def _set_aside(self, replica: Replica) -> None:
        replica.standing = Standing.OUT
        if not self._watching:
            self._seen = None
        if not self.deferred_sync:  # what it missed could not be made durable later (D15)
            self._follow_bookies(True)

    # The ensemble change (protocol-rules.md 2.5).

    def _change(self) -> None:
        if (
            self.limits.keep_ensemble and not self.recovery and not self.deferred_sync
        ):  # since a moment ago: they failed before that
            for replica in self._ensemble.standing(Standing.FAILED):
                self._set_aside(replica)
            return
        if 0 <= self.limits.changes_max <= self.changes and not self.recovery:
            reason = (
                f"the ensemble was changed {self.changes} times already, which is the maximum (maxNumEnsembleChanges)"
            )
            self._give_up(Write.code, f"{self._ensemble.failures(Standing.FAILED)}, and {reason}")
            return
        if self.limits.keep_ensemble:
            reason = (
                f"without them some entries miss the ack quorum of {self.quorums.ack}, and ensemble changes are "
                "disabled (disableEnsembleChange)"
            )
            self._give_up(
                self._ensemble.shortage(Standing.FAILED, Standing.OUT),
                f"{self._ensemble.failures(Standing.FAILED, Standing.OUT)}; {reason}",
            )
            return
        self.state = m.State.CHANGING
        self._round = tuple(self._ensemble.standing(Standing.FAILED, Standing.OUT))
        indexes = {replica.index for replica in self._round}
        failed = tuple((replica.index, replica.bookie) for replica in self._round)
        self.effects.append(
            m.StoreEnsemble(self.head + 1, failed, self.bookies, not self._ensemble.writable_without(indexes))
        )

    def _ensemble_changed(self, given: m.EnsembleChanged) -> None:
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
            self._change()
            if not self.limits.keep_ensemble or self.state is not m.State.CHANGING:
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
            self._give_up(code, "; ".join(reasons), step)
            return
        self.state = m.State.OPEN
        self._live.clear()
        for replica in self._ensemble.standing(Standing.FRESH):
            replica.standing = Standing.LIVE
            self._open(replica)
            self._resend(replica)
        self._follow_bookies(bool(out))
        self._walk()
        self._unstall()
        self._pump()

    def _follow_bookies(self, on: bool) -> None:
        """Starts or stops watching for bookies that register (D17): some bookie is out, or none is any more."""
        if on and not self.recovery:
            if not self._watching:
                self.effects.append(m.WatchBookies(True))
            self.effects.append(m.SetAlarm(m.Alarm.RETRY, self._retry_ms))
            self._retry_ms = min(2 * self._retry_ms, self.limits.retry_ms_max)
        elif self._watching:
            self.effects += (m.WatchBookies(False), m.StopAlarm(m.Alarm.RETRY))
        self._watching = on and not self.recovery

    def _change_refused(self, given: m.ChangeRefused) -> None:
        reason = f"{self._ensemble.failures(Standing.FAILED, Standing.OUT)}, and {given.reason}"
        if given.code in (LedgerClosed.code, LedgerFenced.code, NoSuchLedgerExistsOnMetadataServer.code):
            self._end(given.code, reason, ours=False)
        else:
            self._give_up(given.code, reason)

    def _bookies_seen(self, given: m.BookiesSeen) -> None:
        new = given.writable - (given.writable if self._seen is None else self._seen)
        self._seen = given.writable
        if self.state is m.State.OPEN:
            self._return(new)

    def _return(self, candidates: frozenset[str]) -> None:
        """Takes back those that are out and among the candidates; if others are, changes the ensemble for the rest."""
        out = self._ensemble.standing(Standing.OUT)
        if not out or self.deferred_sync:  # what it missed could not be made durable later (D15)
            return
        for replica in out:
            if (
                replica.bookie in candidates
            ):  # the same one: no metadata change, what it missed below the LAC is left for repair
                back = self._install(replica.index, replica.bookie)
                self._open(back)
                self._resend(back)
        away = self._ensemble.standing(Standing.OUT)
        fixed = self.limits.delay_change or self.limits.keep_ensemble or 0 <= self.limits.changes_max <= self.changes
        if away and candidates - set(self.bookies) and not fixed:
            self._change()
            return
        self._follow_bookies(bool(away))

    def _keep_ensemble(self, given: m.KeepEnsemble) -> None:
        self.limits = replace(self.limits, keep_ensemble=given.on)
        if self.state is m.State.OPEN and not given.on:
            self._return(self._seen or frozenset())

    def _alarm_fired(self, given: m.AlarmFired) -> None:
        if given.alarm is m.Alarm.RETRY:
            if self.state is m.State.OPEN:
                self._return(self._seen or frozenset())
            return
        if given.alarm is m.Alarm.QUORUM:
            self._look_at_quorum()
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
                    )
        if self._stalled:
            self.effects.append(m.SetAlarm(m.Alarm.STALL, self.limits.stall_ms_max))

    def _look_at_quorum(self) -> None:
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
            self._give_up(AddEntryQuorumTimeout.code, reason)
        elif self.idle and not self._ids:
            self._quorum_timeout.waiting = False
        else:
            self._quorum_timeout.set_alarm(self.effects)

    # The end (protocol-rules.md 2.7, 2.8).

    def _give_up(self, code: int, reason: str, first: str = "") -> None:
        """The ledger can't be written any more.  `first`, before what to do: what helps a recovery too."""
        steps = [first] if first else []
        if not self.recovery:
            steps.append("open the ledger to see where it ends, and write another one")
        self._end(code, "; ".join([reason, ", then ".join(steps)] if steps else [reason]))

    def _end(self, code: int, reason: str, ours: bool = True, finish: bool = False) -> None:
        """
        Fails everything pending with one code, then closes the ledger at the LAC; unless it is not `ours` to close any
        more, or a recovery's, which ends with its own step.
        """
        self.ended_by = (code, reason)
        lac, length = self.lac, self._lac_length if self.deferred_sync else self.length_at_head()
        self.effects.append(m.FailPending(code, reason))
        self.effects += [
            m.CloseChannel(replica.channel, finish) for replica in self._channels.values() if replica.opened
        ]
        if self._watching:
            self.effects += (m.WatchBookies(False), m.StopAlarm(m.Alarm.RETRY))
        if self._stalled:
            self.effects.append(m.StopAlarm(m.Alarm.STALL))
        if self._quorum_timeout.waiting:
            self.effects.append(m.StopAlarm(m.Alarm.QUORUM))
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
            self.state = m.State.DEAD
            self.effects.append(m.Ended(code, reason))
        else:
            self.state = m.State.CLOSING
            self.effects.append(m.StoreClose(lac, length))

    def _fatal(self, given: m.Fatal) -> None:
        self._end(given.code, given.reason)

    def _close(self, given: m.Close) -> None:
        self._end(LedgerClosed.code, "the ledger was closed before this append was acknowledged", finish=True)

    def _shutdown(self, given: m.Shutdown) -> None:
        self._end(ClientClosed.code, "the client was closed")

    def _abandon(self, given: m.Shutdown) -> None:
        self.state = m.State.DEAD
        self.ended_by = (ClientClosed.code, "the client was closed while the ledger's end was being stored")
        self.effects.append(m.Ended(*self.ended_by))

    def _forced(self, given: m.Forced) -> None:
        assert given.last <= self.head
        if given.last > self.lac:
            self.lac, self._lac_length = given.last, given.length

    def _close_stored(self, given: m.CloseStored) -> None:
        self.state = m.State.CLOSED
        self.effects.append(m.Ended(0, "closed"))

    def _close_refused(self, given: m.CloseRefused) -> None:
        self.state = m.State.DEAD
        self.ended_by = (given.code, given.reason)
        self.effects.append(m.Ended(*self.ended_by))

    def _refuse(self, given: m.Append) -> None:
        self.effects.append(m.Refuse(given.token, *self.final_error))

    @property
    def final_error(self) -> tuple[int, str]:
        """The answer to whatever comes after the end: a code, and why it ended."""
        code, reason = self.ended_by
        if code == ClientClosed.code:
            return code, reason
        if code == LedgerClosed.code and self.state is not m.State.DEAD:
            return code, "the ledger is closed; create another to go on"
        return LedgerClosed.code, f"this writer has ended: {reason}"


S, M = m.State, AppendMachine
_LIVE = (S.OPEN, S.CHANGING)
_ANY_LIVE = (*_LIVE, S.CLOSING, S.DEAD)  # a failure may start a change, or end the handle
_CHANGING = (S.CHANGING, S.CLOSING, S.DEAD)
_ENDED = (S.CLOSED, S.DEAD)

on, ignore, rule_out = TABLE.on, TABLE.ignore, TABLE.rule_out

on(S.OPEN, m.Append, M._append, *_ANY_LIVE)
on(S.OPEN, m.Acked, M._acked, *_ANY_LIVE)
on(S.OPEN, m.AddRefused, M._add_refused, *_ANY_LIVE)
on(S.OPEN, m.ChannelLost, M._channel_lost, *_ANY_LIVE)
on(S.OPEN, m.BookiesSeen, M._bookies_seen, *_LIVE)
on(S.OPEN, m.AlarmFired, M._alarm_fired, *_ANY_LIVE)
on(S.OPEN, m.KeepEnsemble, M._keep_ensemble, *_LIVE)
# Adds go on to those that live; no acknowledgement is released before the change ends.
on(S.CHANGING, m.Append, M._append)
on(S.CHANGING, m.Acked, M._acked)
# A second failure joins the change under way; it starts no other.
on(S.CHANGING, m.AddRefused, M._add_refused, *_CHANGING)
on(S.CHANGING, m.ChannelLost, M._channel_lost, *_CHANGING)
on(S.CHANGING, m.BookiesSeen, M._bookies_seen)
on(S.CHANGING, m.AlarmFired, M._alarm_fired, *_CHANGING)
on(S.CHANGING, m.KeepEnsemble, M._keep_ensemble)  # the change under way goes on
on(S.CHANGING, m.EnsembleChanged, M._ensemble_changed, *_ANY_LIVE)
on(S.CHANGING, m.ChangeRefused, M._change_refused, S.CLOSING, S.DEAD)
for _state in _LIVE:
    on(_state, m.Forced, M._forced)  # of a handle without deferred sync: it moves nothing
    on(_state, m.Fatal, M._fatal, S.CLOSING, S.DEAD)
    on(_state, m.Close, M._close, S.CLOSING, S.DEAD)
    on(_state, m.Shutdown, M._shutdown, S.DEAD)
on(S.CLOSING, m.CloseStored, M._close_stored, S.CLOSED)
on(S.CLOSING, m.CloseRefused, M._close_refused, S.DEAD)
on(S.CLOSING, m.Shutdown, M._abandon, S.DEAD)
for _state in (S.CLOSING, *_ENDED):
    on(_state, m.Append, M._refuse)

# A late answer finds a writer that has ended, and changes nothing.
ignore(
    (S.CLOSING, *_ENDED),
    m.Acked,
    m.AddRefused,
    m.ChannelLost,
    m.BookiesSeen,
    m.AlarmFired,
    m.EnsembleChanged,
    m.ChangeRefused,
)
ignore((S.CLOSING, *_ENDED), m.KeepEnsemble, m.Forced, m.Fatal, m.Close)
ignore(_ENDED, m.Shutdown)
ignore((S.DEAD,), m.CloseStored, m.CloseRefused)  # the close went on while the client was being closed
rule_out((S.OPEN,), m.EnsembleChanged, m.ChangeRefused)
rule_out((*_LIVE, S.CLOSED), m.CloseStored, m.CloseRefused)
