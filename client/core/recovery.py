"""
Recovering a ledger whose writer is gone: fence it, find its end, make the tail safe, close it (protocol-rules.md
4).

Knows: steps R1 to R6 with D2 to D4, D7, D16 and D17.  The tail is written back by an `AppendMachine` of its own.
Does not know: connections, the metadata store, placement.  `handles.recovery` performs the effects.

Safety: the metadata says IN_RECOVERY before any bookie is fenced; every read fences; an entry is absent only when QC
fenced bookies of its write set say so, and a failure is never a "no"; ensemble changes stay in memory until the one
write that closes the ledger, so a recovery that dies leaves no edit behind; every answer "unknown" ends the attempt and
never closes.
"""

from enum import auto
from typing import get_args

from quire.client.core import recovery_messages as m
from quire.client.core.append import messages as adds
from quire.client.core.append.machine import AppendMachine
from quire.client.core.coverage import Coverage, describe
from quire.client.core.machine import Machine, MachineState, Table
from quire.client.core.quorum import NEGATIVE, Quorums, shortage
from quire.client.core.recovery_reads import RecoveryReads, Verdict
from quire.protocol.digest import HEADER, Digest
from quire.protocol.errors import OK, LedgerRecovery, Security, Timeout, UnauthorizedAccess, name_of

# SPDX-License-Identifier: Apache-2.0


class RecoveryState(MachineState):
    MARKING = auto()  # R1: IN_RECOVERY is being written
    FENCING = auto()  # R2, R3: the last ensemble is being fenced
    READING = auto()  # R5: entries above the base are read and written back
    WRITING = auto()  # R5: the end is known; the last of the tail is being written back
    MEASURING = auto()  # nothing is above the LAC: its entry's length field is the ledger's length (D7)
    CLOSING = auto()  # R6: the one write
    DONE = auto()
    FAILED = auto()


TABLE = Table(RecoveryState, m.Input)


class RecoveryMachine(Machine[RecoveryState, m.Input, m.Effect]):
    """One attempt to recover one ledger.  Inputs of its adds go in by the same `handle`."""

    table = TABLE
    ruined = RecoveryState.FAILED

    def __init__(self, ledger: int, quorums: Quorums, digest: Digest, limits: adds.Limits, pieces: bool = True) -> None:
        """`pieces`: whether bookies may be asked for many entries at once."""
        super().__init__(RecoveryState.MARKING)
        self.ledger = ledger
        self.quorums = quorums
        self.digest = digest
        self.limits = limits
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

    def _begin(self, given: m.Begin) -> None:
        self.effects.append(m.MarkInRecovery())

    def _marked(self, given: m.Marked) -> None:
        assert len(given.bookies) == self.quorums.ensemble
        self.state = RecoveryState.FENCING
        self._first, self.bookies = given.first, given.bookies
        self.effects += [m.Fence(index, bookie) for index, bookie in enumerate(given.bookies)]

    def _adopt(self, given: m.FoundClosed) -> None:
        self.state = RecoveryState.DONE
        self.effects.append(m.Recovered(True))

    def _store_failed(self, given: m.StoreFailed) -> None:
        self._fail(given.code, given.reason, given.again)

    # R3, R4

    def _fenced(self, given: m.FenceAnswer) -> None:
        coverage = self._coverage
        if given.code == UnauthorizedAccess.code:
            self._fail(
                given.code,
                f"bookie {self.bookies[given.index]} knows ledger {self.ledger} under another password, or gives this "
                "client no right to fence it (its log says which)",
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
            mode = adds.AppendMode(last=self.base, recovery=True)
            self.adds = AppendMachine(self.ledger, self.quorums, self.digest, self.bookies, self.limits, mode)
            self.state = RecoveryState.READING
            self._read_on()
        elif coverage.exhausted:
            codes = list(coverage.answered.values())
            otherwise = Timeout.code if codes[-1] == Timeout.code else LedgerRecovery.code
            self._fail(
                shortage((code for code in codes if code != OK and code not in NEGATIVE), otherwise),
                "can't fence: " + coverage.failure(self.bookies),
            )

    # R5

    def _read_on(self) -> None:
        assert self.adds is not None
        assert self._reads is not None
        if not self.adds.window_full:
            self.effects += self._reads.ask_on()

    def _read(self, given: m.ReadAnswer) -> None:
        assert self._reads is not None
        self.effects += self._reads.answered(given)
        self._take()

    def _brought(self, given: m.RunAnswer) -> None:
        assert self._reads is not None
        self._reads.brought(given)
        self._take()

    def _take(self) -> None:
        """Hands on what is decided, in order of ids; what arrived together is written back as one batch."""
        reads = self._reads
        assert reads is not None
        payloads: list[bytes] = []
        length = self.length
        while (found := reads.pop(self.last + 1)) is not None:
            payload, after = found
            before = after - len(payload)
            if payloads and before != self.length:  # an advanced writer's lengths follow its order of writing
                self._write_back(payloads, length)
                payloads = []
            if not payloads:
                length = before
            payloads.append(payload)
            self.length, self.last = after, self.last + 1
        if payloads:
            self._write_back(payloads, length)
        if self.state is not RecoveryState.READING:
            return
        ended = reads.ended
        if ended is None or ended.entry > self.last + 1:
            self._read_on()
        elif ended.verdict is Verdict.ABSENT:  # a find behind a gap is no entry of this ledger
            self.state = RecoveryState.WRITING
            self._finish()
        else:
            codes = "; ".join(describe(self.bookies[index], code) for index, code in sorted(ended.codes.items()))
            need = (
                f"one of its {self.quorums.write} bookies must give it, or {self.quorums.absent} say that they do "
                "not have it"
            )
            self._fail(
                LedgerRecovery.code,
                f"can't decide whether entry {ended.entry} exists: {codes}; {need}; bring some of these bookies back",
            )

    def _write_back(self, payloads: list[bytes], length: int) -> None:
        self._pass(adds.Append(payloads, length=length))

    def _pass(self, given: m.AddInput | adds.Append) -> None:
        """To the adds and back: their changes stay here, their end is ours."""
        assert self.adds is not None
        if isinstance(given, adds.EnsembleChanged) and given.bookies != self.adds.bookies:
            self._ensembles[self._change_first] = given.bookies
        for effect in self.adds.handle(given):
            if isinstance(effect, adds.Ended | adds.Refuse):
                self._fail(effect.code, f"the tail can't be written back: {effect.reason}")
            elif isinstance(effect, adds.StoreEnsemble):
                self._change_first = effect.first
                self.effects.append(effect)
            elif not isinstance(effect, adds.ReleaseAcks | adds.FailPending):
                self.effects.append(effect)

    def _added(self, given: m.AddInput) -> None:
        self._pass(given)
        if self.state is RecoveryState.READING:
            self._read_on()
        elif self.state is RecoveryState.WRITING:
            self._finish()

    def _finish(self) -> None:
        assert self.adds is not None
        if self.adds.head < self.last:
            return
        if self.last == self.base >= 0:
            self.state = RecoveryState.MEASURING
            self.effects.append(m.FindLength(self.base))
        else:
            self._store_end()

    def _measured(self, given: m.LengthAnswer) -> None:
        if given.length is None or given.length < 0:
            reason = given.reason or f"it says {given.length}"
            self._fail(
                LedgerRecovery.code,
                f"can't read entry {self.base}, the last one confirmed, for the ledger's length: {reason}",
            )
            return
        self.length = given.length
        self._store_end()

    # R6

    def _store_end(self) -> None:
        self.state = RecoveryState.CLOSING
        self.effects.append(m.StoreEnd(self.last, self.length, tuple(sorted(self._ensembles.items()))))

    def _stored(self, given: m.EndStored) -> None:
        self._let_go(adds.Close())  # copies above the ack quorum still go out
        self.state = RecoveryState.DONE
        self.effects.append(m.Recovered(False))

    def _adopt_late(self, given: m.FoundClosed) -> None:
        self._let_go()
        self._adopt(given)

    def _let_go(self, end: adds.Close | adds.Shutdown = adds.Shutdown()) -> None:
        if self.adds is not None:
            self.effects += [
                effect for effect in self.adds.handle(end) if isinstance(effect, adds.CloseChannel | adds.StopAlarm)
            ]

    def _fail(self, code: int, reason: str, again: bool = True) -> None:
        """Keeps the code of refusals and time-outs; all else is LedgerRecovery (protocol-rules.md 4.1)."""
        if self.state is RecoveryState.FAILED:
            return
        self._let_go()
        self.state = RecoveryState.FAILED
        kept = code in (UnauthorizedAccess.code, Security.code, Timeout.code, LedgerRecovery.code)
        then = "nothing is lost by trying again" if again else "until then trying again changes nothing"
        text = f"ledger {self.ledger} can't be recovered: {reason}{'' if kept else f' ({name_of(code)})'}; {then}"
        self.effects.append(m.Failed(code if kept else LedgerRecovery.code, text))

    def _stop(self, given: adds.Shutdown) -> None:
        self._fail(LedgerRecovery.code, "the client was closed")


S, M = RecoveryState, RecoveryMachine
_BEGUN = (S.MARKING, S.FENCING)
_MEASURED = (S.MEASURING, S.CLOSING)
_ENDED = (S.DONE, S.FAILED)
_READ = (S.READING, S.WRITING, *_MEASURED, S.FAILED)
ADDS = get_args(m.AddInput)

on, ignore, rule_out = TABLE.on, TABLE.ignore, TABLE.rule_out

on(S.MARKING, m.Begin, M._begin)
on(S.MARKING, m.Marked, M._marked, S.FENCING)
on(S.MARKING, m.FoundClosed, M._adopt, S.DONE)
on(S.MARKING, m.StoreFailed, M._store_failed, S.FAILED)
on(S.FENCING, m.FenceAnswer, M._fenced, S.FENCING, *_READ)
on(S.READING, m.ReadAnswer, M._read, *_READ)
on(S.READING, m.RunAnswer, M._brought, *_READ)
for _add in ADDS:
    on(S.READING, _add, M._added, *_READ)
    on(S.WRITING, _add, M._added, S.WRITING, *_MEASURED, S.FAILED)
on(S.MEASURING, m.LengthAnswer, M._measured, S.CLOSING, S.FAILED)
on(S.CLOSING, m.EndStored, M._stored, S.DONE)
on(S.CLOSING, m.FoundClosed, M._adopt_late, S.DONE)
on(S.CLOSING, m.StoreFailed, M._store_failed, S.FAILED)
for _state in (*_BEGUN, S.READING, S.WRITING, *_MEASURED):
    on(_state, adds.Shutdown, M._stop, S.FAILED)

ignore((*_READ, S.DONE), m.FenceAnswer)  # the rest of the ensemble, after it was covered
ignore((S.WRITING, *_MEASURED, *_ENDED), m.ReadAnswer, m.RunAnswer)
ignore((*_MEASURED, *_ENDED), *ADDS)  # all that counts is acknowledged
ignore(
    (S.FAILED,), m.Marked, m.FoundClosed, m.EndStored, m.StoreFailed, m.LengthAnswer
)  # the client was closed meanwhile
ignore(_ENDED, adds.Shutdown)

rule_out(set(S) - {S.MARKING}, m.Begin)
rule_out(set(S) - {S.MARKING, S.FAILED}, m.Marked)
rule_out(set(S) - {S.MARKING, S.CLOSING, S.FAILED}, m.FoundClosed, m.StoreFailed)
rule_out(set(S) - {S.CLOSING, S.FAILED}, m.EndStored)
rule_out(set(S) - {S.MEASURING, S.FAILED}, m.LengthAnswer)
rule_out((S.MARKING,), m.FenceAnswer)
rule_out(_BEGUN, m.ReadAnswer, m.RunAnswer, *ADDS)
