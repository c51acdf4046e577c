"""What checks look for in some ledgers: copies, their places, their number."""

from collections import Counter

import pytest

from quire.client.core.quorum import Quorums
from quire.replication.autorecovery.checks import Found, Looks, lack_of, most_missing
from quire.replication.autorecovery.walk import Page
from quire.replication.scrub.judge import Finding
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.autorecovery.processes import THREE, in_racks
from tests.replication.stories import closed, left_open

# SPDX-License-Identifier: Apache-2.0


def page(cluster: FakeCluster) -> Page:
    ledgers = sorted((ledger, each.value) for ledger, each in stored.Ledgers(cluster.shared).items())
    return Page(ledgers, ledgers[-1][0])


async def total(looks: "object") -> Found:
    figures: Counter[str] = Counter()
    short: dict[int, tuple[str, ...]] = {}
    async for found in looks:  # type: ignore[attr-defined]
        figures += found.figures
        short |= found.short
    return Found(figures, short)


def test_copies_are_found_missing_by_lists() -> None:
    """Of settled entries and of confirmed ones."""
    cluster = FakeCluster(5)
    ledgers = [closed(cluster, {0: THREE}, 9) for _ in range(60)]
    writing = left_open(cluster, {0: THREE}, 9)
    del cluster.bookies["b1"].ledgers[ledgers[55]].entries[4]
    del cluster.bookies["b2"].ledgers[writing].entries[4]
    looks = Looks(cluster.client(), None, move=False)
    found = cluster.succeed(total(looks.copies(page(cluster))))
    assert found == Found(Counter(marked_for_copies=2), {ledgers[55]: ("b1",), writing: ("b2",)})


def test_copies_are_counted() -> None:
    """By the entry that has the fewest; nothing is marked."""
    cluster = FakeCluster(5)
    one, two, three, _four = (closed(cluster, {0: THREE}, 9) for _ in range(4))
    for ledger, names in ((one, THREE[:1]), (two, THREE[:2]), (three, THREE)):
        for name in names:
            del cluster.bookies[name].ledgers[ledger].entries[4]
    looks = Looks(cluster.client(), None, move=False)
    found = cluster.succeed(total(looks.replicas(page(cluster))))
    assert found.short == {}
    assert found.figures == {
        "ledgers_below_write_quorum": 1,
        "ledgers_below_ack_quorum": 1,
        "ledgers_with_entries_without_copy": 1,
    }


@pytest.mark.parametrize("move", [False, True])
def test_places_are_counted_or_marked(move: bool) -> None:
    """Without a bookie: it is the places that are wrong."""
    cluster = FakeCluster(5)
    client = in_racks(cluster)
    ledger = closed(cluster, {0: THREE}, 9)
    closed(cluster, {0: ["b0", "b1", "b3"]}, 9)
    left_open(cluster, {0: THREE}, 9)
    found = cluster.succeed(total(Looks(client, None, move=move).placement(page(cluster))))
    assert found == Found(Counter(misplaced_ledgers=1), {ledger: ()} if move else {})


def test_the_entry_that_lacks_most() -> None:
    """However findings overlap; of a striped ledger their ranges have entries in them that belong on others."""

    def finding(index: int, first: int, last: int) -> Finding:
        return Finding(1, 0, index, "b", first, last, last - first + 1, "missing", -13, "")

    everywhere, striped = Quorums(3, 3, 2), Quorums(3, 2, 2)
    assert most_missing(everywhere, []) == 0
    assert most_missing(everywhere, [finding(0, 0, 4), finding(1, 5, 9)]) == 1
    assert most_missing(everywhere, [finding(0, 0, 5), finding(1, 5, 9)]) == 2
    assert most_missing(striped, [finding(0, 0, 2), finding(1, 1, 1)]) == 1  # 0 and 2 of the one, 1 of the other
    assert most_missing(striped, [finding(0, 0, 9), finding(1, 9, 9)]) == 2
    assert most_missing(striped, [finding(0, 0, 1 << 40), finding(1, 1, 1 << 40), finding(2, 5, 5)]) == 2
    assert [lack_of(copies, 2).rpartition("_")[2] for copies in (2, 1, 0, -1)] == ["quorum", "quorum", "copy", "copy"]
