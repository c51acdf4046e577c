"""The pool: which generation carries what, connecting on demand, refusals and backoff, addresses, closing."""

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.client.connections.pool import SILENCE_SECONDS
from quire.metadata.store import ServiceInfo
from quire.protocol.errors import MetaStore, Status, Timeout
from quire.protocol.messages import BatchRead, Read, ReadReply
from tests.client.fakes.scripted import Addresses, Listener, Net, batch, body, make_pool, pending, result

BOOKIE = "127.0.0.1:3181"
KEY = b"k" * 20


def test_nothing_connects_before_it_is_needed():
    """Making a pool opens no connection."""
    net = Net()
    make_pool(net)
    assert net.asked == 0


def test_adds_and_reads_share_the_v2_connection_and_control_has_its_own():
    """At most two connections to a bookie, whatever is asked of it."""
    net = Net()
    pool = make_pool(net)
    pool.add_channel(BOOKIE, 1, Listener()).send(batch(1, 0, 1))
    pool.read(BOOKIE, 1, 0)
    pool.batch_read(BOOKIE, 1, 0, 1, 1)
    assert net.asked == 1
    data = net.accept()
    add, read, many = data.requests()
    assert add.txns is None
    assert read.txn is None
    assert isinstance(many, BatchRead)
    pool.read_lac(BOOKIE, 1)
    pool.force(BOOKIE, 1)
    pool.info(BOOKIE)
    assert net.asked == 1
    assert len(net.accept().requests()) == 3


def test_reads_are_pending_until_they_are_answered():
    """So that readers can prefer a bookie with less to do; a lost connection answers them too."""
    net = Net()
    pool = make_pool(net)
    pool.read(BOOKIE, 1, 0)
    pool.batch_read(BOOKIE, 1, 0, 1, 1)
    pool.read_lac(BOOKIE, 1)
    pool.read(BOOKIE, 1, 0, fence_key=KEY)  # of a recovery: it asks everybody
    assert pool.pending(BOOKIE) == 2
    assert pool.pending("10.0.0.9:3181") == 0
    pool.close()
    assert pool.pending(BOOKIE) == 0


def test_a_batch_read_asks_for_no_more_than_a_frame_holds():
    """
    Bookies with larger frames would send a larger one, which ends the connection, and with it the adds on it.  Over V3
    each entry has a frame of its own.
    """
    net = Net()
    pool = make_pool(net, frame_bytes_max=65_536)
    pool.batch_read(BOOKIE, 1, 0, 100, 1 << 20)
    pool.batch_read(BOOKIE, 1, 0, 100, 1 << 20, fence_key=KEY)
    pool.batch_read(BOOKIE, 1, 0, 100, 1000)
    assert [request.bytes_max for request in net.accept().requests()] == [65_536, 65_536, 1000]
    pool.read_run(BOOKIE, 1, 0, 3, 1 << 20)
    assert len(net.accept().requests()) == 3


def test_recovery_never_travels_over_v2():
    """A fencing read carries flag, key and priority, and goes over V3; so do recovery adds and deferred sync."""
    net = Net()
    pool = make_pool(net)
    pool.read(BOOKIE, 1, -1, fence_key=KEY, priority=100)
    channel = pool.add_channel(BOOKIE, 1, Listener(), secure=True)
    channel.send(batch(1, 0, 2, recovery=True, priority=100))
    channel.send(batch(1, 2, 1, deferred_sync=True))
    peer = net.accept()
    assert net.asked == 0
    fence, add, deferred = peer.requests()
    assert (fence.fence, fence.master_key, fence.priority, fence.txn) == (True, KEY, 100, 1)
    assert (add.recovery, add.priority, add.txns) == (True, 100, [2, 3])
    assert deferred.deferred_sync


def test_with_v3_chosen_everything_goes_over_v3():
    """Adds, reads, batch reads and info share one connection."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    pool.add_channel(BOOKIE, 1, Listener()).send(batch(1, 0, 1))
    pool.read(BOOKIE, 1, 0)
    pool.batch_read(BOOKIE, 1, 0, 2, 1 << 20)
    pool.info(BOOKIE)
    peer = net.accept()
    assert net.asked == 0
    assert len(peer.requests()) == 5


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_fencing_batch_read_fences_with_the_key(protocol):
    """One packet with a number of its own over V2; over V3 single reads, each of which fences."""
    net = Net()
    net_pool = make_pool(net, protocol=protocol)
    net_pool.batch_read(BOOKIE, 1, 5, 3, 1 << 20, fence_key=KEY, priority=100)
    asked = net.accept().requests()
    assert [type(request) for request in asked] == ([BatchRead] if protocol == "v2" else [Read] * 3)
    assert all(request.fence and request.master_key == KEY and request.priority for request in asked)
    assert net_pool.pending(BOOKIE) == 0, "it asks whom it must, so it makes nobody crowded"


def test_a_read_run_asks_one_by_one_whatever_the_protocol():
    """For a bookie that drops the connection at a batch read (wire.md 10.1)."""
    net = Net()
    answer = make_pool(net).read_run(BOOKIE, 1, 0, 3, 1 << 20)
    peer = net.accept()
    for request in peer.requests():
        peer.answer(request, ReadReply(Status.EOK, 1, request.entry, body(1, request.entry), txn=request.txn))
    assert len(result(answer).bodies) == 3


def test_adds_wait_for_the_connection_and_count_as_outstanding():
    """The writer's bound on a replica's backlog must see what is queued here."""
    net = Net()
    pool = make_pool(net)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink)
    channel.send(batch(1, 0, 3))
    channel.send(batch(1, 3, 3), [4])
    assert channel.outstanding_bytes == 40
    assert not channel.writable
    peer = net.accept()
    assert [len(run.bodies) for run in peer.requests()] == [3, 1]
    assert channel.outstanding_bytes == 40


def test_a_refused_connection_fails_everything_that_waits_for_it():
    """Adds and reads fail with a code and the bookie's name, and no bytes stay outstanding."""
    net = Net()
    pool = make_pool(net)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink)
    channel.send(batch(1, 0, 1))
    read = pool.read(BOOKIE, 1, 0)
    net.refuse()
    assert [code for code, _ in sink.failures] == [-8]
    assert BOOKIE in sink.failures[0][1]
    assert result(read).code == -8
    assert channel.outstanding_bytes == 0


def test_a_sink_is_never_called_from_inside_the_call_that_opens_its_channel():
    """The writer's core isn't entered twice."""
    net = Net()
    pool = make_pool(net)
    pool.close()
    sink = Listener()
    pool.add_channel(BOOKIE, 1, sink)
    assert not sink.failures
    net.turn()
    assert [code for code, _ in sink.failures] == [-19]


def test_after_a_refusal_reads_fail_at_once_and_adds_wait_for_the_next_attempt():
    """
    A read has other replicas to ask; a writer's replica is worth a moment's wait.  The wait doubles and has a bound.
    """
    net = Net()
    pool = make_pool(net, reconnect_wait_ms_min=100, reconnect_wait_ms_max=300)
    waits = []
    for _attempt in range(4):
        sink = Listener()
        pool.add_channel(BOOKIE, 1, sink)
        since = net.seconds()
        while not net.asked:
            read = pool.read(BOOKIE, 1, 0)
            net.turn(0.0125)
            assert net.asked or result(read).code == -8
        waits.append(round(net.seconds() - since, 1))
        net.refuse()
        assert sink.failures
    assert waits == [0.0, 0.1, 0.2, 0.3]


def test_a_connection_that_worked_is_made_again_at_once():
    """A bookie that restarts is not punished for the adds it lost."""
    net = Net()
    pool = make_pool(net)
    read = pool.read(BOOKIE, 1, 0)
    peer = net.accept()
    peer.refuse(peer.only(), Status.ENOENTRY)
    assert result(read).code == -13
    peer.lose()
    assert net.asked == 0
    pool.read(BOOKIE, 1, 0)
    assert net.asked == 1


def test_a_bookie_that_accepts_and_closes_is_left_alone_for_a_moment():
    """A starting or stopping bookie does so; asking it in a loop does not help."""
    net = Net()
    pool = make_pool(net)
    pool.read(BOOKIE, 1, 0)
    net.accept().lose()
    read = pool.read(BOOKIE, 1, 0)
    assert net.asked == 0
    net.turn()
    assert result(read).code == -8
    net.turn(0.03)
    pool.read(BOOKIE, 1, 0)
    assert net.asked == 1


def test_each_connection_goes_where_the_store_says_then():
    """
    A bookie with an id of its own is where it announced to be; it is not looked for where it was, though another one
    answers there.
    """
    net = Net()
    addresses = Addresses()
    addresses.known["rack1-a"] = ServiceInfo.of("10.0.0.7", 3181)
    pool = make_pool(net, addresses)
    read = pool.read("rack1-a", 1, 0)
    peer = net.accept()
    assert peer.address == ("10.0.0.7", 3181)
    peer.refuse(peer.only(), Status.ENOENTRY)
    assert result(read).code == -13
    peer.lose()
    addresses.known["rack1-a"] = ServiceInfo.of("10.0.0.8", 3181)
    pool.read("rack1-a", 1, 0)
    assert net.accept().address == ("10.0.0.8", 3181)
    assert addresses.asked == ["rack1-a"] * 2


def test_an_unregistered_bookie_is_tried_where_its_id_says():
    """It may have lost its metadata session and still serve reads."""
    net = Net()
    make_pool(net).read("10.1.1.1:4000", 1, 0)
    assert net.accept().address == ("10.1.1.1", 4000)


def test_an_unregistered_bookie_is_not_tried_where_another_one_is_registered():
    """The address in its id was given on; a fencing read there would be answered for the wrong bookie."""
    net = Net()
    addresses = Addresses()
    addresses.known["rack1-b"] = ServiceInfo.of("10.1.1.1", 4000)
    sink = Listener()
    pool = make_pool(net, addresses)
    pool.add_channel("10.1.1.1:4000", 1, sink, secure=True)
    assert net.asked == 0
    ((code, reason),) = sink.failures
    assert code == -8
    assert "10.1.1.1:4000" in reason
    assert "rack1-b" in reason
    addresses.known["rack1-b"] = ServiceInfo.of("10.1.1.1", 4001)
    net.turn(1)
    pool.read("10.1.1.1:4000", 1, 0)
    assert net.accept().address == ("10.1.1.1", 4000)


def test_a_bookie_that_is_down_is_tried_without_reading_all_the_others_again():
    """Who serves at its address is as far as was heard; and one that just came is no other one."""
    net = Net()
    addresses = Addresses()
    addresses.known["10.1.1.1:4000"] = ServiceInfo.of("10.1.1.1", 4000)
    addresses.service_info = lambda _bookie: succeed(None)
    addresses.bookies = lambda: pytest.fail("every bookie was read")
    pool = make_pool(net, addresses)
    for _ in range(3):
        read = pool.read("10.1.1.1:4000", 1, 0)
        net.refuse()
        assert result(read).code == -8
        net.turn(1)


@pytest.mark.parametrize("bookie", ["rack1-a", "host:", ":3181", "host:port", "host:0", "host:99999"])
def test_an_unregistered_bookie_without_an_address_is_unreachable(bookie):
    """An id that is not host:port fails the read without a connection attempt."""
    net = Net()
    read = make_pool(net).read(bookie, 1, 0)
    assert result(read).code == -8
    assert net.asked == 0


def test_a_store_that_fails_makes_the_bookie_unreachable_not_an_exception():
    """The channel fails with the code for an unreachable bookie and the store's text."""
    net = Net()
    addresses = Addresses()
    addresses.trouble = MetaStore("zk://10.0.0.1:2181 is down")
    pool = make_pool(net, addresses)
    sink = Listener()
    pool.add_channel(BOOKIE, 1, sink)
    assert sink.failures[0][0] == -8
    assert "zk://10.0.0.1:2181" in sink.failures[0][1]


def test_a_store_that_does_not_answer_is_named_with_the_time_it_had():
    """A look-up of an address ends at the connect time-out, with both in the reason."""
    net = Net()
    addresses = Addresses()
    addresses.service_info = lambda _bookie: Deferred()
    pool = make_pool(net, addresses, connect_timeout_ms=1500)
    sink = Listener()
    pool.add_channel(BOOKIE, 1, sink)
    net.advance(2)
    ((code, reason),) = sink.failures
    assert code == -8
    assert "its address is unknown: the metadata store did not answer within 1500 ms" in reason


def test_a_clock_that_is_set_back_keeps_no_caller_away_from_a_bookie_that_refused():
    """An impatient read after it is tried at once, not refused for as long as the clock was set back."""
    net = Net()
    pool = make_pool(net)
    first = pool.read(BOOKIE, 1, 0)
    net.refuse()
    assert result(first).code == -8
    refused = pool.read(BOOKIE, 1, 0)
    net.turn()
    assert result(refused).code == -8
    net.rightNow -= 3600.0
    asked = pool.read(BOOKIE, 1, 0)
    net.turn()
    assert pending(asked)
    net.accept()


@pytest.mark.parametrize("name", [BOOKIE, None])
def test_a_bookie_says_its_id_or_does_not(name):
    """As the connection begins, or began; one that does not answer is not said to be Apache's."""
    net = Net()
    pool = make_pool(net)
    first = pool.says_its_id(BOOKIE)
    net.accept(name)
    assert [result(first), result(pool.says_its_id(BOOKIE))] == [name is not None] * 2
    away = pool.says_its_id("10.0.0.9:3181")
    net.refuse()
    net.turn()
    assert result(away) is True


@pytest.mark.parametrize("name", [BOOKIE, None])
def test_a_bookie_of_apaches_that_gives_no_list_is_not_asked_for_one_again(name):
    """For ten minutes: it never answers for a ledger that it knows, and each question would wait for the time-out."""
    net = Net()
    pool = make_pool(net, read_timeout_ms=1000, long_poll_ms=500)
    found = []
    pool.list_entries(BOOKIE, 1).addCallback(found.append)  # whoever asks waits before the connection is made
    peer = net.accept(name)
    other = pool.info(BOOKIE)
    assert len(peer.requests()) == 2
    net.advance(2)
    assert found == [(Timeout.code, [])]
    assert not pending(other)
    asks = name is not None
    again = pool.list_entries(BOOKIE, 2)
    assert pending(again) is asks
    net.advance(SILENCE_SECONDS)
    assert pending(pool.list_entries(BOOKIE, 2))


def test_connections_have_tokens_for_deferred_sync():
    """A force counts only on the connection that carried the adds (D15)."""
    net = Net()
    pool = make_pool(net)
    assert pool.connection_of(BOOKIE) is None
    pool.force(BOOKIE, 1)
    peer = net.accept()
    first = pool.connection_of(BOOKIE)
    assert first is not None
    peer.refuse(peer.only(), Status.EOK)
    peer.lose()
    assert pool.connection_of(BOOKIE) is None
    pool.force(BOOKIE, 1)
    net.accept()
    assert pool.connection_of(BOOKIE) not in (None, first)


def test_closing_fails_what_waits_and_all_that_comes():
    """-19, connections gone, no timer left; in every stage of a connection's life."""
    net = Net()
    pool = make_pool(net)
    sinks = [Listener() for _ in range(3)]
    pool.add_channel("10.0.0.1:1", 1, sinks[0]).send(batch(1, 0, 1))
    standing = net.accept()
    pool.add_channel("10.0.0.2:1", 1, sinks[1])
    connecting = net.asked
    pool.read("10.0.0.3:1", 1, 0)
    net.refuse()
    pool.add_channel("10.0.0.2:1", 1, sinks[2])
    reads = [pool.read("10.0.0.1:1", 1, 5), pool.long_poll("10.0.0.1:1", 1, 5, 10)]
    assert connecting == 1
    closed = pool.close()
    assert standing.transport.aborted
    net.turn()
    assert next(code for sink in sinks for code, _ in sink.failures) == -19
    assert [result(read).code for read in reads] == [-19, -19]
    assert net.asked == 0
    assert not pending(closed)
    answer = pool.read("10.0.0.9:1", 1, 0)
    net.turn()
    assert result(answer).code == -19
    net.turn(60)
    assert net.getDelayedCalls() == []


def test_closing_ends_who_turns_to_another_bookie_then():
    """A caller whose read fails because a bookie is gone may ask one that was never asked before."""
    net = Net()
    pool = make_pool(net)
    first = pool.read("10.0.0.1:1", 1, 0)
    second = Deferred()
    first.addCallback(lambda _answer: pool.read("10.0.0.2:1", 1, 0).chainDeferred(second))
    assert not pending(pool.close())
    net.turn()
    assert result(second).code == -19
    assert net.asked == 0


def test_closing_does_not_wait_for_an_address():
    """Nor for a connect or a question under way: the store may be slow, and a host may swallow packets."""
    net = Net()
    addresses = Addresses()
    addresses.service_info = lambda _bookie: Deferred()
    pool = make_pool(net, addresses)
    sink = Listener()
    pool.add_channel(BOOKIE, 1, sink)
    asked = make_pool(net)
    unanswered = asked.read("10.0.0.2:1", 1, 0)
    peer = net.accept(introduced=False)
    for each in (pool, asked):
        assert not pending(each.close())
    assert [code for code, _ in sink.failures] == [-19]
    assert result(unanswered).code == -19
    assert peer.transport.aborted
    assert net.getDelayedCalls() == []


def test_a_batch_of_another_ledger_is_a_programming_error():
    """A channel raises `ValueError` for it."""
    net = Net()
    channel = make_pool(net).add_channel(BOOKIE, 1, Listener())
    with pytest.raises(ValueError, match="ledger 2"):
        channel.send(batch(2, 0, 1))


def test_an_empty_choice_of_entries_sends_nothing():
    """A bookie may be in the write set of none of a batch's entries."""
    net = Net()
    channel = make_pool(net).add_channel(BOOKIE, 1, Listener())
    peer = net.accept()
    channel.send(batch(1, 0, 2), [])
    assert peer.requests() == []
    assert channel.outstanding_bytes == 0


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_what_a_closed_writer_leaves_behind_still_goes_out_and_the_close_of_the_client_waits_for_it(protocol):
    """A copy above the ack quorum: its bookie's connection is not made yet, or its answer is still to come."""
    net = Net()
    pool = make_pool(net, protocol=protocol)
    sent, idle = (pool.add_channel(BOOKIE, ledger, Listener()) for ledger in (1, 2))
    sent.send(batch(1, 0, 3))
    standing = net.accept()
    run = standing.only()
    queued = pool.add_channel("10.0.0.2:1", 1, Listener())
    queued.send(batch(1, 0, 3))
    for channel in (sent, idle, queued):
        pool.part(channel)
    assert not idle.is_open
    closed = pool.close()
    standing.ack(run)
    assert pending(closed)
    assert not sent.is_open
    late = net.accept()
    late.ack(late.only())
    assert not pending(closed)
    assert not queued.is_open
    net.turn(60)
    assert net.getDelayedCalls() == []


@pytest.mark.parametrize("end", ["answered", "lost", "silence"])
def test_what_is_left_behind_of_one_ledger_is_waited_for_by_itself(end):
    """
    Until it is answered or fails; those of another ledger, and a bookie that answers none for half a minute, hold up
    nobody, twice.
    """
    net = Net()
    pool = make_pool(net, add_timeout_ms=60_000)
    assert not pending(pool.parted(1))
    ours, other = (pool.add_channel(BOOKIE, ledger, Listener()) for ledger in (1, 2))
    peer = net.accept()
    for channel in (ours, other):
        channel.send(batch(channel.ledger, 0, 3))
        pool.part(channel)
    mine, _others = peer.requests()
    waits = [pool.parted(1), pool.parted(1)]
    assert not pending(pool.parted(3))
    assert all(map(pending, waits))
    if end == "answered":
        peer.ack(mine)
    elif end == "lost":
        peer.lose()
    else:
        net.turn(30.001)
    assert not any(map(pending, waits))
    assert ours.is_open == (end == "silence")
    assert other.is_open == (end != "lost")
    closed = pool.close()
    net.turn(60)
    assert not pending(closed)
    assert net.getDelayedCalls() == []


@pytest.mark.parametrize("end", ["refuse", "lose", "silence"])
def test_the_close_of_a_client_does_not_wait_long_for_a_copy_above_the_ack_quorum(end):
    """
    A bookie that is gone ends the wait at once, a silent one after three seconds; its channel is closed then, and
    sends no more.
    """
    net = Net()
    pool = make_pool(net)
    channel = pool.add_channel(BOOKIE, 1, Listener())
    channel.send(batch(1, 0, 3))
    pool.part(channel)
    closed = pool.close()
    assert pending(closed)
    if end == "refuse":
        net.refuse()
    elif end == "lose":
        net.accept().lose()
    else:
        net.turn(3.001)
    assert not pending(closed)
    assert not channel.is_open
    assert net.asked == 0
    net.turn(60)
    assert net.getDelayedCalls() == []
