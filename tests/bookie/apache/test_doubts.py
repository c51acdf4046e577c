"""
What an Apache bookie's index lost without a word is in doubt at the takeover, and then in limbo: nothing of it is
denied, and no recovery cuts a ledger by it.
"""

import gc
import pathlib
import shutil
from collections.abc import Callable

import pytest

from quire.bookie.apache.idx_files import idx_path
from quire.bookie.apache.index import LOCATION, location
from quire.bookie.apache.left_index import JoinedIndex, doubted, open_left
from quire.bookie.directory import notes
from quire.bookie.index.ledger_table import LedgerRow, LedgerTable
from quire.bookie.lifecycle.bookie import Bookie
from quire.bookie.lifecycle.limbo import Limbo
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import HEADER, MAGIC, ledgers_map
from quire.client.api import connect
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.tree_store import MetadataStore
from quire.protocol.digest import DigestType
from quire.protocol.errors import LedgerError, MetaStore, Status
from quire.rows.files import Files
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.apache_files import PASSWORD, Cut, Here, ledgers_of, options_for, unpack
from tests.bookie.fakes.in_process import new_store, options_in
from tests.reactor import reactor, run
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0

Harm = Callable[[pathlib.Path], object]
ALL = {0, 1, 2, 3, 4}


def writes(root: pathlib.Path, store: str = "locations") -> pathlib.Path:
    """RocksDB's log of writes."""
    (found,) = (root / "index/current" / store).glob("*.log")
    return found


def cut(path: pathlib.Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def flip(path: pathlib.Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def zero(path: pathlib.Path, at: int, count: int) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + count] = bytes(count)
    path.write_bytes(data)


def idx(root: pathlib.Path, ledger: int = 4) -> pathlib.Path:
    return root / "index/current" / idx_path(ledger)


HARMS: dict[str, tuple[str, Harm, set[int] | None]] = {
    "a log of writes cut": ("rocksdb", lambda root: cut(writes(root), 26000), {4}),
    "a log of writes emptied": ("rocksdb", lambda root: cut(writes(root), 0), ALL),
    "the table's log of writes emptied": ("rocksdb", lambda root: cut(writes(root, "ledgers"), 0), ALL),
    "a log of writes flipped": ("rocksdb", lambda root: flip(writes(root), 24000), None),
    "the table's log of writes flipped": ("rocksdb", lambda root: flip(writes(root, "ledgers"), 20), None),
    "a log of writes gone": ("rocksdb", lambda root: writes(root).unlink(), None),
    "an .idx file gone": ("sorted", lambda root: idx(root).unlink(), {4}),
    "an .idx file cut by a page": ("sorted", lambda root: cut(idx(root), 1024), {4}),
    "an .idx file cut in a page": ("sorted", lambda root: cut(idx(root, 2), 9000), {2}),
    "a hole in an .idx file": ("sorted", lambda root: zero(idx(root), 1024 + 8 * 100, 8), {4}),
}


@pytest.mark.parametrize("how", HARMS)
def test_what_the_index_lost_is_in_doubt(how: str, tmp_path: pathlib.Path) -> None:
    """Ledger by ledger where the logs show it; else all that a directory may have held."""
    name, harm, lost = HARMS[how]
    root = unpack(f"{name}_bookie0_stopped", tmp_path)
    harm(root)
    here = Here(root)
    directory = str(root / "ledgers")
    try:
        assert here.storage.doubted == (lost or set())
        assert here.storage.stale == ([] if lost else [directory])
        assert notes.named_failed(Files(), directory) == (set() if lost else {directory})
        assert notes.noted_doubted(Files(), directory) == (lost or set())
        denied = {
            ledger
            for ledger, (_digest, payloads) in ledgers_of(name, "stopped").items()
            if any(here.read(ledger, entry) in (Status.ENOENTRY, Status.ENOLEDGER) for entry in range(len(payloads)))
        }
        assert denied <= (lost or ALL)
        here.storage.caught_up()
        assert notes.named_failed(Files(), directory) == here.storage.doubted == set()
        assert notes.noted_doubted(Files(), directory) == set()
    finally:
        here.close()


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_the_newest_journal_file_gone_puts_all_in_doubt(name: str, tmp_path: pathlib.Path) -> None:
    """Apache had replayed the one that its mark names, and begins another at once; not where it never ran again."""
    root = unpack(f"{name}_bookie0_killed", tmp_path)
    max((root / "journal/current").glob("*.txn")).unlink()
    here = Here(root)
    assert here.storage.stale == [str(root / "ledgers")]
    here.close()


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
@pytest.mark.parametrize("moment", ["stopped", "killed"])
def test_a_good_index_leaves_no_doubt(name: str, moment: str, tmp_path: pathlib.Path) -> None:
    """Also what only the journal has, and what it has again."""
    root = unpack(f"{name}_bookie0_{moment}", tmp_path)
    here = Here(root)
    assert (here.storage.doubted, here.storage.stale) == (set(), [])
    assert not list(root.rglob("quire.lost"))
    here.close()


def map_log(root: pathlib.Path, log: int, ledgers: list[int]) -> None:
    """The log has a map that names these."""
    path = root / f"ledgers/current/{log}.log"
    data = path.read_bytes()
    head = HEADER.pack(MAGIC, 1, len(data), len(ledgers))
    path.write_bytes(head + data[len(head) :] + b"".join(ledgers_map(dict.fromkeys(ledgers, 1))))


def copied(root: pathlib.Path, log: int, ledger: int, entries: list[int], moved: list[int], end: bytes = b"") -> None:
    """A newer log of copies of entries that log 0 has; of those that are `moved` the index names the copy."""
    digest, payloads = ledgers_of("sorted", "stopped")[ledger]
    data = HEADER.pack(MAGIC, 1, 0, 0).ljust(1024, b"\0")
    pages = bytearray(idx(root, ledger).read_bytes())
    for entry in entries:
        body = digest.entry(ledger, entry, -1, len(payloads[entry]), payloads[entry])
        if entry in moved:
            pages[1024 + 8 * entry : 1032 + 8 * entry] = LOCATION.pack(location(log, len(data)))
        data += len(body).to_bytes(4, "big") + body
    (root / f"ledgers/current/{log}.log").write_bytes(data + end)
    idx(root, ledger).write_bytes(pages)


def mapped(root: pathlib.Path, ledgers: list[int]) -> None:
    """Log 0 has a map that names these, and the index has the newer log of one record of ledger 3."""
    map_log(root, 0, ledgers)
    copied(root, 1, 3, [0], [0])


def test_of_older_logs_with_a_map_no_record_is_read(tmp_path: pathlib.Path) -> None:
    """
    Each of the map's ledgers must be in table and index; a hole shows only where the newest log lacks something, too.
    """
    root = unpack("sorted_bookie0_stopped", tmp_path / "one")
    mapped(root, [0, 1, 2, 3, 4, 77])
    idx(root, 1).unlink()
    cut(idx(root, 2), 1024)
    zero(idx(root), 1024 + 8 * 100, 8)
    here = Here(root)
    assert here.storage.doubted == {1, 2, 77}
    here.close()
    root = unpack("sorted_bookie0_stopped", tmp_path / "two")
    mapped(root, [0, 1, 2, 3, 4])
    zero(idx(root), 1024 + 8 * 100, 8)
    zero(idx(root, 3), 1024, 8)
    here = Here(root)
    assert here.storage.doubted == {3, 4}
    here.close()


DAMAGE = b"\0\0\0\1" + b"damage" * 100
COPIES: dict[str, tuple[Harm, set[int]]] = {
    "no row names it": (lambda root: copied(root, 1, 2, [0, 1], []), {4}),
    "a row names an older log": (lambda root: copied(root, 1, 2, [0, 1, 2], [0, 1]), {4}),
    "damage before its end": (lambda root: copied(root, 1, 2, [0], [0], DAMAGE), {4}),
    "rows name a newer log": (lambda root: (copied(root, 1, 2, [0], []), copied(root, 2, 2, [0], [0], DAMAGE)), {4}),
    "all rows name it": (lambda root: copied(root, 1, 2, [0, 1], [0, 1]), set()),
    "its last record is cut off": (lambda root: copied(root, 1, 2, [0], [0], b"\0\0\1\0" + b"cut"), set()),
}


@pytest.mark.parametrize("how", COPIES)
def test_only_a_log_that_the_index_has_whole_ends_the_look(how: str, tmp_path: pathlib.Path) -> None:
    """Else log 0 is walked, too, of which the index lost entries 100 to 199 of ledger 4: a compaction copied others."""
    copy, lost = COPIES[how]
    root = unpack("sorted_bookie0_stopped", tmp_path)
    map_log(root, 0, [0, 1, 2, 3, 4])
    zero(idx(root), 1024 + 8 * 100, 8 * 100)
    copy(root)
    here = Here(root)
    assert here.storage.doubted == lost
    here.close()


def test_each_ledger_of_the_maps_is_looked_up_once(tmp_path: pathlib.Path) -> None:
    """However many logs it is in, be it in doubt or not."""
    root = unpack("sorted_bookie0_stopped", tmp_path)
    for log in range(3):
        if log:
            copied(root, log, 2, [0], [])
        map_log(root, log, [1, 2, 3, 4])
    copied(root, 3, 3, [0], [0])
    idx(root).unlink()
    logs = EntryLogs(Files(), str(root / "ledgers/current"), 1 << 30)
    table = LedgerTable(DictRows())
    table.write({ledger: LedgerRow(b"") for ledger in ALL})
    left = open_left(Files(), RocksRows, str(root / "index/current"), logs.read, table.get)
    asked: list[int] = []

    class Counting(JoinedIndex):
        """An index that notes what it is asked for."""

        def last(self, ledger: int) -> int:
            asked.append(ledger)
            return super().last(ledger)

    assert left is not None
    index = Counting(DictRows(), left, logs)
    assert doubted(logs, index, table) == {4}
    assert sorted(asked) == [1, 2, 3, 4]
    index.close()


async def apache(path: pathlib.Path, name: str, harm: Harm, store: MetadataStore, ledgers: set[int]) -> Bookie:
    """
    A bookie that is about to take over what an Apache bookie left; the store has these ledgers, which are open and on
    it alone.
    """
    options = options_in(path, store.uri, index_directories=(str(path / "index"),))
    first = Bookie(reactor, options, store)
    await first.start()
    await first.stop()
    for part in ("journal", "ledgers", "index"):
        for file in (path / part / "current").iterdir():
            if file.name not in ("VERSION", "quire.place"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()
    root = unpack(f"{name}_bookie0_stopped", path / "left")
    harm(root)
    for part in ("journal", "ledgers", "index"):
        (root / part / "current/VERSION").unlink()
        shutil.copytree(root / part, path / part, dirs_exist_ok=True)
    for ledger in ledgers:
        shape = LedgerMetadata.new(1, 1, 1, ("raw",), digest=DigestType.CRC32C, password=PASSWORD)
        await store.create_ledger(ledger, shape)
    return Bookie(reactor, options, store)


@pytest.mark.parametrize(
    ("how", "limbo"),
    [
        ("a log of writes cut", {4}),
        ("a log of writes emptied", {2, 4}),
        ("a log of writes flipped", {2, 4}),
        ("an .idx file gone", {4}),
        ("a hole in an .idx file", {4}),
    ],
)
def test_no_recovery_cuts_a_ledger_that_the_index_lost(how: str, limbo: set[int], tmp_path: pathlib.Path) -> None:
    """It is in limbo, so the bookie denies nothing of it; what the metadata store does not have any more is not."""

    async def story() -> None:
        store = await new_store()
        name, harm, _lost = HARMS[how]
        bookie = await apache(tmp_path, name, harm, store, {2, 4})
        await bookie.start()
        assert set(bookie.copies.limbo()) == limbo
        assert bookie.service.storage.stale == [] == list(tmp_path.rglob("quire.lost"))  # type: ignore[attr-defined]
        client = await connect(reactor, store.uri)
        try:
            with pytest.raises(LedgerError):
                await client.open_ledger(4, PASSWORD)
        finally:
            await client.close()
        assert not (await store.read_ledger(4)).value.is_closed
        await bookie.stop()
        await store.close()

    run(story)


def test_a_ledger_that_was_deleted_is_not_put_in_limbo(tmp_path: pathlib.Path) -> None:
    """The logs still have its entries; its bookie serves as any other does, and recoveries read to the end."""

    async def story() -> None:
        store = await new_store()
        bookie = await apache(tmp_path, "sorted", lambda root: idx(root, 2).unlink(), store, {4})
        await bookie.start()
        assert (bookie.copies.limbo(), bookie.limbo.incomplete, bookie.read_only) == ([], False, False)
        assert not [*tmp_path.rglob("quire.lost"), *tmp_path.rglob("quire.limbo")]
        client = await connect(reactor, store.uri)
        reader = await client.open_ledger(4, PASSWORD)
        assert len(await reader.read(0, 199)) == 200
        await client.close()
        await bookie.stop()
        await store.close()

    run(story)


def test_a_doubt_outlives_a_start_that_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """
    The takeover was done, and nothing in limbo yet, when the metadata store went away.  Only what was in doubt then is
    in limbo later.
    """

    async def story() -> None:
        store = await new_store()
        bookie = await apache(tmp_path, "sorted", lambda root: idx(root).unlink(), store, {2, 4})

        async def away(limbo: Limbo, lost: object) -> None:
            raise MetaStore("the store is away")

        with monkeypatch.context() as patch:
            patch.setattr(Limbo, "find", away)
            with pytest.raises(MetaStore):
                await bookie.start()
        again = Bookie(reactor, bookie.options, store)
        await again.start()
        assert set(again.copies.limbo()) == {4}
        assert not [*tmp_path.rglob("quire.lost"), *tmp_path.rglob("quire.doubted")]
        await again.stop()
        await store.close()

    run(story)


def test_a_takeover_that_is_cut_off_doubts_the_same(tmp_path: pathlib.Path) -> None:
    """Wherever it ends; and again when the next start ends before the metadata store was asked."""
    left = unpack("sorted_bookie0_stopped", tmp_path / "left")
    idx(left).unlink()
    cut, ended = 0, False
    while not ended:
        root = shutil.copytree(left, tmp_path / str(cut))
        files = Cut(cut)
        try:
            here = Here(root, files)
        except KeyboardInterrupt:
            cut += 2
        else:
            ended, files.left = True, 1 << 30
            here.close()
        gc.collect()  # a process that ends gives up its locks; here RocksDB's objects must go
        for _start in range(2):
            here = Here(root)
            assert (here.storage.doubted, here.storage.stale) == ({4}, []), cut
            here.close()
        shutil.rmtree(root)
    assert cut > 10


def test_rebuilt_directories_are_not_looked_at_again(tmp_path: pathlib.Path) -> None:
    """All of their ledgers are compared with other bookies anyway."""
    root = unpack("sorted_bookie0_stopped", tmp_path)
    idx(root).unlink()
    notes.note_failed(Files(), options_for(root).ledger_directories, options_for(root).ledger_directories)
    here = Here(root)
    assert (here.storage.doubted, here.storage.stale) == (set(), [str(root / "ledgers")])
    here.close()


def test_rows_that_were_deleted_last_leave_no_doubt_of_others(tmp_path: pathlib.Path) -> None:
    """Apache forgets them some time after the ledger; the metadata store says which ledger was deleted."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    table = RocksRows(str(root / "index/current/ledgers"))
    table.write([], [(2).to_bytes(8, "big")])
    table.sync()
    table.close()
    here = Here(root)
    assert here.storage.doubted == {2}
    here.close()
