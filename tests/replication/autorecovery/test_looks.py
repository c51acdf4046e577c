"""What checks look for in some ledgers: copies, their places, their number."""

from collections import Counter

import pytest

from quire.client.core.quorum import Quorums
from quire.replication.autorecovery.checks import Found, Looks, lack_of, most_missing
from quire.replication.autorecovery.walk import Page
from quire.replication.scrub.judge import Finding
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.autorecovery.processes import THREE, in_racks, options
from tests.replication.stories import closed, left_open

# SPDX-License-Identifier: Apache-2.0


def page(cluster: FakeCluster) -> Page:
    ledgers = sorted((ledger, each.value) for ledger, each in stored.Ledgers(cluster.shared).items())
    return Page(ledgers, ledgers[-1][0])


async def total(looks: "object") -> Found:
    figures: Counter[str] = Counter()
    short: dict[int, tuple[str, ...]] = {}
    wrong: tuple[Finding, ...] = ()
    async for found in looks:  # type: ignore[attr-defined]
        figures += found.figures
        short |= found.short
        wrong += found.wrong
    return Found(figures, short, wrong)


def test_copies_are_found_missing_by_lists() -> None:
    """Of settled entries and of confirmed ones."""
    cluster = FakeCluster(5)
    ledgers = [closed(cluster, {0: THREE}, 9) for _ in range(60)]
    writing = left_open(cluster, {0: THREE}, 9)
    del cluster.bookies["b1"].ledgers[ledgers[55]].entries[4]
    del cluster.bookies["b2"].ledgers[writing].entries[4]
    looks = Looks(cluster.client(), options())
    found = cluster.succeed(total(looks.copies(page(cluster))))
    assert found == Found(Counter(marked_for_copies=2), {ledgers[55]: ("b1",), writing: ("b2",)})


@pytest.mark.parametrize(("percent", "least", "most"), [(0, 0, 0), (20, 3, 25), (100, 60, 60)])
def test_a_share_of_the_entries_is_read(percent: int, least: int, most: int) -> None:
    """What lists can't show, a copy whose digest is wrong, is found in about as many; another time in others."""
    cluster = FakeCluster(5)
    ledgers = [closed(cluster, {0: THREE}, 9) for _ in range(60)]
    for ledger in ledgers:
        entries = cluster.bookies["b1"].ledgers[ledger].entries
        entries[4] = entries[4][:-1] + bytes([entries[4][-1] ^ 1])
    looks = Looks(cluster.client(), options(verified_percent=percent))
    found = [cluster.succeed(total(looks.copies(page(cluster))))]
    looks.seed = 77
    found.append(cluster.succeed(total(looks.copies(page(cluster)))))
    for each in found:
        assert least <= len(each.wrong) == each.figures["marked_for_content"] <= most
        assert {(one.bookie, one.first, one.kind) for one in each.wrong} <= {("b1", 4, "damaged")}
        assert each.short == {}
    read = [{one.ledger for one in each.wrong} for each in found]
    assert (read[0] == read[1]) == (percent != 20)


def test_what_lists_have_found_is_not_read() -> None:
    """A ledger that lacks a copy is marked for that; its other copies are looked at when it is mended."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 9)
    entries = cluster.bookies["b1"].ledgers[ledger].entries
    del entries[4]
    entries[5] = entries[5][:-1] + bytes([entries[5][-1] ^ 1])
    found = cluster.succeed(total(Looks(cluster.client(), options(verified_percent=100)).copies(page(cluster))))
    assert found == Found(Counter(marked_for_copies=1), {ledger: ("b1",)})


def test_copies_are_counted() -> None:
    """By the entry that has the fewest; nothing is marked."""
    cluster = FakeCluster(5)
    one, two, three, _four = (closed(cluster, {0: THREE}, 9) for _ in range(4))
    for ledger, names in ((one, THREE[:1]), (two, THREE[:2]), (three, THREE)):
        for name in names:
            del cluster.bookies[name].ledgers[ledger].entries[4]
    looks = Looks(cluster.client(), options())
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
    found = cluster.succeed(total(Looks(client, options(repair_placement=move)).placement(page(cluster))))
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
