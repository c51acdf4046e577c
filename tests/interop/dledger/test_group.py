"""A group of DLedger, as the bench beside it uses one: it appends, and goes on when its leader is killed."""

import time

import pytest

from tests.interop.dledger.group import Group
from tests.interop.peer import PeerError

# SPDX-License-Identifier: Apache-2.0


def appended(group: Group, **words: int) -> dict[str, float]:
    """Tried again where the group was too slow to acknowledge, as a cold one may be."""
    end = time.monotonic() + 60
    while True:
        try:
            return group.leader().call("append", **words)
        except PeerError:
            if time.monotonic() > end:
                raise


def test_a_killed_leader_is_replaced() -> None:
    """By a member that has all that was acknowledged; the killed one comes back and agrees."""
    with Group() as group:
        for batch in (1, 10):
            found = appended(group, size=100, entries=100, batch=batch, calls=4)
            assert found["entries_per_second"] > 0
            assert 0 < found["p50_ms"] <= found["p99_ms"]
        killed = group.leader()
        killed.call("busy")
        end = killed.call("state")["committed"]
        begun = time.monotonic()
        group.kill(killed.id)
        taker, at = group.leads(killed.id)
        assert taker is not killed
        assert at > begun
        assert group.leader().call("state")["committed"] > end >= 199
        group.start(killed.id)
        assert group.leader().id != killed.id


def test_only_the_leader_appends() -> None:
    """What a follower is asked to append fails, and says so."""
    with Group() as group:
        leader = group.leader()
        follower = next(member for member in group.members.values() if member is not leader)
        with pytest.raises(PeerError, match="code 404"):
            follower.call("append", size=10, entries=1, batch=1, calls=1)
