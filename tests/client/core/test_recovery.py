"""The machine of a recovery: its table, what a read must have heard, and which fence answers suffice."""

import pytest

from quire.client.core.append.messages import Acked, CloseChannel, Limits, OpenChannel
from quire.client.core.machine import IllegalInput
from quire.client.core.quorum import Quorums
from quire.client.core.recovery import TABLE, RecoveryMachine, RecoveryState
from quire.client.core.recovery_messages import (
    Begin,
    EndStored,
    Failed,
    FenceAnswer,
    LengthAnswer,
    Marked,
    ReadAnswer,
    Recovered,
    StoreEnd,
    StoreFailed,
)
from quire.protocol.digest import ENTRY_ID_MAX, HEADER, Digest, DigestType
from quire.protocol.errors import OK, LedgerRecovery, MetaStore
from tests.client.fakes.cluster import NO_ENTRY, TIMED_OUT

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")


# The table.


def test_the_ended_states_are_traps():
    """No row leads out of DONE or FAILED."""
    for (before, _given), row in TABLE.rows.items():
        if before in (RecoveryState.DONE, RecoveryState.FAILED):
            assert row.after == {before}


def test_an_answer_to_nothing_is_our_bug():
    """An input without a row raises `IllegalInput` and ends the machine."""
    machine = RecoveryMachine(1, Quorums(3, 3, 2), DIGEST, Limits())
    with pytest.raises(IllegalInput):
        machine.handle(EndStored())
    assert machine.state is RecoveryState.FAILED


# The rules of one recovery read, without a cluster.


def reading(shape=(3, 3, 2), first=0):
    """A machine that has fenced an empty ensemble and reads from `first` on; the indexes asked for `first`."""
    machine = RecoveryMachine(1, Quorums(*shape), DIGEST, Limits())
    machine.handle(Begin())
    bookies = tuple(f"b{index}" for index in range(shape[0]))
    machine.handle(Marked(first, bookies))
    for index in range(shape[0]):
        effects = machine.handle(FenceAnswer(index, NO_ENTRY, None))
        if machine.state is RecoveryState.READING:
            break
    return machine, [effect for effect in effects if effect.entry == first]


def test_one_positive_is_found():
    """A single valid answer is enough to recover an entry, whatever the others would say."""
    machine, asked = reading()
    assert [ask.index for ask in asked] == [0, 1, 2], "no bookie said that it has one: all are asked at once"
    machine.handle(ReadAnswer(0, 0, 0, DIGEST.entry(1, 0, -1, 3, b"abc")))
    assert machine.last == 0


def test_absent_needs_qc_negatives():
    """S7: with AQ 2 of 3 one "no" proves nothing."""
    machine, _asked = reading()
    effects = machine.handle(ReadAnswer(0, 0, NO_ENTRY, None))
    assert machine.state is RecoveryState.READING
    assert effects == []
    effects = machine.handle(ReadAnswer(0, 1, NO_ENTRY, None))
    assert isinstance(effects[-1], StoreEnd)
    assert (effects[-1].last, effects[-1].length) == (-1, 0)


def test_copies_above_the_ack_quorum_still_go_out_when_the_ledger_is_closed():
    """The recovery has its end with two answers of three; the third channel is finished, not cut off."""
    machine, _asked = reading()
    effects = machine.handle(ReadAnswer(0, 0, OK, DIGEST.entry(1, 0, -1, 1, b"x")))
    channels = [effect.channel for effect in effects if isinstance(effect, OpenChannel)]
    for channel in channels[:2]:
        machine.handle(Acked(channel, 0, 1))
    machine.handle(ReadAnswer(1, 0, NO_ENTRY, None))
    (end,) = machine.handle(ReadAnswer(1, 1, NO_ENTRY, None))
    assert (end.last, end.length) == (0, 1)
    *closing, done = machine.handle(EndStored())
    assert done == Recovered(False)
    assert closing == [CloseChannel(channel, finish=True) for channel in channels]


def test_s8_failures_are_no_negatives():
    """S8: one negative and two time-outs say nothing: abort, never close."""
    machine, _asked = reading()
    machine.handle(ReadAnswer(0, 0, TIMED_OUT, None))
    machine.handle(ReadAnswer(0, 1, NO_ENTRY, None))
    effects = machine.handle(ReadAnswer(0, 2, TIMED_OUT, None))
    assert machine.state is RecoveryState.FAILED
    assert effects[-1].code == LedgerRecovery.code
    assert "b0 gave no answer in time" in effects[-1].reason
    assert "one of its 3 bookies must give it, or 2 say that they do not have it" in effects[-1].reason


@pytest.mark.parametrize("code", [-8, -12, -105, -108, -102, -5])
def test_no_failure_of_any_kind_counts_as_a_negative(code):
    """Two "no entry" answers are needed; with failures instead the recovery fails."""
    machine, _asked = reading()
    for index in range(3):
        machine.handle(ReadAnswer(0, index, code if index else NO_ENTRY, None))
    assert machine.state is RecoveryState.FAILED


def test_damaged_bytes_are_unknown_and_never_found():
    """An answer whose digest is wrong counts neither as entry nor as absence."""
    machine, _asked = reading()
    body = bytearray(DIGEST.entry(1, 0, -1, 3, b"abc"))
    body[-1] ^= 1
    machine.handle(ReadAnswer(0, 0, 0, bytes(body)))
    machine.handle(ReadAnswer(0, 1, NO_ENTRY, None))
    machine.handle(ReadAnswer(0, 2, 0, bytes(body)))
    assert machine.state is RecoveryState.FAILED


def test_what_the_store_said_is_named_with_its_code():
    """The error has the store's reason, its name and its number, and says that a retry is safe."""
    machine = RecoveryMachine(1, Quorums(3, 3, 2), DIGEST, Limits())
    machine.handle(Begin())
    failed = machine.handle(StoreFailed(MetaStore.code, "the store is away"))[-1]
    assert failed.code == LedgerRecovery.code
    assert (
        failed.reason
        == f"ledger 1 can't be recovered: the store is away (MetaStore, code {MetaStore.code}); nothing is lost "
        "by trying again"
    )


def test_an_unknown_behind_the_end_does_not_matter():
    """Time-outs of a later read are ignored when an earlier entry is proven absent."""
    machine, _asked = reading()
    for index in range(3):
        machine.handle(ReadAnswer(1, index, TIMED_OUT, None))
    assert machine.state is RecoveryState.READING
    for index in range(2):
        machine.handle(ReadAnswer(0, index, NO_ENTRY, None))
    assert machine.state is RecoveryState.CLOSING


def test_s29_fence_answers_of_four_two_two():
    """S29: {0}: no; {0, 1}: no; {0, 2}: yes."""
    for heard, covers in (((0,), False), ((0, 1), False), ((0, 2), True)):
        machine = RecoveryMachine(1, Quorums(4, 2, 2), DIGEST, Limits())
        machine.handle(Begin())
        machine.handle(Marked(0, ("b0", "b1", "b2", "b3")))
        for index in heard:
            machine.handle(FenceAnswer(index, NO_ENTRY, None))
        assert (machine.state is not RecoveryState.FENCING) == covers, heard


def test_a_damaged_fence_answer_covers_but_brings_no_lac():
    """
    The bookie is fenced, its bytes are not believed; alone it completes nothing, and as the last answer it does not
    fail the rest.
    """
    machine = RecoveryMachine(1, Quorums(2, 2, 2), DIGEST, Limits())
    machine.handle(Begin())
    machine.handle(Marked(0, ("b0", "b1")))
    machine.handle(FenceAnswer(0, 0, b"\0" * 50))
    assert machine.state is RecoveryState.FENCING
    machine.handle(FenceAnswer(1, 0, DIGEST.entry(1, 4, 3, 50, b"x" * 10)))
    assert machine.state is RecoveryState.READING
    assert machine.base == 3


@pytest.mark.parametrize(
    "header",
    [(1, 0, -1, -1), (1, 0, -2, 0), (1, 0, ENTRY_ID_MAX, 0), (1, 0, -(1 << 63), 0)],
    ids=["length", "lac below none", "lac above all", "lac of the other end"],
)
def test_an_entry_that_no_writer_writes_says_nothing(header):
    """Its sum is right, for CRC32C is no secret: it is as bytes whose sum is wrong, and the others are believed."""
    machine = RecoveryMachine(1, Quorums(3, 3, 2), DIGEST, Limits())
    machine.handle(Begin())
    machine.handle(Marked(0, ("b0", "b1", "b2")))
    packed = HEADER.pack(*header)
    machine.handle(FenceAnswer(0, OK, packed + DIGEST.of(packed, b"")))
    machine.handle(FenceAnswer(1, OK, DIGEST.entry(1, 4, 3, 50, b"x")))
    assert (machine.state, machine.base) == (RecoveryState.READING, 3)


def test_an_entry_of_a_ledger_with_less_than_no_bytes_is_not_found():
    """No ledger can end with it.  One that is longer than its ledger is found: its writer did not count."""
    machine, _asked = reading()
    machine.handle(ReadAnswer(0, 0, OK, DIGEST.entry(1, 0, -1, -1, b"abc")))
    assert machine.last == -1
    machine.handle(ReadAnswer(0, 1, OK, DIGEST.entry(1, 0, -1, 0, b"abc")))
    assert (machine.last, machine.length) == (0, 0)


def test_a_recovery_ends_at_the_last_id_that_there_is():
    """Nothing above it can be asked for, and an entry with it can't be."""
    machine = RecoveryMachine(1, Quorums(3, 3, 2), DIGEST, Limits())
    machine.handle(Begin())
    machine.handle(Marked(0, ("b0", "b1", "b2")))
    top = DIGEST.entry(1, ENTRY_ID_MAX - 1, ENTRY_ID_MAX - 1, 5, b"x")
    asked = [ask for index in range(2) for ask in machine.handle(FenceAnswer(index, OK, top))]
    assert {ask.entry for ask in asked} == {ENTRY_ID_MAX}
    for index in range(3):
        effects = machine.handle(ReadAnswer(ENTRY_ID_MAX, index, OK, DIGEST.entry(1, ENTRY_ID_MAX, 0, 9, b"y")))
    assert machine.state is RecoveryState.FAILED
    assert f"whether entry {ENTRY_ID_MAX} exists" in effects[-1].reason


def test_a_length_below_zero_is_none():
    """Nothing is above the last entry confirmed, and that says that its ledger was shorter than nothing."""
    machine = RecoveryMachine(1, Quorums(1, 1, 1), DIGEST, Limits())
    machine.handle(Begin())
    machine.handle(Marked(0, ("b0",)))
    machine.handle(FenceAnswer(0, OK, DIGEST.entry(1, 0, 0, 5, b"x")))
    machine.handle(ReadAnswer(1, 0, NO_ENTRY, None))
    assert machine.state is RecoveryState.MEASURING
    (failed,) = [each for each in machine.handle(LengthAnswer(-3)) if isinstance(each, Failed)]
    assert "it says -3" in failed.reason
