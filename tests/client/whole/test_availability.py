"""
The availability table (availability.md 2), for every E <= 5: what an ensemble bears without spares.

A small model says for each set of dead bookies what can be done; the table is computed from it and compared with the
worked values and bounds there; and the whole client is held against the model on a fake cluster, with every
set of dead bookies (those that only turn the ring are left out).
"""

import pathlib
import re
from itertools import combinations

import pytest

from quire.client.core.quorum import Quorums
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored

SHAPES = [(e, w, a) for e in range(1, 6) for w in range(1, e + 1) for a in range(1, w + 1)]
# any f / luckiest f: append, read (full), read (AQ copies), fence, recover
WORKED = {
    (1, 1, 1): ((0, 0), (0, 0), 0, (0, 0), (0, 0)),
    (2, 2, 1): ((1, 1), (1, 1), 0, (0, 0), (0, 0)),
    (2, 2, 2): ((0, 0), (1, 1), 1, (1, 1), (0, 0)),
    (3, 2, 2): ((0, 0), (1, 1), 1, (1, 1), (0, 0)),
    (3, 3, 2): ((1, 1), (2, 2), 1, (1, 1), (1, 1)),
    (3, 3, 3): ((0, 0), (2, 2), 2, (2, 2), (0, 0)),
    (4, 2, 2): ((0, 0), (1, 2), 1, (1, 2), (0, 0)),
    (4, 3, 2): ((1, 1), (2, 2), 1, (1, 1), (1, 1)),
    (5, 3, 2): ((1, 1), (2, 3), 1, (1, 1), (1, 1)),
    (5, 3, 3): ((0, 0), (2, 3), 2, (2, 3), (0, 0)),
    (5, 5, 3): ((2, 2), (4, 4), 2, (2, 2), (2, 2)),
}


def name(shape):
    return "/".join(map(str, shape))


def write_sets(shape):
    e, w, _a = shape
    return [{(start + step) % e for step in range(w)} for start in range(e)]


def can_append(shape, dead):
    return all(len(those - dead) >= shape[2] for those in write_sets(shape))


def can_read(shape, dead):
    return all(those - dead for those in write_sets(shape))


def can_read_few(shape, dead):
    """Entries that only the first AQ of their write set hold."""
    e, _w, a = shape
    return all({(start + step) % e for step in range(a)} - dead for start in range(e))


def can_fence(shape, dead):
    return all(len(those & dead) < shape[2] for those in write_sets(shape))


def can_recover(shape, dead, tail=0):
    """
    Fence, say "absent" of the first entry that is not there, and write back what is (one entry of each write set).
    """
    _e, w, a = shape
    return can_fence(shape, dead) and can_append(shape, dead) and len(write_sets(shape)[tail] - dead) >= w - a + 1


def bounds(shape, can):
    """(any f, luckiest f)."""
    e = shape[0]
    verdicts = [[can(shape, set(dead)) for dead in combinations(range(e), f)] for f in range(e + 1)]
    safe = next((f for f, found in enumerate(verdicts) if not all(found)), e + 1) - 1
    return safe, max((f for f, found in enumerate(verdicts) if any(found)), default=-1)


def test_the_page_has_the_worked_values():
    """availability.md 2, row by row."""
    page = (pathlib.Path(__file__).parents[3] / "docs" / "design" / "availability.md").read_text()
    rows = [re.findall(r"\d+", line) for line in page.splitlines() if re.match(r"\| \d", line)]
    assert [tuple(map(int, row)) for row in rows] == [
        (*shape, *append, *full, few, *fence, *recover) for shape, (append, full, few, fence, recover) in WORKED.items()
    ]


@pytest.mark.parametrize("shape", WORKED, ids=name)
def test_the_worked_values(shape):
    """The model gives the numbers of availability.md 2 of failures that each operation survives."""
    append, full, few, fence, recover = WORKED[shape]
    assert bounds(shape, can_append) == append
    assert bounds(shape, can_read) == full
    assert bounds(shape, can_read_few)[0] == few
    assert bounds(shape, can_fence) == fence
    assert bounds(shape, can_recover) == recover


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_the_general_bounds(shape):
    """
    Appending costs WQ - AQ, fencing AQ - 1, recovery the lesser; a read WQ - 1, or AQ - 1 where only the ack quorum
    holds an entry.
    """
    _e, w, a = shape
    assert bounds(shape, can_append)[0] == w - a
    assert bounds(shape, can_fence)[0] == a - 1
    assert bounds(shape, can_recover)[0] == min(a - 1, w - a)
    assert bounds(shape, can_read)[0] == w - 1
    assert bounds(shape, can_read_few)[0] == a - 1


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_the_core_says_the_same_of_every_set(shape):
    """Quorum arithmetic agrees with the model for every set of dead bookies."""
    quorums, e = Quorums(*shape), shape[0]
    for f in range(e + 1):
        for dead in map(set, combinations(range(e), f)):
            assert quorums.writable_without(dead) == can_append(shape, dead)
            assert quorums.covered(set(range(e)) - dead) == can_fence(shape, dead)


def rings(e):
    """Every set of dead indexes, one of those that differ by a turn of the ring."""
    seen = set()
    for f in range(e + 1):
        for dead in combinations(range(e), f):
            least = min(tuple(sorted((index + turn) % e for index in dead)) for turn in range(e))
            if least not in seen:
                seen.add(least)
                yield set(least)


def left(shape, copies, dead):
    """
    A ledger whose writer is gone, with one entry for each write set, `copies` of each and none known to be confirmed.
    """
    e = shape[0]
    cluster = FakeCluster(e)
    ledger = cluster.ledger({0: [f"b{index}" for index in range(e)]}, shape[1], shape[2])
    for entry in range(e):
        cluster.put(ledger, entry, b"x", -1, entry + 1, *[f"b{(entry + step) % e}" for step in range(copies)])
    cluster.kill(*[f"b{index}" for index in sorted(dead)])
    return cluster, ledger


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_the_client_appends_when_the_model_does(shape):
    """Without a spare, in default mode (D17) and with delayed changes."""
    e, w, a = shape
    for delay in (False, True):
        for dead in rings(e):
            cluster = FakeCluster(e)
            client = cluster.client(delay_ensemble_change=delay, add_timeout_ms=200)
            writer = cluster.succeed(client.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a))
            bookies = writer.metadata.last_fragment.bookies
            cluster.kill(*[bookies[index] for index in sorted(dead)])
            outcome = cluster.outcome(writer.append_many([b"x"] * e))
            cluster.spin(5)
            assert (outcome.code == 0) == can_append(shape, dead), (dead, outcome.error)
            assert outcome.code in (0, -6)


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_the_client_reads_when_the_model_does(shape):
    """A read of a ledger succeeds for exactly the sets of dead bookies that the model permits."""
    e, w, a = shape
    for copies, can in ((w, can_read), (a, can_read_few)):
        for dead in rings(e):
            cluster, ledger = left(shape, copies, dead)
            current = stored.Ledgers(cluster.shared)[ledger]
            cluster.succeed(cluster.store.write_ledger(ledger, current.value.closed(e - 1, e), current.version))
            reader = cluster.succeed(cluster.client().open_ledger(ledger))
            outcome = cluster.outcome(reader.read(0, e - 1))
            cluster.spin(5)
            assert (outcome.code == 0) == can(shape, dead), (dead, outcome.error)


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_the_client_recovers_when_the_model_does(shape):
    """And when it can't, the ledger stays as it was: nothing is closed on too few answers."""
    e, w, _a = shape
    for dead in rings(e):
        cluster, ledger = left(shape, w, dead)
        outcome = cluster.outcome(cluster.client().open_ledger(ledger))
        cluster.spin(5)
        assert (outcome.code == 0) == can_recover(shape, dead), (dead, outcome.error)
        assert cluster.metadata(ledger).is_closed == (outcome.code == 0)
        if outcome.code == 0:
            assert outcome.value.last_entry_id == e - 1
