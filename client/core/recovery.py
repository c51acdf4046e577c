"""
Recovering a ledger whose writer is gone: fence it, find its end, make the tail safe, close it (protocol-rules.md
4).

Knows: steps R1 to R6 with D2 to D4, D7, D16 and D17.  The tail is written back by an `AppendMachine` of its own.
Does not know: connections, the metadata store, placement.  `client.recovery` performs the effects.

Safety: the metadata says IN_RECOVERY before any bookie is fenced; every read fences; an entry is absent only when QC
fenced bookies of its write set say so, and a failure is never a "no"; ensemble changes stay in memory until the one
write that closes the ledger, so a recovery that dies leaves no edit behind; every answer "unknown" ends the attempt and
never closes.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple

from quire.client.core.append.machine import AppendMachine
from quire.client.core.append.messages import (
    Acked,
    AddRefused,
    AlarmFired,
    Append,
    ChangeRefused,
    ChannelLost,
    Close,
    CloseChannel,
    Ended,
    EnsembleChanged,
    FailPending,
    Limits,
    Refuse,
    ReleaseAcks,
    Shutdown,
    StopAlarm,
    StoreEnsemble,
)
from quire.client.core.append.messages import Input as AddInput
from quire.client.core.coverage import Coverage, describe
from quire.client.core.machine import IllegalInput
from quire.client.core.quorum import NEGATIVE, Quorums, shortage
from quire.client.core.recovery_messages import (
    Begin,
    Effect,
    EndStored,
    Failed,
    Fence,
    FenceAnswer,
    FindLength,
    FoundClosed,
    Input,
    LengthAnswer,
    Marked,
    MarkInRecovery,
    ReadAnswer,
    Recovered,
    RunAnswer,
    StoreEnd,
    StoreFailed,
)
from quire.client.core.recovery_reads import RecoveryReads, Verdict
from quire.protocol.digest import HEADER, Digest
from quire.protocol.errors import OK, LedgerRecovery, Security, Timeout, UnauthorizedAccess, name_of

# SPDX-License-Identifier: Apache-2.0


class RecoveryState(Enum):
    MARKING = auto()  # R1: IN_RECOVERY is being written
    FENCING = auto()  # R2, R3: the last ensemble is being fenced
    READING = auto()  # R5: entries above the base are read and written back
    WRITING = auto()  # R5: the end is known; the last of the tail is being written back
    MEASURING = auto()  # nothing is above the LAC: its entry's length field is the ledger's length (D7)
    CLOSING = auto()  # R6: the one write
    DONE = auto()
    FAILED = auto()


class RecoveryMachine:
    """One attempt to recover one ledger.  Inputs of its adds go in by the same `handle`."""

    def __init__(self, ledger: int, quorums: Quorums, digest: Digest, limits: Limits, pieces: bool = True) -> None:
        """`pieces`: whether bookies may be asked for many entries at once."""
        self.ledger = ledger
        self.quorums = quorums
        self.digest = digest
        self.limits = limits
        self.state = RecoveryState.MARKING
        self.base = -1
        self.last = -1  # highest entry found
        self.length = 0  # ledger length after it
        self.bookies: tuple[str, ...] = ()  # the frozen last ensemble: every recovery read goes to it
        self.adds: AppendMachine | None = None
        self._first = 0
        self._coverage = Coverage(ledger, quorums, digest)
        self._pieces = pieces
        self._reads: RecoveryReads | None = None
        self._highest: dict[int, int] = {}  # the last entry that each index holds, as it said when it was fenced
        self._suspects: set[int] = set()  # indexes that failed: asked last
        self._ensembles: dict[int, tuple[str, ...]] = {}
        self._change_first = 0

    def handle(self, given: Input) -> list[Effect]:
        """Takes one input, returns the effects in order.  An exception is a bug, and the attempt is FAILED after it."""
        effects: list[Effect] = []
        try:
            row = TRANSITIONS.get((self.state, type(given)))
            if row is None:
                raise IllegalInput(f"{type(given).__name__} in {self.state.name}")
            row.step(self, given, effects)
            assert self.state in row.after, f"{type(given).__name__} led to {self.state.name}"
        except BaseException:
            self.poison()
            raise
        return effects

    def poison(self) -> None:
        """A step, or an effect, has failed: what the machine knows counts no more."""
        self.state = RecoveryState.FAILED

    def _begin(self, given: Begin, effects: list[Effect]) -> None:
        effects.append(MarkInRecovery())

    def _marked(self, given: Marked, effects: list[Effect]) -> None:
        assert len(given.bookies) == self.quorums.ensemble
        self.state = RecoveryState.FENCING
        self._first, self.bookies = given.first, given.bookies
        effects += [Fence(index, bookie) for index, bookie in enumerate(given.bookies)]

    def _adopt(self, given: FoundClosed, effects: list[Effect]) -> None:
        self.state = RecoveryState.DONE
        effects.append(Recovered(True))

    def _store_failed(self, given: StoreFailed, effects: list[Effect]) -> None:
        self._fail(given.code, given.reason, effects, given.again)

    # R3, R4

    def _fenced(self, given: FenceAnswer, effects: list[Effect]) -> None:
        coverage = self._coverage
        if given.code == UnauthorizedAccess.code:
            self._fail(
                given.code,
                f"bookie {self.bookies[given.index]} knows ledger {self.ledger} under another password, or gives this "
                "client no right to fence it (its log says which)",
                effects,
            )
            return
        coverage.last_entry(given.index, given.code, given.body)
        if given.index not in coverage.heard:
            self._suspects.add(given.index)
        elif given.body is not None and coverage.answered[given.index] == OK:
            self._highest[given.index] = HEADER.unpack_from(given.body)[1]
        if coverage.complete:
            self.base = max(coverage.lac, self._first - 1)
            self.last = self.base
            self._reads = RecoveryReads(
                self.ledger,
                self.quorums,
                self.digest,
                self.bookies,
                self.base + 1,
                self._highest,
                self._suspects,
                self._pieces,
            )
            self.adds = AppendMachine(
                self.ledger, self.quorums, self.digest, self.bookies, self.limits, last=self.base, recovery=True
            )
            self.state = RecoveryState.READING
            self._read_on(effects)
        elif coverage.exhausted:
            codes = list(coverage.answered.values())
            otherwise = Timeout.code if codes[-1] == Timeout.code else LedgerRecovery.code
            self._fail(
                shortage((code for code in codes if code != OK and code not in NEGATIVE), otherwise),
                "can't fence: " + coverage.failure(self.bookies),
                effects,
            )

    # R5

    def _read_on(self, effects: list[Effect]) -> None:
        assert self.adds is not None
        assert self._reads is not None
        if not self.adds.window_full:
            effects += self._reads.ask_on()

    def _read(self, given: ReadAnswer, effects: list[Effect]) -> None:
        assert self._reads is not None
        effects += self._reads.answered(given)
        self._take(effects)

    def _brought(self, given: RunAnswer, effects: list[Effect]) -> None:
        assert self._reads is not None
        self._reads.brought(given)
        self._take(effects)

    def _take(self, effects: list[Effect]) -> None:
        """
        Hands on what is decided, in order of ids; the entries that arrived together are written back as one batch.
        """
        reads = self._reads
        assert reads is not None
        payloads: list[bytes] = []
        length = self.length
        while (found := reads.pop(self.last + 1)) is not None:
            payload, after = found
            before = after - len(payload)
            if payloads and before != self.length:  # an advanced writer's lengths follow its order of writing
                self._write_back(payloads, length, effects)
                payloads = []
            if not payloads:
                length = before
            payloads.append(payload)
            self.length, self.last = after, self.last + 1
        if payloads:
            self._write_back(payloads, length, effects)
        if self.state is not RecoveryState.READING:
            return
        ended = reads.ended
        if ended is None or ended.entry > self.last + 1:
            self._read_on(effects)
        elif ended.verdict is Verdict.ABSENT:  # a find behind a gap is no entry of this ledger
            self.state = RecoveryState.WRITING
            self._finish(effects)
        else:
            codes = "; ".join(describe(self.bookies[index], code) for index, code in sorted(ended.codes.items()))
            need = (
                f"one of its {self.quorums.write} bookies must give it, or {self.quorums.absent} say that they do "
                "not have it"
            )
            self._fail(
                LedgerRecovery.code,
                f"can't decide whether entry {ended.entry} exists: {codes}; {need}; bring some of these bookies back",
                effects,
            )

    def _write_back(self, payloads: list[bytes], length: int, effects: list[Effect]) -> None:
        self._pass(Append(payloads, length=length), effects)

    def _pass(self, given: AddInput, effects: list[Effect]) -> None:
        """To the adds and back: their changes stay here, their end is ours."""
        assert self.adds is not None
        if isinstance(given, EnsembleChanged) and given.bookies != self.adds.bookies:
            self._ensembles[self._change_first] = given.bookies
        for effect in self.adds.handle(given):
            if isinstance(effect, Ended | Refuse):
                self._fail(effect.code, f"the tail can't be written back: {effect.reason}", effects)
            elif isinstance(effect, StoreEnsemble):
                self._change_first = effect.first
                effects.append(effect)
            elif not isinstance(effect, ReleaseAcks | FailPending):
                effects.append(effect)

    def _added(self, given: AddInput, effects: list[Effect]) -> None:
        self._pass(given, effects)
        if self.state is RecoveryState.READING:
            self._read_on(effects)
        elif self.state is RecoveryState.WRITING:
            self._finish(effects)

    def _finish(self, effects: list[Effect]) -> None:
        assert self.adds is not None
        if self.adds.head < self.last:
            return
        if self.last == self.base >= 0:
            self.state = RecoveryState.MEASURING
            effects.append(FindLength(self.base))
        else:
            self._store_end(effects)

    def _measured(self, given: LengthAnswer, effects: list[Effect]) -> None:
        if given.length is None or given.length < 0:
            reason = given.reason or f"it says {given.length}"
            self._fail(
                LedgerRecovery.code,
                f"can't read entry {self.base}, the last one confirmed, for the ledger's length: {reason}",
                effects,
            )
            return
        self.length = given.length
        self._store_end(effects)

    # R6

    def _store_end(self, effects: list[Effect]) -> None:
        self.state = RecoveryState.CLOSING
        effects.append(StoreEnd(self.last, self.length, tuple(sorted(self._ensembles.items()))))

    def _stored(self, given: EndStored, effects: list[Effect]) -> None:
        self._let_go(effects, Close())  # copies above the ack quorum still go out
        self.state = RecoveryState.DONE
        effects.append(Recovered(False))

    def _adopt_late(self, given: FoundClosed, effects: list[Effect]) -> None:
        self._let_go(effects)
        self._adopt(given, effects)

    def _let_go(self, effects: list[Effect], end: Close | Shutdown = Shutdown()) -> None:
        if self.adds is not None:
            effects += [effect for effect in self.adds.handle(end) if isinstance(effect, CloseChannel | StopAlarm)]

    def _fail(self, code: int, reason: str, effects: list[Effect], again: bool = True) -> None:
        """
        Refusals of the password or of TLS and time-outs keep their code, all else is LedgerRecovery (protocol-rules.md
        4.1).
        """
        if self.state is RecoveryState.FAILED:
            return
        self._let_go(effects)
        self.state = RecoveryState.FAILED
        kept = code in (UnauthorizedAccess.code, Security.code, Timeout.code, LedgerRecovery.code)
        then = "nothing is lost by trying again" if again else "until then trying again changes nothing"
        text = f"ledger {self.ledger} can't be recovered: {reason}{'' if kept else f' ({name_of(code)})'}; {then}"
        effects.append(Failed(code if kept else LedgerRecovery.code, text))

    def _stop(self, given: Shutdown, effects: list[Effect]) -> None:
        self._fail(LedgerRecovery.code, "the client was closed", effects)

    def _ignore(self, given: Input, effects: list[Effect]) -> None:
        """Late, and of no consequence."""


class Row(NamedTuple):
    step: Callable[[RecoveryMachine, Any, list[Effect]], None]
    after: frozenset[RecoveryState]


S, M = RecoveryState, RecoveryMachine
ADD_INPUTS = (Acked, AddRefused, ChannelLost, EnsembleChanged, ChangeRefused, AlarmFired)
_READ = frozenset((S.READING, S.WRITING, S.MEASURING, S.CLOSING, S.FAILED))
_WRITE = frozenset((S.WRITING, S.MEASURING, S.CLOSING, S.FAILED))
_FAILED = frozenset((S.FAILED,))


def _stay(state: RecoveryState) -> Row:
    return Row(M._ignore, frozenset((state,)))


TRANSITIONS: dict[tuple[RecoveryState, type], Row] = {
    (S.MARKING, Begin): Row(M._begin, frozenset((S.MARKING,))),
    (S.MARKING, Marked): Row(M._marked, frozenset((S.FENCING,))),
    (S.MARKING, FoundClosed): Row(M._adopt, frozenset((S.DONE,))),
    (S.MARKING, StoreFailed): Row(M._store_failed, _FAILED),
    (S.FENCING, FenceAnswer): Row(M._fenced, _READ | {S.FENCING}),
    (S.READING, ReadAnswer): Row(M._read, _READ),
    (S.READING, RunAnswer): Row(M._brought, _READ),
    (S.MEASURING, LengthAnswer): Row(M._measured, frozenset((S.CLOSING, S.FAILED))),
    (S.CLOSING, EndStored): Row(M._stored, frozenset((S.DONE,))),
    (S.CLOSING, FoundClosed): Row(M._adopt_late, frozenset((S.DONE,))),
    (S.CLOSING, StoreFailed): Row(M._store_failed, _FAILED),
    (S.DONE, Shutdown): _stay(S.DONE),
    (S.FAILED, Shutdown): _stay(S.FAILED),
}
for _state in (S.MARKING, S.FENCING, S.READING, S.WRITING, S.MEASURING, S.CLOSING):
    TRANSITIONS[_state, Shutdown] = Row(M._stop, _FAILED)
for _state in (S.READING, S.WRITING, S.MEASURING, S.CLOSING, S.DONE, S.FAILED):
    TRANSITIONS[_state, FenceAnswer] = _stay(_state)  # the rest of the ensemble, after it was covered
for _state in (S.WRITING, S.MEASURING, S.CLOSING, S.DONE, S.FAILED):
    TRANSITIONS[_state, ReadAnswer] = TRANSITIONS[_state, RunAnswer] = _stay(_state)
for _add in ADD_INPUTS:
    TRANSITIONS[S.READING, _add] = Row(M._added, _READ)
    TRANSITIONS[S.WRITING, _add] = Row(M._added, _WRITE)
    for _state in (S.MEASURING, S.CLOSING, S.DONE, S.FAILED):
        TRANSITIONS[_state, _add] = _stay(_state)  # all that counts is acknowledged
for _late in (Marked, FoundClosed, EndStored, StoreFailed, LengthAnswer):
    TRANSITIONS[S.FAILED, _late] = _stay(S.FAILED)  # the client was closed meanwhile

INPUTS = (
    Begin,
    Marked,
    FoundClosed,
    EndStored,
    StoreFailed,
    FenceAnswer,
    ReadAnswer,
    RunAnswer,
    LengthAnswer,
    Shutdown,
    *ADD_INPUTS,
)
# Reaching one of these is our bug: an answer to something that was not asked for.
ILLEGAL: set[tuple[RecoveryState, type]] = {
    *((state, Begin) for state in RecoveryState if state is not S.MARKING),
    *((state, Marked) for state in RecoveryState if state not in (S.MARKING, S.FAILED)),
    *((state, FoundClosed) for state in RecoveryState if state not in (S.MARKING, S.CLOSING, S.FAILED)),
    *((state, EndStored) for state in RecoveryState if state not in (S.CLOSING, S.FAILED)),
    *((state, StoreFailed) for state in RecoveryState if state not in (S.MARKING, S.CLOSING, S.FAILED)),
    *((state, LengthAnswer) for state in RecoveryState if state not in (S.MEASURING, S.FAILED)),
    *((state, FenceAnswer) for state in (S.MARKING,)),
    *((state, answer) for state in (S.MARKING, S.FENCING) for answer in (ReadAnswer, RunAnswer)),
    *((state, add) for state in (S.MARKING, S.FENCING) for add in ADD_INPUTS),
}
