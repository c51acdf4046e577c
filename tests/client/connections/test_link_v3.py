"""
A V3 connection: transactions, each kind of request with its codes, batch reads that are made of single ones, and adds
that fit no frame.
"""

import pytest

from quire.client.connections.answers import Answer
from quire.client.connections.link_v3 import RUN_ENTRIES_FIRST, RUN_ENTRIES_MAX, RUN_GROWTH, LinkV3
from quire.protocol import availability, v3
from quire.protocol.digest import entry_id
from quire.protocol.errors import Status
from quire.protocol.messages import (
    AddRun,
    InfoReply,
    LacReply,
    ListReply,
    Read,
    ReadReply,
    StatusReply,
    WriteLac,
)
from tests.client.fakes.scripted import (
    BOOKIE,
    Listener,
    Net,
    batch,
    body,
    channel_of,
    make_pool,
    part,
    pending,
    recovered,
    result,
)

# SPDX-License-Identifier: Apache-2.0


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


def test_a_large_recovery_add_still_goes_when_its_owner_has_parted():
    """The connection that carries it came up only then; the channel counts it as under way from the beginning."""
    net = Net()
    pool = make_pool(net, frame_bytes_max=8192)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink, secure=True)
    v3 = net.accept()
    channel.send(recovered(10, 8192 - 28 - 36))
    v3.ack(v3.only())
    assert sink.ids() == [0]
    assert not channel.idle
    assert channel.outstanding_bytes > 0
    pool.part(channel)
    parted = pool.parted(1)
    assert pending(parted)
    v2 = net.accept()
    run = v2.only()
    assert (run.first, run.recovery) == (1, True)
    v2.ack(run)
    assert result(parted) is None
    assert channel.outstanding_bytes == 0


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


def test_a_sink_may_close_its_channel_while_it_is_called():
    """Nothing more is said, though more answers were in the same bytes."""
    net = Net()
    _pool, channel, sink, peer = channel_of(net, "v3")
    channel.send(batch(1, 0, 4))
    sink.on_ack = channel.close
    run = peer.only()
    peer.ack(part(run, 0))
    peer.ack(part(run, 1, 3))
    assert sink.acks == [(0, 1, 0)]


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
    assert result(read) == (-7, ())


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


@pytest.mark.parametrize(
    ("payload_bytes", "asked", "brought"), [(500_000, 8, 2), (200_000, 8, 5), (50_000, 20, 20), (1000, 500, 500)]
)
def test_a_batch_read_over_v3_asks_for_few_before_it_knows_how_large_they_are(payload_bytes, asked, brought):
    """What comes is not much more than was asked for, also of the first entries that a connection sees."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    read = pool.batch_read(BOOKIE, 1, 0, 0, 1 << 20)
    peer = net.accept()
    requests = peer.requests()
    assert len(requests) == RUN_ENTRIES_FIRST
    for request in requests:  # it grows
        found = body(1, request.entry, bytes(payload_bytes))
        peer.answer(request, ReadReply(Status.EOK, 1, request.entry, found, txn=request.txn))
        requests += peer.requests()
    assert [request.entry for request in requests] == list(range(asked))
    assert [entry_id(each) for each in result(read).bodies] == list(range(brought))


@pytest.mark.parametrize("large", [0, 3, 7])
def test_a_batch_read_over_v3_with_few_large_entries_brings_all_that_fit(large):
    """What one of the first entries takes says little of the others; nor does what the connection saw before."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    peer = None
    for first in (0, 1000):
        read = pool.batch_read(BOOKIE, 1, first, 256, 1 << 20)
        peer = peer or net.accept()
        requests = peer.requests()
        for request in requests:  # it grows
            payload = bytes(200 << 10 if request.entry in range(first + large, first + large + 2) else 10)
            found = body(1, request.entry, payload)
            peer.answer(request, ReadReply(Status.EOK, 1, request.entry, found, txn=request.txn))
            requests += peer.requests()
        assert [entry_id(each) for each in result(read).bodies] == list(range(first, first + 256))


def test_a_batch_read_over_v3_with_small_entries_first_does_not_ask_for_all_others_at_once():
    """They may be large, and a client would take hundreds of megabytes to throw them away."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    read = pool.batch_read(BOOKIE, 1, 0, 0, 1 << 20)
    peer = net.accept()
    requests = peer.requests()
    for request in requests:  # it grows
        found = body(1, request.entry, bytes(10 if request.entry < RUN_ENTRIES_FIRST else 500_000))
        peer.answer(request, ReadReply(Status.EOK, 1, request.entry, found, txn=request.txn))
        requests += peer.requests()
    assert len(requests) == RUN_ENTRIES_FIRST * (1 + RUN_GROWTH)
    assert [entry_id(each) for each in result(read).bodies] == list(range(RUN_ENTRIES_FIRST + 2))


def test_a_batch_read_over_v3_that_begins_with_a_failure_asks_for_no_more():
    """It is a prefix, of which that is the end."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    read = pool.batch_read(BOOKIE, 1, 0, 100, 1 << 20)
    peer = net.accept()
    requests = peer.requests()
    peer.refuse(requests.pop(3), Status.ENOENTRY)
    for request in requests:
        peer.answer(request, ReadReply(Status.EOK, 1, request.entry, body(1, request.entry), txn=request.txn))
    assert peer.requests() == []
    assert result(read).bodies == [body(1, entry) for entry in range(3)]


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
    assert result(poll) == Answer(0, body(1, 7), 9, 7)


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
    assert result(poll) == Answer(0, None, 6, -1)


@pytest.mark.parametrize(("frame_bytes_max", "evidence"), [(64 << 10, False), (5 << 20, True)])
def test_a_poll_asks_for_entries_where_they_fit_into_a_frame(frame_bytes_max, evidence):
    """A bookie chooses how many come along; one that is too long would end the connection."""
    net = Net()
    poll = make_pool(net, frame_bytes_max=frame_bytes_max).long_poll(BOOKIE, 1, 6, 900)
    assert net.accept().only().evidence is evidence
    assert pending(poll)


def test_an_unreadable_list_is_an_error_of_that_bookie():
    """A malformed list of entries gives a code instead of an exception."""
    net = Net()
    listed = make_pool(net).list_entries(BOOKIE, 1)
    peer = net.accept()
    request = peer.only()
    peer.answer(request, ListReply(Status.EOK, 1, request.txn, b"short"))
    assert result(listed) == (-1, [])


def test_a_status_counts_for_the_operation_that_it_names():
    """Of a force and a LAC write that wait, each is answered by its own, whatever transaction another one claims."""
    net = Net()
    pool = make_pool(net, protocol="v3")
    forced = pool.force(BOOKIE, 1)
    peer = net.accept()
    request = peer.only()
    written = WriteLac(1, 0, b"", b"", txn=request.txn)
    peer.answer(written, StatusReply(6, Status.EOK, request.txn, 1))
    assert pending(forced)
    peer.answer(request, StatusReply(10, Status.EOK, request.txn, 1))
    assert result(forced) == 0


def test_a_request_that_nothing_waits_beside_leaves_at_once(monkeypatch):
    """Those that come in its turn leave together."""
    net = Net()
    pool, _channel, _sink, peer = channel_of(net, "v3")
    written = LinkV3.write
    at_once = []

    def write(link, data, now=False):
        at_once.append(now)
        written(link, data, now)

    monkeypatch.setattr(LinkV3, "write", write)
    for entry in range(3):
        pool.read(BOOKIE, 1, entry)
    assert at_once == [True, False, False]
    for request in peer.requests():
        peer.refuse(request, Status.ENOENTRY)
    pool.read(BOOKIE, 1, 0)
    assert at_once[3:] == [True]
