"""Checking a ledger: missing, damaged and unreachable copies are each found, and nothing else is touched."""

from collections import Counter

import pytest

from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import NoSuchLedger
from quire.replication.checker import CheckProgress, LedgerCheck, check_ledger
from quire.replication.scrub.examine import BYTES_MAX, SINGLES_MAX, Missing, merged
from tests.client.fakes.cluster import FakeCluster

DIGEST = Digest(DigestType.CRC32C, b"")


def filled(cluster: FakeCluster, ensemble, entries: int, write: int = 3, ack: int = 2) -> int:
    """A closed ledger with `entries` entries, written through the real writer."""
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(ensemble_size=len(ensemble), write_quorum=write, ack_quorum=ack))
    cluster.succeed(writer.append_many([b"%05d" % number for number in range(entries)]))
    cluster.spin(1)
    cluster.succeed(writer.close())
    return writer.id


def bookies_of(cluster, ledger, fragment=0):
    return cluster.metadata(ledger).fragments[fragment].bookies


@pytest.mark.parametrize("write", [3, 2])
def test_a_whole_ledger_is_complete(write):
    """Every copy counted once, striped or not; progress ends at all of them."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 100, write=write)
    steps: list[CheckProgress] = []
    check = cluster.succeed(check_ledger(cluster.client(), ledger, steps.append))
    assert check.complete
    assert (check.last, check.copies_expected, check.copies_missing) == (99, 100 * write, 0)
    assert (steps[-1].copies, steps[-1].expected) == (100 * write, 100 * write)
    assert len(steps) < 100 or write == 2


@pytest.mark.parametrize("write", [3, 2])
def test_missing_entries_are_named_with_their_bookie(write):
    """Each entry that a bookie lacks is found, with the code for "no such entry"."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 60, write=write)
    one, two = bookies_of(cluster, ledger)[:2]
    stored = cluster.bookies[one].ledgers[ledger].entries
    gone = [entry for entry in (3, 4, 5, 6, 40, 41) if entry in stored]
    for entry in gone:
        del stored[entry]
    del (
        cluster.bookies[two]
        .ledgers[ledger]
        .entries[next(entry for entry in gone if entry in cluster.bookies[two].ledgers[ledger].entries)]
    )
    check = cluster.succeed(check_ledger(cluster.client(), ledger))
    assert sorted(each.first + i for each in check.missing for i in range(each.entries) if each.bookie == one) == gone
    assert check.copies_missing == len(gone) + 1
    assert all(each.code == -13 for each in check.missing)


def test_a_damaged_copy_is_missing_and_its_neighbours_are_not():
    """A flipped bit, and two entries swapped: both are caught by digest and ids."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 20)
    one, two, _ = bookies_of(cluster, ledger)
    entries = cluster.bookies[one].ledgers[ledger].entries
    entries[7] = entries[7][:-1] + bytes([entries[7][-1] ^ 1])
    swapped = cluster.bookies[two].ledgers[ledger].entries
    swapped[11], swapped[12] = swapped[12], swapped[11]
    check = cluster.succeed(check_ledger(cluster.client(), ledger))
    assert set(check.missing) == {Missing(one, 7, 1, -5), Missing(two, 11, 2, -5)}


def test_a_bookie_that_is_down_lacks_everything_and_is_asked_once_or_twice():
    """It is one finding over all entries, after at most two requests."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 50)
    one = bookies_of(cluster, ledger)[0]
    cluster.kill(one)
    client = cluster.client()
    check = cluster.succeed(check_ledger(client, ledger))
    assert check.missing == (Missing(one, 0, 50, -8),)
    assert sum(request.bookie == one for request in client.pool.asked) <= 2


def test_a_bookie_that_never_heard_of_the_ledger_is_one_finding():
    """All its entries are missing with "no such ledger there"."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 50)
    one = bookies_of(cluster, ledger)[2]
    del cluster.bookies[one].ledgers[ledger]
    check = cluster.succeed(check_ledger(cluster.client(), ledger))
    assert check.missing == (Missing(one, 0, 50, -7),)


def test_a_long_gap_costs_few_requests():
    """The bookie's own list of entries says where the gap ends."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 500)
    one = bookies_of(cluster, ledger)[1]
    entries = cluster.bookies[one].ledgers[ledger].entries
    for entry in range(10, 480):
        del entries[entry]
    client = cluster.client()
    check = cluster.succeed(check_ledger(client, ledger))
    assert check.missing == (Missing(one, 10, 470, -13),)
    assert sum(request.bookie == one for request in client.pool.asked) < 10


def test_a_bookie_that_does_not_list_what_it_stores_is_asked_for_each_entry():
    """Apache's RocksDB bookies never answer the list."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 20)
    one = bookies_of(cluster, ledger)[1]
    for entry in range(5, 9):
        del cluster.bookies[one].ledgers[ledger].entries[entry]
    cluster.judge = lambda request: "drop" if request.op == "list" else "pass"
    check = cluster.succeed(check_ledger(cluster.client(), ledger))
    assert check.missing == (Missing(one, 5, 4, -13),)


def test_a_long_gap_of_a_bookie_that_does_not_list_takes_little_time():
    """
    A replica in limbo answers neither list nor batch: the entries are asked for many at a time, and each good one in
    between counts.
    """
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 800)
    one = bookies_of(cluster, ledger)[1]
    entries = cluster.bookies[one].ledgers[ledger].entries
    gone = [entry for entry in range(10, 790) if entry not in (400, 401, 700)]
    for entry in gone:
        del entries[entry]
    entries[700] = entries[700][:-1] + bytes([entries[700][-1] ^ 1])
    together = reads_of(cluster, one)
    client = cluster.client()
    steps: list[CheckProgress] = []
    began = cluster.clock.seconds()
    check = cluster.succeed(check_ledger(client, ledger, steps.append), seconds=600)
    spent = cluster.clock.seconds() - began
    assert [entry for each in check.missing for entry in range(each.first, each.first + each.entries)] == sorted(
        [*gone, 700]
    )
    assert [each for each in check.missing if each.code == -5] == [Missing(one, 700, 1, -5)]
    assert steps[-1].copies == check.copies_expected
    assert spent < client.options.read_timeout_ms / 1000 + 0.5  # the list's time-out, and a few rounds
    assert 100 < max(together.values()) <= SINGLES_MAX


def reads_of(cluster, one):
    """How many reads reach a bookie in each moment from now on; no bookie lists its entries."""
    reads = Counter()

    def counting(request):
        if request.bookie == one and request.op in ("read", "batch"):
            reads[cluster.clock.seconds()] += 1
        return "drop" if request.op == "list" else "pass"

    cluster.judge = counting
    return reads


def test_large_entries_are_asked_for_fewer_at_a_time():
    """
    Their size is known only once some were asked for together; what these bring back fits into what a check may
    hold.
    """
    cluster = FakeCluster(3)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    for _ in range(4):
        cluster.succeed(writer.append_many([bytes(1 << 20)] * 16))
    cluster.succeed(writer.close())
    one = bookies_of(cluster, writer.id)[1]
    gone = (0, 1, 3, 7, 15, 31)  # whatever is asked for alone is missing
    for entry in gone:
        del cluster.bookies[one].ledgers[writer.id].entries[entry]
    asked = reads_of(cluster, one)
    check = cluster.succeed(check_ledger(cluster.client(), writer.id), seconds=600)
    assert check.copies_missing == len(gone)
    assert 1 < max(asked.values()) <= BYTES_MAX >> 20


def test_a_time_out_is_asked_again_before_it_counts():
    """A ledger is complete although two requests got no answer."""
    cluster = FakeCluster(3)
    ledger = filled(cluster, range(3), 20)
    one = bookies_of(cluster, ledger)[0]
    dropped: list[object] = []

    def judge(request):
        if request.bookie == one and request.op == "batch" and len(dropped) < 2:
            dropped.append(request)
            return "drop"
        return "pass"

    cluster.judge = judge
    assert cluster.succeed(check_ledger(cluster.client(), ledger)).complete


def test_an_open_ledger_is_looked_at_up_to_its_last_add_confirmed_and_stays_open():
    """Nothing is fenced, nothing written."""
    cluster = FakeCluster(3)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    for number in range(5):
        cluster.succeed(writer.append(b"%d" % number))
    cluster.spin(1)
    check = cluster.succeed(check_ledger(cluster.client(), writer.id))
    assert check.complete
    assert check.last == 3
    assert cluster.succeed(writer.append(b"more")) == 5
    assert not any(bookie.ledgers[writer.id].fenced for bookie in cluster.bookies.values())


def test_an_empty_ledger_and_a_trailing_empty_fragment_lack_nothing():
    """Neither expects copies."""
    cluster = FakeCluster(4)
    ledger = cluster.ledger({0: ["b0", "b1", "b2"], 5: ["b3", "b1", "b2"]}, 3, 2)
    for entry in range(5):
        cluster.put(ledger, entry, b"x", entry - 1, entry + 1, "b0", "b1", "b2")
    stored = cluster.succeed(cluster.store.read_ledger(ledger))
    cluster.succeed(cluster.store.write_ledger(ledger, stored.value.closed(4, 5), stored.version))
    check = cluster.succeed(check_ledger(cluster.client(), ledger))
    assert check.complete
    assert check.copies_expected == 15
    empty = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    assert cluster.succeed(check_ledger(cluster.client(), empty)).copies_expected == 0


def test_a_ledger_that_is_not_there_is_an_error():
    """A check raises `NoSuchLedger`."""
    cluster = FakeCluster(3)
    assert isinstance(cluster.fails(check_ledger(cluster.client(), 99)), NoSuchLedger)


def test_findings_of_one_kind_are_joined():
    """Neighbouring entries with the same bookie and code become one finding."""
    found = [Missing("a", 5, 1, -13), Missing("a", 4, 1, -13), Missing("a", 6, 1, -5), Missing("a", 8, 2, -5)]
    assert merged(found) == [Missing("a", 4, 2, -13), Missing("a", 6, 1, -5), Missing("a", 8, 2, -5)]


def test_what_is_missing_is_grouped_by_fragment():
    """A run that reaches over the end of a fragment is cut there; whole fragments are left out."""
    from quire.metadata.ledger import LedgerState

    check = LedgerCheck(1, LedgerState.CLOSED, 9, 30, (Missing("a", 2, 4, -13), Missing("b", 4, 4, -13)), (0, 5, 8))
    assert check.by_fragment() == {
        0: [Missing("a", 2, 3, -13), Missing("b", 4, 1, -13)],
        5: [Missing("a", 5, 1, -13), Missing("b", 5, 3, -13)],
    }
