"""
Lives of a bookie whose disk is taped: the scripted stories, what each was promised, and the check of a disk that a
crash left.

A promise is known from the tape alone: `asked` notes come before a request, `answered` notes when its token comes back.
"""

import errno
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.directory import notes
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.rebuild import Upkeep
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.rows.contract import Rows
from quire.rows.files import Files
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.disk import DIGEST, KEY, OTHER_KEY, Disk, Events, LimboOf, body_of, options_of, run_of, stop_all
from tests.bookie.fakes.workers import InlineWorkers
from tests.crash.tape import Event, Ground, RecordingDisk

# SPDX-License-Identifier: Apache-2.0

SEGMENT_BYTES = 64 << 10
LOG_BYTES = 200 << 10


class Asked(NamedTuple):
    """
    A request: add (ledger, first, count, size), fence (ledger), lac (ledger, value), delete (ledger), drop (ledger),
    limbo (ledger, on).
    """

    kind: str
    ledger: int
    values: tuple[int, ...] = ()


class Answered(NamedTuple):
    asked: Asked


class RealDisk(Files):
    """The real file system and RocksDB, for a life whose directories lie below `root`; nothing waits for the disk."""

    def syncs_writes(self, handle: int) -> bool:
        return False

    def datasync(self, handle: int) -> None:
        pass

    def sync(self, handle: int) -> None:
        pass

    def sync_names(self, handle: int) -> None:
        pass

    def open_rows(self, path: str) -> Rows:
        return RocksRows(path)


class Life:
    """A storage on a disk, stepped by a clock; a taped disk notes all that is asked and answered."""

    def __init__(self, disk: Disk | RealDisk, **changes: Any) -> None:
        self.disk = disk
        self.clock = Clock()
        changes = {"journal_segment_bytes": SEGMENT_BYTES, "entry_log_bytes_max": LOG_BYTES, **changes}
        plain = {key: value for key, value in changes.items() if key in ("root", "journals", "ledgers")}
        options = self.options = options_of(**plain).model_copy(
            update={key: value for key, value in changes.items() if key not in plain}
        )
        self.failures: list[str] = []
        self.storage = Storage(options, self.clock, disk, open_rows=disk.open_rows, workers=InlineWorkers())
        self.storage.listen(Events(self._durable, failed=self.failures.append))
        self.storage.start()
        self.upkeep = Upkeep(self.storage, self.clock, LimboOf(self.storage))

    def _durable(self, tokens: list[object]) -> None:
        for token in tokens:
            self.note(Answered(token))  # type: ignore[arg-type]

    def note(self, subject: object) -> None:
        if isinstance(self.disk, RecordingDisk):
            self.disk.note(subject)

    def add(
        self, ledger: int, first: int, count: int = 1, size: int = 20, v3: bool = False, recovery: bool = False
    ) -> Status | None:
        asked = Asked("add", ledger, (first, count, size))
        self.note(asked)
        return self.storage.add(run_of(ledger, first, count, size=size, v3=v3, recovery=recovery), asked)

    def fence(self, ledger: int) -> None:
        asked = Asked("fence", ledger)
        self.note(asked)
        assert self.storage.fence(ledger, KEY, asked) is Status.EOK

    def lac(self, ledger: int, value: int) -> None:
        asked = Asked("lac", ledger, (value,))
        self.note(asked)
        assert self.storage.write_lac(ledger, KEY, DIGEST.lac_body(ledger, value), asked) is Status.EOK

    def delete(self, ledger: int) -> None:
        asked = Asked("delete", ledger)
        self.note(asked)
        self.storage.delete_ledger(ledger)
        self.storage.force(ledger, asked)

    def drop(self, ledger: int) -> None:
        """The copy goes, a fence stays."""
        self.note(Asked("drop", ledger))
        fence = Asked("fence", ledger)
        self.note(fence)
        self.storage.drop_copy(ledger)
        self.storage.force(ledger, fence)

    def limbo(self, ledger: int, on: bool) -> None:
        asked = Asked("limbo", ledger, (int(on),))
        self.note(asked)
        assert self.storage.set_limbo(ledger, on, asked) is Status.EOK

    def commit(self) -> None:
        """Lets the journals write what is queued."""
        self.clock.advance(0)
        self.clock.advance(0)

    def idle(self) -> None:
        """Long enough for the seal."""
        self.clock.advance(0.02)

    def flush(self) -> None:
        done: list[object] = []
        self.storage.flush().addBoth(done.append)
        assert done == [None], done

    def reclaim(self, threshold: float) -> None:
        """One pass of garbage collection and compaction."""
        done: list[object] = []
        self.upkeep.space.reclaim(lambda path: threshold).addBoth(done.append)
        for _ in range(2000):
            if done:
                break
            self.clock.advance(0.05)
        assert done == [None], done

    def reindex(self, beside: Callable[[int], None] = lambda step: None) -> None:
        """The index is rebuilt, with something done beside at each step."""
        assert self.upkeep.rebuild.start()
        step = 0
        while self.upkeep.rebuild.running:
            beside(step)
            self.clock.advance(0.05)
            step += 1
        assert self.upkeep.rebuild.problem is None, self.upkeep.rebuild.problem

    def close(self) -> None:
        done: list[object] = []
        Deferred.fromCoroutine(stop_all(self.upkeep, self.storage)).addBoth(done.append)
        self.commit()
        assert done == [None], done

    def now(self, result: Any) -> Any:
        """The value of a result that may be a Deferred, which has fired."""
        if not hasattr(result, "addBoth"):
            return result
        found: list[Any] = []
        result.addCallbacks(found.append, found.append)
        assert found, "not fired"
        return found[0]


def everything(life: Life) -> None:
    """
    Appends in both protocols, fences, LACs, deletes, limbo; checkpoints, segments rolled and freed, logs rotated, an
    idle seal, a clean stop.
    """
    for number in range(3):
        life.add(1, number * 5, 5, size=300)
        life.add(2, number * 3, 3, v3=True)
        life.commit()
    life.fence(2)
    life.lac(3, 7)
    life.add(6, 0, 2, size=5)
    life.commit()
    for number in range(4):  # through several segments
        life.add(5, number, size=30_000)
        life.add(7, number * 2, 2, size=4_000, v3=True)
        life.commit()
    life.flush()
    life.add(1, 8, 4, size=50, recovery=True)  # over entries that are flushed
    life.add(2, 20, 2, recovery=True)
    life.limbo(6, True)
    life.commit()
    life.add(4, 0, 4)
    life.commit()
    life.idle()
    life.flush()
    life.delete(4)
    life.fence(9)
    life.commit()
    for number in range(4, 9):  # the log is rotated
        life.add(5, number, size=30_000)
        life.commit()
    life.limbo(6, False)
    life.add(1, 15, 5, size=100)
    life.flush()
    life.lac(3, 9)
    life.add(2, 22, recovery=True)
    life.add(1, 20, 2)
    life.commit()
    life.add(8, 0, 3)
    life.close()


def many_small(life: Life) -> None:
    """Group after group, in random order of ledgers, some with gaps and overlaps; flushes in between; no stop."""
    dice = random.Random(7)
    following = [0] * 4
    for number in range(40):
        ledger = dice.randrange(4)
        first = max(0, following[ledger] + dice.choice([0, 0, 0, 0, 2, -3]))
        count = dice.randrange(1, 6)
        life.add(ledger, first, count, size=dice.choice([0, 20, 700, 2000]), v3=dice.random() < 0.3, recovery=True)
        following[ledger] = max(following[ledger], first + count)
        if dice.random() < 0.7:
            life.commit()
        if number % 13 == 12:
            life.fence(dice.randrange(4))
            life.flush()
        if number % 7 == 6:
            life.commit()
            life.idle()
    life.commit()


def compacting(life: Life) -> None:
    """
    Logs that are half dead, some wholly: ledgers deleted and entries written again, then passes of garbage collection
    beside appends.
    """
    for number in range(10):
        life.add(1, number, size=20_000)
        life.add(4, number, size=15_000)
        life.add(6, number * 3, 3, size=900)
        life.commit()
        if number % 4 == 3:
            life.flush()
    life.add(1, 2, 3, size=300, recovery=True)
    life.commit()
    life.delete(4)
    life.commit()
    life.flush()
    life.reclaim(0.9)
    life.add(1, 10, 2, size=20_000)
    life.fence(6)
    life.commit()
    life.add(6, 0, 6, size=30, recovery=True)
    life.commit()
    life.flush()
    life.reclaim(0.9)
    life.add(1, 12, 2)
    life.close()


def new_index(life: Life) -> None:
    """
    The index is rebuilt beside adds, flushes and a deletion, twice; a pass over the logs follows, and adds again.
    """
    for number in range(6):
        life.add(1, number * 2, 2, size=15_000)
        life.add(2, number * 3, 3, size=500, v3=True)
        life.add(4, number, size=12_000)
        life.commit()
        if number % 2:
            life.flush()
    life.add(1, 4, 2, size=200, recovery=True)
    life.delete(4)
    life.commit()

    def beside(step: int) -> None:
        life.add(2, 30 + step, size=300, recovery=True)
        if step % 3 == 0:
            life.add(1, step, size=100, recovery=True)
        life.commit()
        if step % 4 == 1:
            life.flush()
        if step == 3:
            life.delete(6)

    life.add(6, 0, 2)
    life.commit()
    life.flush()
    life.reindex(beside)
    life.reclaim(0.9)
    life.add(1, 20, 2)
    life.commit()
    life.flush()
    life.reindex()
    life.add(2, 60, 2, recovery=True)
    life.close()


def stored_again(life: Life) -> None:
    """
    Copies that are dropped and made again, before and after what else fills journal and memory; one checkpoint, and
    none at the end.
    """
    for number in range(3):
        life.add(1, number * 4, 4, size=300)
        life.add(2, number * 2, 2, size=200, v3=True)
        life.commit()
    life.flush()
    life.drop(1)
    life.commit()
    life.add(1, 0, 3, size=40, recovery=True)
    for number in range(4):
        life.add(5, number, size=30_000)
        life.commit()
    life.drop(2)
    life.add(2, 0, 2, size=50, v3=True, recovery=True)
    life.commit()
    life.idle()
    life.flush()
    life.add(1, 3, 2, size=60, recovery=True)
    life.drop(1)
    life.add(1, 1, size=70, recovery=True)
    for number in range(4, 8):
        life.add(5, number, size=30_000)
        life.commit()
    life.drop(2)
    life.commit()
    life.add(1, 2, 3, size=80, recovery=True)
    life.commit()


def large_groups(life: Life) -> None:
    """
    Groups that are larger than a segment: the first of all, at a roll, where a spare is used and where there is none,
    and where a next one is ready.
    """
    for number in range(8):
        life.add(3, number, size=SEGMENT_BYTES * (2 + number % 3))
        life.commit()
        life.add(1, number * 2, 2, size=20_000)
        life.commit()
        if number % 3 == 1:
            life.flush()
            life.add(2, number, size=25_000, v3=True)
            life.commit()
    life.idle()


def losing_a_directory(life: Life) -> None:
    """The second ledger directory's disk dies in the middle; the ledgers of the first go on."""
    for number in range(3):
        life.add(1, number * 2, 2, size=300)
        life.add(2, number * 2, 2, size=300)
        life.commit()
    life.flush()
    life.add(1, 6, 2)
    life.add(2, 6, 2)
    life.fence(3)
    life.fence(8)
    life.commit()

    life.disk.before = second_disk_dead  # type: ignore[union-attr]
    life.flush()
    going_on(life)


def starting_without_a_directory(life: Life) -> None:
    """
    It is dead when the bookie starts again after a kill: what the journal has for it stays there until it is noted as
    lost.
    """
    for number in range(3):
        life.add(1, number * 2, 2, size=300)
        life.add(2, number * 2, 2, size=300)
        life.commit()
    life.flush()
    life.add(1, 6, 2)
    life.add(2, 6, 2)
    life.fence(3)
    life.fence(8)
    life.commit()
    assert isinstance(life.disk, Disk)
    life.disk.process_ended()
    life.disk.before = second_disk_dead
    again = Life(life.disk, ledgers=2)
    assert again.storage.failed_directories == ["/disk/ledgers1"]
    going_on(again)


def second_disk_dead(call: str, path: str) -> None:
    if "/ledgers1" in path:
        raise OSError(errno.EIO, "the disk is dead", path)


def going_on(life: Life) -> None:
    """So much that journal segments are freed."""
    life.add(2, 8, 2, size=20_000)
    life.commit()
    for number in range(10, 16):
        life.add(2, number, size=20_000)
        life.commit()
    life.flush()
    life.add(2, 16, 2)
    life.commit()


def start_only(life: Life) -> None:
    """A start, some adds, a checkpoint, a stop: what a second crash may interrupt."""
    life.add(1, 100, 2, recovery=True)
    life.commit()
    for number in range(6):  # through several segments, made of whatever the first life left
        life.add(5, 100 + number, size=30_000)
        life.commit()
    life.flush()
    life.close()


STORIES: dict[str, Callable[[Life], None]] = {
    "everything": everything,
    "many small": many_small,
    "compacting": compacting,
    "stored again": stored_again,
    "large groups": large_groups,
    "new index": new_index,
    "losing a directory": losing_a_directory,
    "starting without a directory": starting_without_a_directory,
}


class Promises:
    """
    What the notes of a tape, up to some event, promise.  `lazy`: adds and LACs count only from the next sync of a
    journal on.
    """

    def __init__(self, lazy: bool = False) -> None:
        self.asked: list[Asked] = []
        self.answered: set[Asked] = set()
        self._lazy = lazy
        self._unsynced: list[Asked] = []

    def follow(self, note: object) -> None:
        if isinstance(note, Asked):
            self.asked.append(note)
        elif isinstance(note, Answered):
            if self._lazy and note.asked.kind not in ("fence", "delete"):
                self._unsynced.append(note.asked)
            else:
                self.answered.add(note.asked)

    def crashed(self) -> None:
        """What was answered before a sync may be gone, and no later sync brings it back."""
        self._unsynced = []

    def synced(self) -> None:
        """A journal was synced; with sync off only then is what was answered before it certain."""
        self.answered.update(self._unsynced)
        self._unsynced = []

    def entries(self, forgetful: bool = False) -> dict[tuple[int, int], tuple[bool, list[bytes]]]:
        """
        (ledger, entry) -> whether it must be there, and which bodies are true: the acknowledged one and those asked for
        later. A bookie that may forget may also serve what was asked for earlier.
        """
        found: dict[tuple[int, int], tuple[bool, list[bytes]]] = {}
        for asked in self.asked:
            if asked.kind == "add":
                first, count, size = asked.values
                for entry in range(first, first + count):
                    must, bodies = found.get((asked.ledger, entry), (False, []))
                    body = body_of(asked.ledger, entry, size)
                    found[asked.ledger, entry] = (
                        (True, [body])
                        if asked in self.answered and not forgetful
                        else (must or asked in self.answered, [*bodies, body])
                    )
            elif asked.kind == "drop":  # from here on what was there may be gone
                found.update(
                    {place: (False, bodies) for place, (_must, bodies) in found.items() if place[0] == asked.ledger}
                )
        return found

    def all_of(self, kind: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.kind == kind]

    def last_told(self, kind: str, ledger: int) -> list[Asked]:
        """The last acknowledged request of this kind and those asked for later; empty when none was acknowledged."""
        all_of = [asked for asked in self.all_of(kind) if asked.ledger == ledger]
        ends = [number for number, asked in enumerate(all_of) if asked in self.answered]
        return all_of[ends[-1] :] if ends else []


def check(disk: Disk, promises: Promises, changes: dict[str, Any]) -> None:
    """
    Starts on what a crash left and holds every promise against it; then goes on, stops cleanly, and a third start
    replays nothing. Of a directory that has failed nothing is promised here: its ledgers go to limbo before a port
    opens, which is not the storage's work.
    """
    life = Life(disk, **changes)
    storage = life.storage
    deleted = {asked.ledger for asked in promises.all_of("delete")}
    directories = life.options.ledger_directories
    lost = {directories.index(path) for path in notes.noted_failed(disk, directories)}
    deleted |= {asked.ledger for asked in promises.asked if asked.ledger % len(directories) in lost}
    ledgers = {asked.ledger for asked in promises.asked}
    limbo = {ledger: [asked.values[0] for asked in promises.last_told("limbo", ledger)] for ledger in ledgers}
    forgetful = not life.options.journal_write_data  # then what was acknowledged may be unknown, never denied
    maybe_limbo = ledgers if forgetful else {asked.ledger for asked in promises.all_of("limbo")}
    highest: dict[int, int] = {}
    for (ledger, entry), (must, bodies) in promises.entries(forgetful).items():
        if ledger in deleted:
            continue
        found = life.now(storage.read(ledger, entry))
        if isinstance(found, bytes):
            assert found in bodies, f"ledger {ledger} entry {entry}: false bytes"
            highest[ledger] = max(highest.get(ledger, -1), entry)
        else:
            assert not must or (forgetful and found is Status.EUNKNOWNLEDGERSTATE), (
                f"ledger {ledger} entry {entry} was acknowledged and is {found.name}"
            )
            noes = (
                (Status.ENOENTRY, Status.ENOLEDGER, Status.EUNKNOWNLEDGERSTATE)
                if ledger in maybe_limbo
                else (Status.ENOENTRY, Status.ENOLEDGER)
            )
            assert found in noes, f"ledger {ledger} entry {entry}: {found.name}"
            if limbo[ledger] == [1]:
                assert found is Status.EUNKNOWNLEDGERSTATE
    for ledger, last in highest.items():
        state = storage.ledger(ledger)
        assert state is not None
        if not state.limbo:
            found = life.now(storage.read(ledger, -1))
            assert isinstance(found, bytes)
            assert int.from_bytes(found[8:16], "big") == last
            stored = decode(life.now(storage.entries(ledger)))
            assert max(first + count - 1 for first, count in stored) == last
            for first, count in stored:
                bodies = life.now(storage.read_run(ledger, first, count, 1 << 20))
                assert [int.from_bytes(body[8:16], "big") for body in bodies] == list(range(first, first + len(bodies)))
        assert storage.add(run_of(ledger, 1000, key=OTHER_KEY, recovery=True), None) is Status.EUA
    for ledger in ledgers - deleted:
        if promises.last_told("fence", ledger):
            expected = (Status.EFENCED, Status.EREADONLY) if ledger in maybe_limbo else (Status.EFENCED,)
            assert storage.add(run_of(ledger, 1000), None) in expected, f"the fence of ledger {ledger} is gone"
        if lacs := promises.last_told("lac", ledger):
            assert storage.explicit_lac(ledger) in [DIGEST.lac_body(ledger, asked.values[0]) for asked in lacs]
    for ledger in {asked.ledger for asked in promises.all_of("delete")}:
        if promises.last_told("delete", ledger) and ledger % len(directories) not in lost:
            assert storage.ledger(ledger) is None
            assert ledger not in set(storage.ledger_ids())
    fresh = next(ledger for ledger in (40, 41) if ledger % len(directories) not in lost)
    life.add(fresh, 0, 2)
    life.commit()
    life.close()
    assert not life.failures
    third = Life(disk, **changes)
    assert third.storage.counters.replayed_groups == 0
    assert third.now(third.storage.read(fresh, 1)) == body_of(fresh, 1)
    third.close()


class Recorded(NamedTuple):
    """A life, and how many of its events belong to the first start."""

    start: Ground
    events: Sequence[Event]


def record(story: Callable[[Life], None], changes: dict[str, Any], disk: RecordingDisk) -> Recorded:
    story(Life(disk, **changes))
    return Recorded(disk.start, disk.events)
