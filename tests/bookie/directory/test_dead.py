"""
A ledger disk that is dead when the bookie starts: failed as if that came later, its ledgers unknown, the others
served.
"""

import errno
import os
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.directory import notes
from quire.bookie.directory.directories import DeadRows
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.lifecycle.bookie import Bookie as WholeBookie
from quire.bookie.lifecycle.ids import IdentityError
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.rows.files import Files, StorageError, is_dead
from tests.bookie.fakes.disk import KEY, Bookie, Disk, body_of, run_of
from tests.bookie.fakes.in_process import connect, new_store, options_in
from tests.bookie.fakes.losses import with_ledgers
from tests.bookie.fakes.wires import adds, read, status
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


class DyingDisk(Disk):
    """All that is asked of paths that begin with `dead` fails, reading too, but for the first `asked_max` times."""

    dead = ""
    asked_max = 0
    met = False

    def _look(self, path: str) -> None:
        if self.dead and path.startswith(self.dead):
            if self.asked_max <= 0:
                self.met = True
                raise OSError(errno.EIO, "injected", path)
            self.asked_max -= 1

    def make_directories(self, path: str) -> None:
        self._look(path)

    def names(self, path: str) -> list[str]:
        self._look(path)
        return super().names(path)

    def open(self, path: str, create: bool = False) -> int:
        self._look(path)
        return super().open(path, create)

    def exists(self, path: str) -> bool:
        self._look(path)
        return super().exists(path)

    def open_directory(self, path: str) -> int:
        self._look(path)
        return super().open_directory(path)

    def unlink(self, path: str) -> None:
        self._look(path)
        super().unlink(path)

    def rename(self, old: str, new: str) -> None:
        self._look(new)
        super().rename(old, new)


def dying(disk: Disk, dead: str, asked_max: int = 0) -> DyingDisk:
    made = DyingDisk()
    made.inodes, made.durable, made.rows, made.salts = disk.inodes, disk.durable, disk.rows, disk.salts
    made.dead, made.asked_max = dead, asked_max
    return made


def filled(ledgers: int = 3) -> Disk:
    """
    Of a bookie with so many ledger directories: entries 0 to 4 of ledgers 0 to 5 flushed, 5 to 7 in the journal only, a
    fence of ledger 4 too.
    """
    bookie = Bookie(ledgers=ledgers)
    for ledger in range(6):
        bookie.storage.add(run_of(ledger, 0, 5), ledger)
    bookie.commit()
    bookie.now(bookie.storage.flush())
    for ledger in range(6):
        bookie.storage.add(run_of(ledger, 5, 3), ledger)
    bookie.storage.fence(4, KEY, "f")
    bookie.commit()
    return bookie.disk.crashed(None)


def test_the_others_are_served_wherever_the_start_finds_it_dead() -> None:
    """
    At the first call in the directory, at the second, …: nothing is denied or lost; that it misses something is written
    down before the journal forgets.
    """
    calls = 0
    while True:
        disk = dying(filled(), "/disk/ledgers1", calls)
        bookie = Bookie(disk, ledgers=3)
        if not disk.met:
            break
        assert bookie.storage.failed_directories == ["/disk/ledgers1"]
        assert bookie.storage.counters.directories_lost == 1
        assert bookie.storage.read_only is None
        for ledger in (1, 4):
            assert bookie.storage.add(run_of(ledger, 8), "no") is Status.EREADONLY
            assert bookie.storage.add(run_of(ledger, 8, recovery=True), "no") is Status.EREADONLY
            assert bookie.storage.fence(ledger, KEY, "no") is Status.EUNKNOWNLEDGERSTATE
            assert bookie.read(ledger, 9) is Status.EUNKNOWNLEDGERSTATE
            assert bookie.read(ledger, -1) is Status.EUNKNOWNLEDGERSTATE
            assert bookie.storage.entries(ledger) is Status.EUNKNOWNLEDGERSTATE
            assert bookie.read(ledger, 2) in (Status.EIO, Status.EUNKNOWNLEDGERSTATE)
            assert bookie.now(bookie.storage.read_run(ledger, 9, 5, 1000)) is Status.EUNKNOWNLEDGERSTATE
        assert bookie.read(7, 0) is Status.EUNKNOWNLEDGERSTATE, "who knows whether it was here"
        for ledger in (0, 2, 3, 5):
            assert [bookie.read(ledger, entry) for entry in (0, 7, 8)] == [
                body_of(ledger, 0),
                body_of(ledger, 7),
                Status.ENOENTRY,
            ]
            assert bookie.storage.add(run_of(ledger, 8), ledger) is Status.EOK
        bookie.commit()
        bookie.now(bookie.storage.flush())
        assert set(bookie.storage.ledger_ids()) == {0, 2, 3, 5}
        assert (
            notes.named_failed(disk, "/disk/ledgers0")
            == notes.named_failed(disk, "/disk/ledgers2")
            == {"/disk/ledgers1"}
        )
        bookie.close()
        calls += 1
    assert calls >= 4


def test_a_directory_that_comes_back_is_behind_until_its_ledgers_are_marked() -> None:
    """Also when another one dies meanwhile: the note of the first goes only with `caught_up`."""
    bookie = Bookie(dying(filled(), "/disk/ledgers1"), ledgers=3)
    bookie.storage.add(run_of(0, 8), "a")
    bookie.commit()
    bookie.close()
    again = Bookie(dying(bookie.disk.crashed(None), "/disk/ledgers2"), ledgers=3)
    assert again.storage.stale == ["/disk/ledgers1"]
    assert again.storage.failed_directories == ["/disk/ledgers2"]
    assert again.read(1, 4) == body_of(1, 4)
    again.now(Deferred.fromCoroutine(again.storage.mark_limbo({1: LedgerRow(KEY, limbo=True)})))
    directories = again.options.ledger_directories
    for directory in directories[:2]:
        assert notes.named_failed(again.disk.crashed(None), directory) == {"/disk/ledgers1", "/disk/ledgers2"}, (
            "ledger 4 is not marked yet"
        )
    again.now(Deferred.fromCoroutine(again.storage.mark_limbo({4: LedgerRow(KEY, limbo=True)})))
    again.storage.caught_up()
    assert (
        notes.named_failed(again.disk.crashed(None), directories[0])
        == notes.named_failed(again.disk.crashed(None), directories[1])
        == {directories[2]}
    )
    last = Bookie(again.disk.crashed(None), ledgers=3)
    assert last.storage.stale == ["/disk/ledgers1", "/disk/ledgers2"], (
        "the second one's own note is old, and names more than it need"
    )
    assert [last.read(ledger, 9) for ledger in (1, 4)] == [Status.EUNKNOWNLEDGERSTATE] * 2
    assert last.read(0, 8) == body_of(0, 8)
    last.now(Deferred.fromCoroutine(last.storage.mark_limbo({})))
    last.storage.caught_up()
    assert notes.noted_failed(last.disk.killed(), directories) == []


def test_a_directory_that_is_dead_again_is_not_back() -> None:
    """What it missed can't be marked in it yet, so the note stays."""
    first = Bookie(dying(filled(), "/disk/ledgers1"), ledgers=3)
    first.storage.add(run_of(0, 8), "a")
    first.commit()
    first.close()
    again = Bookie(dying(first.disk.crashed(None), "/disk/ledgers1"), ledgers=3)
    assert again.storage.stale == []
    assert again.storage.failed_directories == ["/disk/ledgers1"]
    again.close()
    assert notes.named_failed(again.disk.crashed(None), "/disk/ledgers0") == {"/disk/ledgers1"}


def test_what_apache_left_is_not_taken_over_without_a_directory() -> None:
    """Its journal is read once: what belongs to the dead one would be gone."""
    disk = Disk()
    disk.replace("/disk/journal0/current/1.txn", b"")
    with pytest.raises(StorageError, match=r"injected.*taken over as a whole or not at all"):
        Bookie(dying(disk, "/disk/ledgers1"), ledgers=2)


def test_a_dead_disk_while_the_journal_is_replayed() -> None:
    """
    What was read so far does not fit into memory, and the disk takes and gives nothing more: the directory fails,
    the start goes on.
    """
    first = Bookie(ledgers=2, write_cache_bytes_max=64 << 20)
    for ledger in range(40):
        first.storage.add(run_of(ledger, 0, size=100_000), ledger)
        first.commit()
    disk = first.disk.crashed(None)

    def before(call: str, path: str) -> None:
        if call == "write" and path.startswith("/disk/ledgers1/") and path.endswith(".log"):
            disk.rows["/disk/ledgers1/current/ledgers"].get = DeadRows("injected").get  # type: ignore[method-assign]
            raise OSError(errno.EIO, "injected", path)

    disk.before = before
    again = Bookie(disk, ledgers=2, write_cache_bytes_max=2 << 20)
    assert again.storage.failed_directories == ["/disk/ledgers1"]
    assert [again.read(ledger, 0) for ledger in (0, 38)] == [body_of(ledger, 0, 100_000) for ledger in (0, 38)]
    assert again.read(1, 7) is Status.EUNKNOWNLEDGERSTATE


@pytest.mark.parametrize(
    ("dead", "options"), [("/disk/ledgers0", {}), ("/disk/journal0", {"ledgers": 2}), ("/disk/ledgers", {"ledgers": 2})]
)
def test_without_what_it_needs_a_bookie_does_not_start(dead: str, options: dict[str, int]) -> None:
    """Its only ledger directory, a journal, all ledger directories."""
    with pytest.raises(OSError, match="injected"):
        Bookie(dying(filled(options.get("ledgers", 1)), dead), **options)


def test_another_bookie_on_the_directory_is_no_dead_disk() -> None:
    """A directory that is locked by another bookie ends the start instead of being left out."""
    disk = filled()
    disk.lock("/disk/ledgers1/current/quire.lock")
    with pytest.raises(StorageError, match="another bookie"):
        Bookie(disk, ledgers=3)


def test_what_a_dead_disk_says() -> None:
    """RocksDB has no numbers."""
    assert [is_dead(OSError(number, "x")) for number in (errno.EIO, errno.EROFS, errno.ENOENT, errno.ENOSPC)] == [
        True,
        True,
        False,
        False,
    ]
    assert is_dead(OSError(f"RocksDB /x: IO error: While open a file: /x/CURRENT: {os.strerror(errno.EIO)}"))
    assert not is_dead(OSError("RocksDB /x: Corruption: bad block"))


def test_a_dead_directory_is_not_asked_for_entries() -> None:
    """
    All that it has is unknown, in whatever way it is read: no error of a disk that everybody knows to be dead, and
    nothing in the log.
    """
    bookie = Bookie(dying(filled(), "/disk/ledgers1"), ledgers=3)
    assert [bookie.read(1, entry) for entry in range(4)] == [Status.EUNKNOWNLEDGERSTATE] * 4
    assert bookie.now(bookie.storage.read(1, 2, alone=True)) is Status.EUNKNOWNLEDGERSTATE
    assert bookie.now(bookie.storage.read_run(1, 0, 5, 1000)) is Status.EUNKNOWNLEDGERSTATE
    assert bookie.now(bookie.storage.lac(1)) >= -1
    assert bookie.now(bookie.storage.lac(97)) == -1
    assert decode(bookie.now(bookie.storage.held(97))) == []
    assert bookie.storage.counters.read_errors == 0


def test_no_row_of_a_dead_directory_is_said_to_be_missing() -> None:
    """Every call on the rows of a failed directory raises `OSError`; none returns "not found"."""
    rows = DeadRows("injected")
    for call in (
        lambda: rows.get(b"k"),
        lambda: rows.floor(b"k"),
        lambda: rows.scan(b"a", b"b"),
        lambda: rows.write([]),
        rows.sync,
    ):
        with pytest.raises(OSError, match="injected"):
            call()


class Dead(Files):
    """A real disk one directory of which can't be read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def open(self, path: str, create: bool = False) -> int:
        self._look(path)
        return super().open(path, create)

    def names(self, path: str) -> list[str]:
        self._look(path)
        return super().names(path)

    def exists(self, path: str) -> bool:
        self._look(path)
        return super().exists(path)

    def unlink(self, path: str) -> None:
        self._look(path)
        super().unlink(path)

    def _look(self, path: str) -> None:
        if path.startswith(self.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_a_bookie_starts_without_a_dead_disk_and_takes_it_back(tmp_path: Path) -> None:
    """Cookies included.  It stays writable; when the disk is back, what lay there is in limbo before a port opens."""

    async def story() -> None:
        store = await new_store()
        two = (str(tmp_path / "one"), str(tmp_path / "two"))
        options = options_in(tmp_path, store.uri, ledger_directories=two)
        with pytest.raises(IdentityError, match="Only a bookie that the cluster knows"):
            await WholeBookie(reactor, options, store, Dead(tmp_path / "two")).start()
        first = WholeBookie(reactor, options, store)
        await first.start()
        await with_ledgers(store, 0, 1, 2, 3)
        raw = await connect(first)
        for ledger in range(4):
            assert status(await raw.ask(adds(b"a", ledger=ledger))) is Status.EOK
        await first.stop()
        second = WholeBookie(reactor, options, store, Dead(tmp_path / "two"))
        await second.start()
        assert (second.directories_lost, second.read_only, second.ledgers_in_limbo) == ([two[1]], False, 0)
        raw = await connect(second)
        assert status(await raw.ask(adds(b"b", first=1, ledger=2))) is Status.EOK
        assert status(await raw.ask(read(0, ledger=2))) is Status.EOK
        assert status(await raw.ask(read(0, ledger=1))) is Status.EIO, "unknown, in V2's words"
        assert status(await raw.ask(adds(b"b", first=1, ledger=1))) is Status.EREADONLY
        await second.stop()
        third = WholeBookie(reactor, options, store)
        await third.start()
        assert (third.directories_lost, third.copies.limbo(), third.ledgers_in_limbo) == ([], [1, 3], 2)
        await third.stop()
        assert notes.noted_failed(Files(), two) == []
        await store.close()

    run(story)


def test_a_disk_is_back_while_another_is_dead(tmp_path: Path) -> None:
    """
    The cookies of what was behind are written again, those of the dead ones are left alone: ledgers and index,
    whichever disk it is.
    """
    names = [str(tmp_path / f"ledgers{number}") for number in range(3)]
    indexes = [str(tmp_path / f"index{number}") for number in range(3)]

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri, ledger_directories=tuple(names), index_directories=tuple(indexes))
        first = WholeBookie(reactor, options, store)
        await first.start()
        await with_ledgers(store, 0, 1, 2)
        await first.stop()
        for dead in (names[0], indexes[0]):
            notes.note_failed(Files(), names[2:], names[1:2])
            second = WholeBookie(reactor, options, store, Dead(Path(dead)))
            await second.start()
            assert (second.directories_lost, second.copies.limbo()) == ([names[0]], [1])
            await second.stop()
            assert not [path for path in tmp_path.rglob("DIRTY") if names[0] not in str(path)], "it ended cleanly"
        await store.close()

    run(story)
