"""
A replica of a state machine: which snapshot it begins from, which records it applies, and when it makes a snapshot.

Knows: the states of a replica (docs/log-replicas.md, "Replicas"), up to which index records were given to be applied
and are applied.
Does not know: ledgers, time, what a record is, what the user's machine computes.  `machine.replica` performs the
effects and feeds what comes of them back in.

Safety: records are given to be applied in the order of their indexes, each once for each load, none is passed over; a
snapshot is loaded only when the log still has all from its index on.

Records come in two ways, from a reader and, while this process owns the log, from the owner as they are acknowledged.
Both overlap, and the owner's have gaps where others publish: what was given is dropped, what comes too early waits for
the reader.
"""

from collections import deque
from enum import auto

from quire.client.core.machine import Machine, MachineState, Table
from quire.log.core.machine import applying_messages as m
from quire.log.core.values import Snapshot
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import SnapshotDamaged

# SPDX-License-Identifier: Apache-2.0

NEAR = 1000  # records before the end at which a replica is live
UNAPPLIED_BYTES_MAX = 8 << 20  # of records that were given and are not applied; as much may wait for the reader
DROPPED_MAX = 3  # snapshots that went while they were loaded, before the operator is told
RETRY_PARTS = 10  # a snapshot that failed is tried again after this part of the records between two


class State(MachineState):
    LOADING = auto()  # from a snapshot, or from nothing
    REPLAYING = auto()
    LIVE = auto()  # near the end of the log
    STOPPED = auto()  # by an error, for good; the machine is as it was
    OUT = auto()  # closed


TABLE = Table(State, m.Input)


class Applying(Machine[State, m.Input, m.Effect]):
    """One replica from its beginning to its end."""

    table = TABLE
    ruined = State.STOPPED

    def __init__(self, log: str = "", snapshot_records: int = 100_000) -> None:
        super().__init__(State.LOADING)
        self._log = log  # its name, for errors
        self._snapshot_records = snapshot_records
        self.role = m.Role.FOLLOWING
        self.error: LedgerError | None = None
        self.applied = 0  # the first index that is not applied
        self.given = 0  # the first that was not given to be applied
        self.unapplied = 0  # bytes of what was given and is not applied
        self.resting = False  # the owner gives what comes, nothing is read
        self.saving = False
        self._applying: deque[tuple[int, int]] = deque()  # ends and bytes of what was given
        self._early: deque[m.Given] = deque()  # of the owner, above `given`
        self._early_bytes = 0
        self._leads: tuple[int, int] | None = None  # epoch, and the index at which it begins
        self._end: int | None = None  # of the log, when reading began; None until that is known
        self.end = 0  # the same, or what it was the last time
        self._saved = 0  # the index of the newest snapshot that is known
        self._save_from = 0  # none is made by itself before this index
        self._asked = False  # for a snapshot
        self._again = False  # whether `Again` is waited for
        self._unloadable: dict[int, tuple[str, bool]] = {}  # by ledger: why, and whether it is damaged
        self._dropped = 0  # snapshots that went while they were loaded

    def poison(self) -> None:
        """A step, or an effect, has failed: what the machine knows counts no more; one that is closed stays so."""
        if self.state is not State.OUT:
            self.state = self.ruined

    def stopped_by(self, error: LedgerError) -> list[m.Effect]:
        """Gives what is left to be done after a bug."""
        self.effects = []
        if self._leads is not None:
            self._play(m.Role.FOLLOWING)
        self.error = error
        return [*self.effects, m.Stop(error)]

    # -- loading ---------------------------------------------------------------------------------------------------

    def _begin(self, given: m.Begin) -> None:
        self.effects.append(m.Look())

    def _listed(self, given: m.Listed) -> None:
        kept = [each for each in given.snapshots if each.index >= given.begin]
        gone = self._unloadable.keys() - {each.ledger for each in kept}
        for ledger in gone:
            del self._unloadable[ledger]
        self._dropped += len(gone)
        if gone and self._dropped == DROPPED_MAX:
            self.effects.append(
                m.Complain(
                    f"{DROPPED_MAX} snapshots of the log {self._log!r} were replaced while they were loaded here: with "
                    "a larger snapshot_records at its owner they stay longer"
                )
            )
        left = [each for each in kept if each.ledger not in self._unloadable]
        if left:
            self.effects.append(m.Load(max(left, key=lambda each: each.index)))
        elif given.begin == 0:
            self.effects.append(m.Load(None))
        elif any(not damaged for _reason, damaged in self._unloadable.values()):
            self._wait("the bookies of its snapshots can't be asked")
        else:
            self._stop(self._damaged(kept, given.begin))

    def _damaged(self, kept: list[Snapshot], begin: int) -> SnapshotDamaged:
        each = [f"at index {each.index}, ledger {each.ledger}: {self._unloadable[each.ledger][0]}" for each in kept]
        return SnapshotDamaged(
            f"the log {self._log!r} begins at index {begin}, and no snapshot that covers what was before can be loaded "
            f"({'; '.join(each) or 'there is none'}): `quire log snapshots {self._log}` lists them"
        )

    def _loaded(self, given: m.Loaded) -> None:
        self._unloadable, self._dropped = {}, 0
        self.applied = self.given = given.index
        self._saved = max(self._saved, given.index)
        self.state = State.REPLAYING
        self._read_on()

    def _load_failed(self, given: m.LoadFailed) -> None:
        self._unloadable[given.ledger] = given.reason, given.damaged
        self.effects.append(m.Look())

    def _load_again(self, given: m.Again) -> None:
        if self._again:
            self._again = False
            self._unloadable = {ledger: why for ledger, why in self._unloadable.items() if why[1]}
            self.effects.append(m.Look())

    # -- applying --------------------------------------------------------------------------------------------------

    def _read(self, given: m.Read) -> None:
        self._give(given.given)
        while self._early and self._early[0].first <= self.given:
            early = self._early.popleft()
            self._early_bytes -= early.bytes
            self._own_next(early)

    def _own(self, given: m.Own) -> None:
        if given.given.first <= self.given:
            self._own_next(given.given)
            return
        self._early.append(given.given)
        self._early_bytes += given.given.bytes
        while self._early_bytes > UNAPPLIED_BYTES_MAX:  # they are read
            self._early_bytes -= self._early.popleft().bytes
        if self.resting:
            self._read_on()

    def _own_next(self, given: m.Given) -> None:
        """The reader is behind the owner no more, unless there is too much to be applied."""
        if self.unapplied > UNAPPLIED_BYTES_MAX:
            if self.resting:
                self._read_on()
            return
        self._give(given)
        if not self.resting and given.end == self.given and self._leads is not None:
            self.resting = True
            self.effects.append(m.Rest())

    def _give(self, given: m.Given) -> None:
        assert given.first <= self.given, f"{given.first} comes behind {self.given}"
        if given.end > self.given:
            self.effects.append(m.Apply(given, self.given - given.first))
            self.given = given.end
            self.unapplied += given.bytes
            self._applying.append((given.end, given.bytes))

    def _applied(self, given: m.Applied) -> None:
        self.applied = given.index
        while self._applying and self._applying[0][0] <= given.index:
            self.unapplied -= self._applying.popleft()[1]
        self._go_on()

    def _ends_at(self, given: m.Ends) -> None:
        self._end = self.end = given.end
        self._go_on()

    def _go_on(self) -> None:
        """Does what the index up to which all is applied allows."""
        if self.state is State.REPLAYING and self._end is not None and self.applied + NEAR >= self._end:
            self.state = State.LIVE
        if self.state is State.LIVE and self._leads is not None and self.applied >= self._leads[1]:
            self._play(m.Role.LEADING)
        is_due = self.role is m.Role.LEADING and self.applied >= max(
            self._save_from, self._saved + self._snapshot_records
        )
        if (is_due or self._asked) and not self.saving:
            self.saving, self._asked = True, False
            self.effects.append(m.Save())

    def _grown(self, given: m.Grown) -> None:
        if self.resting and given.end > self.given:
            self._read_on()

    def _read_on(self) -> None:
        self.resting = False
        self.effects.append(m.ReadFrom(self.given))

    def _read_failed(self, given: m.ReadFailed) -> None:
        if given.final:
            self._stop(given.error)
        else:
            self._wait(str(given.error))

    def _read_again(self, given: m.Again) -> None:
        if self._again:
            self._again = False
            self._read_on()

    def _trimmed(self, given: m.Trimmed) -> None:
        """
        The newest snapshot covers what is gone.  The end at which the epoch began says nothing of what was appended
        since and may not be in that: so the log is given back, and the replica leads in another epoch.
        """
        self._play(m.Role.FOLLOWING)
        if self._leads is not None:
            self._leads = None
            self.effects.append(m.GiveBack())
        self._forget()
        self.state = State.LOADING
        self.effects.append(m.Look())

    def _raised(self, given: m.ApplyRaised) -> None:
        self.applied = given.index
        self._stop(given.error)

    # -- roles -----------------------------------------------------------------------------------------------------

    def _lead(self, given: m.Leads) -> None:
        self._leads = given.epoch, given.first
        self._saved = max(self._saved, given.newest)
        if self.state is not State.LOADING:
            self._go_on()

    def _follow(self, given: m.Follows) -> None:
        self._play(m.Role.FOLLOWING)
        self._leads = None
        self._early.clear()
        self._early_bytes = 0
        if self.resting:
            self._read_on()

    def _play(self, role: m.Role) -> None:
        if role is not self.role:
            assert self._leads is not None
            self.role = role
            self.effects.append(m.Play(role, self._leads[0]))

    # -- snapshots -------------------------------------------------------------------------------------------------

    def _ask(self, given: m.SaveAsked) -> None:
        self._asked = True
        if self.state is not State.LOADING:
            self._go_on()

    def _save_done(self, given: m.Saved) -> None:
        self._saved = max(self._saved, given.index)
        self._save_over()

    def _save_failed(self, given: m.SaveFailed) -> None:
        self._save_from = self.applied + max(1, self._snapshot_records // RETRY_PARTS)
        self._save_over()

    def _save_over(self) -> None:
        self.saving = False
        if self.state is not State.LOADING:
            self._go_on()

    # -- the rest --------------------------------------------------------------------------------------------------

    def _stop(self, error: LedgerError | None) -> None:
        self.state, self.error = State.STOPPED, error
        self._play(m.Role.FOLLOWING)
        self._forget()
        self.effects.append(m.Stop(error))

    def _close(self, given: m.Close) -> None:
        was_stopped = self.state is State.STOPPED
        if not was_stopped:
            self._stop(None)
        self.state = State.OUT

    def _forget(self) -> None:
        """Drops what was given and is not applied."""
        self._applying.clear()
        self._early.clear()
        self.unapplied = self._early_bytes = 0
        self.given = self.applied
        self.resting = self._again = False
        self._end = None

    def _wait(self, reason: str) -> None:
        self._again = True
        self.effects.append(m.Wait(reason))


S, M = State, Applying
_RUNNING = (S.REPLAYING, S.LIVE)
_ENDED = (S.STOPPED, S.OUT)
on = TABLE.on

on(S.LOADING, m.Begin, M._begin)
on(S.LOADING, m.Listed, M._listed, S.LOADING, S.STOPPED)
on(S.LOADING, m.Loaded, M._loaded, S.REPLAYING)
on(S.LOADING, m.LoadFailed, M._load_failed)
on(S.LOADING, m.ReadFailed, M._read_failed, S.LOADING, S.STOPPED)
on(S.LOADING, m.Leads, M._lead)
on(S.LOADING, m.SaveAsked, M._ask)
on(S.LOADING, m.Saved, M._save_done)
on(S.LOADING, m.SaveFailed, M._save_failed)
on(S.LOADING, m.Again, M._load_again)
for _state in _RUNNING:
    # What brings it nearer to the end may make it live.
    on(_state, m.Ends, M._ends_at, _state, S.LIVE)
    on(_state, m.Applied, M._applied, _state, S.LIVE)
    on(_state, m.Leads, M._lead, _state, S.LIVE)
    on(_state, m.SaveAsked, M._ask, _state, S.LIVE)
    on(_state, m.Saved, M._save_done, _state, S.LIVE)
    on(_state, m.SaveFailed, M._save_failed, _state, S.LIVE)
    on(_state, m.Read, M._read)
    on(_state, m.Own, M._own)
    on(_state, m.Grown, M._grown)
    on(_state, m.Again, M._read_again)
    on(_state, m.ApplyRaised, M._raised, S.STOPPED)
    on(_state, m.Trimmed, M._trimmed, S.LOADING)
    on(_state, m.ReadFailed, M._read_failed, _state, S.STOPPED)
for _state in (S.LOADING, *_RUNNING):
    on(_state, m.Follows, M._follow)
for _state in (S.LOADING, *_RUNNING, S.STOPPED):
    on(_state, m.Close, M._close, S.OUT)

# What was asked for before is answered yet (the rest of a slice in which the user has closed it), or what comes is read
# later.
TABLE.ignore(
    _ENDED,
    m.Begin,
    m.Listed,
    m.Loaded,
    m.LoadFailed,
    m.Read,
    m.Applied,
    m.ApplyRaised,
    m.Trimmed,
    m.ReadFailed,
    m.Ends,
    m.Grown,
)
TABLE.ignore(_ENDED, m.Leads, m.Follows, m.SaveAsked, m.Saved, m.SaveFailed, m.Again)
TABLE.ignore((S.LOADING, *_ENDED), m.Own)
TABLE.ignore((S.OUT,), m.Close)

# An answer to an effect that was not asked for in this state, nor before it: the shell stops its reader and what it
# applies before it looks for a snapshot, and when the replica ends.
TABLE.rule_out(_RUNNING, m.Begin, m.Listed, m.Loaded, m.LoadFailed)
TABLE.rule_out((S.LOADING,), m.Trimmed, m.Ends, m.ApplyRaised, m.Read, m.Applied, m.Grown)
