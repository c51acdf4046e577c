"""One term of an auditor: what it is told, and that nothing of it is left when it is over."""

import pytest

from quire.metadata.ledger import LedgerMetadata
from quire.replication.autorecovery import walk
from quire.replication.autorecovery.auditor import Auditor
from quire.replication.concurrently import BEGIN_AGAIN_S
from tests.client.fakes.cluster import FakeCluster
from tests.replication.autorecovery.processes import AWAY, THREE, faulty, joined, options, queue
from tests.replication.stories import closed

# SPDX-License-Identifier: Apache-2.0


def auditing(cluster: FakeCluster, **changed: object) -> Auditor:
    made = Auditor(joined(cluster), options(**changed))
    made.start()
    return made


def test_after_the_end_nothing_is_marked() -> None:
    """Whoever leaves, whatever is asked for; no timer and no watch stays."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 5)
    auditor = auditing(cluster, lost_bookie_recovery_delay_s=30)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(5)
    auditor.stop()
    cluster.succeed(cluster.store.auditing.set_delay(0))
    cluster.spin(100)
    assert queue(cluster) == []
    assert cluster.clock.getDelayedCalls() == []


def test_the_first_one_says_the_delay() -> None:
    """Also when the store is away at first; later ones take what is there."""
    cluster = FakeCluster(5)
    client = joined(cluster)
    auditor = Auditor(client, options(lost_bookie_recovery_delay_s=60))
    faulty(client, lambda _name, _arguments: AWAY)
    auditor.start()
    cluster.spin(30)
    faulty(client, lambda _name, _arguments: None)
    cluster.spin(5)
    assert cluster.succeed(cluster.store.auditing.delay()) == 60
    auditor.stop()
    second = auditing(cluster, lost_bookie_recovery_delay_s=5)
    cluster.spin(5)
    closed(cluster, {0: THREE}, 5)
    cluster.kill("b2")
    cluster.spin(50)
    assert queue(cluster) == []
    cluster.spin(15)
    assert len(queue(cluster)) == 1
    second.stop()


def test_what_nobody_foresaw_ends_no_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next lost bookie is found all the same, a minute later."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 5)
    right, failed = walk.short_of, []

    def fails(metadata: LedgerMetadata, lost: frozenset[str]) -> tuple[str, ...]:
        if lost and not failed:
            failed.append(lost)
            raise KeyError("a fault of ours")
        return right(metadata, lost)

    monkeypatch.setattr(walk, "short_of", fails)
    auditor = auditing(cluster)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(5)
    assert (queue(cluster), len(failed)) == ([], 1)
    cluster.spin(BEGIN_AGAIN_S + 5)
    assert len(queue(cluster)) == 1
    auditor.stop()


def test_a_first_start_is_no_wish_for_an_audit() -> None:
    """That it says the delay itself costs no second pass."""
    cluster = FakeCluster(5)
    auditor = auditing(cluster)
    cluster.spin(5)
    assert auditor.losses.passes == 1
    cluster.succeed(cluster.store.auditing.set_delay(0))
    cluster.spin(5)
    assert auditor.losses.passes == 2
    auditor.stop()
