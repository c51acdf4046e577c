"""
Storing copies: recovery adds over V3 with the bodies untouched, and nothing counts as stored before every id was
acknowledged.
"""

from quire.protocol.errors import Status
from quire.replication.replicas import Target
from tests.client.fakes.scripted import DIGEST, Net, body, make_pool, part, pending, result

BODIES = [body(1, entry, b"x" * entry) for entry in range(6)]


def target():
    net = Net()
    made = Target(make_pool(net), "127.0.0.1:1", 1, DIGEST.master_key)
    return made, net.accept()


def test_bodies_go_out_as_they_are():
    """With the recovery flag, without priority, under the ledger's own key."""
    made, peer = target()
    made.store([(0, BODIES[:3]), (5, BODIES[5:])])
    runs = peer.requests()
    assert [(run.first, run.bodies) for run in runs] == [(0, BODIES[:3]), (5, BODIES[5:])]
    assert {(run.recovery, run.priority, run.master_key, run.txns is not None) for run in runs} == {
        (True, 0, DIGEST.master_key, True)
    }


def test_it_is_stored_when_every_id_was_acknowledged_in_whatever_order():
    """The answer comes with the last acknowledgement, and later batches follow."""
    made, peer = target()
    answer = made.store([(0, BODIES[:3]), (5, BODIES[5:])])
    first, second = peer.requests()
    peer.ack(second)
    peer.ack(part(first, 1, 2))
    assert pending(answer)
    peer.ack(part(first, 0))
    assert result(answer) == 0
    again = made.store([(3, BODIES[3:5])])
    peer.ack(peer.only())
    assert result(again) == 0


def test_one_refusal_fails_the_batch_and_all_that_follows():
    """Later batches get the code of the first refusal."""
    made, peer = target()
    answer = made.store([(0, BODIES[:3])])
    run = peer.only()
    peer.ack(part(run, 1), Status.EREADONLY)
    peer.ack(part(run, 0))
    assert result(answer) == -104
    assert result(made.store([(3, BODIES[3:])])) == -104


def test_a_lost_connection_fails_it_also_between_batches():
    """The batch in flight, or else the next one, gets the code."""
    made, peer = target()
    answer = made.store([(0, BODIES[:3])])
    peer.lose()
    assert result(answer) == -8
    other, its_peer = target()
    its_peer.lose()
    assert result(other.store([(0, BODIES)])) == -8


def test_after_close_nothing_is_heard():
    """Acknowledgements after a close are ignored."""
    made, peer = target()
    answer = made.store([(0, BODIES[:3])])
    made.close()
    peer.ack(peer.only())
    assert pending(answer)
