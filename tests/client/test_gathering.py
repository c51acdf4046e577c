"""Single appends that travel together: order, bounds, failures, and few batches for many calls."""

from collections import deque

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from quire.client.gathering import gathering as gathered_of
from quire.client.threads import ReactorThread
from quire.conf.client import ClientOptions
from quire.protocol.errors import LedgerFenced, TooManyRequests
from tests.client.fakes.scripted import Net


def call_each(pairs) -> None:
    """Waiters of these tests are functions."""
    for waiter, answer in pairs:
        waiter(answer)


class Slow:
    """A writer whose answers the test gives."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.answers: deque[Deferred[range]] = deque()
        self.next = 0
        self.room: Deferred[None] = succeed(None)
        self.refusals = 0

    @property
    def window_full(self) -> bool:
        return not self.room.called

    def ready(self) -> Deferred[None]:
        return self.room

    payload_bytes_max = 1000

    def append_many(self, payloads: list[bytes]) -> Deferred[range]:
        if max(map(len, payloads)) > self.payload_bytes_max:
            return fail(ValueError("too many bytes"))
        if self.refusals:
            self.refusals -= 1
            return fail(TooManyRequests("others were quicker"))
        self.batches.append(payloads)
        answer: Deferred[range] = Deferred()
        self.answers.append(answer)
        return answer

    def acknowledge(self) -> None:
        count = len(self.batches[-len(self.answers)])
        self.next += count
        self.answers.popleft().callback(range(self.next - count, self.next))


def gathering(entries_max: int = 100, bytes_max: int = 10_000):
    net, writer = Net(), Slow()
    options = ClientOptions(window_entries_max=entries_max, window_bytes_max=bytes_max)
    return net, writer, gathered_of(ReactorThread(net), writer, options)


class InterruptedThread(ReactorThread):
    """Whose first call is interrupted before it began."""

    interrupted = False

    def call(self, fn, *args) -> None:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        super().call(fn, *args)


def test_an_interrupted_append_holds_up_no_later_one():
    """Nor those who wait for the end; whether it was appended is not known to its caller."""
    net, writer = Net(), Slow()
    gathered = gathered_of(InterruptedThread(net), writer, ClientOptions())
    ids: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        gathered.put(b"a", ids.append, call_each)
    gathered.put(b"b", ids.append, call_each)
    net.turn()
    writer.acknowledge()
    assert ids == [0, 1]
    gathered.when_idle(lambda: ids.append("idle"))
    assert ids[2:] == ["idle"]


def test_what_comes_between_two_turns_is_one_batch():
    """Appends of one turn go together, and each gets its id."""
    net, writer, gathered = gathering()
    ids: list[object] = []
    for number in range(10):
        gathered.put(bytes([number]), ids.append, call_each)
    net.turn()
    gathered.put(b"next", ids.append, call_each)
    net.turn()
    assert writer.batches == [[bytes([number]) for number in range(10)], [b"next"]]
    writer.acknowledge()
    assert ids == list(range(10))
    writer.acknowledge()
    assert ids == list(range(11))


def test_a_full_window_gathers_on_and_keeps_the_order():
    """While the writer has no room, everything that comes waits for one larger batch."""
    net, writer, gathered = gathering()
    writer.room = Deferred()
    ids: list[object] = []
    for number in range(3):
        gathered.put(bytes([number]), ids.append, call_each)
        net.turn()
    assert not writer.batches
    room, writer.room = writer.room, succeed(None)
    room.callback(None)
    net.turn()
    assert writer.batches == [[b"\0", b"\1", b"\2"]]


def test_a_batch_that_found_the_window_full_after_all_goes_again():
    """A refused batch is repeated until it is taken."""
    net, writer, gathered = gathering()
    writer.refusals = 3
    ids: list[object] = []
    gathered.put(b"x", ids.append, call_each)
    net.turn()
    writer.acknowledge()
    assert ids == [0]


def test_a_failed_batch_fails_each_of_its_appends():
    """Each append gets the batch's error, and there is room again."""
    net, writer, gathered = gathering()
    results: list[object] = []
    for _ in range(2):
        gathered.put(b"x", results.append, call_each)
    net.turn()
    writer.answers.popleft().errback(LedgerFenced("lost"))
    assert [type(each.value) for each in results if isinstance(each, Failure)] == [LedgerFenced, LedgerFenced]
    assert gathered.has_room()


def test_a_payload_that_is_too_large_fails_alone():
    """The other appends of its turn succeed, in their order."""
    net, writer, gathered = gathering()
    results: list[object] = []
    for payload in (b"x", b"x" * 1001, b"y", b"z"):
        gathered.put(payload, results.append, call_each)
    net.turn()
    assert writer.batches == [[b"x"], [b"y", b"z"]]
    assert [type(each.value) for each in results if isinstance(each, Failure)] == [ValueError]
    writer.acknowledge()
    writer.acknowledge()
    assert results[1:] == [0, 1, 2]


def test_room_is_measured_by_entries_and_by_bytes():
    """Callers that may wait do so before they put; both bounds count."""
    for entries_max, bytes_max in ((2, 10_000), (100, 6)):
        net, writer, gathered = gathering(entries_max, bytes_max)
        calls: list[str] = []
        gathered.when_room(lambda calls=calls: calls.append("at once"))
        for _ in range(2):
            gathered.put(b"xyz", lambda _result: None, call_each)
        assert not gathered.has_room()
        gathered.when_room(lambda calls=calls: calls.append("room"))
        gathered.when_idle(lambda calls=calls: calls.append("idle"))
        net.turn()
        assert calls == ["at once"]
        writer.acknowledge()
        assert calls == ["at once", "room", "idle"]
        gathered.when_idle(lambda calls=calls: calls.append("still"))
        assert calls[-1] == "still"


def test_those_that_are_answered_together_are_told_together():
    """One call for each way to waiters, with each one's own answer; failures too."""
    net, writer, gathered = gathering()
    here: list[list[tuple[str, object]]] = []
    there: list[object] = []
    for number, tell in enumerate((here.append, here.append, there.append, here.append)):
        gathered.put(b"x", f"waiter {number}", tell)
    net.turn()
    writer.acknowledge()
    assert here == [[("waiter 0", 0), ("waiter 1", 1)], [("waiter 3", 3)]]
    assert there == [[("waiter 2", 2)]]
    here.clear()
    gathered.put(b"x", "waiter 4", here.append)
    gathered.put(b"x", "waiter 5", here.append)
    net.turn()
    writer.answers.popleft().errback(LedgerFenced("lost"))
    [told] = here
    assert [(waiter, failure.type) for waiter, failure in told] == [
        ("waiter 4", LedgerFenced),
        ("waiter 5", LedgerFenced),
    ]
