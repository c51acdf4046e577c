"""
Each call of a recorded life fails once, with each of the errors that a system may give: what failed once is not refused
when it works again.

Of a call that began nothing (an open, a look, a change of names) for want of descriptors or memory: the bookie goes on,
no directory counts as failed, it is writable afterwards.  At a start or a stop it may end that, and the next start has
everything.  Of a write or a sync an error may be final.  Either way nothing that was acknowledged is lost and nothing
false is said, by a process that is killed then as by a machine whose power goes.

`make test` takes some of the calls, by a seed that is printed; `make crash` all of them, each with one of its errors.
"""

import errno
import random
import time
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from twisted.internet.defer import Deferred

import quire.bookie.journal.segments
from quire.protocol.errors import Status
from quire.rows.files import DESCRIPTORS, SHORT, NotBegun, StorageError
from tests.bookie.fakes.disk import EFFECTS, stop_all
from tests.crash.lives import SEGMENT_BYTES, STORIES, Life, Promises, check
from tests.crash.tape import RecordingDisk

# SPDX-License-Identifier: Apache-2.0

OPENS_FILES = ("write rows", "delete rows")  # RocksDB may have to begin a file
TRIED = 12  # calls of each case, in the part that `make test` takes
CASES = [
    *((story, {}) for story in ("everything", "compacting", "new index", "large groups")),
    *((story, {"journals": 2, "ledgers": 2}) for story in ("everything", "compacting")),
]


class Fault:
    """The `wanted`-th call fails with this error; calls are counted from 0."""

    def __init__(self, wanted: int, number: int) -> None:
        self.wanted = wanted
        self.number = number
        self.calls: list[tuple[str, str]] = []
        self.passing = False  # it began nothing

    def __call__(self, call: str, path: str) -> None:
        self.calls.append((call, path))
        if len(self.calls) == self.wanted + 1:
            self.passing = self.number in SHORT and (
                call not in EFFECTS or (call in OPENS_FILES and self.number in DESCRIPTORS)
            )
            kind = NotBegun if self.passing else OSError
            raise kind(self.number, "injected", path)

    @property
    def met(self) -> str:
        return " ".join(self.calls[self.wanted]) if self.wanted < len(self.calls) else "nothing"


class Over(Exception):
    """The storage has failed for good."""


class PatientLife(Life):
    """
    One that waits on its clock where something has to be tried again, reads what it was promised, and ends when its
    storage has failed.
    """

    fault: Fault
    waiting = 0  # requests that were taken and not answered

    def _durable(self, tokens: list[object]) -> None:
        self.waiting -= len(tokens)
        super()._durable(tokens)

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(400):
            if self.failures:
                raise Over
            if done():
                return
            self.clock.advance(0.05)
        raise AssertionError("it does not come to an end")

    def _wait(self, result: "Deferred[Any]", *allowed: type[Exception]) -> object:
        found: list[Any] = []
        result.addBoth(found.append)
        self.until(lambda: bool(found))
        if getattr(found[0], "value", None) is not None:
            assert isinstance(found[0].value, allowed), found
            if not self.fault.passing:
                raise Over
        return found[0]

    def _twice(self, request: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """The caller gets "too many requests" where the ledger's row could not be read."""
        try:
            taken = request(*args, **more)
        except OSError as error:
            if not isinstance(error, NotBegun):
                raise Over from error
            taken = request(*args, **more)
        self.waiting += taken in (None, Status.EOK)
        return taken

    def add(self, *args: Any, **more: Any) -> Status | None:
        return self._twice(super().add, *args, **more)  # type: ignore[no-any-return]

    def fence(self, ledger: int) -> None:
        self._twice(super().fence, ledger)

    def lac(self, ledger: int, value: int) -> None:
        self._twice(super().lac, ledger, value)

    def delete(self, ledger: int) -> None:
        self._twice(super().delete, ledger)

    def drop(self, ledger: int) -> None:
        self._twice(super().drop, ledger)

    def limbo(self, ledger: int, on: bool) -> None:
        self._twice(super().limbo, ledger, on)

    def commit(self) -> None:
        super().commit()
        self.until(lambda: self.waiting <= 0)

    def flush(self) -> None:
        for _ in range(3):
            if self._wait(self.storage.flush(), StorageError, OSError) is None:
                return
        raise AssertionError("no checkpoint can be made any more")

    def reindex(self, beside: Callable[[int], None] = lambda step: None) -> None:
        for _ in range(2):
            step = 0
            assert self.upkeep.rebuild.start()
            while self.upkeep.rebuild.running:
                beside(step)
                self.clock.advance(0.05)
                step += 1
            # what was added to a run that ended would be added again, with other bytes
            beside = lambda step: None  # noqa: E731
            if self.upkeep.rebuild.problem is None:
                return
        raise Over if not self.fault.passing else AssertionError(self.upkeep.rebuild.problem)

    def close(self) -> None:
        for asked in self.promises().answered:
            if asked.kind == "add" and asked.ledger not in (4, 6, 7):
                found = self.storage.read(asked.ledger, asked.values[0])
                if isinstance(found, Deferred):
                    results: list[Any] = []
                    found.addBoth(results.append)
                    self.until(lambda results=results: bool(results))  # type: ignore[misc]  # bound now
                    found = results[0]
                assert (
                    isinstance(found, bytes)
                    or found is Status.ETOOMANYREQUESTS
                    or (not self.fault.passing and found is Status.EIO)
                ), (asked, found)
        self._wait(Deferred.fromCoroutine(stop_all(self.upkeep, self.storage)), StorageError, OSError)

    def promises(self) -> Promises:
        found = Promises()
        assert isinstance(self.disk, RecordingDisk)
        for event in self.disk.events:
            if event.kind == "note":
                found.follow(event.subject)
        return found


def lived(story: str, changes: dict[str, Any], fault: Fault) -> None:
    """A life with one fault in it, and what is left afterwards."""
    disk = RecordingDisk()
    disk.each = fault
    PatientLife.fault = fault
    try:
        life = PatientLife(disk, **changes)
    except (StorageError, OSError):
        disk.process_ended()
        life = PatientLife(disk, **changes)
    started = len(fault.calls) > fault.wanted
    try:
        STORIES[story](life)
        life.until(lambda: True)
        if story == "large groups":
            life.close()
    except (Over, AssertionError) as error:  # a story counts on what is refused after a fault that is final
        lost = life.storage.fault or life.storage.read_only or life.storage.counters.directories_lost
        if fault.passing or not (isinstance(error, Over) or lost):
            raise
    if fault.passing and not started:
        assert not life.failures
        assert (life.storage.fault, life.storage.read_only) == (None, None)
        assert life.storage.counters.directories_lost == 0, "a directory counts as failed"
        assert not disk.find("quire.lost")
    disk.each = lambda call, path: None
    promises = life.promises()
    ground = disk.start
    for event in disk.events:
        ground.follow(event)
    for words, kept in ground.aftermaths(random.Random(fault.wanted), every=False):
        try:
            check(ground.disk(kept), promises, changes)
        except BaseException as error:
            raise AssertionError(f"{words}: {error!r}") from error


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quire.bookie.journal.segments, "FIRST_SEGMENT_BYTES", SEGMENT_BYTES)


def faults_of(story: str, changes: dict[str, Any]) -> list[tuple[int, int]]:
    """(call, error) of a life: each error that a call may give."""
    clean = Fault(1 << 60, 0)
    lived(story, changes, clean)
    return [
        (number, error)
        for number, (call, _path) in enumerate(clean.calls)
        for error in (
            (*SHORT, errno.EIO, errno.ENOSPC)
            if call in EFFECTS or call in ("rename", "unlink", "preallocate")
            else SHORT
        )
        if call in OPENS_FILES or call not in EFFECTS or error not in DESCRIPTORS
    ]


def try_one(story: str, changes: dict[str, Any], wanted: int, error: int) -> None:
    fault = Fault(wanted, error)
    try:
        lived(story, changes, fault)
    except BaseException as failure:
        raise AssertionError(
            f"{story}, {changes}: call {wanted} ({fault.met}) fails with {errno.errorcode[error]}: {failure!r}"
        ) from failure


@pytest.mark.parametrize(("story", "changes"), CASES)
def test_some_calls_fail_once(story: str, changes: dict[str, Any]) -> None:
    """Some, others each time."""
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    dice = random.Random(seed)
    faults = faults_of(story, changes)
    for wanted, error in dice.sample(faults, TRIED):
        try_one(story, changes, wanted, error)


@pytest.mark.long
@pytest.mark.parametrize(("story", "changes"), CASES)
def test_each_call_fails_once(story: str, changes: dict[str, Any]) -> None:
    """
    All of them, with one of the errors that each may give: all errors of all calls take a quarter of an hour
    (`faults_of` lists them).
    """
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    dice = random.Random(seed)
    for wanted, some in groupby(faults_of(story, changes), key=lambda fault: fault[0]):
        try_one(story, changes, wanted, dice.choice([error for _wanted, error in some]))
