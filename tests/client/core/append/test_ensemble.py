"""Which bookies a writer has, and what it can do without some of them."""

from quire.client.core.append.ensemble import Ensemble, Standing
from quire.client.core.quorum import Quorums

# SPDX-License-Identifier: Apache-2.0


def ensemble(write: int = 3, ack: int = 2) -> Ensemble:
    return Ensemble(Quorums(3, write, ack), None, ("b0", "b1", "b2"), -1)


def test_a_replacement_has_a_channel_of_its_own() -> None:
    """The channel of the one before is forgotten, also when the same bookie comes back."""
    made = ensemble()
    replicas, channels, old = made.replicas, made.channels, made.replicas[1]
    new = made.install(1, "b1", 7)
    assert old.channel not in made.channels
    assert made.channels[new.channel] is new is made.replicas[1]
    assert new.watermark == 7
    assert (made.replicas, made.channels) == (replicas, channels)
    assert made.replicas is replicas
    assert made.channels is channels


def test_standings_and_their_failures() -> None:
    """By index, whatever the order of the standings asked for."""
    made = ensemble()
    made.replicas[2].standing, made.replicas[2].failure = Standing.OUT, "b2 is gone"
    made.replicas[0].standing, made.replicas[0].failure = Standing.FAILED, "b0 refused"
    assert [replica.bookie for replica in made.standing(Standing.OUT, Standing.FAILED)] == ["b0", "b2"]
    assert made.failures(Standing.OUT, Standing.FAILED) == "b0 refused; b2 is gone"
    assert made.failures(Standing.LAPSED) == ""


def test_what_is_at_its_quorum() -> None:
    """An entry needs the acknowledgements of its own write set."""
    made = ensemble(write=2)
    quorums = Quorums(3, 2, 2)
    for index in quorums.write_set(4):
        assert not made.at_quorum(4)
        made.replicas[index].sent = 4
        made.replicas[index].acknowledge(4, 4, -1, quorums)
    assert made.at_quorum(4)
    assert not made.at_quorum(5)


def test_what_is_writable_without_some() -> None:
    """Those without a channel count as lost already."""
    made = ensemble()
    assert made.writable_without({0})
    assert not made.writable_without({0, 1})
    assert made.can_lose([made.replicas[0]])
    del made.channels[made.replicas[1].channel]
    assert not made.can_lose([made.replicas[0]])
    assert made.can_lose([made.replicas[1]])
