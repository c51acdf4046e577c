"""The writer on a fake cluster: appends, the window, lagging bookies, closing, ids of the caller."""

import pytest

from quire.client.core.append.machine import AppendMachine
from quire.client.handles.writer import Writer
from quire.metadata.ledger import LedgerState
from quire.protocol.errors import (
    DuplicateEntryId,
    IllegalOp,
    LedgerClosed,
    TooManyRequests,
    UnexpectedCondition,
)
from tests.client.fakes.cluster import FakeCluster
from tests.client.fakes.ledgers import created, ensemble

# Appending.


def test_an_append_from_a_callback_is_refused_as_any_other():
    """The id was acknowledged in the same moment, or the ledger is closed; nothing of what was refused is answered."""
    cluster = FakeCluster()
    told = []

    def noted(done):
        done.addCallbacks(told.append, lambda failure: told.append(failure.type))

    writer = created(cluster, advanced=True)
    writer.append_at(0, b"first").addCallback(lambda _id: noted(writer.append_at(0, b"other")))
    cluster.spin(1)
    assert told == [DuplicateEntryId]
    told.clear()
    deferred = created(cluster, write_flags="DEFERRED_SYNC")

    def closes(_ids):
        deferred.close()
        noted(deferred.append(b"x"))

    deferred.append_many([b"a", b"b", b"c"]).addCallback(closes)
    cluster.spin(1)
    assert told == [LedgerClosed]


def test_each_append_fires_once_in_order():
    """Deferreds of single and multiple appends fire in the order of their entries."""
    cluster = FakeCluster()
    writer = created(cluster)
    order = []
    for number in range(20):
        writer.append(b"%d" % number).addCallback(order.append)
        writer.append_many([b"a", b"b"]).addCallback(order.extend)
    cluster.spin(1)
    assert order == list(range(60))


def test_appends_of_one_turn_leave_as_one_batch():
    """The first goes at once; those that come while it is under way are gathered until the reactor's next turn."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    for number in range(100):
        writer.append(b"%d" % number)
    cluster.clock.advance(0)
    channel = next(iter(client.pool.channels))
    assert channel.sent == [(0, 0), (1, 99)]
    cluster.spin(1)
    assert writer.last_add_confirmed == 99


def test_calls_of_one_turn_keep_their_entries_in_order_of_the_calls():
    """Appends of one entry and of many that are gathered together get their ids, and their bytes, call by call."""
    cluster = FakeCluster()
    writer = created(cluster)
    calls = [
        writer.append(b"first"),
        writer.append(b"one"),
        writer.append_many([b"two", b"three"]),
        writer.append(b"4"),
    ]
    empty = writer.append_many([])
    calls += [writer.append_many([b"five"]), empty]
    cluster.spin(1)
    assert [cluster.succeed(call) for call in calls] == [0, 1, range(2, 4), 4, range(5, 6), range(5, 5)]
    assert writer.length == len(b"firstonetwothree4five")


def test_an_append_from_inside_a_callback_keeps_the_order():
    """Appends made by callbacks get the next ids."""
    cluster = FakeCluster()
    writer = created(cluster)
    seen = []

    def again(entry):
        seen.append(entry)
        if entry < 30:
            writer.append(b"more").addCallback(again)
        return entry

    writer.append(b"first").addCallback(again)
    cluster.spin(2)
    assert seen == list(range(31))


def test_append_many_of_nothing_is_an_empty_range():
    """It returns an empty range at the next entry id."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    assert cluster.succeed(writer.append_many([])) == range(1, 1)


def test_bytes_like_payloads_are_taken_and_others_refused():
    """bytearray and memoryview are appended, text and numbers raise `TypeError`."""
    cluster = FakeCluster()
    writer = created(cluster)
    assert cluster.succeed(writer.append_many([bytearray(b"a"), memoryview(b"b")])) == range(2)
    assert cluster.succeed(writer.append(bytearray(b"c"))) == 2
    with pytest.raises(TypeError):
        writer.append("text")
    with pytest.raises(TypeError):
        writer.append_many([b"a", 5])


def test_an_entry_that_fits_no_frame_is_refused_before_it_is_sent():
    """It raises `ValueError`, and the writer goes on with the same next id."""
    cluster = FakeCluster()
    writer = created(cluster, options={"frame_bytes_max": 4096})
    assert isinstance(cluster.fails(writer.append(b"x" * 4096)), ValueError)
    assert isinstance(cluster.fails(writer.append_many([b"ok", b"x" * 5000])), ValueError)
    assert cluster.succeed(writer.append(b"x" * 3000)) == 0


def test_ready_waits_for_the_window():
    """`ready` fires at once while there is room, else when the window has room again."""
    cluster = FakeCluster()
    writer = created(cluster, options={"window_entries_max": 10, "batch_entries_max": 5})
    assert cluster.outcome(writer.ready()).done
    done = writer.append_many([b"x"] * 30)
    ready = cluster.outcome(writer.ready())
    assert not ready.done
    cluster.succeed(done)
    assert ready.done


def test_a_caller_who_never_waits_is_stopped():
    """Appends above the bound fail with `TooManyRequests`, and earlier ones complete."""
    cluster = FakeCluster()
    writer = created(cluster, options={"window_bytes_max": 1000, "batch_bytes_max": 1000})
    cluster.judge = lambda _request: "hold"
    outcomes = [cluster.outcome(writer.append_many([b"x" * 500] * 2)) for _ in range(5)]
    cluster.spin(0.01)
    assert isinstance(outcomes[-1].error, TooManyRequests)
    cluster.judge = lambda _request: "pass"
    while cluster.let_go():
        cluster.spin(0.1)
    assert [outcome.code for outcome in outcomes[:2]] == [0, 0]


def test_the_figures_of_a_writer():
    """Confirmed and pushed entries and the length follow appends, and return to what was confirmed at the close."""
    cluster = FakeCluster()
    writer = created(cluster)
    assert (writer.last_add_confirmed, writer.last_add_pushed, writer.length, writer.closed) == (-1, -1, 0, False)
    cluster.judge = lambda _request: "hold"
    writer.append_many([b"abc"] * 4).addErrback(lambda _failure: None)
    assert (writer.last_add_confirmed, writer.last_add_pushed, writer.length) == (-1, 3, 12)
    cluster.succeed(writer.close())
    assert (writer.last_add_confirmed, writer.last_add_pushed, writer.length, writer.closed) == (-1, -1, 0, True)


# A lagging bookie.


def test_a_silent_bookie_neither_stops_the_writer_nor_stays():
    """Appends succeed without its answers, and it is replaced after the time-out."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    silent = ensemble(cluster, writer)[2]
    cluster.judge = lambda request: "drop" if request.op == "add" and request.bookie == silent else "pass"
    for number in range(20):
        assert cluster.succeed(writer.append(b"x" * 100), 1) == number
    cluster.spin(6)
    cluster.succeed(writer.append(b"y"))
    assert silent not in ensemble(cluster, writer)


def test_a_slow_bookie_holds_at_most_its_backlog():
    """It answers a second late: the writer runs ahead until the bound, then waits for it."""
    cluster = FakeCluster(4)
    writer = created(cluster, options={"replica_backlog_bytes_max": 10_000, "batch_entries_max": 1})
    slow = ensemble(cluster, writer)[1]
    cluster.slow[slow] = 0.5
    outcomes = [cluster.outcome(writer.append(b"x" * 1000)) for _ in range(30)]
    cluster.spin(0.2)
    assert sum(outcome.done for outcome in outcomes) == 10
    cluster.spin(10)
    assert all(outcome.code == 0 for outcome in outcomes)
    assert ensemble(cluster, writer)[1] == slow


def test_closing_the_client_fails_what_is_pending_and_closes_no_ledger():
    """Appends fail as closed, and the metadata stays open."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    cluster.judge = lambda _request: "hold"
    pending = cluster.outcome(writer.append(b"x"))
    for handle in list(client.handles):
        handle.shut_down()
    cluster.spin(0.1)
    assert pending.code == -19
    assert cluster.metadata(writer.id).state is LedgerState.OPEN


def test_a_bug_in_the_machine_fails_everything_and_ends_the_handle(monkeypatch):
    """Appends and the close fail as unexpected, and nothing is stored."""
    cluster = FakeCluster()
    writer = created(cluster)
    pending = cluster.outcome(writer.append(b"x"))
    monkeypatch.setattr(AppendMachine, "handle", lambda _self, _given: 1 // 0)
    cluster.spin(0.1)
    assert pending.code == -999
    assert cluster.metadata(writer.id).state is LedgerState.OPEN
    assert cluster.fails(writer.close()).code == -999


# Advanced ids, deferred sync, explicit LAC.


def test_ids_of_the_callers_choice():
    """Entries wait for missing ids; duplicates and appends without an id are refused."""
    cluster = FakeCluster()
    writer = created(cluster, advanced=True)
    late = cluster.outcome(writer.append_at(2, b"two"))
    cluster.succeed(writer.append_at(0, b"zero"))
    cluster.spin(0.1)
    assert not late.done
    assert isinstance(cluster.fails(writer.append_at(2, b"again")), DuplicateEntryId)
    assert isinstance(cluster.fails(writer.append(b"without")), IllegalOp)
    assert cluster.succeed(writer.append_at(1, b"one")) == 1
    assert late.value == 2
    cluster.succeed(writer.close())
    reader = cluster.succeed(cluster.client().open_ledger(writer.id))
    assert [entry.data for entry in cluster.succeed(reader.read(0, 2))] == [b"zero", b"one", b"two"]


def test_an_ordinary_writer_takes_no_ids():
    """`append_at` raises `IllegalOp`, and the writer goes on."""
    cluster = FakeCluster()
    writer = created(cluster)
    assert isinstance(cluster.fails(writer.append_at(7, b"x")), IllegalOp)
    assert cluster.succeed(writer.append(b"x")) == 0


def test_a_writer_whose_machine_failed_answers_later_callers(monkeypatch):
    """Gathered and later calls fail instead of waiting, and `ready` fires."""
    cluster = FakeCluster()
    writer = created(cluster, options={"window_entries_max": 1, "batch_entries_max": 1})
    cluster.succeed(writer.append(b"a"))
    monkeypatch.setattr(AppendMachine, "_walk", lambda _self: 1 / 0)
    first = cluster.outcome(writer.append_many([b"b", b"c"]))
    gathered = cluster.outcome(writer.append(b"d"))
    cluster.spin(1)
    assert isinstance(first.error, UnexpectedCondition)
    assert gathered.done
    assert writer.closed
    for late in (
        writer.append(b"e"),
        writer.append_many([b"f"]),
        writer.append_at(9, b"g"),
        writer.force(),
        writer.write_lac(),
    ):
        assert isinstance(cluster.fails(late), LedgerClosed)
    assert cluster.outcome(writer.ready()).done
    assert isinstance(cluster.fails(writer.close()), UnexpectedCondition)


def test_a_payload_is_bytes():
    """Anything that holds bytes is copied; anything else is refused."""
    assert [Writer.payload_of(data) for data in (b"x", bytearray(b"x"), memoryview(b"x"))] == [b"x"] * 3
    with pytest.raises(TypeError, match="str"):
        Writer.payload_of("x")


def test_who_listens_hears_of_each_rise_before_anybody_else():
    """`on_acknowledged` is called with the highest acknowledged id, before appends are answered and bookies told."""
    cluster = FakeCluster()
    writer = created(cluster)
    heard, answered = [], []
    writer.on_acknowledged = lambda last: heard.append((last, len(answered), max(told())))

    def told():
        return [stored.lac for bookie in cluster.bookies.values() for stored in bookie.ledgers.values()] or [-1]

    cluster.judge = lambda request: "hold" if request.op == "add" and request.entry > 1 else "pass"
    writer.append_many([b"x"] * 4).addCallback(answered.append)
    cluster.spin(0.1)
    assert [last for last, _answered, _told in heard] == [0, 1]
    cluster.judge = lambda _request: "pass"
    cluster.let_go()
    cluster.spin(0.1)
    assert heard[-1] == (3, 0, -1)
    assert answered == [range(4)]


def test_an_append_that_is_refused_inside_an_answer_spoils_no_other_answer():
    """Two calls are answered together, and the first one's callback appends where the window is full."""
    cluster = FakeCluster()
    client = cluster.client(placement="random", window_bytes_max=10 << 10, batch_bytes_max=2 << 10)
    writer = cluster.succeed(client.create_ledger())
    cluster.judge = lambda request: "hold" if request.op == "add" else "pass"
    answered, refused = [], []

    def appends(_ids):
        writer.append(bytes(4 << 10)).addErrback(lambda failure: refused.append(failure.type))

    writer.append(b"first").addCallback(answered.append)
    writer.append(b"second").addCallback(appends)
    writer.append(b"third").addCallback(answered.append)
    cluster.spin(0.01)
    for _ in range(8):
        writer.append(bytes(4 << 10)).addErrback(lambda failure: refused.append(failure.type))
    cluster.spin(0.01)
    full = len(refused)
    assert writer.window_full
    for entry in (0, 2, 1):  # the third is on its quorum before the second, and both are answered at once
        cluster.let_go(lambda request, entry=entry: request.entry == entry)
        cluster.spin(0.005)
    assert answered == [0, 2]
    assert refused[full:] == [TooManyRequests]
    cluster.judge = lambda _request: "pass"
    cluster.let_go()
    cluster.spin(2)
    assert not writer.closed
    assert cluster.succeed(writer.append(b"goes on")) == writer.last_add_confirmed
