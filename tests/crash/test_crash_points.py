"""
Crash points: the power goes at every event of a recorded life, and whatever a disk may keep of what was not synced, the
bookie that starts on it has everything that was acknowledged, serves nothing false, and holds its fences.

The index and the ledger table are dicts here, which lose what was not synced, or RocksDB with its real files (`rocks`).
`make test` draws other cuts and aftermaths each time, a few with RocksDB; `make crash` runs all, and pairs of
crashes.
"""

import copy
import hashlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import quire.bookie.journal.segments
from quire.bookie.journal.format import segment_start
from tests.bookie.fakes.disk import Disk
from tests.crash.lives import SEGMENT_BYTES, STORIES, Promises, check, record, start_only
from tests.crash.rocks import RecordingRocks, RocksDisk
from tests.crash.tape import Event, Ground, RecordingDisk

# SPDX-License-Identifier: Apache-2.0

SHARE = 0.04  # of the disks that crashes may leave, in the part that `make test` takes; CI runs a part of `make crash`
AFTERWARDS = 128 << 10  # a start that has less memory than the life before it flushes while it reads the journal
LAYOUTS: dict[str, dict[str, Any]] = {
    "one directory": {},
    "two of each": {"journals": 2, "ledgers": 2},
    "sync off": {"journal_sync_data": False},
    "entries not journaled": {"journal_write_data": False},
    "two ledger directories": {"ledgers": 2},
    "small memory afterwards": {"write_cache_bytes_max": AFTERWARDS},
}
CASES = [
    (story, layout)
    for layout in LAYOUTS
    for story in STORIES
    if (story in ("losing a directory", "starting without a directory")) == (layout == "two ledger directories")
    and not (story in ("compacting", "new index") and layout in ("sync off", "entries not journaled"))
    and not (layout == "small memory afterwards" and story not in ("everything", "stored again"))
]
ROCKS_CASES = [
    ("everything", "one directory"),
    ("compacting", "one directory"),
    ("new index", "one directory"),
    ("losing a directory", "two ledger directories"),
]


def before(changes: dict[str, Any]) -> dict[str, Any]:
    """The options of the life that is recorded."""
    return {key: value for key, value in changes.items() if value != AFTERWARDS}


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 64 KiB, so that a short story rolls, frees and reuses them."""
    monkeypatch.setattr(quire.bookie.journal.segments, "FIRST_SEGMENT_BYTES", SEGMENT_BYTES)


def cuts(start: Ground, events: Sequence[Event], promises: Promises) -> Iterator[tuple[int, Ground, Promises]]:
    """Every place where the power may go: before each event, with all that was noted until then, and at the end."""
    ground, promises = copy.deepcopy(start), copy.deepcopy(promises)
    promises.crashed()  # whatever came before
    for number, event in enumerate(events):
        if event.kind == "note":
            promises.follow(event.subject)
            continue
        yield number, ground, promises
        ground.follow(event)
        if (
            event.kind in ("sync", "sync last")
            and segment_start(os.path.basename(ground.name_of(event.subject))) is not None
        ):
            promises.synced()
    yield len(events), ground, promises


def fingerprint(disk: Disk, promises: Promises) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(disk.inodes):
        digest.update(path.encode())
        digest.update(disk.inodes[path].data)
    for path in sorted(disk.rows):
        digest.update(repr((path, disk.rows[path].as_dict())).encode())
    if isinstance(disk, RocksDisk):
        digest.update(repr(sorted(disk.copies.items())).encode())
    digest.update(repr((len(promises.asked), len(promises.answered))).encode())
    return digest.digest()


def single_crashes(
    story: str, layout: str, every: bool, disk: RecordingDisk | None = None, share: float = 1, seed: int = 11
) -> tuple[int, int]:
    """(cuts, different disks checked); `share`: of the disks that a crash may leave only so many, by chance."""
    changes = LAYOUTS[layout]
    start, events = record(STORIES[story], before(changes), disk if disk is not None else RecordingDisk())
    dice = random.Random(seed)
    seen: set[bytes] = set()
    number = 0
    for number, ground, promises in cuts(start, events, Promises(lazy=not changes.get("journal_sync_data", True))):
        for words, kept in ground.aftermaths(dice, every):
            if share < 1 and dice.random() >= share:
                continue
            left = ground.disk(kept)
            mark = fingerprint(left, promises)
            if mark in seen:
                continue
            seen.add(mark)
            try:
                check(left, promises, changes)
            except BaseException as error:
                event = events[number] if number < len(events) else "the end"
                raise AssertionError(
                    f"{story}, {layout}, seed {seed}, cut before event {number} ({event}), {words}: {error}"
                ) from error
    return number, len(seen)


Recorder = Callable[[Disk | None], RecordingDisk]


def double_crashes(story: str, layout: str, pairs: int, seed: int, recorder: Recorder = RecordingDisk) -> int:
    """A second crash while the bookie starts again, flushes and stops; a sample of pairs."""
    changes = LAYOUTS[layout]
    start, events = record(STORIES[story], before(changes), recorder(None))
    dice = random.Random(seed)
    places = [number for number, event in enumerate(events) if event.kind != "note"]
    chosen = sorted(dice.choice(places) for _ in range(pairs))
    done = 0
    for number, ground, promises in cuts(start, events, Promises(lazy=not changes.get("journal_sync_data", True))):
        while chosen and chosen[0] == number:
            chosen.pop(0)
            words, kept = dice.choice(list(ground.aftermaths(dice, True)))
            second_start, second_events = record(start_only, changes, recorder(ground.disk(kept)))
            calls = sum(event.kind != "note" for event in second_events)
            wanted = {dice.randrange(calls + 1) for _ in range(3)}
            for place, (second_number, second_ground, second_promises) in enumerate(
                cuts(second_start, second_events, promises)
            ):
                if place not in wanted:
                    continue
                second_words, second_kept = dice.choice(list(second_ground.aftermaths(dice, True)))
                try:
                    check(second_ground.disk(second_kept), second_promises, changes)
                except BaseException as error:
                    raise AssertionError(
                        f"{story}, {layout}, seed {seed}: cut {number}, {words}; then cut {second_number}, "
                        f"{second_words}: {error}"
                    ) from error
                done += 1
    return done


@pytest.mark.parametrize(("story", "layout"), CASES)
def test_crashes_at_some_events(story: str, layout: str) -> None:
    """
    Of every cut nothing, everything, a prefix, a tear and some part of what was not synced: a share of all these,
    another each time.
    """
    number, disks = single_crashes(story, layout, every=False, share=SHARE, seed=time.time_ns() % 1_000_000)
    assert number > 100
    assert disks > SHARE * number / 2


def test_two_crashes() -> None:
    """A few pairs: the second while the bookie comes back."""
    assert double_crashes("everything", "one directory", pairs=12, seed=1) > 20


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory where the machine has such a file system."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as root:
        yield Path(root)


@pytest.mark.parametrize(("story", "share"), [("everything", 0.03), ("compacting", 0.03), ("new index", 0.02)])
def test_crashes_with_rocksdb(story: str, share: float, scratch: Path) -> None:
    """The same with the real index and ledger table, some of the disks that may be left."""
    assert single_crashes(story, "one directory", False, RecordingRocks(scratch), share)[1] > 10


@pytest.mark.long
@pytest.mark.parametrize(("story", "layout"), ROCKS_CASES)
def test_a_crash_at_every_event_with_rocksdb(story: str, layout: str, scratch: Path) -> None:
    """
    Every cut and aftermath, with the copies of RocksDB's files that were made at its syncs and writes, its log of
    writes whole and torn.
    """
    number, disks = single_crashes(story, layout, True, RecordingRocks(scratch))
    assert disks > number // 2


@pytest.mark.long
@pytest.mark.parametrize(("story", "layout"), CASES)
def test_a_crash_at_every_event_with_every_aftermath(story: str, layout: str) -> None:
    """Each prefix of what was not synced, each tear of the next write, each of them lost alone."""
    single_crashes(story, layout, every=True)


@pytest.mark.long
@pytest.mark.parametrize(("story", "layout"), ROCKS_CASES)
def test_pairs_of_crashes_with_rocksdb(story: str, layout: str, scratch: Path) -> None:
    """RocksDB reads what a crash left of its own files, and is cut off again."""
    assert double_crashes(story, layout, 40, 3, partial(RecordingRocks, scratch)) > 60


@pytest.mark.long
@pytest.mark.parametrize(("story", "layout"), CASES)
def test_many_pairs_of_crashes(story: str, layout: str) -> None:
    """A seeded sample."""
    assert double_crashes(story, layout, pairs=150, seed=2) > 200
