"""Long polls (wire.md 6.6): every case of the table, what wakes one, and that none is lost or answered twice."""

import gc
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest

from quire.bookie.server.long_poll import EVIDENCE_BYTES_MAX, Poll
from quire.protocol import v3
from quire.protocol.errors import Status
from quire.protocol.messages import BOOKIE_ID, LAST_ENTRY, AddAcks, BookieInfo, ReadReply, StatusReply, WriteLac
from tests.bookie.fakes.wires import DIGEST, KEY, LEDGER, Client, Scene, adds, adds3, read3

# SPDX-License-Identifier: Apache-2.0

S = Status


def poll(
    txn: int,
    previous: int,
    timeout_ms: int | None = 1000,
    entry: int = LAST_ENTRY,
    piggyback: bool = True,
    ledger: int = LEDGER,
) -> bytes:
    return read3(txn, entry, ledger, previous_lac=previous, timeout_ms=timeout_ms, piggyback=piggyback)


def scene_with(entries: int, **more: object) -> tuple[Scene, Client]:
    """A ledger of so many entries: its LAC is one below the last."""
    scene = Scene(**more)  # type: ignore[arg-type]
    writer = scene.connect()
    for entry in range(entries):
        writer.send(adds(b"%d" % entry, first=entry))
    return scene, scene.connect()


def body(scene: Scene, entry: int) -> bytes:
    return scene.storage.kept[LEDGER].entries[entry]


def test_a_poll_that_is_behind_is_answered_at_once() -> None:
    """With the next entry and no time of update, since nothing woke it."""
    scene, client = scene_with(5)
    assert client.ask(poll(1, 0)) == ReadReply(S.EOK, LEDGER, 1, body(scene, 1), 3, None, 1)
    assert client.ask(poll(2, -1)) == ReadReply(S.EOK, LEDGER, 0, body(scene, 0), 3, None, 2)


def test_a_poll_is_woken_by_an_add(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    LAC moves with the add behind it; the answer has the entry, the LAC and when it moved, by the time of day and not by
    the clock of a daemon, which counts from its machine's start.
    """
    monkeypatch.setattr("quire.bookie.server.long_poll.time_of_day", lambda: 1_700_000_000.25)
    scene, client = scene_with(2)
    timers = len(scene.clock.getDelayedCalls())
    assert client.send(poll(1, 0)).replies() == []
    scene.clock.advance(0.5)
    scene.connect().send(adds(b"2", first=2))
    moved = 1_700_000_000_250
    assert client.replies() == [ReadReply(S.EOK, LEDGER, 1, body(scene, 1), 1, moved, 1)]
    scene.clock.advance(0)
    assert len(scene.clock.getDelayedCalls()) == timers, "its timer is gone"


def test_an_advance_that_is_not_enough_wakes_no_poll() -> None:
    """A long poll waits on when the last confirmed entry is below what it waits for, until its time-out."""
    scene, client = scene_with(2)
    client.send(poll(1, 5))
    scene.connect().send(adds(b"2", first=2))
    assert client.replies() == []
    scene.clock.advance(1)
    assert client.replies() == [ReadReply(S.EOK, LEDGER, -1, None, 1, None, 1)]


def test_a_poll_expires() -> None:
    """A success without entry, with the LAC that is."""
    scene, client = scene_with(2)
    client.send(poll(1, 0, timeout_ms=250))
    scene.clock.advance(0.249)
    assert client.replies() == []
    scene.clock.advance(0.001)
    assert client.replies() == [ReadReply(S.EOK, LEDGER, -1, None, 0, None, 1)]
    assert scene.service.long_polls.waiting.total == 0


def test_a_poll_that_expired_needs_no_collector() -> None:
    """Nothing of it holds itself, so that it goes at once, and not once all objects are walked through."""
    scene, client = scene_with(2)
    gc.collect()
    gc.disable()
    try:
        before = sum(type(each) is Poll for each in gc.get_objects())
        client.send(poll(1, 0, timeout_ms=250))
        scene.clock.advance(0.25)
        assert len(client.replies()) == 1
        assert sum(type(each) is Poll for each in gc.get_objects()) == before
    finally:
        gc.enable()


def test_an_explicit_lac_wakes() -> None:
    """The entry is not here: EOK, -1 and the LAC."""
    scene, client = scene_with(2)
    client.send(poll(1, 4))
    scene.connect().send(v3.pack_request(WriteLac(LEDGER, 9, KEY, DIGEST.lac_body(LEDGER, 9), 1)))
    assert client.replies() == [ReadReply(S.EOK, LEDGER, -1, None, 9, None, 1)]


def test_an_explicit_lac_that_moves_nothing_wakes_too() -> None:
    """As one of the reference's storages does: the reader asks again."""
    scene, client = scene_with(4)
    client.send(poll(1, 2))
    scene.connect().send(v3.pack_request(WriteLac(LEDGER, 0, KEY, DIGEST.lac_body(LEDGER, 0), 1)))
    assert client.replies() == [ReadReply(S.EOK, LEDGER, -1, None, 2, None, 1)]


def test_a_fence_wakes() -> None:
    """A fence answers a waiting long poll at once."""
    scene, client = scene_with(2)
    client.send(poll(1, 0))
    scene.connect().send(read3(1, 0, fence=True, master_key=KEY))
    assert client.replies() == [ReadReply(S.EOK, LEDGER, -1, None, 0, None, 1)]


def test_a_poll_of_a_fenced_ledger_waits() -> None:
    """Recovery may still move its LAC, and a reader that is answered at once would only ask again."""
    scene, client = scene_with(2)
    scene.connect().send(read3(1, 0, fence=True, master_key=KEY))
    assert client.send(poll(1, 0)).replies() == []
    scene.connect().send(adds(b"2", first=2, recovery=True))
    assert [reply.status for reply in client.replies() if isinstance(reply, ReadReply)] == [S.EOK]


def test_a_deletion_wakes() -> None:
    """A deletion answers a waiting long poll with ENOLEDGER."""
    scene, client = scene_with(2)
    client.send(poll(1, 0))
    scene.storage.delete(LEDGER)
    assert client.replies() == [ReadReply(S.ENOLEDGER, LEDGER, -1, txn=1)]
    assert scene.service.long_polls.waiting.total == 0


def test_an_unknown_ledger_is_said_at_once() -> None:
    """A long poll on a ledger that the bookie does not have gets ENOLEDGER without waiting."""
    _, client = scene_with(1)
    assert client.ask(poll(1, 0, ledger=99)) == ReadReply(S.ENOLEDGER, 99, -1, txn=1)


def test_a_ledger_without_entries() -> None:
    """ENOENTRY when the wait is over."""
    scene = Scene()
    scene.connect().send(read3(1, fence=True, master_key=KEY))
    client = scene.connect()
    client.send(poll(1, -1, timeout_ms=10))
    scene.clock.advance(0.01)
    assert client.replies() == [ReadReply(S.ENOENTRY, LEDGER, -1, txn=1)]


def test_a_named_entry_with_piggyback_is_refused_when_the_wait_is_over() -> None:
    """The combination gets EBADREQ when the wait is over, or at once if there is none."""
    scene, client = scene_with(2)
    assert client.send(poll(1, 0, entry=1)).replies() == []
    scene.connect().send(adds(b"2", first=2))
    assert client.replies() == [ReadReply(S.EBADREQ, LEDGER, 1, txn=1)]
    assert client.ask(poll(2, 0, entry=1)) == ReadReply(S.EBADREQ, LEDGER, 1, txn=2)


def test_without_piggyback_it_is_an_ordinary_read_in_the_end() -> None:
    """Found: with LAC.  Missing: ENOENTRY without."""
    scene, client = scene_with(2)
    client.send(poll(1, 0, entry=2, piggyback=False))
    assert client.replies() == []
    scene.connect().send(adds(b"2", first=2))
    assert client.replies() == [ReadReply(S.EOK, LEDGER, 2, body(scene, 2), 1, None, 1)]
    client.send(poll(2, 1, entry=9, piggyback=False))
    scene.clock.advance(1)
    assert client.replies() == [ReadReply(S.ENOENTRY, LEDGER, 9, txn=2)]


def test_without_a_time_it_does_not_wait() -> None:
    """A long poll without a time-out, or with zero, is answered at once."""
    scene, client = scene_with(2)
    assert client.ask(poll(1, 7, timeout_ms=None)) == ReadReply(S.EOK, LEDGER, -1, None, 0, None, 1)
    assert client.ask(poll(2, 7, timeout_ms=None, entry=1, piggyback=False)) == ReadReply(
        S.EOK, LEDGER, 1, body(scene, 1), 0, None, 2
    )
    assert client.ask(poll(3, 7, timeout_ms=0)) == ReadReply(S.EOK, LEDGER, -1, None, 0, None, 3)


def test_others_pass_meanwhile() -> None:
    """Adds and reads of the same connection are not held up, and the same connection's add wakes its own poll."""
    _, client = scene_with(2)
    client.send(poll(1, 0) + read3(2, 0))
    assert [reply.txn for reply in client.replies() if isinstance(reply, ReadReply)] == [2]
    client.send(adds3(3, b"2", first=2))
    assert sorted(reply.txn or 0 for reply in client.replies()) == [1, 3]  # type: ignore[union-attr]


def test_many_polls_of_one_ledger_share_a_watcher() -> None:
    """Those whose time has come go; the others stay."""
    scene, client = scene_with(2)
    client.send(b"".join(poll(txn, txn - 1) for txn in range(1, 6)))
    assert len(scene.storage.kept[LEDGER].watchers) == 1
    assert scene.service.long_polls.waiting.total == 5
    scene.connect().send(adds(b"2", first=2)).send(adds(b"3", first=3))
    assert [reply.txn for reply in client.replies() if isinstance(reply, ReadReply)] == [1, 2]
    scene.clock.advance(1)
    assert len(client.replies()) == 3
    assert scene.storage.kept[LEDGER].watchers == []


def test_a_connection_takes_its_polls_with_it() -> None:
    """No timer, no watcher, no answer remain."""
    scene, client = scene_with(2)
    other = scene.connect().send(poll(9, 0))
    client.send(poll(1, 0) + poll(2, 0))
    client.lose()
    assert scene.service.long_polls.waiting.total == 1
    scene.clock.advance(1)
    assert client.take() == b""
    assert len(other.replies()) == 1
    assert scene.storage.kept[LEDGER].watchers == []


def test_polls_are_bounded() -> None:
    """One more than the most is refused with its ids, and never waits."""
    _, client = scene_with(2, long_polls_max=3)
    client.send(b"".join(poll(txn, 0) for txn in range(1, 5)))
    assert client.replies() == [ReadReply(S.ETOOMANYREQUESTS, LEDGER, -1, txn=4)]


def test_a_wait_is_bounded() -> None:
    """A minute at most, whatever was asked for."""
    scene, client = scene_with(2)
    client.send(poll(1, 0, timeout_ms=1 << 60))
    scene.clock.advance(60)
    assert len(client.replies()) == 1


def test_one_add_makes_no_more_than_some_megabytes_of_answers() -> None:
    """
    Of the polls that it wakes in a turn those beyond get the LAC alone, at once, and read the entry by themselves: else
    a bookie would hold the entry as often as it has polls.
    """
    scene, _ = scene_with(2)
    clients = [scene.connect().send(poll(1, 1)) for _ in range(40)]
    scene.connect().send(adds(bytes(1 << 20), first=2)).send(adds(b"3", first=3))
    found = [client.ask(b"") for client in clients]
    assert [reply.lac for reply in found if isinstance(reply, ReadReply)] == [2] * 40
    entries = [reply.entry for reply in found if isinstance(reply, ReadReply)]
    assert entries == [2] * 8 + [-1] * 32
    scene.clock.advance(0)
    assert clients[-1].ask(poll(2, 1)) == ReadReply(S.EOK, LEDGER, 2, body(scene, 2), 2, None, 2)


def test_a_connection_with_thousands_of_polls_of_a_ledger_ends_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its polls is looked for among the others."""
    compared = 0

    class Watched(Poll):
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

    monkeypatch.setattr("quire.bookie.server.long_poll.Poll", Watched)
    scene, client = scene_with(2)
    client.send(b"".join(poll(txn, 0) for txn in range(1, 1001)))
    client.lose()
    assert (scene.service.long_polls.waiting.total, scene.storage.kept[LEDGER].watchers) == (0, [])
    assert compared <= 1000, "of two whose hashes are the same"


@pytest.mark.parametrize(("timeout_ms", "ledger"), [(0, LEDGER), (None, LEDGER), (1000, 99)])
def test_polls_that_a_disk_is_asked_for_are_bounded(timeout_ms: int | None, ledger: int) -> None:
    """Those that wait for nothing else, as if they were reads: without a bound one peer could ask for any number."""
    scene, client = scene_with(2, reads_pending_max=20)
    scene.storage.slow = True
    client.send(b"".join(poll(txn, 5, timeout_ms, ledger=ledger) for txn in range(1, 201)))
    assert len(scene.storage.reading) == scene.service.reads.waiting.total == 20
    refused = client.replies()
    assert len(refused) == 180
    assert {getattr(reply, "status", None) for reply in refused} == {S.ETOOMANYREQUESTS}
    scene.storage.answer_reads()
    assert (len(client.replies()), scene.service.reads.waiting.total) == (20, 0)


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of the module some work runs through."""
    count = 0

    def seen(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        if not frame.f_code.co_filename.endswith("long_poll.py"):
            return None
        count += event == "line"
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_what_an_add_costs_does_not_depend_on_polls_that_it_does_not_wake() -> None:
    """However many wait for a LAC that is far ahead, also behind many that went."""
    lines = []
    for count in (10, 1000):
        scene, client = scene_with(2)
        writer = scene.connect()
        for number in range(count):
            client.send(poll(number, 1 << 40, timeout_ms=5000))
        gone = scene.connect()
        for number in range(count):
            gone.send(poll(number, 50, timeout_ms=5000))
        gone.lose()
        client.send(poll(count, 0, timeout_ms=5000))
        add = adds(b"2", first=2)
        lines.append(lines_of(lambda writer=writer, add=add: writer.send(add)))  # type: ignore[misc]
        (reply,) = client.replies()
        assert reply.txn == count
        assert scene.service.long_polls.waiting.total == count
    assert lines[1] < 2 * lines[0] + 50  # and what a heap takes


def test_one_peer_leaves_room_for_others() -> None:
    """A quarter of what may wait; one more poll is refused, and taken when one of its others was answered."""
    scene, client = scene_with(2, long_polls_max=8)
    for number in range(7):
        client.send(poll(number, 5))
    (refused,) = client.replies()
    assert (refused.txn, refused.status) == (6, S.ETOOMANYREQUESTS)
    other = scene.connect()
    other.send(poll(1, 5))
    other.send(poll(2, 5))
    assert other.replies() == []
    scene.clock.advance(1)
    client.replies()
    client.send(poll(9, 5))
    assert client.replies() == []


def test_those_that_an_add_wakes_are_answered_by_what_they_know() -> None:
    """Each once, the others wait on."""
    scene, client = scene_with(2)
    for number, previous in enumerate((3, 1, 7, 1, 2, 0)):
        client.send(poll(number, previous))
    scene.connect().send(adds(b"2", first=2))
    assert sorted(reply.txn for reply in client.replies()) == [5]
    writer = scene.connect()
    writer.send(adds(b"3", first=3) + adds(b"4", first=4))
    assert sorted(reply.txn for reply in client.replies()) == [1, 3, 4]
    scene.clock.advance(1)
    assert sorted(reply.txn for reply in client.replies()) == [0, 2]


def introduced(scene: Scene) -> Client:
    """A connection of quire's client, which asks first which bookie answers."""
    client = scene.connect()
    client.send(v3.pack_request(BookieInfo(BOOKIE_ID))).take()
    return client


def test_a_poll_that_asks_for_evidence_gets_all_at_once() -> None:
    """The entries behind the one that its reader knows, up to the LAC, and the last entry, whose digest proves it."""
    scene, client = scene_with(5)
    reply = ReadReply(S.EOK, LEDGER, 1, body(scene, 1), 3, None, 1, (body(scene, 2), body(scene, 3)))
    reply.last_body = body(scene, 4)
    assert client.ask(read3(1, previous_lac=0, timeout_ms=1000, piggyback=True, evidence=True)) == reply


def test_a_writers_own_word_is_evidence_enough() -> None:
    """An explicit LAC that goes so far comes instead of the last entry, which is larger; an older one does not."""
    scene, client = scene_with(3)
    said = DIGEST.lac_body(LEDGER, 2)
    scene.connect().ask(v3.pack_request(WriteLac(LEDGER, 2, KEY, said, 1)))
    ask = {"timeout_ms": 1000, "piggyback": True, "evidence": True}
    reply = ReadReply(S.EOK, LEDGER, 2, body(scene, 2), 2, None, 1, (), said)
    assert client.ask(read3(1, previous_lac=1, **ask)) == reply
    scene.connect().send(adds(b"3", b"4", first=3, lac=3))
    reply = ReadReply(S.EOK, LEDGER, 3, body(scene, 3), 3, None, 2, (), None, body(scene, 4))
    assert client.ask(read3(2, previous_lac=2, **ask)) == reply


def test_evidence_that_is_large_is_left_out() -> None:
    """Then its reader asks for it; what it knows of entries it is given."""
    scene, client = scene_with(1)
    scene.connect().send(adds(b"1", bytes(EVIDENCE_BYTES_MAX), first=1, lac=1))
    reply = client.ask(read3(1, previous_lac=0, timeout_ms=1000, piggyback=True, evidence=True))
    assert reply == ReadReply(S.EOK, LEDGER, 1, body(scene, 1), 1, None, 1)


@pytest.mark.parametrize("packed", [adds, partial(adds3, 7)], ids=["V2", "V3"])
def test_an_add_is_answered_with_that_a_reader_waits(packed: Callable[..., bytes]) -> None:
    """Only while one does, and only to quire's clients, which ask for the bookie's id: others get Apache's bytes."""
    scene, reader = scene_with(2)
    ours, other = introduced(scene), scene.connect()

    def said(client: Client, entry: int) -> bool:
        (found,) = client.send(packed(b"x", b"y", first=entry, lac=1)).replies()
        assert isinstance(found, AddAcks)
        assert (found.count, found.status) == (2, S.EOK)
        return found.reader_waits

    assert not said(ours, 2)
    reader.send(poll(1, 4))
    assert said(ours, 4)
    assert not said(other, 6)
    scene.clock.advance(1)
    assert not said(ours, 8)


def test_a_hint_wakes_a_poll_and_waits_for_no_sync() -> None:
    """With its own bytes as evidence; nothing of it is queued for the journal."""
    scene, reader = scene_with(2)
    scene.storage.at_once = False
    reader.send(read3(1, previous_lac=0, timeout_ms=1000, piggyback=True, evidence=True))
    said = DIGEST.lac_body(LEDGER, 1)
    hint = v3.pack_request(WriteLac(LEDGER, 1, KEY, said, 1, hint=True))
    assert scene.connect().ask(hint) == StatusReply(v3.WRITE_LAC, S.EOK, 1, LEDGER)
    assert not scene.storage.tokens
    assert reader.replies() == [ReadReply(S.EOK, LEDGER, 1, body(scene, 1), 1, None, 1, (), said)]


def test_a_hint_is_refused() -> None:
    """With a wrong key, for an unknown ledger, without its 16 bytes, and on a read-only bookie."""
    scene, client = scene_with(2)
    for body, key, status in (
        (DIGEST.lac_body(LEDGER, 1), bytes(20), S.EUA),
        (DIGEST.lac_body(99, 1), KEY, S.ENOLEDGER),
        (bytes(15), KEY, S.EBADREQ),
    ):
        assert client.ask(v3.pack_request(WriteLac(LEDGER, 1, key, body, 1, hint=True))).status is status
    scene.service.read_only = True
    hint = WriteLac(LEDGER, 1, KEY, DIGEST.lac_body(LEDGER, 1), 1, hint=True)
    assert client.ask(v3.pack_request(hint)).status is S.EREADONLY
