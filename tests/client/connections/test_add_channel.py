"""
Add channels on random histories, both generations: whatever a bookie answers, repeats, forgets or delays, every id is
reported at most once per time it was sent, only with an answer of its own connection, and nothing is left over in the
end.
"""

from collections import Counter
from random import Random

import pytest

from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from tests.client.fakes.scripted import Listener, Net, Peer, batch, make_pool, part

LEDGERS = (1, 2, 3)
BOOKIE = "10.0.0.1:3181"


class Channel:
    """A channel, what was sent on it, and what came of it."""

    def __init__(self, pool, ledger: int) -> None:
        self.ledger = ledger
        self.sink = Listener()
        self.handle = pool.add_channel(BOOKIE, ledger, self.sink)
        self.sent: Counter[int] = Counter()
        self.closed = False

    def reported(self) -> Counter[int]:
        return Counter(first + i for first, count, _code in self.sink.acks for i in range(count))

    def check(self) -> None:
        reported = self.reported()
        assert not reported - self.sent, "an id was reported more often than it was sent"
        assert len(self.sink.failures) <= 1
        assert self.handle.outstanding_bytes >= 0
        open_ids = sum((self.sent - reported).values())
        if self.closed or self.sink.failures:
            assert not self.handle.is_open
        else:
            assert bool(self.handle.outstanding_bytes) == bool(open_ids)


class History:
    """One seed's story."""

    def __init__(self, seed: int, protocol: str) -> None:
        self.random = Random(seed)
        self.net = Net()
        self.pool = make_pool(self.net, protocol=protocol, add_timeout_ms=1000)
        self.channels = [Channel(self.pool, ledger) for ledger in LEDGERS]
        self.peers: list[Peer] = []
        self.waiting: list[tuple[Peer, AddRun]] = []  # single adds without an answer
        self.answered: list[tuple[Peer, AddRun]] = []
        self.next = dict.fromkeys(LEDGERS, 0)

    def collect(self) -> None:
        """What the bookie received meanwhile."""
        while self.net.asked:
            self.peers.append(self.net.accept())
        for peer in self.peers:
            for run in peer.requests():
                assert isinstance(run, AddRun)
                self.waiting += [(peer, part(run, i)) for i in range(len(run.bodies))]

    def step(self) -> None:
        self.collect()
        random = self.random
        live = [each for each in self.channels if not each.closed and not each.sink.failures]
        act = random.random()
        if act < 0.3 and live:
            self.send(random.choice(live))
        elif act < 0.7 and self.waiting:
            self.answer(random.randint(1, 8))
        elif act < 0.75 and self.answered:
            peer, run = random.choice(self.answered)
            peer.ack(run)  # once more
        elif act < 0.78 and self.waiting:
            self.waiting.pop(random.randrange(len(self.waiting)))  # forgotten
        elif act < 0.82 and live:
            one = random.choice(live)
            one.closed = True
            one.handle.close()
        elif act < 0.9:
            self.net.pump([random.choice((0.01, 0.13, 0.4))] * random.randint(1, 4))
        elif act < 0.92 and self.peers:
            self.lose(random.choice(self.peers))
        if random.random() < 0.2:
            self.channels += [Channel(self.pool, ledger) for ledger in LEDGERS if random.random() < 0.3]
        for each in self.channels:
            each.check()

    def send(self, channel: Channel) -> None:
        first, count = self.next[channel.ledger], self.random.randint(1, 12)
        adds = batch(channel.ledger, first, count, size=self.random.randint(1, 40))
        ids = list(range(first, first + count))
        if self.random.random() < 0.4:
            ids = sorted(self.random.sample(ids, self.random.randint(1, count)))
            channel.handle.send(adds, ids)
        else:
            channel.handle.send(adds)
        channel.sent.update(ids)
        if self.random.random() < 0.9:
            self.next[channel.ledger] += count

    def answer(self, most: int) -> None:
        for _ in range(most):
            if self.waiting:
                at = 0 if self.random.random() < 0.6 else self.random.randrange(len(self.waiting))
                peer, run = self.waiting.pop(at)
                self.answered.append((peer, run))
                peer.ack(run, self.random.choice((Status.EOK, Status.EOK, Status.EOK, Status.EIO)))
        self.answered = self.answered[-50:]

    def lose(self, peer: Peer) -> None:
        self.peers.remove(peer)
        self.waiting = [each for each in self.waiting if each[0] is not peer]
        self.answered = [each for each in self.answered if each[0] is not peer]
        peer.lose()

    def finish(self) -> None:
        """Everything that can still be answered is; then time passes until nothing waits."""
        self.collect()
        while self.waiting:
            self.answer(20)
        self.net.pump([0.25] * 60)
        self.collect()
        while self.waiting:
            self.answer(20)
        self.net.pump([0.25] * 60)
        for each in self.channels:
            each.check()
            if not each.closed and not each.sink.failures:
                assert each.reported() == each.sent
                assert each.handle.outstanding_bytes == 0
        self.pool.close()
        for peer in self.peers:
            peer.lose()
        self.net.pump([0.25] * 10)
        assert self.net.getDelayedCalls() == []


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("seed", range(40))
def test_any_history_reports_each_id_once_and_leaves_nothing(seed, protocol):
    """Seeds replay; a failure names its own."""
    history = History(seed, protocol)
    for _ in range(150):
        history.step()
    history.finish()


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_channel_that_was_replaced_never_counts_answers_for_its_successor(protocol):
    """The old one's adds are acknowledged after the new one sent the same ids: only the new one's own answers count."""
    net = Net()
    pool = make_pool(net, protocol=protocol)
    old, new = Listener(), Listener()
    first = pool.add_channel(BOOKIE, 1, old)
    peer = net.accept()
    first.send(batch(1, 0, 3))
    run = peer.only()
    first.close()
    second = pool.add_channel(BOOKIE, 1, new)
    other = net.accept() if net.asked else peer
    second.send(batch(1, 0, 3))
    resent = other.only()
    peer.ack(run)
    assert not old.acks
    assert not new.acks
    other.ack(resent)
    assert new.ids() == [0, 1, 2]


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_lost_connection_ends_the_channel_for_good(protocol):
    """Its owner opens another one; this one sends nothing over the next connection."""
    net = Net()
    pool = make_pool(net, protocol=protocol)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink)
    net.accept().lose()
    channel.send(batch(1, 0, 3))
    assert channel.outstanding_bytes == 0
    net.pump([0.5] * 4)
    again = Listener()
    pool.add_channel(BOOKIE, 1, again).send(batch(1, 0, 1))
    peer = net.accept()
    assert len(peer.only().bodies) == 1
    assert [code for code, _ in sink.failures] == [-8]


def test_queued_adds_keep_their_order_when_the_connection_is_made():
    """A bookie handles the adds of one connection in the order they come (obligation B7)."""
    net = Net()
    channel = make_pool(net).add_channel(BOOKIE, 1, Listener())
    for first in range(0, 30, 3):
        channel.send(batch(1, first, 3))
    peer = net.accept()
    channel.send(batch(1, 30, 3))
    assert [run.first + i for run in peer.requests() for i in range(len(run.bodies))] == list(range(33))


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize(
    ("known", "first", "second", "goes_on"),
    [
        (None, "a", "a", True),  # the first that is met counts
        (None, "a", "b", False),
        ("a", "a", "b", False),
        ("a", "a", None, False),  # a bookie that gives none is not the one that gave it
        (None, None, "a", True),  # an upgrade looks so; Apache's bookies give none
        (None, None, None, True),
    ],
)
def test_adds_go_to_one_incarnation_of_a_bookie(protocol, known, first, second, goes_on):
    """The one that was listed, or was met first, counts; one that began again, empty, gets nothing."""
    net, counted_on = Net(), {BOOKIE: known} if known else {}
    pool = make_pool(net, protocol=protocol)
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 1, sink, incarnations=counted_on)
    channel.send(batch(1, 0, 2))
    peer = net.accept(BOOKIE, incarnation=first)
    assert [len(run.bodies) for run in peer.requests()] == [2]
    peer.lose()
    net.turn()
    assert len(sink.failures) == 1
    again = Listener()
    channel = pool.add_channel(BOOKIE, 1, again, incarnations=counted_on)
    channel.send(batch(1, 2, 1))
    net.turn(1.0)
    peer = net.accept(BOOKIE, incarnation=second)
    sent = peer.requests()
    net.turn()
    assert (bool(sent), again.failures == [], channel.is_open) == (goes_on,) * 3
    if not goes_on:
        (failure,) = again.failures
        assert "began again, empty" in str(failure)


def test_an_incarnation_that_was_not_named_is_refused_on_a_connection_that_is_up():
    """Another ledger's writer made the connection, and counts on whom it met."""
    net = Net()
    pool = make_pool(net)
    pool.add_channel(BOOKIE, 1, Listener()).send(batch(1, 0, 1))
    net.accept(BOOKIE, incarnation="b")
    sink = Listener()
    channel = pool.add_channel(BOOKIE, 2, sink, incarnations={BOOKIE: "a"})
    channel.send(batch(2, 0, 1))
    assert not sink.failures, "never from inside a call of the owner"
    net.turn()
    assert len(sink.failures) == 1
    assert not channel.is_open
