"""Repairs on real bookies, without Spark: a scrub after them finds nothing, also when a task is lost in between."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from quire.pipeline.clients import cluster
from quire.pipeline.jobs.repair import TASK_ENTRIES, TASK_LEDGERS, cut, drain, queue, repair
from quire.pipeline.jobs.scrub import scrub
from quire.protocol.errors import IllegalOp
from quire.replication.mending import Mending
from quire.replication.scrub.judge import Finding
from quire.replication.scrub.whole import Scrubbing
from quire.tools.local_cluster.cluster import LocalCluster
from tests.pipeline.jobs.faults import faulty, filled, here, made
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[LocalCluster]:
    """Four, of this test alone."""
    with LocalCluster(tmp_path / "cluster", 4, options=SMALL) as made:
        yield made


def test_what_a_scrub_found_is_made_good_by_autorecovery(tmp_path: Path) -> None:
    """Handed to the queue: also copies that are there and wrong are right when their ledger has left it."""
    with LocalCluster(tmp_path / "cluster", 4, options=SMALL, autorecovery=True) as made:
        ours = cluster(made.uri)
        ours.wait(lambda: ours.client.store.repairs.set_enabled(False))  # until the scrub has seen all
        ledger = faulty(ours, made.ids[:3], 600)[0]
        how = Scrubbing(settle_s=0)
        found = [each for each in scrub(here, made.uri, "all", how).findings if each.kind != "lost"]
        assert {each.kind for each in found} >= {"damaged", "differs", "head"}, found  # it finds what is missing
        assert queue(made.uri, found) == 1
        ours.wait(lambda: ours.client.store.repairs.set_enabled(True))
        end = time.monotonic() + 90
        while ours.wait(lambda: ours.client.store.repairs.shortage(ledger)) is not None:
            assert time.monotonic() < end, "it is still in the queue"
        assert scrub(here, made.uri, "all", how).findings == []


def finding(ledger: int, entries: int) -> Finding:
    return Finding(ledger, 0, 0, "b0", 0, entries - 1, entries, "missing", -13, "")


def test_tasks() -> None:
    """Each ledger in one of them; fewer where there is much to copy."""
    tasks = cut([(ledger, [finding(ledger, 1)]) for ledger in range(200)])
    assert [ledger for task in tasks for ledger, _some in task] == list(range(200))
    assert max(map(len, tasks)) == TASK_LEDGERS
    assert [len(task) for task in cut([(ledger, [finding(ledger, TASK_ENTRIES)]) for ledger in range(3)])] == [1, 1, 1]


def test_scrub_repair_scrub(bookies: LocalCluster) -> None:
    """Faults of each kind, in two ledgers; the task of one dies, and the next run makes it good; whole ones stay so."""
    ours = cluster(bookies.uri)
    ids = [faulty(ours, bookies.ids[:3], 600)[0] for _ in range(2)]
    filled(ours, bookies.ids[:3], 50)
    how = Scrubbing(settle_s=0)
    found = scrub(here, bookies.uri, "all", how).findings
    assert {each.ledger for each in found} == set(ids)
    dry = repair(here, bookies.uri, found, Mending(dry_run=True))
    assert sum(each.entries for each in dry) == sum(each.entries for each in found)

    def dying(work: Any, tasks: Sequence[Any]) -> list[Any]:
        return work(tasks[0][:1])

    assert [each.ledger for each in repair(dying, bookies.uri, found, Mending())] == ids[:1]
    done = repair(here, bookies.uri, found, Mending())
    assert [(each.ledger, each.entries > 0, each.left) for each in done] == [(ids[0], False, []), (ids[1], True, [])]
    assert scrub(here, bookies.uri, "all", how).findings == []


def test_a_bookie_is_drained(bookies: LocalCluster) -> None:
    """Refused while it is up; open ledgers are left, and its cookie stays, until they may be closed."""
    ours = cluster(bookies.uri)
    lost = bookies.ids[0]
    closed = filled(ours, bookies.ids[:3], 200)
    opened = made(ours, bookies.ids[:3], 0, close=False)
    other = filled(ours, bookies.ids[1:], 20)
    with pytest.raises(IllegalOp):
        drain(here, bookies.uri, [lost], Mending(), remove=True)
    bookies.kill(lost)

    async def gone() -> None:
        while (await ours.client.store.bookies()).find(lost) is not None:
            await ours.client.choice.available(ask=True)

    ours.wait(gone)
    done = {each.ledger: each for each in drain(here, bookies.uri, [lost], Mending(), remove=True)}
    assert set(done) == {closed, opened}
    assert (done[closed].entries, done[closed].left) == (200, [])
    assert "is not closed" in done[opened].left[0]
    assert lost in ours.wait(ours.client.store.cookies)
    (last,) = drain(here, bookies.uri, [lost], Mending(fence=True, grace_s=0), remove=True)
    assert (last.ledger, last.left) == (opened, [])
    assert lost not in ours.wait(ours.client.store.cookies)
    assert scrub(here, bookies.uri, f"{closed},{other}", Scrubbing()).findings == []
