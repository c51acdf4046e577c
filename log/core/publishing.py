"""
Publishing closed ledgers: the state of a publisher, what it may do, and what upkeep may take.

A *txn* is a publisher's stream of batches, a *run* one life of it, a *part* the ledgers that one task attempt wrote.
The record of a txn says which run owns it, by which claim, and which batch was published last.  An *intent* names a
part's ledgers before they exist.

Knows: these values; who may claim, commit and abort; which intents are dead (docs/log-publishing.md, "Publishing").
Does not know: records, ledgers, Spark.

Safety: batch N is published at most once, only after N - 1 (or, where the publisher says that it leaves batches out,
after a lower one), only by the run that owns the txn and from parts of its present claim.  An intent is dead when it is
not published and never will be: its batch or a higher one is published already, its claim is an earlier one, or its
batch was aborted in the present claim.  That stays true, so upkeep may sleep between judging and deleting; but the txn
has to be read before the intent.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from quire.log.core.values import Value
from quire.protocol.log_errors import BatchGap, LogDamaged, LogFenced, LogFull, PublishRefused

# SPDX-License-Identifier: Apache-2.0

PAST_MAX = 256
LEDGERS_MAX = 100_000
NUMBER = re.compile("[0-9]{1,18}")
PARTS_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Published(Value):
    """The result of the last batch: the indexes from `first` to `end`, and the first and last segment, if any."""

    what = "receipt"
    first: int
    end: int
    n: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Aborted(Value):
    """A mark: this batch, and those above it, are aborted in that claim."""

    what = "abort"
    batch: int
    claim: int


@dataclass(frozen=True, slots=True)
class Spread(Value):
    """The number of partitions that the rows of a batch are divided among, by each run that writes it."""

    what = "spread"
    batch: int
    over: int
    claim: int


@dataclass(frozen=True, slots=True)
class Txn(Value):
    """
    The state of a publisher.  `last`: the batch that was published last, -1 for none.  `spread`: of the newest batch,
    in the first partition of a log that has some.
    """

    what = "txn"
    inner: ClassVar[Mapping[str, type[Value]]] = {"receipt": Published, "aborted": Aborted, "spread": Spread}
    txn: str
    run: str
    claim: int
    past: tuple[str, ...]
    last: int
    receipt: Published | None
    aborted: Aborted | None
    at: int
    edit: str
    spread: Spread | None = None


@dataclass(frozen=True, slots=True)
class Intent(Value):
    """The ledgers of one part, named before they exist, by which run in which claim."""

    what = "intent"
    run: str
    claim: int
    ledgers: tuple[int, ...]
    at: int


class IntentName(NamedTuple):
    """The name of an intent: `batch-part-attempt-random`."""

    batch: int
    part: int
    attempt: int
    random: str

    @classmethod
    def parse(cls, name: str) -> IntentName:
        """`LogDamaged`."""
        pieces = name.split("-")
        if len(pieces) != 4 or not all(NUMBER.fullmatch(piece) for piece in pieces[:3]):
            raise LogDamaged(f"an intent has the name {name[:80]!r}")
        batch, part, attempt = map(int, pieces[:3])
        return cls(batch, part, attempt, pieces[3])

    def __str__(self) -> str:
        return f"{self.batch}-{self.part}-{self.attempt}-{self.random}"


class PartLedger(NamedTuple):
    """One closed ledger of a part.  `crc`: CRC-32C over the values, for the publisher."""

    ledger: int
    entries: int
    records: int
    bytes: int
    crc: int


class Part(NamedTuple):
    """The work of one task attempt, for its driver to publish.  `intent`: its name, `version`: of its record."""

    txn: str
    run: str
    claim: int
    batch: int
    part: int
    attempt: int
    intent: str
    version: int
    ledgers: tuple[PartLedger, ...]


def new_txn(txn: str, run: str, now_ms: int, edit: str, first_batch: int | None = None) -> Txn:
    """A publisher that has published nothing; its first batch is `first_batch`, or 0."""
    return Txn(txn, run, 1, (), (first_batch or 0) - 1, None, None, now_ms, edit)


def fenced(txn: Txn, run: str) -> LogFenced:
    """The error of a run that is over."""
    return LogFenced(f"run {run} of the txn {txn.txn!r} is over, run {txn.run} took its place: end what runs in it")


def claimed(txn: Txn, run: str, now_ms: int, edit: str, first_batch: int | None = None) -> Txn | None:
    """
    The txn with that run as its owner; None: it is already.  `LogFenced` for a former run.  As long as nothing was
    published a new run may say where the txn begins: intents of former claims are dead, whatever their batch.
    """
    if txn.run == run:
        return None
    if run in txn.past:
        raise fenced(txn, run)
    last = first_batch - 1 if first_batch is not None and txn.receipt is None else txn.last
    past = (txn.run, *txn.past)[:PAST_MAX]
    return replace(txn, run=run, claim=txn.claim + 1, past=past, last=last, at=now_ms, edit=edit)


class Again(NamedTuple):
    """The batch was published before; `receipt` is known for the last one only."""

    receipt: Published | None


def committing(txn: Txn, run: str, batch: int, gaps: bool = False) -> Again | None:
    """
    None: the batch may be published now.  `gaps`: also one that does not follow the last.  `LogFenced` when another run
    owns the txn (a new run claims first); `PublishRefused` when the batch was aborted in this claim; `BatchGap`.
    """
    if run != txn.run:
        raise fenced(txn, run)
    if batch <= txn.last and txn.receipt is not None:
        return Again(txn.receipt if batch == txn.last else None)
    if is_aborted(txn, batch):
        raise PublishRefused(
            f"batch {batch} of the txn {txn.txn!r} was aborted by its run {run}: only a new run may publish it"
        )
    if batch != txn.last + 1 and not (gaps and batch > txn.last):
        begin = f"; nothing was published yet, so a new run may begin at another one: with firstBatch={batch} in Spark"
        raise BatchGap(
            f"batch {batch} of the txn {txn.txn!r} can't be published: the next one is {txn.last + 1}"
            f"{begin if txn.receipt is None else ''}"
        )
    return None


def spreading(txn: Txn, batch: int, over: int, now_ms: int, edit: str) -> Txn | None:
    """
    The txn with the number of partitions for that batch.  None: it has one already, or a task asks that comes too late,
    after one of a later batch of its run.
    """
    known = txn.spread
    if known is not None and (known.batch == batch or (known.claim == txn.claim and known.batch > batch)):
        return None
    return replace(txn, spread=Spread(batch, over, txn.claim), at=now_ms, edit=edit)


def spread_of(txn: Txn, batch: int) -> int | None:
    """The number of partitions that was given for that batch; None for none."""
    return txn.spread.over if txn.spread is not None and txn.spread.batch == batch else None


def is_aborted(txn: Txn, batch: int) -> bool:
    """True if the batch was aborted in the present claim, itself or with a lower one."""
    return txn.aborted is not None and txn.aborted.claim == txn.claim and batch >= txn.aborted.batch


def published(txn: Txn, batch: int, receipt: Published, now_ms: int, edit: str) -> Txn:
    """After the batch that follows the last, or one above."""
    assert batch > txn.last, "batches are published in order"
    return replace(txn, last=batch, receipt=receipt, at=now_ms, edit=edit)


def aborting(txn: Txn, run: str, batch: int, now_ms: int, edit: str) -> Txn | None:
    """
    The txn with its mark, which moves its version, so that no commit of that batch can take effect any more.  None: the
    batch was published, and nothing of it may be touched.  `LogFenced` for a run that does not own the txn.
    """
    if batch <= txn.last:
        return None
    if run != txn.run:
        raise fenced(txn, run)
    before = txn.aborted
    low = min(batch, before.batch) if before is not None and before.claim == txn.claim else batch
    return replace(txn, aborted=Aborted(low, txn.claim), at=now_ms, edit=edit)


def given_up(txn: Txn, edit: str) -> Txn | None:
    """
    The txn with all that it has not published aborted, as old as before; None: it is aborted already.  The same run
    can't publish any of it any more, another one can.
    """
    if is_aborted(txn, txn.last + 1):
        return None
    return replace(txn, aborted=Aborted(txn.last + 1, txn.claim), edit=edit)


def is_single(txn: Txn) -> bool:
    """True if it has a single run, whose name it bears: nobody comes back for it, as for that of a batch query."""
    return txn.run == txn.txn


def is_dead(txn: Txn, batch: int, claim: int) -> bool:
    """
    True if an intent is not published and never will be.  The txn was read before it; of a later claim, whose run may
    have said that the txn begins at a lower batch, it can't tell.
    """
    return (claim == txn.claim and batch <= txn.last) or is_over(txn, batch, claim)


def is_over(txn: Txn, batch: int, claim: int) -> bool:
    """True if nobody can publish a part of that claim: a later run took over, or the batch was aborted."""
    return claim < txn.claim or (claim == txn.claim and is_aborted(txn, batch))


def check_parts(txn: Txn, batch: int, parts: Sequence[Part]) -> None:
    """`PublishRefused` names the part that is not of this txn, run, claim and batch, or is there twice; `LogFull`."""
    if len(parts) > PARTS_MAX:
        raise LogFull(f"{len(parts)} parts are more than the {PARTS_MAX} that one batch may have: write larger ones")
    count = sum(len(part.ledgers) for part in parts)
    if count > LEDGERS_MAX:
        raise LogFull(f"{count} ledgers are more than the {LEDGERS_MAX} that one batch may have: raise roll_bytes")
    numbers: set[int] = set()
    ledgers: set[int] = set()
    for part in parts:
        wanted = (txn.txn, txn.run, txn.claim, batch)
        if (part.txn, part.run, part.claim, part.batch) != wanted:
            raise PublishRefused(
                f"part {part.part} is of txn {part.txn}, run {part.run}, claim {part.claim}, batch {part.batch}, not "
                f"of txn {txn.txn}, run {txn.run}, claim {txn.claim}, batch {batch}: run its task again"
            )
        if part.part in numbers:
            raise PublishRefused(f"part {part.part} of batch {batch} is there twice: give one attempt of each")
        numbers.add(part.part)
        for each in part.ledgers:
            if each.ledger in ledgers:
                raise PublishRefused(f"ledger {each.ledger} is in two parts of batch {batch}: give each once")
            if each.records < 1 or each.entries < 1:
                raise PublishRefused(f"ledger {each.ledger} of part {part.part} has no records: run its task again")
            ledgers.add(each.ledger)
