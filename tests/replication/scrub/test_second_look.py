"""Each fault is found as what it is, and nothing else; what changes meanwhile is no fault."""

import pytest

from quire.metadata.ledger import LedgerState
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.scrub.scrubbing import changing, rewrite, scrub, scrubbed
from tests.replication.stories import closed, cookie, damage, left_open, payload

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]
FOUR = ["b0", "b1", "b2", "b3"]


def entries(cluster, bookie, ledger):
    return cluster.bookies[bookie].ledgers[ledger].entries


@pytest.mark.parametrize("by_lists", [False, True])
def test_nothing_is_wrong_with_whole_ledgers(by_lists):
    """Plain, striped, with several fragments and an empty last one, with no entry, open ones."""
    cluster = FakeCluster(5)
    for last in (-1, 0, 7, 5000):
        closed(cluster, {0: THREE}, last)
        closed(cluster, {0: FOUR}, last, write=2)
    closed(cluster, {0: THREE, 10: ["b0", "b1", "b3"], 21: ["b4", "b1", "b3"]}, 20)
    left_open(cluster, {0: THREE, 4100: ["b4", "b1", "b2"]}, 4200)
    assert scrubbed(cluster, by_lists=by_lists) == []


def test_each_fault_is_found_as_what_it_is():
    """Flipped bit, dropped entry, truncated log, swapped entries, stale LAC, differing copy, head that can't be."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 5000)
    damage(cluster, "b0", ledger, 7)
    del entries(cluster, "b1", ledger)[4500]
    for entry in range(4900, 5001):
        del entries(cluster, "b2", ledger)[entry]
    stored = entries(cluster, "b1", ledger)
    stored[20], stored[21] = stored[21], stored[20]
    rewrite(cluster, "b2", ledger, 30, lac=3)
    rewrite(cluster, "b0", ledger, 40, payload=payload(40)[:-1] + b"?")
    rewrite(cluster, "b1", ledger, 50, lac=99_999)
    assert sorted(scrubbed(cluster)) == [
        ("damaged", "b0", 7, 7, 1),
        ("damaged", "b1", 20, 21, 2),
        ("differs", "b0", 40, 40, 1),
        ("head", "b1", 50, 50, 1),
        ("missing", "b1", 4500, 4500, 1),
        ("missing", "b2", 4900, 5000, 101),
        ("stale", "b2", 30, 30, 1),
    ]


def test_faults_of_a_striped_ledger():
    """Rows count the entries that the bookie should have; copies are compared by who should have them."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: FOUR}, 99, write=2)
    cluster.bookies["b3"].ledgers[ledger].entries.clear()
    rewrite(cluster, "b0", ledger, 40, payload=b"x" * len(payload(40)))
    found = scrubbed(cluster)
    assert ("missing", "b3", 2, 99, 50) in found
    # of two copies nobody knows which is right
    assert {each for each in found if each[0] == "differs"} == {
        ("differs", "b0", 40, 40, 1),
        ("differs", "b1", 40, 40, 1),
    }
    assert len(found) == 3


def test_a_wrong_ensemble_is_found():
    """With the bookie that has the entries; where the true one is not there any more they are missing."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 50)
    now = cluster.succeed(cluster.store.read_ledger(ledger))
    wrong = now.value.replace_bookies(0, ("b0", "b3", "b2"))
    cluster.succeed(cluster.store.write_ledger(ledger, wrong, now.version))
    assert scrubbed(cluster) == [("misplaced", "b3", 0, 50, 51)]
    del cluster.bookies["b1"].ledgers[ledger]
    assert scrubbed(cluster) == [("missing", "b3", 0, 50, 51)]


def test_what_no_bookie_has_is_lost():
    """Only these entries; the others of a bookie are missing."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: THREE}, 50)
    for bookie, first in (("b0", 10), ("b1", 20), ("b2", 30)):
        for entry in range(first, 41):
            del entries(cluster, bookie, ledger)[entry]
    damage(cluster, "b2", ledger, 29)
    assert sorted(scrubbed(cluster)) == [
        ("lost", "b0", 29, 40, 12),
        ("lost", "b1", 29, 40, 12),
        ("lost", "b2", 29, 29, 1),
        ("lost", "b2", 30, 40, 11),
        ("missing", "b0", 10, 28, 19),
        ("missing", "b1", 20, 28, 9),
    ]


def test_a_bookie_that_is_down_is_asked_a_few_times():
    """All that it should have is unreachable, whatever number of ledgers there are."""
    cluster = FakeCluster(4)
    for bookie in THREE:
        cookie(cluster, bookie)
    ledgers = [closed(cluster, {0: THREE}, 5) for _ in range(20)]
    cluster.kill("b1")
    assert scrubbed(cluster) == [("unreachable", "b1", 0, 5, 6)] * len(ledgers)


def test_a_bookie_in_limbo_is_not_said_to_have_lost_anything():
    """It is being filled again."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: THREE}, 5)
    cluster.bookies["b1"].limbo = True
    del cluster.bookies["b1"].ledgers[ledger]
    assert scrubbed(cluster) == [("restoring", "b1", 0, 5, 6)]


def test_what_a_recovery_wrote_again_is_no_fault():
    """Another last add confirmed in the heads of a tail, on some of the bookies."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: THREE}, 50)
    for entry in range(40, 51):
        rewrite(cluster, "b1", ledger, entry, lac=39)
    assert scrubbed(cluster) == []


def test_what_changes_between_the_looks_is_no_fault():
    """A ledger is deleted, a bookie is replaced, a late copy arrives."""
    cluster = FakeCluster(4)
    deleted, repaired, late = (closed(cluster, {0: THREE}, 50) for _ in range(3))
    for ledger in (deleted, repaired, late):
        del entries(cluster, "b1", ledger)[10]
    body = entries(cluster, "b0", late)[10]
    cluster.bookies["b3"].stored(repaired).entries.update(entries(cluster, "b0", repaired))

    def change():
        del stored.Ledgers(cluster.shared)[deleted]
        now = stored.Ledgers(cluster.shared)[repaired]
        stored.Ledgers(cluster.shared)[repaired] = now._replace(
            value=now.value.replace_bookies(0, ("b0", "b3", "b2")), version=now.version + 1
        )
        entries(cluster, "b1", late)[10] = body

    assert scrubbed(cluster, between=change) == []


def test_a_ledger_that_is_recovered_meanwhile():
    """What is not there of one that is being recovered is found all the same."""
    cluster = FakeCluster(3)
    ledger = left_open(cluster, {0: THREE}, 50)
    now = cluster.succeed(cluster.store.read_ledger(ledger))
    cluster.succeed(cluster.store.write_ledger(ledger, now.value.recovering(), now.version))
    del entries(cluster, "b1", ledger)[10]
    assert cluster.metadata(ledger).state is LedgerState.IN_RECOVERY
    assert scrubbed(cluster) == [("missing", "b1", 10, 10, 1)]


def test_a_ledger_that_changes_all_the_time_is_not_called_good():
    """What was suspected could not be looked at: that is a finding, and the next scrub finds what is wrong."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: THREE}, 50)
    del entries(cluster, "b1", ledger)[10]
    found = cluster.succeed(scrub(cluster.client(), between=lambda: changing(cluster, ledger)))
    assert [(each.ledger, each.kind, each.index) for each in found] == [(ledger, "changing", -1)]
    cluster.judge = lambda _request: "pass"
    assert scrubbed(cluster) == [("missing", "b1", 10, 10, 1)]
