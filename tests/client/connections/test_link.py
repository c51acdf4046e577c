"""
One connection: matching, order, malformed and late answers, time-outs, the end.  Both generations wherever both have
it.
"""

from random import Random

import pytest

from quire.client.connections.link import ANSWER_BYTES_MORE
from quire.client.connections.link_v3 import RUN_ENTRIES_MAX
from quire.metadata.store import ServiceInfo
from quire.protocol import availability, v3, wire
from quire.protocol.batch import AddBatch
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
    ListReply,
    Read,
    ReadReply,
    StatusReply,
    WriteLac,
)
from tests.client.fakes.scripted import DIGEST, Addresses, Listener, Net, batch, body, make_pool, part, pending, result

BOOKIE = "127.0.0.1:3181"
BOTH = pytest.mark.parametrize("protocol", ["v2", "v3"])


def channel_of(net, protocol, ledger=1, **options):
    """A channel, its sink, and the bookie's end."""
    pool = make_pool(net, protocol=protocol, **options)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, ledger, sink)
    return pool, channel, sink, net.accept()


@BOTH
def test_a_connection_is_set_up_for_small_messages_and_silent_peers(protocol):
    """TCP_NODELAY and keepalive, as Apache's client has them."""
    _pool, _channel, _sink, peer = channel_of(Net(), protocol)
    assert peer.transport.no_delay
    assert peer.transport.keep_alive


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


def test_shared_transactions_never_repeat_on_a_connection():
    """A batch that is sent twice, and one packed before a connection's last request, get transactions of their own."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    sinks = [Listener(), Listener()]
    one, two = (pool.add_channel(f"10.0.0.{i}:1", 1, sink) for i, sink in enumerate(sinks))
    peers = [net.accept(), net.accept()]
    adds = batch(1, 0, 3)
    one.send(adds)
    pool.read("10.0.0.1:1", 9, 9)
    two.send(adds)
    one.send(batch(1, 3, 3))
    one.send(adds)
    for peer in peers:
        requests = peer.requests()
        txns = [txn for request in requests for txn in (getattr(request, "txns", None) or [request.txn])]
        assert txns == sorted(set(txns))
        for request in reversed(requests):
            peer.ack(request) if isinstance(request, AddRun) else peer.refuse(request, Status.ENOENTRY)
    assert sorted(sinks[0].ids()) == [0, 0, 1, 1, 2, 2, 3, 4, 5]
    assert sinks[1].ids() == [0, 1, 2]


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


def test_an_answer_of_another_operation_is_dropped():
    """V3's key is (transaction, operation)."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    answer = pool.read_lac(BOOKIE, 1)
    peer = net.accept()
    request = peer.only()
    peer.answer(Read(1, 0, txn=request.txn, version=3), ReadReply(Status.EOK, 1, 0, body(1, 0), txn=request.txn))
    forced = WriteLac(1, 0, b"", b"", txn=request.txn)
    peer.answer(forced, StatusReply(6, Status.EOK, request.txn, 1))
    assert pending(answer)
    peer.answer(request, LacReply(Status.EOK, 1, request.txn, b"lac", None))
    assert result(answer).lac_body == b"lac"


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


def recovered(*payload_bytes):
    """A batch of recovery adds, of these sizes."""
    return AddBatch(DIGEST, 1, 0, -1, 0, [bytes(size) for size in payload_bytes], recovery=True, priority=100)


def test_recovery_adds_that_fit_no_v3_frame_go_over_v2():
    """
    They came by V2, whose frames hold more of an entry; what is acknowledged on either connection counts, and no other
    way is taken without need.
    """
    net = Net()
    pool = make_pool(net, frame_bytes_max=8192)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink, secure=True)
    v3 = net.accept()
    most = 8192 - 28 - 36
    channel.send(recovered(most, 10, most, 20))
    v2 = net.accept()
    small, large = v3.requests(), v2.requests()
    assert [(run.first, run.recovery, run.txns is None) for run in small] == [(1, True, False), (3, True, False)]
    assert [(run.first, run.recovery, run.priority > 0, len(run.frames)) for run in large] == [
        (0, True, True, 8192),
        (2, True, True, 8192),
    ]
    for peer, runs in ((v2, large), (v3, small)):
        for run in runs:
            peer.ack(run)
    assert sorted(sink.ids()) == [0, 1, 2, 3]
    assert channel.outstanding_bytes == 0
    channel.close()
    again = Listener()
    pool.add_channel(BOOKIE, 1, again, secure=True).send(recovered(most))
    v2.lose()
    assert [code for code, _ in again.failures] == [-8]


def test_a_part_of_a_batch_of_recovery_adds_may_hold_a_large_one():
    """
    What a replica of a striped ledger gets of a batch, or what is sent again: the entries' own sizes count, not their
    share of the batch's.
    """
    net = Net()
    pool = make_pool(net, frame_bytes_max=8192)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink, secure=True)
    v3 = net.accept()
    channel.send(recovered(8192 - 28 - 36, 10, 20, 30), [0, 2])
    v2 = net.accept()
    for peer, ids in ((v2, [0]), (v3, [2])):
        run = peer.only()
        assert [run.first + i for i in range(len(run.bodies))] == ids
        peer.ack(run)
    assert sorted(sink.ids()) == [0, 2]
    assert channel.outstanding_bytes == 0


def test_a_recovery_that_was_given_up_does_not_stand_in_the_way_of_the_next():
    """The V2 connection waits for late answers to what was sent there, and to nothing else."""
    net = Net()
    pool = make_pool(net, frame_bytes_max=8192)
    most = 8192 - 28 - 36
    channel = pool.add_channel(BOOKIE, 1, Listener(), secure=True)
    net.accept()
    channel.send(recovered(most, 10))
    v2 = net.accept()
    channel.close()
    early = Listener()
    pool.add_channel(BOOKIE, 1, early, secure=True).send(recovered(most))
    net.turn()
    assert [code for code, _ in early.failures] == [-8]
    v2.ack(v2.only())
    sink = Listener()
    pool.add_channel(BOOKIE, 1, sink, secure=True).send(recovered(most))
    v2.ack(v2.only())
    assert sink.ids() == [0]


def test_a_large_recovery_add_does_not_go_where_plain_adds_of_its_ledger_are_under_way():
    """A V2 answer says (ledger, entry) and no more: it could be taken for that to a plain add."""
    net = Net()
    pool = make_pool(net, frame_bytes_max=8192)
    pool.add_channel(BOOKIE, 1, Listener()).send(batch(1, 0, 1))
    v2 = net.accept()
    v2.requests()
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink, secure=True)
    net.accept()
    channel.send(recovered(8192 - 28 - 36))
    net.turn()
    assert [code for code, _ in sink.failures] == [-8]
    assert v2.requests() == []


@BOTH
def test_nothing_is_asked_before_the_bookie_said_who_it_is(protocol):
    """One question over V3, also where V2 follows; then what waited goes out."""
    net = Net()
    pool = make_pool(net, protocol=protocol)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink)
    channel.send(batch(1, 0, 3))
    peer = net.accept(told=False)
    assert peer.transport.writes == [v3.pack_request(BookieInfo(BOOKIE_ID, 0))]
    net.turn(1)
    peer.introduce(BOOKIE)
    peer.ack(peer.only())
    assert sink.ids() == [0, 1, 2]


@BOTH
@pytest.mark.parametrize("status", [Status.EUA, Status.EBADREQ, Status.ETOOMANYREQUESTS])
def test_any_answer_will_do_of_a_bookie_that_names_nobody(protocol, status):
    """
    Apache's, and quire's before it did: they may want a password, or be busy; the requests themselves will hear that.
    """
    net = Net()
    read = make_pool(net, protocol=protocol).read(BOOKIE, 1, 0)
    peer = net.accept(told=False)
    peer.say(v3.bare(peer.only(), status))
    peer.refuse(peer.only(), Status.ENOENTRY)
    assert result(read).code == -13


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
    peer = net.accept(told=False)
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
    peer = net.accept(told=False)
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
    """-23 after add_timeout without any answer; the connection stays, and a late answer is for nobody."""
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
def test_reads_time_out_and_their_late_answers_are_for_nobody(protocol):
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


def test_two_handles_never_share_a_key_on_v2():
    """The second read of one entry goes over V3, where it has a number; so does the second channel of one ledger."""
    net = Net()
    pool, channel, _sink, peer = channel_of(net, "v2")
    reads = [pool.read(BOOKIE, 1, 3), pool.read(BOOKIE, 1, 3)]
    control = net.accept()
    other = Listener()
    second = pool.add_channel(BOOKIE, 1, other)
    channel.send(batch(1, 0, 1))
    second.send(batch(1, 0, 1))
    plain, add = peer.requests()
    secure_read, secure_add = control.requests()
    assert secure_read.txn is not None
    assert secure_add.txns is not None
    peer.refuse(plain, Status.ENOENTRY)
    assert result(reads[0]).code == -13
    assert pending(reads[1])
    control.answer(secure_read, ReadReply(Status.EOK, 1, 3, body(1, 3), 8, txn=secure_read.txn))
    assert result(reads[1]) == (0, body(1, 3), 8, 3)
    peer.ack(add)
    assert not other.acks
    control.ack(secure_add)
    assert other.acks == [(0, 1, 0)]


def test_a_channel_that_left_keeps_its_ledger_taken_until_it_is_answered():
    """Late acknowledgements of a closed channel are never counted for the next one."""
    net = Net()
    pool, channel, sink, peer = channel_of(net, "v2")
    channel.send(batch(1, 0, 2))
    run = peer.only()
    channel.close()
    next_sink = Listener()
    following = pool.add_channel(BOOKIE, 1, next_sink)
    control = net.accept()
    following.send(batch(1, 0, 2))
    peer.ack(run)
    assert not sink.acks
    assert not next_sink.acks
    control.ack(control.only())
    assert next_sink.acks == [(0, 2, 0)]
    third = Listener()
    pool.add_channel(BOOKIE, 1, third).send(batch(1, 2, 1))
    peer.ack(peer.only())
    assert third.acks == [(2, 1, 0)]


def test_a_sink_may_close_its_channel_while_it_is_told():
    """Nothing more is said, though more answers were in the same bytes."""
    net = Net()
    _pool, channel, sink, peer = channel_of(net, "v3")
    channel.send(batch(1, 0, 4))
    sink.on_ack = channel.close
    run = peer.only()
    peer.ack(part(run, 0))
    peer.ack(part(run, 1, 3))
    assert sink.acks == [(0, 1, 0)]


def test_batch_reads_are_matched_by_their_number():
    """Two of the same entries may be under way, answered in any order."""
    net = Net()
    pool = make_pool(net)
    reads = [pool.batch_read(BOOKIE, 1, 0, 10, 1000), pool.batch_read(BOOKIE, 1, 0, 2, 1000)]
    peer = net.accept()
    first, second = peer.requests()
    assert isinstance(first, BatchRead)
    peer.answer(second, BatchReply(Status.EOK, 1, 0, second.request_id, [body(1, 0)]))
    peer.answer(first, BatchReply(Status.EOK, 1, 0, first.request_id, [body(1, 0), body(1, 1)]))
    assert [len(result(read).bodies) for read in reads] == [2, 1]


def test_an_empty_batch_answer_is_an_error():
    """EOK promises at least one entry; a reader must not wait for it for ever."""
    net = Net()
    read = make_pool(net).batch_read(BOOKIE, 1, 0, 10, 1000)
    peer = net.accept()
    request = peer.only()
    peer.answer(request, BatchReply(Status.EOK, 1, 0, request.request_id, []))
    assert result(read) == (-1, [])


def test_a_batch_read_over_v3_is_pipelined_and_cut_at_the_first_gap():
    """One write of single reads; the answer is what a batch read's would be."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    read = pool.batch_read(BOOKIE, 1, 10, 6, 1 << 20)
    peer = net.accept()
    requests = peer.requests()
    assert [request.entry for request in requests] == list(range(10, 16))
    assert len(peer.transport.writes) == 1
    for request in reversed(requests):
        if request.entry == 14:
            peer.refuse(request, Status.ENOENTRY)
        else:
            peer.answer(request, ReadReply(Status.EOK, 1, request.entry, body(1, request.entry), txn=request.txn))
            peer.answer(request, ReadReply(Status.EOK, 1, request.entry, b"again" * 9, txn=request.txn))
    assert result(read).bodies == [body(1, entry) for entry in range(10, 14)]


def test_a_batch_read_over_v3_whose_first_entry_fails_is_that_error():
    """Entries after a failed first one are not returned."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    read = pool.batch_read(BOOKIE, 1, 0, 2, 1 << 20)
    peer = net.accept()
    first, second = peer.requests()
    peer.answer(second, ReadReply(Status.EOK, 1, 1, body(1, 1), txn=second.txn))
    peer.refuse(first, Status.ENOLEDGER)
    assert result(read) == (-7, [])


def test_a_batch_read_over_v3_learns_how_large_entries_are():
    """It asks for about as many as fit; at least one comes even when it is too large."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    large = body(1, 0, b"x" * 100_000)
    one = pool.batch_read(BOOKIE, 1, 0, 3, 10)
    peer = net.accept()
    (request,) = peer.requests()
    peer.answer(request, ReadReply(Status.EOK, 1, 0, large, txn=request.txn))
    assert result(one).bodies == [large]
    for _ in range(20):
        again = pool.batch_read(BOOKIE, 1, 0, 1, 10)
        request = peer.only()
        peer.answer(request, ReadReply(Status.EOK, 1, 0, large, txn=request.txn))
        result(again)
    many = pool.batch_read(BOOKIE, 1, 0, 0, 500_000)
    requests = peer.requests()
    assert 4 <= len(requests) <= 7
    for request in requests:
        peer.answer(request, ReadReply(Status.EOK, 1, request.entry, large, txn=request.txn))
    assert len(result(many).bodies) == 4
    assert RUN_ENTRIES_MAX <= 1000


def test_bare_refusals_reach_their_requests():
    """EUA before authentication carries no ids; the request's own table knows them (wire.md 10.2)."""
    net = Net()
    pool, channel, sink, peer = channel_of(net, "v3")
    channel.send(batch(1, 0, 1))
    read = pool.read(BOOKIE, 1, 0)
    add, request = peer.requests()
    peer.say(v3.bare(add, Status.EUA))
    peer.say(v3.bare(request, Status.EUA))
    assert sink.ids(-102) == [0]
    assert result(read).code == -102


@pytest.mark.parametrize(
    ("status", "reading", "writing"),
    [
        (Status.EIO, -1, -12),
        (Status.EBADREQ, -1, -12),
        (Status.EUNKNOWNLEDGERSTATE, -108, -108),
        (Status.ETOOMANYREQUESTS, -105, -105),
        (Status.EREADONLY, -104, -104),
        (Status.EBADVERSION, -16, -16),
    ],
)
def test_codes_depend_on_the_operation(status, reading, writing):
    """wire.md 4.1, over V3 where every status travels."""
    net = Net()
    pool, channel, sink, peer = channel_of(net, "v3")
    channel.send(batch(1, 0, 1))
    read, info, lac, force = (
        pool.read(BOOKIE, 1, 0),
        pool.info(BOOKIE),
        pool.write_lac(BOOKIE, 1, b"k" * 20, b"b" * 20, 0),
        pool.force(BOOKIE, 1),
    )
    for request in peer.requests():
        peer.refuse(request, status)
    assert sink.ids(writing) == [0]
    assert (result(read).code, result(info).code, result(lac), result(force)) == (reading, reading, writing, writing)


def test_the_rest_of_the_operations():
    """LAC, list, info, force, poll: each with what it carries."""
    net = Net()
    pool = make_pool(net)
    lac, listed, info = pool.read_lac(BOOKIE, 1), pool.list_entries(BOOKIE, 1), pool.info(BOOKIE)
    forced, written, poll = (
        pool.force(BOOKIE, 1),
        pool.write_lac(BOOKIE, 1, b"k" * 20, b"b" * 20, 4),
        pool.long_poll(BOOKIE, 1, 6, 700),
    )
    peer = net.accept()
    a, b, c, d, e, f = peer.requests()
    peer.answer(a, LacReply(Status.EOK, 1, a.txn, b"lac", body(1, 9)))
    peer.answer(b, ListReply(Status.EOK, 1, b.txn, availability.encode([(0, 3), (5, 1)])))
    peer.answer(c, InfoReply(Status.EOK, c.txn, 1000, 500))
    peer.refuse(d, Status.EOK)
    peer.refuse(e, Status.EOK)
    assert (f.previous_lac, f.timeout_ms, f.piggyback, f.entry) == (6, 700, True, -1)
    peer.answer(f, ReadReply(Status.EOK, 1, 7, body(1, 7), 9, txn=f.txn))
    assert result(lac) == (0, b"lac", body(1, 9))
    assert result(listed) == (0, [(0, 3), (5, 1)])
    assert result(info) == (0, 1000, 500)
    assert (result(forced), result(written)) == (0, 0)
    assert result(poll) == (0, body(1, 7), 9, 7)


def test_a_poll_that_expired_at_the_bookie_is_no_error():
    """EOK, entry -1 and no body; only maxLAC counts.  Its time-out is the poll's own time on top of a read's."""
    net = Net()
    pool = make_pool(net, read_timeout_ms=1000, long_poll_ms=900)
    poll = pool.long_poll(BOOKIE, 1, 6, 900)
    peer = net.accept()
    request = peer.only()
    net.pump([0.125] * 14)
    assert pending(poll)
    peer.answer(request, ReadReply(Status.EOK, 1, -1, None, 6, txn=request.txn))
    assert result(poll) == (0, None, 6, -1)


def test_an_unreadable_list_is_an_error_of_that_bookie():
    """A malformed list of entries gives a code instead of an exception."""
    net = Net()
    listed = make_pool(net).list_entries(BOOKIE, 1)
    peer = net.accept()
    request = peer.only()
    peer.answer(request, ListReply(Status.EOK, 1, request.txn, b"short"))
    assert result(listed) == (-1, [])


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
