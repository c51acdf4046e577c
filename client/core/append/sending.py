"""
The sending half of a writer: ids, batches, and which bookies get them.

Knows: the ensemble and its channels, the window and how far it lets appends through, what a replica that is new or
back must be sent.
Does not know: when an entry is acknowledged, what a failure leads to (`machine`).

Safety: whatever is not acknowledged to the caller is kept, and goes whole to every replica that is installed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from quire.client.core.append import messages as m
from quire.client.core.append.ensemble import Ensemble, Replica, Standing
from quire.client.core.append.window import Window
from quire.client.core.machine import Machine
from quire.client.core.quorum import Quorums
from quire.protocol.batch import AddBatch
from quire.protocol.digest import ENTRY_ID_MAX, Digest
from quire.protocol.errors import DuplicateEntryId, IllegalOp, IncorrectParameter, Timeout, TooManyRequests

# SPDX-License-Identifier: Apache-2.0

RECOVERY_PRIORITY = 100
WRITABLE = frozenset((m.State.OPEN, m.State.CHANGING))
Mark = int | frozenset[int]  # everything up to an id, or ids


class QuorumTimeout:
    """
    How long an entry may wait for its ack quorum (protocol-rules.md 2.4).  It has what waited at each of the last two
    looks; a look comes every half time-out, so one alarm serves any number of entries, and an entry is found late after
    one to one and a half time-outs.  `waiting`: the alarm is set.
    """

    __slots__ = ("_last", "_last_but_one", "_ms_max", "waiting")

    def __init__(self, ms_max: int) -> None:
        self._ms_max = ms_max
        self._last: Mark = -1
        self._last_but_one: Mark = -1
        self.waiting = False

    def begin(self, now: Mark, effects: list[m.Effect]) -> None:
        """Something waits again."""
        self.waiting = True
        self._last_but_one, self._last = -1, now
        self.set_alarm(effects)

    def alarm_fired(self, now: Mark) -> Mark:
        """Returns what waited a whole time-out ago.  `now`: what waits now."""
        overdue, self._last_but_one, self._last = self._last_but_one, self._last, now
        return overdue

    def set_alarm(self, effects: list[m.Effect]) -> None:
        effects.append(m.SetAlarm(m.Alarm.QUORUM, max(1, self._ms_max // 2)))


class Sending(Machine[m.State, m.Input, m.Effect], ABC):
    """The state of a writer, and the steps that send."""

    def __init__(
        self,
        ledger: int,
        quorums: Quorums,
        digest: Digest,
        bookies: Sequence[str],
        limits: m.Limits,
        mode: m.AppendMode = m.AppendMode(),
    ) -> None:
        super().__init__(m.State.OPEN)
        last = mode.last
        self.ledger = ledger
        self.quorums = quorums
        self.digest = digest
        self.limits = limits
        self.recovery = mode.recovery
        self.deferred_sync = mode.deferred_sync
        self.advanced = mode.advanced
        self.domains = mode.domains
        self.head = last  # highest id acknowledged to the caller
        self.lac = last  # last add confirmed: the head, except with deferred sync
        self.pushed = last  # highest id handed out
        self.changes = 0  # ensemble changes that replaced a bookie
        self.carried = last  # the last add confirmed that the last batch carried to the bookies
        self._base = last
        self._lac_length = mode.length  # deferred sync: payload bytes up to the LAC
        self._ensemble = Ensemble(quorums, mode.domains, bookies, last)
        self._replicas, self._channels = self._ensemble.replicas, self._ensemble.channels
        self._live: dict[int, tuple[int, ...]] = {}  # by write set: channels of its live replicas, once opened
        self._window = Window(limits, last, mode.length)
        self._ids: set[int] = set()  # advanced mode: ids above the head that were used
        self._round: tuple[Replica, ...] = ()  # those that the change under way is to replace
        self._seen: frozenset[str] | None = frozenset()  # None: not asked yet
        self._watching = False
        self._quorum_timeout = QuorumTimeout(limits.quorum_ms_max)
        self._stalled = False
        self.ended_by = (0, "")  # the code and the reason, once it is over
        self._retry_ms = limits.stall_ms_max

    # What a driver and a user may look at.

    @property
    def bookies(self) -> tuple[str, ...]:
        return self._ensemble.bookies

    @property
    def carrying(self) -> tuple[bool, ...]:
        """By ensemble index: whether adds went out to the bookie on the channel that it has now."""
        return tuple(replica.opened for replica in self._replicas)

    @property
    def out(self) -> tuple[str, ...]:
        """Bookies of the ensemble that the ledger goes on without."""
        return tuple(replica.bookie for replica in self._ensemble.standing(Standing.OUT))

    @property
    def length(self) -> int:
        """Payload bytes of everything appended, acknowledged or not."""
        return self._window.length + self._window.waiting_bytes

    @property
    def writable(self) -> bool:
        """True if appends are taken: the writer has not ended, and is not closing."""
        return self.state in WRITABLE

    @property
    def idle(self) -> bool:
        """True if nothing waits to be sent or acknowledged."""
        return not self._window.pending and not self._window.waiting

    @property
    def window_full(self) -> bool:
        """True if an append would have to wait for the window."""
        return bool(self._window.waiting)

    def length_at_head(self) -> int:
        """Payload bytes of the entries up to the head."""
        return self._window.length_at(self.head)

    # Appending.

    def _append(self, given: m.Append) -> None:
        payloads = given.payloads
        count = len(payloads)
        assert count, "an append of nothing"
        # A recovery bounds by itself what it reads ahead; the id that all others wait for can't be sent later.
        window = self._window
        gap = self.advanced and given.first == self.head + 1
        if window.waiting and window.overfull and not self.recovery and not gap:
            waiting = window.waiting_bytes
            self.effects.append(
                m.Refuse(
                    given.token,
                    TooManyRequests.code,
                    f"{waiting} bytes wait for the window: wait for ready() before appending more",
                )
            )
            return
        first = self.pushed + 1
        if self.advanced:
            if given.first is None:
                self.effects.append(
                    m.Refuse(
                        given.token,
                        IllegalOp.code,
                        "a ledger created with advanced=True takes append_at(entry_id, data) only",
                    )
                )
                return
            first = given.first
        if not 0 <= first <= ENTRY_ID_MAX + 1 - count:
            self.effects.append(
                m.Refuse(
                    given.token,
                    IncorrectParameter.code,
                    f"entry ids are 0 to 2^63 - 1, so {count} from {first} on can't be",
                )
            )
            return
        if self.advanced:
            taken = [entry for entry in range(first, first + count) if entry <= self.head or entry in self._ids]
            if taken:
                self.effects.append(
                    m.Refuse(given.token, DuplicateEntryId.code, f"entry {taken[0]} was written already")
                )
                return
            self._ids.update(range(first, first + count))
        elif given.first is not None and given.first != first:
            self.effects.append(
                m.Refuse(
                    given.token,
                    IllegalOp.code,
                    f"entry id {given.first} was given, the next one is {first}: only advanced=True takes ids "
                    "from the caller",
                )
            )
            return
        last = first + count - 1
        if not self.advanced or last > self.pushed:
            self.pushed = last
        window.take(first, payloads, given.length)
        if self.limits.quorum_ms_max and not self._quorum_timeout.waiting:
            self._quorum_timeout.begin(self._unsettled(), self.effects)
        self._pump()

    def _pump(self) -> None:
        """Sends what waits, as far as the window and the slowest replica's backlog allow."""
        window = self._window
        if window.waiting and len(self._channels) != len(self._replicas):
            self._decide_lapsed()
        while window.waiting and (not self._stalled or window.fills_gap(self.head)) and window.has_room(self.head):
            if not (window.pending and window.fills_gap(self.head)) and self._held_up(window.waiting[0].size):
                break
            first, payloads, size, _length = window.following()
            batch = AddBatch(
                self.digest, self.ledger, first, self._base if self.recovery else self.lac, window.length, payloads,
                recovery=self.recovery, priority=RECOVERY_PRIORITY if self.recovery else 0,
                deferred_sync=self.deferred_sync,
            )  # fmt: skip
            window.sent(batch)
            self.carried = batch.lac
            if self.quorums.striped and batch.count > 1:
                for replica in self._replicas:
                    if replica.standing is Standing.LIVE:
                        self._send_share(batch, replica, first)
            else:
                channels = self._channels_now(first)
                self._ensemble.send(channels, batch.last, size)
                self.effects.append(m.SendAdds(batch, channels))

    def _decide_lapsed(self) -> None:
        """Before more is sent: lapsed replicas are connected again, or replaced if they owe an answer."""
        missed = False
        for replica in self._replicas:
            if replica.standing is Standing.LAPSED:
                if replica.missed:
                    replica.standing = Standing.FAILED
                    missed = True
                else:  # what it acknowledged stays acknowledged
                    back = self._install(replica.index, replica.bookie)
                    back.watermark = max(replica.watermark, self.head)
                    back.stragglers, back.sent = replica.stragglers, max(replica.sent, self.head)
        if missed and self.state is m.State.OPEN:
            self._change()

    def _held_up(self, size: int) -> bool:
        """
        True if a replica's backlog has no room for `size` more bytes.  One that has answered nothing since it was
        connected to counts as failed at once if the others suffice; for one that answers the writer waits a while.
        """
        bound = self.limits.replica_backlog_bytes_max
        late: list[Replica] = []
        for replica in self._channels.values():
            if replica.backlog + size > bound and replica.backlog:
                late.append(replica)  # a comprehension is a call, and mostly there is none
        if not late:
            return False
        silent = [replica for replica in late if not replica.heard]
        if len(silent) == len(late) and not self.deferred_sync and self._ensemble.can_lose(silent):
            for replica in silent:
                if replica.channel in self._channels:
                    self._fail(
                        replica,
                        Timeout.code,
                        f"bookie {replica.bookie} answered nothing, with {replica.backlog} bytes sent to it",
                        True,
                        True,
                    )
            return self.state not in WRITABLE
        self._stalled = True
        self.effects.append(m.SetAlarm(m.Alarm.STALL, self.limits.stall_ms_max))
        return True

    def _channels_now(self, entry: int) -> tuple[int, ...]:
        """The channels of the bookies that get this entry."""
        write_set = entry % self.quorums.ensemble if self.quorums.striped else 0
        channels = self._live.get(write_set)
        if channels is None:
            replicas = [self._replicas[index] for index in self.quorums.write_set(write_set)]
            live = [replica for replica in replicas if replica.standing is Standing.LIVE]
            for replica in live:
                self._open(replica)
            channels = self._live[write_set] = tuple(replica.channel for replica in live)
        return channels

    def _open(self, replica: Replica) -> None:
        if not replica.opened:
            replica.opened = True
            self.effects.append(m.OpenChannel(replica.channel, replica.index, replica.bookie))

    def _send_share(self, batch: AddBatch, replica: Replica, first: int) -> None:
        """Sends to one replica what belongs to it of the batch's entries from `first` on."""
        entries = self.quorums.entries_of(replica.index, first, batch.last)
        if not entries:
            return
        self._open(replica)
        whole = len(entries) == batch.count
        start, payloads = batch.first, batch.payloads
        replica.send(entries[-1], batch.bytes if whole else sum([len(payloads[entry - start]) for entry in entries]))
        self.effects.append(m.SendAdds(batch, (replica.channel,), None if whole else entries))

    def _resend(self, replica: Replica) -> None:
        """Sends everything above the head that belongs to a replica that is new, or came back."""
        for batch in self._window.pending:
            self._send_share(batch, replica, max(batch.first, self.head + 1))

    def _install(self, index: int, bookie: str) -> Replica:
        """A new replica at `index`, in place of the one that is there."""
        self._live.clear()
        return self._ensemble.install(index, bookie, self.head)

    def _unsettled(self) -> int | frozenset[int]:
        """Returns what waits to be acknowledged: all up to an id, or ids where their order is the caller's."""
        return frozenset(self._ids) if self.advanced else self.pushed

    # What a failure leads to.

    @abstractmethod
    def _fail(self, replica: Replica, code: int, reason: str, awaited: bool, missed: bool) -> None:
        """Gives up a bookie that can't be used any more."""

    @abstractmethod
    def _change(self) -> None:
        """Replaces the bookies that failed."""
