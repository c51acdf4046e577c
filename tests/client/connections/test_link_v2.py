"""A V2 connection: keys that one request holds at a time, late answers, and batch reads by their number."""

from quire.client.connections import link_v2
from quire.client.connections.answers import Answer
from quire.protocol.errors import Status
from quire.protocol.messages import (
    AuthReply,
    BatchRead,
    BatchReply,
    ReadReply,
)
from tests.client.fakes.scripted import (
    BOOKIE,
    Listener,
    Net,
    batch,
    body,
    channel_of,
    make_pool,
    pending,
    recovered,
    result,
)

# SPDX-License-Identifier: Apache-2.0


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
    assert result(reads[1]) == Answer(0, body(1, 3), 8, 3)
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


def test_a_read_that_was_never_answered_keeps_its_key_until_there_are_too_many(monkeypatch):
    """Each late answer could still come, so the connection is given up when it owes more than it may."""
    monkeypatch.setattr(link_v2, "LATE_KEYS_MAX", 3)
    net = Net()
    pool = make_pool(net, read_timeout_ms=1000, long_poll_ms=500)
    reads = [pool.read(BOOKIE, 1, entry) for entry in range(3)]
    peer = net.accept()
    net.pump([0.125] * 10)
    assert [result(read).code for read in reads] == [-23] * 3
    assert not peer.transport.aborted
    late = pool.read(BOOKIE, 1, 3)
    net.pump([0.125] * 10)
    assert result(late).code == -23
    assert peer.transport.aborted


def test_an_answer_without_its_entry_is_an_error():
    """EOK with no body is no entry; an authentication that was not asked for is passed over."""
    net = Net()
    read = make_pool(net).read(BOOKIE, 1, 0)
    peer = net.accept()
    request = peer.only()
    link = peer.protocol
    link.take(AuthReply("sasl", b"", Status.EOK))
    assert pending(read)
    link.take(ReadReply(Status.EOK, request.ledger, request.entry, None))
    assert result(read).code == -1


def test_a_late_answer_frees_its_key():
    """From then on the entry is read over V2 again."""
    net = Net()
    pool = make_pool(net, read_timeout_ms=1000, long_poll_ms=500)
    read = pool.read(BOOKIE, 1, 5)
    peer = net.accept()
    link, late = peer.protocol, peer.only()
    net.pump([0.125] * 10)
    assert result(read).code == -23
    assert not link.admits_read(1, 5)
    assert link.admits_read(1, 6)
    peer.refuse(late, Status.ENOENTRY)
    assert link.admits_read(1, 5)


def test_a_read_that_nothing_waits_beside_leaves_at_once(monkeypatch):
    """Those that come in its turn leave together; adds do not count."""
    net = Net()
    pool, channel, _sink, peer = channel_of(net, "v2")
    channel.send(batch(1, 0, 1))
    written = link_v2.LinkV2.write
    at_once = []

    def write(link, data, now=False):
        at_once.append(now)
        written(link, data, now)

    monkeypatch.setattr(link_v2.LinkV2, "write", write)
    for entry in range(2):
        pool.read(BOOKIE, 1, entry)
    pool.batch_read(BOOKIE, 1, 0, 10, 1000)
    assert at_once == [True, False, False]
    for request in peer.requests()[1:]:
        peer.refuse(request, Status.ENOENTRY)
    pool.batch_read(BOOKIE, 1, 0, 10, 1000)
    pool.read(BOOKIE, 1, 0)
    assert at_once[3:] == [True, False]
