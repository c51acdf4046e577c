"""A scrub of many ledgers, a batch at a time: what waits for its second look, and when all of it is told."""

from dataclasses import replace

from quire.replication.scrub.run import Batches
from quire.replication.scrub.whole import Scrubbing
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.stories import closed, damage

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]


def test_all_that_is_wrong_with_a_ledger_is_told_at_once() -> None:
    """Who goes on after an interruption looks at ledgers that waited anew: none of it may have been told before."""
    cluster = FakeCluster(3)
    both, length = closed(cluster, {0: THREE}, 9), closed(cluster, {0: THREE}, 9)
    del cluster.bookies["b1"].ledgers[both].entries[4]
    for ledger in (both, length):
        now = stored.Ledgers(cluster.shared)[ledger]
        stored.Ledgers(cluster.shared)[ledger] = now._replace(value=replace(now.value, length=7))
    batches = Batches(cluster.client(), Scrubbing(settle_s=15))
    found = cluster.succeed(batches.look([both, length]))
    assert [(each.ledger, each.kind) for each in found] == [(length, "length")]
    assert batches.waiting == [both]
    rest = cluster.succeed(batches.rest())
    assert sorted((each.ledger, each.kind) for each in rest) == [(both, "length"), (both, "missing")]
    assert batches.waiting == []


def test_a_copy_that_comes_meanwhile_is_no_finding() -> None:
    """While another batch is looked at; what is still wrong is found with that batch."""
    cluster = FakeCluster(3)
    late, lacking, wrong, other = (closed(cluster, {0: THREE}, 9) for _ in range(4))
    body = cluster.bookies["b1"].ledgers[late].entries.pop(4)
    del cluster.bookies["b1"].ledgers[lacking].entries[4]
    damage(cluster, "b2", wrong, 4)
    batches = Batches(cluster.client(), Scrubbing(settle_s=15))
    found = cluster.succeed(batches.look([late, lacking, wrong]))
    assert [(each.ledger, each.kind, each.bookie) for each in found] == [(wrong, "damaged", "b2")]
    assert batches.waiting == [late, lacking]
    cluster.bookies["b1"].ledgers[late].entries[4] = body
    cluster.spin(15)
    found = cluster.succeed(batches.look([other]))
    assert [(each.ledger, each.kind, each.bookie) for each in found] == [(lacking, "missing", "b1")]
    assert batches.copies == 4 * 30
