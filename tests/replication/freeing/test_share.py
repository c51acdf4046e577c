"""The share that is done says when a run will have ended, whatever the ledgers are like."""

import pytest

from quire.metadata.memory.cluster import Fault
from quire.replication import copier
from quire.replication.freeing.run import LEDGER_BYTES, FreeingProgress
from quire.replication.lost_bookies import recover_bookies
from tests.client.fakes.cluster import FakeCluster
from tests.replication.stories import closed

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]


@pytest.mark.parametrize("last_entries", [[9] * 400, [399] * 100, [9, 9, 199] * 90, [199] * 40 + [9] * 200])
def test_the_time_left_is_true_from_a_tenth_on(last_entries: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ledgers, larger ones, both mixed, the large ones first: within 30 % of the truth."""
    monkeypatch.setattr(copier, "BYTES_MAX", 1000)  # a request for a few entries, so that bytes take their time
    monkeypatch.setattr(FreeingProgress, "ledger_bytes", 2500)  # five round trips here
    monkeypatch.setattr("quire.replication.lost_bookies.LEDGERS_AT_ONCE", 4)  # few beside all, as in a run of minutes
    cluster = FakeCluster(6)
    cluster.kill("b1")
    for last in last_entries:
        closed(cluster, {0: THREE}, last)
    slow = Fault(before=0.002)
    cluster.store_fault = lambda _name, _arguments: slow
    told: list[tuple[float, FreeingProgress]] = []
    run = recover_bookies(cluster.client(), ["b1"], progress=lambda now: told.append((cluster.clock.seconds(), now)))
    assert cluster.succeed(run, seconds=600).complete
    end, last_told = told[-1]
    assert last_told.share > 0.99  # what an entry takes is known on average only
    begin = next(at for at, now in told if now.surveyed)
    checked = 0
    for at, now in told:
        if now.surveyed and 0.1 <= now.share < 1.0:
            left = (at - begin) * (1 - now.share) / now.share
            assert abs(left - (end - at)) <= 0.3 * (end - at) + 0.02 * (end - begin), (now, left, end - at)
            checked += 1
    assert checked > 50


def test_it_is_between_nothing_and_all() -> None:
    """A ledger counts though nothing is copied of it; what is copied twice is no more than all."""
    assert FreeingProgress().share == 1.0
    assert FreeingProgress(ledgers_named=4, ledgers_done=1).share == 0.25
    assert FreeingProgress(ledgers_named=1, bytes_total=LEDGER_BYTES).share == 0.0
    assert FreeingProgress(ledgers_named=1, bytes_total=LEDGER_BYTES, bytes=9 * LEDGER_BYTES).share == 1.0
