"""A publisher's state: the table of claims, commits and aborts, and which intents are dead."""

from itertools import product

import pytest

from quire.log.core.publishing import (
    PARTS_MAX,
    PAST_MAX,
    Aborted,
    Again,
    Intent,
    IntentName,
    Part,
    PartLedger,
    Published,
    Txn,
    aborting,
    check_parts,
    claimed,
    committing,
    is_dead,
    new_txn,
    published,
)
from quire.protocol.log_errors import BatchGap, LogDamaged, LogFenced, LogFull, PublishRefused

# SPDX-License-Identifier: Apache-2.0

RECEIPT = Published(10, 20, (3, 4))


def after(batch=3) -> Txn:
    """Run "one" has published up to that batch, in claim 2; run "zero" was before."""
    txn = claimed(new_txn("t", "zero", 1, "e0"), "one", 2, "e1")
    for number in range(batch + 1):
        txn = published(txn, number, RECEIPT, 3, f"e{number + 2}")
    return txn


def test_values_round_trip():
    """With members that this version does not know; what is no such value is damage."""
    txn = aborting(after(), "one", 5, 9, "e")
    assert Txn.decode(txn.encode()) == txn
    data = txn.encode()[:-1] + b',"later":{"a":1}}'
    assert Txn.decode(data).encode() == data
    intent = Intent("one", 2, (5, 6, 7), 9)
    assert Intent.decode(intent.encode()) == intent
    for wrong in (b"", b"[]", b"{}", b'{"run":1}', b'{"run":"a","claim":1,"ledgers":[true],"at":1}'):
        for kind in (Txn, Intent):
            with pytest.raises(LogDamaged):
                kind.decode(wrong)
    name = IntentName(17, 3, 0, "5f3a9c01")
    assert IntentName.parse(str(name)) == name
    for text in ("", "1-2-3", "a-1-2-x", "1-2-3-4-5", "-1-2-3"):
        with pytest.raises(LogDamaged):
            IntentName.parse(text)


def test_batches_may_be_left_out():
    """Where the publisher says so: none comes twice, none that is aborted comes, and those between are published."""
    txn = after(3)
    assert committing(txn, "one", 9, gaps=True) is None
    assert committing(txn, "one", 3, gaps=True) == Again(RECEIPT)
    with pytest.raises(BatchGap):
        committing(txn, "one", 9)
    later = published(txn, 9, RECEIPT, 5, "e")
    assert committing(later, "one", 7, gaps=True) == Again(None)
    assert is_dead(later, 7, txn.claim)
    assert not is_dead(later, 10, txn.claim)
    with pytest.raises(PublishRefused):
        committing(aborting(later, "one", 10, 6, "e"), "one", 12, gaps=True)
    with pytest.raises(BatchGap):
        committing(new_txn("t", "one", 1, "e0", 5), "one", 4, gaps=True)


def test_claims():
    """The same run: nothing; a new one takes over; a former one is fenced, as long as it is remembered."""
    txn = after()
    assert claimed(txn, "one", 9, "e") is None
    taken = claimed(txn, "two", 9, "e")
    assert (taken.run, taken.claim, taken.past, taken.last) == ("two", 3, ("one", "zero"), 3)
    for run in ("one", "zero"):
        with pytest.raises(LogFenced):
            claimed(taken, run, 9, "e")
    for number in range(PAST_MAX + 10):
        taken = claimed(taken, f"run {number}", 9, "e")
    assert len(taken.past) == PAST_MAX


def test_commits():
    """Published before: again, with its receipt if it was the last; the next one may be; a gap, and others, may not."""
    txn = after()
    assert committing(txn, "one", 3) == Again(RECEIPT)
    assert committing(txn, "one", 1) == Again(None)
    assert committing(txn, "one", 4) is None
    with pytest.raises(BatchGap, match="the next one is 4"):
        committing(txn, "one", 5)
    for run, batch in product(("zero", "new"), (3, 4, 5)):
        with pytest.raises(LogFenced):
            committing(txn, run, batch)
    assert committing(new_txn("t", "one", 1, "e", first_batch=7), "one", 7) is None


def test_a_txn_that_has_published_nothing_may_begin_elsewhere():
    """A new run says where; what is below that was never published, so it is no batch that comes again."""
    txn = new_txn("t", "one", 1, "e")
    with pytest.raises(BatchGap, match=r"the next one is 0; nothing was published yet.* firstBatch=17"):
        committing(txn, "one", 17)
    assert claimed(txn, "one", 2, "e", first_batch=17) is None  # not its own run, whose parts there may be
    mistyped = claimed(txn, "two", 2, "e", first_batch=170)
    with pytest.raises(BatchGap, match="the next one is 170; nothing"):
        committing(mistyped, "two", 17)
    with pytest.raises(BatchGap, match=r"the next one is 170; nothing.* firstBatch=0"):
        committing(mistyped, "two", 0)
    assert claimed(mistyped, "three", 3, "e").last == 169, "who does not say where begins where it was said"
    assert committing(claimed(mistyped, "three", 3, "e", first_batch=0), "three", 0) is None
    begun = claimed(claimed(mistyped, "three", 3, "e", first_batch=17), "four", 4, "e")
    assert committing(begun, "four", 17) is None
    assert claimed(published(begun, 17, RECEIPT, 5, "e"), "five", 6, "e", first_batch=3).last == 17


def test_aborts():
    """A published batch is left alone; otherwise the mark moves the value, and no commit of this run follows."""
    txn = after()
    assert aborting(txn, "one", 3, 9, "e") is None
    assert aborting(txn, "zero", 3, 9, "e") is None
    with pytest.raises(LogFenced):
        aborting(txn, "zero", 4, 9, "e")
    marked = aborting(txn, "one", 4, 9, "e")
    assert marked.aborted == Aborted(4, 2)
    for batch in (4, 5):
        with pytest.raises(PublishRefused):
            committing(marked, "one", batch)
    lower = aborting(marked, "one", 6, 9, "f")
    assert lower.aborted == Aborted(4, 2)
    assert aborting(aborting(txn, "one", 6, 9, "e"), "one", 4, 9, "f").aborted == Aborted(4, 2)
    new = claimed(marked, "two", 9, "g")
    assert committing(new, "two", 4) is None
    assert aborting(new, "two", 7, 9, "h").aborted == Aborted(7, 3)


def test_dead_intents():
    """Of a published batch, an earlier claim, or an aborted batch of this claim: for ever; others live."""
    txn = after()
    assert [is_dead(txn, batch, 2) for batch in (2, 3, 4, 5)] == [True, True, False, False]
    assert is_dead(txn, 4, 1)
    marked = aborting(txn, "one", 5, 9, "e")
    assert [is_dead(marked, batch, 2) for batch in (4, 5, 6)] == [False, True, True]
    later = [
        published(marked, 4, RECEIPT, 9, "f"),
        claimed(marked, "two", 9, "f"),
        aborting(marked, "one", 9, 9, "f"),
        aborting(claimed(marked, "two", 9, "f"), "two", 4, 9, "g"),
    ]
    for batch, claim in product(range(3, 8), (1, 2)):
        if is_dead(marked, batch, claim):
            assert all(is_dead(each, batch, claim) for each in later)
    assert not is_dead(new_txn("t", "one", 1, "e", first_batch=170), 17, 2), "the run of claim 2 may begin there"


def part(number=0, ledger=50, **changes):
    """One of batch 4."""
    made = Part("t", "one", 2, 4, number, 0, f"4-{number}-0-aa", 7, (PartLedger(ledger, 2, 10, 100, 1),))
    return made._replace(**changes)


def test_parts_that_are_published_together():
    """Each of this txn, run, claim and batch, once; empty ones may be there."""
    txn = after()
    check_parts(txn, 4, [part(), part(1, 51), part(2, ledgers=())])
    for wrong in (
        {"txn": "u"},
        {"run": "zero"},
        {"claim": 1},
        {"batch": 3},
        {"part": 0},
        {"ledgers": (PartLedger(50, 1, 1, 1, 1),)},
        {"ledgers": (PartLedger(51, 0, 0, 0, 0),)},
    ):
        with pytest.raises(PublishRefused):
            check_parts(txn, 4, [part(), part(1, 51, **wrong)])
    with pytest.raises(LogFull):
        check_parts(txn, 4, [part(number, ledgers=()) for number in range(PARTS_MAX + 1)])
    many = tuple(PartLedger(number, 1, 1, 1, 1) for number in range(100_001))
    with pytest.raises(LogFull):
        check_parts(txn, 4, [part(ledgers=many)])
