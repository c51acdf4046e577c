"""
One connection: matching, order, malformed and late answers, time-outs, the end.  Both generations wherever both have
it.
"""

from random import Random

import pytest

from quire.client.connections.link import ANSWER_BYTES_MORE, RECEIVE_BYTES
from quire.metadata.store import ServiceInfo
from quire.protocol import v3, wire
from quire.protocol.errors import Status
from quire.protocol.messages import (
    BOOKIE_ID,
    AddRun,
    Auth,
    AuthReply,
    BatchRead,
    BatchReply,
    BookieInfo,
    InfoReply,
    LacReply,
    Read,
    ReadReply,
)
from tests.client.fakes.scripted import (
    BOOKIE,
    BOTH,
    DIGEST,
    Addresses,
    Listener,
    Net,
    batch,
    body,
    channel_of,
    make_pool,
    part,
    pending,
    result,
)


@BOTH
def test_a_connection_is_set_up_for_small_messages_and_silent_peers(protocol):
    """TCP_NODELAY and keepalive, as Apache's client has them."""
    _pool, _channel, _sink, peer = channel_of(Net(), protocol)
    assert peer.transport.no_delay
    assert peer.transport.keep_alive


@BOTH
def test_much_is_taken_from_a_connection_at_once(protocol):
    """A batch of answers comes in a few turns of the reactor."""
    _pool, _channel, _sink, peer = channel_of(Net(), protocol)
    assert peer.transport.bufferSize == RECEIVE_BYTES


@BOTH
def test_a_batch_is_one_write_and_its_answers_one_run(protocol):
    """Batch first: one write out, one call in."""
    _pool, channel, sink, peer = channel_of(Net(), protocol)
    channel.send(batch(1, 0, 50))
    assert len(peer.transport.writes) == 1
    run = peer.only()
    assert (run.first, len(run.bodies)) == (0, 50)
    peer.ack(run)
    assert sink.acks == [(0, 50, 0)]
    assert channel.outstanding_bytes == 0


@BOTH
def test_several_bookies_get_the_same_object(protocol):
    """The frames of a batch are packed once and shared by every connection; over V3 with the same transactions."""
    net = Net()
    pool = make_pool(net, protocol=protocol)
    channels = [pool.add_channel(f"10.0.0.{i}:3181", 1, Listener()) for i in range(3)]
    peers = [net.accept() for _ in channels]
    adds = batch(1, 0, 10)
    for channel in channels:
        channel.send(adds)
    assert len({id(peer.transport.writes[0]) for peer in peers}) == 1
    assert protocol == "v3" or peers[0].transport.writes[0] is adds.frames()


@BOTH
def test_a_thousand_pipelined_adds_may_be_answered_in_any_order(protocol):
    """wire.md 10.2: out-of-order and interleaved replies, over two ledgers on one connection."""
    net = Net()
    pool = make_pool(net, protocol=protocol)
    sinks = {1: Listener(), 2: Listener()}
    channels = {ledger: pool.add_channel(BOOKIE, ledger, sink) for ledger, sink in sinks.items()}
    peer = net.accept()
    for first in range(0, 500, 10):
        for ledger in (1, 2):
            channels[ledger].send(batch(ledger, first, 10))
    single = [part(run, i) for run in peer.requests() for i in range(len(run.bodies))]
    assert len(single) == 1000
    Random(4).shuffle(single)
    for run in single:
        peer.ack(run)
    for ledger in (1, 2):
        assert sorted(sinks[ledger].ids()) == list(range(500))
        assert channels[ledger].outstanding_bytes == 0


@BOTH
def test_one_chunk_of_bytes_may_hold_answers_to_many_batches(protocol):
    """A journal group answers for everything in it at once; pieces may end anywhere."""
    _pool, channel, sink, peer = channel_of(Net(), protocol)
    for first in range(0, 30, 3):
        channel.send(batch(1, first, 3))
    runs = peer.requests()
    sent: list[bytes] = []
    peer.protocol, real = type("Ear", (), {"dataReceived": staticmethod(sent.append)}), peer.protocol
    for run in runs:
        peer.ack(run)
    data = b"".join(sent)
    for at in range(0, len(data), 11):
        real.dataReceived(data[at : at + 11])
    assert sink.ids() == list(range(30))


@BOTH
def test_failures_reach_exactly_their_entries(protocol):
    """A refused add in the middle of a batch does not touch its neighbours."""
    _pool, channel, sink, peer = channel_of(Net(), protocol)
    channel.send(batch(1, 0, 5))
    run = peer.only()
    peer.ack(part(run, 2), Status.EFENCED)
    peer.ack(part(run, 0, 2))
    peer.ack(part(run, 3, 2), Status.EIO)
    assert sink.ids() == [0, 1]
    assert sink.ids(-101) == [2]
    assert sink.ids(-12) == [3, 4]


@BOTH
def test_chosen_ids_of_a_batch_only(protocol):
    """Striping: a bookie gets the ids whose write set it is in."""
    _pool, channel, sink, peer = channel_of(Net(), protocol)
    channel.send(batch(1, 10, 6), [10, 11, 14])
    runs = peer.requests()
    assert [run.first + i for run in runs for i in range(len(run.bodies))] == [10, 11, 14]
    for run in reversed(runs):
        peer.ack(run)
    assert sorted(sink.ids()) == [10, 11, 14]


@BOTH
def test_answers_to_nothing_are_ignored(protocol):
    """Late, repeated and unsolicited answers, an AUTH one among them, change nothing and close nothing."""
    _pool, channel, sink, peer = channel_of(Net(), protocol)
    channel.send(batch(1, 0, 2))
    run = peer.only()
    peer.ack(run)
    peer.ack(run)
    version = 2 if protocol == "v2" else 3
    txn = None if protocol == "v2" else 77
    peer.answer(Auth("plugin", b"", txn=txn, version=version), AuthReply("plugin", b"", txn=txn))
    peer.answer(Read(9, 9, txn=txn, version=version), ReadReply(Status.EOK, 9, 9, b"x" * 40, txn=txn))
    peer.ack(AddRun(55, 0, [b""] * 3, b"", txns=None if protocol == "v2" else [900, 901, 902], version=version))
    assert sink.acks == [(0, 2, 0)]
    assert not sink.failures
    assert not peer.transport.aborted


@BOTH
def test_an_answer_that_does_not_decode_ends_the_connection(protocol):
    """Everything outstanding fails with -8; what was whole before the junk still counts."""
    net = Net()
    pool, channel, sink, peer = channel_of(net, protocol)
    channel.send(batch(1, 0, 3))
    run = peer.only()
    answer = pool.read(BOOKIE, 1, 7)
    peer.ack(part(run, 0))
    peer.say(b"\0\0\0\4\xff\xff\xff\xff")
    assert sink.acks == [(0, 1, 0)]
    assert [code for code, _ in sink.failures] == [-8]
    assert BOOKIE in sink.failures[0][1]
    assert result(answer).code == -8
    assert peer.transport.aborted
    peer.lose()
    assert len(sink.failures) == 1
    written = len(peer.transport.writes)
    channel.send(batch(1, 3, 3))
    assert len(peer.transport.writes) == written
    assert net.asked == 0


@BOTH
def test_a_frame_above_the_limit_ends_the_connection(protocol):
    """Judged by its four length bytes; no buffer grows to the size that a peer claims."""
    net = Net()
    _pool, channel, sink, peer = channel_of(net, protocol, frame_bytes_max=8192)
    channel.send(batch(1, 0, 1))
    peer.say((8192 + ANSWER_BYTES_MORE - 4 + 1).to_bytes(4, "big"))
    assert [code for code, _ in sink.failures] == [-8]


@BOTH
def test_an_entry_that_fills_an_add_by_v2_can_be_read(protocol):
    """
    A bookie with the same limit took it, so every answer that brings it back is taken: a plain read, a fencing one, a
    batch, a LAC.
    """
    net = Net()
    pool = make_pool(net, protocol=protocol, frame_bytes_max=8192)
    full = body(1, 0, bytes(8192 - 28 - 36))
    plain, fenced = pool.read(BOOKIE, 1, 0), pool.read(BOOKIE, 1, 0, fence_key=DIGEST.master_key)
    batched, lac = pool.batch_read(BOOKIE, 1, 0, 1, 8192), pool.read_lac(BOOKIE, 1)
    while net.asked:
        peer = net.accept()
        for request in peer.requests():
            match request:
                case Read():
                    peer.answer(
                        request, ReadReply(Status.EOK, 1, 0, full, 1 << 40 if request.txn else None, txn=request.txn)
                    )
                case BatchRead():
                    peer.answer(request, BatchReply(Status.EOK, 1, 0, request.request_id, [full]))
                case _:
                    peer.answer(request, LacReply(Status.EOK, 1, request.txn, b"x" * 36, full))
    assert result(plain).body == result(fenced).body == result(batched).bodies[0] == result(lac).last_body == full


@BOTH
def test_nothing_is_asked_before_the_bookie_said_who_it_is(protocol):
    """One question over V3, also where V2 follows; then what waited goes out."""
    net = Net()
    pool = make_pool(net, protocol=protocol)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink)
    channel.send(batch(1, 0, 3))
    peer = net.accept(introduced=False)
    assert peer.transport.writes == [v3.pack_request(BookieInfo(BOOKIE_ID, 0))]
    net.turn(1)
    peer.introduce(BOOKIE)
    peer.ack(peer.only())
    assert sink.ids() == [0, 1, 2]


@BOTH
@pytest.mark.parametrize("status", [Status.EBADREQ, Status.ETOOMANYREQUESTS])
def test_any_answer_will_do_of_a_bookie_that_gives_no_name(protocol, status):
    """
    Apache's, and quire's before it did: they may be busy; the requests themselves will hear that.
    """
    net = Net()
    read = make_pool(net, protocol=protocol).read(BOOKIE, 1, 0)
    peer = net.accept(introduced=False)
    peer.say(v3.bare(peer.only(), status))
    peer.refuse(peer.only(), Status.ENOENTRY)
    assert result(read).code == -13


@BOTH
def test_a_bookie_that_does_not_know_us_is_not_talked_to(protocol):
    """-24: it wants TLS or authentication, of which there is none; the connection ends, and nothing more is said."""
    net = Net()
    read = make_pool(net, protocol=protocol).read(BOOKIE, 1, 0)
    peer = net.accept(introduced=False)
    peer.say(v3.bare(peer.only(), Status.EUA))
    assert peer.transport.aborted
    assert peer.requests() == []
    assert result(read).code == -24


@BOTH
def test_another_bookie_is_not_talked_to(protocol):
    """-8, with both ids in the reason; the next attempt asks the store again, and finds the right one."""
    net = Net()
    addresses = Addresses()
    addresses.known["bookie-1"] = ServiceInfo.of("10.0.0.1", 3181)
    pool = make_pool(net, addresses, protocol=protocol)
    sink = Listener()
    pool.add_channel("bookie-1", 1, sink).send(batch(1, 0, 3))
    wrong = net.accept("bookie-2")
    assert wrong.transport.aborted
    assert wrong.requests() == []
    ((code, reason),) = sink.failures
    assert code == -8
    assert "bookie-1" in reason
    assert "bookie-2" in reason
    assert "10.0.0.1:3181" in reason
    addresses.known["bookie-1"] = ServiceInfo.of("10.0.0.2", 3181)
    net.turn(1)
    read = pool.read("bookie-1", 1, 0)
    right = net.accept("bookie-1")
    assert right.address == ("10.0.0.2", 3181)
    right.refuse(right.only(), Status.ENOENTRY)
    assert result(read).code == -13


@BOTH
def test_a_bookie_that_does_not_say_who_it_is_in_time_is_not_there(protocol):
    """The time of a connect covers the question."""
    net = Net()
    read = make_pool(net, protocol=protocol, connect_timeout_ms=3000).read(BOOKIE, 1, 0)
    peer = net.accept(introduced=False)
    net.turn(2.9)
    assert pending(read)
    net.turn(0.2)
    assert result(read).code == -8
    assert peer.transport.aborted
    assert net.getDelayedCalls() == []


@BOTH
@pytest.mark.parametrize("behind", [b"\0\0\0\4\xff\xff\xff\xff", b"\0\0\0\x18\1"])
def test_what_follows_the_first_answer_unasked_ends_the_connection(protocol, behind):
    """Nothing else was asked, so nothing of another frame can be there."""
    net = Net()
    read = make_pool(net, protocol=protocol).read(BOOKIE, 1, 0)
    peer = net.accept(introduced=False)
    request = peer.only()
    peer.say(wire.answer(request, InfoReply(Status.EOK, request.txn)) + behind)
    assert result(read).code == -8
    assert peer.transport.aborted


@BOTH
def test_a_lost_connection_fails_all_that_waits_once(protocol):
    """Adds of every ledger, reads, batch reads."""
    net = Net()
    pool, channel, sink, peer = channel_of(net, protocol)
    other = Listener()
    pool.add_channel(BOOKIE, 2, other).send(batch(2, 0, 1))
    channel.send(batch(1, 0, 1))
    reads = [pool.read(BOOKIE, 1, 0), pool.batch_read(BOOKIE, 1, 0, 10, 1000)]
    peer.lose()
    assert [code for code, _ in sink.failures + other.failures] == [-8, -8]
    assert [result(read).code for read in reads] == [-8, -8]
    assert net.getDelayedCalls() == []


@BOTH
def test_a_channel_without_progress_times_out(protocol):
    """-23 after add_timeout without any answer; the connection stays, and a late answer is dropped."""
    net = Net()
    _pool, channel, sink, peer = channel_of(net, protocol, add_timeout_ms=2000)
    channel.send(batch(1, 0, 4))
    run = peer.only()
    net.pump([0.25] * 7)
    peer.ack(part(run, 0))
    net.pump([0.25] * 7)
    assert not sink.failures
    net.pump([0.25] * 3)
    assert [code for code, _ in sink.failures] == [-23]
    peer.ack(part(run, 1, 3))
    assert sink.acks == [(0, 1, 0)]
    assert not peer.transport.aborted


@BOTH
def test_an_add_that_is_passed_over_times_out(protocol):
    """Progress of later batches does not hide an add that the bookie forgot."""
    net = Net()
    _pool, channel, sink, peer = channel_of(net, protocol, add_timeout_ms=1000)
    channel.send(batch(1, 0, 1))
    peer.only()
    for entry in range(1, 8):
        channel.send(batch(1, entry, 1))
        peer.ack(peer.only())
        net.pump([0.125])
    assert not sink.failures
    for entry in range(8, 12):
        channel.send(batch(1, entry, 1))
        for run in peer.requests():
            peer.ack(run)
        net.pump([0.125])
    assert [code for code, _ in sink.failures] == [-23]


@BOTH
def test_a_silent_channel_does_not_time_out(protocol):
    """Without anything outstanding there is no timer at all."""
    net = Net()
    _pool, channel, sink, peer = channel_of(net, protocol)
    channel.send(batch(1, 0, 1))
    peer.ack(peer.only())
    net.pump([1.0] * 20)
    assert not sink.failures
    assert net.getDelayedCalls() == []


@BOTH
def test_reads_time_out_and_their_late_answers_are_dropped(protocol):
    """-23; a new read of the same entry is not answered by the old answer."""
    net = Net()
    pool = make_pool(net, protocol=protocol, read_timeout_ms=1000, long_poll_ms=500)
    first = pool.read(BOOKIE, 1, 5)
    peer = net.accept()
    old = peer.only()
    net.pump([0.125] * 10)
    assert result(first).code == -23
    second = pool.read(BOOKIE, 1, 5)
    control = net.accept() if protocol == "v2" else peer
    new = control.only()
    peer.answer(old, ReadReply(Status.ENOENTRY, 1, 5, txn=old.txn))
    assert pending(second)
    control.answer(new, ReadReply(Status.EOK, 1, 5, body(1, 5), txn=new.txn))
    assert result(second).body == body(1, 5)
    third = pool.read(BOOKIE, 1, 5)
    request = peer.only()
    peer.answer(request, ReadReply(Status.EOK, 1, 5, body(1, 5), txn=request.txn))
    assert result(third).code == 0


@BOTH
def test_a_connection_that_stays_mute_is_given_up(protocol):
    """After three time-outs without a byte the next request gets a fresh connection."""
    net = Net()
    pool = make_pool(net, protocol=protocol, add_timeout_ms=1000, read_timeout_ms=1000, long_poll_ms=500)
    pool.read(BOOKIE, 1, 0)
    peer = net.accept()
    for entry in range(1, 6):
        pool.read(BOOKIE, 1, entry)
        net.pump([0.125] * 9)
    assert peer.transport.aborted


@BOTH
def test_one_unanswered_request_after_a_long_silence_does_not_end_the_connection(protocol):
    """Some bookies never answer some requests; others on the connection must not suffer for it."""
    net = Net()
    pool = make_pool(net, protocol=protocol, add_timeout_ms=1000, read_timeout_ms=1000, long_poll_ms=500)
    pool.read(BOOKIE, 1, 0)
    peer = net.accept()
    peer.refuse(peer.only(), Status.ENOENTRY)
    net.pump([1.0] * 100)
    forgotten = pool.read(BOOKIE, 1, 1)
    net.pump([0.125] * 4)
    waiting = pool.read(BOOKIE, 1, 2)
    net.pump([0.125] * 5)
    assert result(forgotten).code == -23
    assert not peer.transport.aborted
    answered = peer.requests()[-1]
    peer.refuse(answered, Status.ENOENTRY)
    assert result(waiting).code == -13


@BOTH
def test_a_full_socket_is_visible(protocol):
    """The transport says when its buffer is full; a channel shows it."""
    _pool, channel, _sink, peer = channel_of(Net(), protocol)
    assert channel.writable
    peer.transport.producer.pauseProducing()
    assert not channel.writable
    peer.transport.producer.resumeProducing()
    assert channel.writable
    peer.lose()
    assert not channel.writable
