"""A whole storage: what survives a crash and a stop, against a model, with several directories; once on a real disk."""

import os
import random
from array import array
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.storage.storage import Storage
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import DIGEST, KEY, OTHER_KEY, Bookie, Events, body_of, options_of, run_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("flushed", [False, True])
def test_everything_survives_power_loss(flushed: bool) -> None:
    """Entries, fence, key and explicit LAC are there after a crash, from the journal or from the checkpoint."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 300), "a")
    bookie.storage.add(run_of(2, 5, 3, v3=True), "b")
    lac = DIGEST.lac_body(2, 6)
    bookie.storage.write_lac(2, KEY, lac, "c")
    bookie.storage.fence(2, KEY, "d")
    bookie.commit()
    if flushed:
        bookie.storage.flush()
    again = Bookie(bookie.disk.crashed(None))
    assert (again.storage.counters.replayed_entries == 0) == flushed
    assert all(again.read(1, entry) == body_of(1, entry) for entry in range(300))
    assert [again.read(2, entry) for entry in range(4, 9)] == [
        Status.ENOENTRY,
        body_of(2, 5),
        body_of(2, 6),
        body_of(2, 7),
        Status.ENOENTRY,
    ]
    assert again.storage.explicit_lac(2) == lac
    assert again.storage.add(run_of(2, 8), "e") is Status.EFENCED
    assert again.storage.add(run_of(1, 300, key=OTHER_KEY), "e") is Status.EUA
    assert sorted(again.storage.ledger_ids()) == [1, 2]


def test_several_directories() -> None:
    """Ledgers are spread by id over journals and ledger directories; all of it comes back after a crash."""
    bookie = Bookie(journals=2, ledgers=3)
    for ledger in range(12):
        bookie.storage.add(run_of(ledger, 0, 4), ledger)
    bookie.storage.fence(5, KEY, "f")
    bookie.commit()
    assert sorted(map(str, bookie.tokens)) == sorted([*map(str, range(12)), "f"])
    for step in range(2):
        again = Bookie(bookie.disk.crashed(None), journals=2, ledgers=3)
        assert all(again.read(ledger, entry) == body_of(ledger, entry) for ledger in range(12) for entry in range(4))
        assert again.storage.add(run_of(5, 4), "x") is Status.EFENCED
        assert sorted(again.storage.ledger_ids()) == list(range(12))
        if not step:
            bookie.storage.flush()
    assert bookie.now(bookie.storage.stored_ledgers()) == array("q", range(12)), (
        "ascending, whatever directory they lie in"
    )
    assert len(bookie.disk.find(".log")) == 3
    assert bookie.storage.disk_usage() == (1 << 40, 1 << 39)
    with pytest.raises(StorageError, match="2 journals"):
        Bookie(bookie.disk.crashed(None), journals=1, ledgers=3)


def test_clean_stop_leaves_nothing_to_replay() -> None:
    """After `close` a start replays nothing, files are closed, and the next group continues the sequence."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    bookie.close()
    assert bookie.disk.open_files == 0
    assert bookie.storage.add(run_of(1, 3), "late") in (Status.EREADONLY, Status.EUA)
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.counters.replayed_groups == 0
    assert again.read(1, 2) == body_of(1, 2)
    again.storage.add(run_of(1, 3), "b")
    again.commit()
    third = Bookie(again.disk.crashed(None))
    assert third.read(1, 3) == body_of(1, 3)
    assert third.storage.counters.replayed_entries == 1


def test_small_writes_in_any_order_against_a_model() -> None:
    """Adds in any order, overlaps, gaps, flushes, restarts: every read equals a plain dict's."""
    rng = random.Random(7)
    bookie = Bookie(entry_log_bytes_max=1 << 20)
    model: dict[tuple[int, int], bytes] = {}
    for step in range(300):
        ledger, first, count, size = rng.randrange(3), rng.randrange(60), rng.randrange(1, 20), rng.choice([10, 10, 33])
        bookie.storage.add(run_of(ledger, first, count, size=size, v3=rng.random() < 0.5), step)
        model.update({(ledger, entry): body_of(ledger, entry, size) for entry in range(first, first + count)})
        if rng.random() < 0.2:
            bookie.commit()
            bookie.storage.flush()
        if rng.random() < 0.03:
            bookie.commit()
            bookie = Bookie(bookie.disk.crashed(rng), entry_log_bytes_max=1 << 20)
        entry = rng.randrange(80)
        assert bookie.read(ledger, entry) == model.get((ledger, entry), Status.ENOENTRY)
    for ledger in range(3):
        have = decode(bookie.now(bookie.storage.entries(ledger)))
        assert [entry for first, count in have for entry in range(first, first + count)] == sorted(
            entry for known, entry in model if known == ledger
        )


def test_on_a_real_disk_with_threads(tmp_path: Any) -> None:
    """
    The same with RocksDB, a journal thread, the storage pool and a real reactor: adds, flushes, sequential reads,
    restart.
    """
    options = options_of(str(tmp_path), flush_interval_ms=10, write_cache_bytes_max=2 << 20)

    async def story() -> None:
        storage = Storage(options, reactor)
        tokens: list[object] = []
        waiting: list[Deferred[None]] = []

        def durable(group: list[object]) -> None:
            tokens.extend(group)
            for waiter in waiting[:]:
                waiting.remove(waiter)
                waiter.callback(None)

        storage.listen(Events(durable, lambda: durable([])))
        storage.start()
        entry = 0
        while entry < 20_000:
            status = storage.add(run_of(1, entry, 50, size=200, v3=entry % 100 == 0), entry)
            if status is None:
                waiter: Deferred[None] = Deferred()
                waiting.append(waiter)
                await waiter
                continue
            assert status is Status.EOK
            entry += 50
        while len(tokens) < 400:
            waiter = Deferred()
            waiting.append(waiter)
            await waiter
        assert tokens == list(range(0, 20_000, 50))
        await storage.flush()
        assert storage.counters.flushed_entries == 20_000
        assert storage.counters.journal_syncs >= storage.counters.journal_groups >= 1
        entry = 0
        while entry < 20_000:
            bodies = storage.read_run(1, entry, 700, 1 << 20)
            bodies = await bodies if isinstance(bodies, Deferred) else bodies
            assert isinstance(bodies, list)
            assert bodies[0] == body_of(1, entry, 200)
            assert bodies[-1] == body_of(1, entry + len(bodies) - 1, 200)
            entry += len(bodies)
        found = [storage.read(1, number) for number in range(1000, 1600)]  # pipelined
        bodies = [await body if isinstance(body, Deferred) else body for body in found]
        assert bodies == [body_of(1, number, 200) for number in range(1000, 1600)]
        assert storage.counters.reads_stored < 250, "a sequential reader's entries come in windows"
        await storage.close()
        again = Storage(options, reactor)
        again.start()
        assert again.counters.replayed_groups == 0
        body = again.read(1, -1)
        assert isinstance(body, Deferred)
        assert await body == body_of(1, 19_999, 200)
        await again.close()
        assert again.fault is None

    run(story)
    assert not [name for name in os.listdir(tmp_path / "journal0" / "current") if name.endswith(".tmp")]
