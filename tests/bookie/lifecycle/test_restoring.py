"""Coming back after a loss: what is marked, in which order, and that nothing is denied meanwhile."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.directory import notes
from quire.bookie.files import Files, StorageError
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.journal.format import START
from quire.bookie.journal.mark import encode_mark, read_mark
from quire.bookie.layout import current
from quire.bookie.lifecycle import restoring
from quire.bookie.lifecycle.bookie import Bookie, BookieFailed
from quire.bookie.lifecycle.restoring import Lost, suspects
from quire.bookie.offline.rebuild import rebuild
from quire.bookie.offline.stopped import Stopped
from quire.bookie.server.contract import Own
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.bookie.upkeep.store_notes import bytes_of, note_of
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import MetadataStore
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import (
    LedgerError,
    MetadataSerialization,
    MetaStore,
    NoSuchLedgerExistsOnMetadataServer,
    Status,
)
from tests.bookie.fakes.disk import Bookie as Storage
from tests.bookie.fakes.disk import body_of, left_behind, options_of, run_of
from tests.bookie.fakes.in_process import connect, new_store, options_in
from tests.bookie.fakes.wires import LEDGER, adds
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

SECRET = Digest(DigestType.CRC32C, b"secret").master_key


def test_which_ledgers_lay_on_what_is_lost() -> None:
    """By the number of the journal or of the ledger directory; a lost index counts as its ledgers do."""
    options = options_of(journals=2, ledgers=3, index_directories=("/i0", "/i1", "/i2"))
    lost = Lost.of(options, ["/disk/ledgers1"])
    assert [ledger for ledger in range(7) if lost.concerns(ledger)] == [1, 4]
    assert Lost.of(options, ["/i1"]) == lost
    assert [ledger for ledger in range(7) if Lost.of(options, ["/disk/journal0"]).concerns(ledger)] == [0, 2, 4, 6]
    assert all(Lost.all_of(options).concerns(ledger) for ledger in range(7))
    assert not any(Lost.of(options, []).concerns(ledger) for ledger in range(7))


def test_suspects_are_read_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Page by page; in limbo with this bookie in any ensemble, or where a recovery may count on it before the metadata
    names it; fenced when a recovery may have fenced them here, named or not; with their key.
    """
    monkeypatch.setattr(restoring, "LEDGERS_PER_PAGE", 3)
    monkeypatch.setattr(restoring, "READS_AT_ONCE", 2)
    clock = Clock()
    store = MemoryStore(clock, MemoryCluster("suspects"))

    def wait(deferred: "Deferred[object]") -> object:
        found: list[object] = []
        deferred.addBoth(found.append)
        for _ in range(100):
            clock.advance(0.01)
        return found[0]

    wait(store.init_cluster())  # type: ignore[arg-type]

    async def story() -> list[dict[int, object]]:
        for ledger in range(8):
            bookies = ("a", "b", "c") if ledger % 2 else ("x", "b", "c")
            found = await store.create_ledger(ledger, LedgerMetadata.new(3, 3, 2, bookies, password=b"secret"))
            if ledger in (3, 5, 6):
                found = await store.write_ledger(ledger, found.value.recovering(), found.version)
            if ledger == 5:
                await store.write_ledger(ledger, found.value.closed(9, 90), found.version)
            if ledger == 4:
                await store.write_ledger(ledger, found.value.with_ensemble(10, ("a", "b", "c")), found.version)
        pages: list[dict[int, object]] = []
        async for page in suspects(store, "a", Lost.of(options_of(), ["/disk/ledgers0"])):
            pages.append(dict(page))
        return pages

    pages = wait(Deferred.fromCoroutine(story()))
    assert isinstance(pages, list)
    rows = {ledger: row for page in pages for ledger, row in page.items()}
    assert sorted(rows) == [1, 3, 4, 5, 6, 7]
    assert len(pages) == 3
    assert {ledger for ledger, row in rows.items() if row.limbo} == {1, 3, 4, 5, 6, 7}
    assert {ledger for ledger, row in rows.items() if row.fenced} == {3, 5, 6}
    assert {row.key for row in rows.values()} == {SECRET}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            MetadataSerialization("format 4"),
            {0: LedgerRow(b"", fenced=True, limbo=True), 1: LedgerRow(SECRET, limbo=True)},
        ),
        (NoSuchLedgerExistsOnMetadataServer("deleted just now"), {1: LedgerRow(SECRET, limbo=True)}),
        (MetaStore("the store is away"), MetaStore),
    ],
    ids=["undecodable", "deleted", "away"],
)
def test_one_ledger_that_cannot_be_read_keeps_no_bookie_down(error: LedgerError, expected: object) -> None:
    """
    What can't be decoded may be this bookie's: it is in limbo, fenced, without a key; a store that is away is told as
    that.
    """
    clock = Clock()
    store = MemoryStore(clock, MemoryCluster("one of two"))
    told: list[object] = []

    async def story() -> object:
        await store.init_cluster()
        await with_ledgers(store, 0, 1)
        store.faults = lambda operation, arguments: (
            Fault(error=error) if operation == "read_ledger" and arguments[0] == 0 else None
        )
        try:
            (page,) = [page async for page in suspects(store, "raw", Lost.of(options_of(), ["/disk/ledgers0"]))]
            return page
        except LedgerError as failure:
            return type(failure)

    Deferred.fromCoroutine(story()).addBoth(told.append)
    clock.pump([0.01] * 20)
    assert told == [expected]


async def with_ledgers(store: MetadataStore, *ledgers: int) -> None:
    for ledger in ledgers:
        await store.create_ledger(ledger, LedgerMetadata.new(3, 3, 2, ("raw", "b", "c"), password=b"secret"))


def limbo_after(
    path: Path,
    between: Callable[[Path], None],
    restore: bool = False,
    boots: tuple[bytes, bytes] = (b"1", b"1"),
    **more: object,
) -> list[int]:
    """
    A bookie starts and stops, something happens, it starts again: what is in limbo then.  The metadata gives it ledgers
    0 to 3.
    """

    async def story() -> list[int]:
        store = await new_store()
        await with_ledgers(store, 0, 1, 2, 3)
        found: list[int] = []
        for turn, boot in enumerate(boots):
            files = Files()
            files.boot_id = lambda boot=boot: boot  # type: ignore[misc, method-assign]
            bookie = Bookie(reactor, options_in(path, store.uri, **more), store, files, restore=restore and turn > 0)
            await bookie.start()
            found = bookie.copies.limbo()
            assert bookie.incomplete == bool(found)
            assert bookie.restoring == bookie.read_only == bool(found)
            assert not bookie.service.read_only, "recovery has to be able to write"
            if found:
                assert str(bookie.read_only_reasons[0]).startswith("what it may have lost")
                bookie.copied()
                assert (bookie.incomplete, bookie.read_only) == (True, False)
            await bookie.stop()
            if not turn:
                between(path)
        await store.close()
        return found

    return run(story)


def wipe(path: Path) -> None:
    for part in sorted(path.rglob("*"), reverse=True):
        part.rmdir() if part.is_dir() else part.unlink()


def nothing(path: Path) -> None:
    """All is as it was."""


def test_a_clean_restart_marks_nothing(tmp_path: Path) -> None:
    """Also with --restore, when nothing is lost."""
    assert limbo_after(tmp_path, nothing, restore=True) == []
    assert not list(tmp_path.rglob("DIRTY"))
    assert not list(tmp_path.rglob("quire.limbo"))


@pytest.mark.parametrize(("lost", "expected"), [("ledgers", [0, 1, 2, 3]), ("journal", [0, 1, 2, 3])])
def test_lost_directories_put_their_ledgers_in_limbo(tmp_path: Path, lost: str, expected: list[int]) -> None:
    """Before the cookies come back; nothing of the work is left behind but the note of the limbo."""
    assert limbo_after(tmp_path, lambda path: wipe(path / lost), restore=True) == expected
    assert len(list(tmp_path.rglob("VERSION"))) == 2
    assert not list(tmp_path.rglob("quire.restoring"))
    assert [note.read_bytes() for note in tmp_path.rglob("quire.limbo")] == [notes.WAITING]


def test_one_lost_directory_of_two_marks_its_own_ledgers(tmp_path: Path) -> None:
    """Only the ledgers of the lost directory are in limbo after a start with restore."""
    two = {"ledger_directories": (str(tmp_path / "one"), str(tmp_path / "two"))}
    assert limbo_after(tmp_path, lambda path: wipe(path / "two"), restore=True, **two) == [1, 3]


@pytest.mark.parametrize("new_table", [False, True])
def test_a_rebuilt_index_is_compared_with_other_bookies(tmp_path: Path, new_table: bool) -> None:
    """
    It has what the logs show; a record that was damaged there, or a fence without entries, would be missing without a
    word.
    """

    def mend(path: Path) -> None:
        stopped = Stopped(Files(), options_in(path, "memory://none"))
        rebuild(stopped, new_table=new_table)
        stopped.close()

    assert limbo_after(tmp_path, mend) == [0, 1, 2, 3]


def test_a_directory_that_is_back_gets_a_mark_though_nothing_of_it_is_in_limbo(tmp_path: Path) -> None:
    """Before a port opens: its old one may name a journal segment that is gone."""
    two = (str(tmp_path / "one"), str(tmp_path / "two"))

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri, ledger_directories=two)
        for turn in range(2):
            bookie = Bookie(reactor, options, store)
            await bookie.start()
            marks = [(tmp_path / name / "current" / "quire.mark") for name in ("one", "two")]
            if turn:
                assert marks[1].read_bytes() == marks[0].read_bytes()
            await bookie.stop()
            if not turn:
                marks[1].write_bytes(encode_mark([START]))
                notes.note_failed(Files(), [two[0]], [two[1]])
        await store.close()

    run(story)


def test_a_directory_that_was_given_up_comes_back_in_limbo(tmp_path: Path) -> None:
    """It missed what came after its failure; no --restore is needed, and the note goes once that is marked."""
    two = (str(tmp_path / "one"), str(tmp_path / "two"))
    assert limbo_after(
        tmp_path, lambda path: notes.note_failed(Files(), [two[0]], [two[1]]), ledger_directories=two
    ) == [1, 3]
    assert notes.noted_failed(Files(), two) == []


@pytest.mark.parametrize(
    ("before", "synced", "boots", "expected"),
    [
        (b"1 synced\n", True, (b"1", b"2"), []),
        (b"1 unsynced\n", False, (b"1", b"1"), []),
        (b"1 unsynced\n", False, (b"1", b"2"), [0, 1, 2, 3]),
        (b" unsynced\n", False, (b"", b""), [0, 1, 2, 3]),
        (b"1 unsynced\n", True, (b"1", b"2"), [0, 1, 2, 3]),
        (b"1 synced\n", False, (b"1", b"2"), []),
        (b"", True, (b"1", b"2"), []),
        (b"", False, (b"1", b"2"), [0, 1, 2, 3]),
    ],
)
def test_an_unclean_end_without_sync(
    tmp_path: Path, before: bytes, synced: bool, boots: tuple[bytes, bytes], expected: list[int]
) -> None:
    """
    With sync off, what was acknowledged outlives the process, but not the machine, whatever the next start is
    configured to do; where the boot isn't known, or Apache's note tells nothing, the worst is assumed.
    """

    def dirty(path: Path) -> None:
        """As a killed process leaves it, started in boot 1."""
        (path / "ledgers" / "current" / "DIRTY").write_bytes(before)

    assert limbo_after(tmp_path, dirty, boots=boots, journal_sync_data=synced) == expected


@pytest.mark.parametrize("restore", [False, True])
def test_an_unclean_end_without_sync_is_not_hidden_by_a_lost_disk(tmp_path: Path, restore: bool) -> None:
    """The power went, and a disk with it: what the journal had not synced belongs to ledgers of all directories."""
    two = (str(tmp_path / "one"), str(tmp_path / "two"))

    def power_loss(path: Path) -> None:
        (path / "one" / "current" / "DIRTY").write_bytes(b"1 unsynced\n")
        if restore:
            wipe(path / "two")
        else:
            notes.note_failed(Files(), [two[0]], [two[1]])

    assert limbo_after(tmp_path, power_loss, restore=restore, boots=(b"1", b"2"), ledger_directories=two) == [
        0,
        1,
        2,
        3,
    ]
    assert notes.noted_failed(Files(), two) == []
    assert not list(tmp_path.rglob("quire.restoring"))
    assert len(list(tmp_path.rglob("VERSION"))) == 3


def test_a_directory_that_is_back_does_not_tell_how_the_last_run_ended(tmp_path: Path) -> None:
    """
    Its note is of the run in which it was given up; the machine was started again since, and the runs without it ended
    cleanly.
    """
    two = (str(tmp_path / "one"), str(tmp_path / "two"))

    def given_up_before(path: Path) -> None:
        (path / "two" / "current" / "DIRTY").write_bytes(b"1 unsynced\n")
        notes.note_failed(Files(), [two[0]], [two[1]])

    assert limbo_after(tmp_path, given_up_before, boots=(b"1", b"2"), ledger_directories=two) == [1, 3]


def test_a_lost_journal_begins_where_the_directories_are_that_missed_nothing() -> None:
    """
    One that was given up before has an old mark: a segment named for that would not hold the place that the start asks
    for.
    """
    bookie = left_behind()
    disk = bookie.disk.killed()
    for path in [path for path in disk.inodes if path.startswith("/disk/journal0/")]:
        disk.unlink(path)
    restoring.begin(disk, bookie.options, ["/disk/journal0"])
    again = Storage(disk, ledgers=2)
    assert again.storage.stale == ["/disk/ledgers1"]
    assert again.read(0, 59) == body_of(0, 59, 100_000)
    assert again.storage.add(run_of(0, 60), "b") is Status.EOK
    again.commit()
    assert Storage(again.disk.crashed(None), ledgers=2).read(0, 60) == body_of(0, 60)


def test_a_journal_that_is_lost_amid_a_restore_begins_where_the_marks_of_that_restore_are() -> None:
    """
    An interrupted restore leaves marks in directories that still count as lost; the start of the next one goes by these
    marks, too.
    """
    bookie = Storage(ledgers=2)
    for entry in range(3):
        bookie.storage.add(run_of(0, entry), entry)
        bookie.commit()
    disk, lost = bookie.disk.killed(), list(bookie.options.ledger_directories)
    restoring.begin(disk, bookie.options, lost)
    interrupted = Storage(disk, ledgers=2)  # ledgers were put in limbo, and a checkpoint was made, but no cookie yet
    interrupted.now(interrupted.storage.flush())
    disk = interrupted.disk.killed()
    marks = [read_mark(disk, current(path)) for path in lost]
    assert all(mark is not None and mark[0] > START for mark in marks)
    for path in disk.find(".qj"):
        disk.unlink(path)
    restoring.begin(disk, bookie.options, ["/disk/journal0", *lost])
    again = Storage(disk, ledgers=2)
    assert again.read(0, 2) == body_of(0, 2)
    assert again.storage.add(run_of(0, 3), "a") is Status.EOK
    again.commit()
    assert Storage(again.disk.crashed(None), ledgers=2).read(0, 3) == body_of(0, 3)


@pytest.mark.parametrize("synced", [True, False])
def test_the_marker_stands_while_the_bookie_runs(tmp_path: Path, synced: bool) -> None:
    """
    Apache's name, in every ledger directory, and no other; it tells how this run goes, whatever the next is configured
    to do.
    """

    async def story() -> None:
        store = await new_store()
        bookie = Bookie(reactor, options_in(tmp_path, store.uri, journal_sync_data=synced), store)
        await bookie.start()
        (note,) = tmp_path.rglob("DIRTY")
        assert note.parent.parent.name == "ledgers"
        assert note.read_bytes().split()[-1] == (b"synced" if synced else b"unsynced")
        await bookie.stop()
        assert not list(tmp_path.rglob("DIRTY"))
        await store.close()

    run(story)


@pytest.mark.parametrize("away", [False, True], ids=["at once", "the metadata store goes away in the first start"])
def test_limbo_that_the_journal_tells_of_is_looked_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """
    It was journaled and not yet in the table when the process was killed: the start finds it, and says that somebody
    should copy.  That is not forgotten when this start fails, whose last checkpoint takes it out of the journal.
    """

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri, flush_interval_ms=600_000)
        first = Bookie(reactor, options, store)
        await first.start()
        raw = await connect(first)
        await raw.ask(adds(b"a"))
        done: Deferred[None] = Deferred()
        own = Own()
        own.done.addCallback(lambda code: done.callback(None))
        assert first.service.storage.set_limbo(LEDGER, True, (own, own)) is Status.EOK  # type: ignore[attr-defined]
        await done
        shutil.copytree(tmp_path, tmp_path.parent / "killed")
        await first.stop()
        moved = Path(shutil.move(tmp_path, tmp_path.parent / "aside"))
        shutil.move(tmp_path.parent / "killed", tmp_path)
        if away:

            async def failing(guard: StoreGuard) -> None:
                raise MetaStore("the store is away")

            with monkeypatch.context() as patch:
                patch.setattr(StoreGuard, "start", failing)
                with pytest.raises(MetaStore):
                    await Bookie(reactor, options, store).start()
        again = Bookie(reactor, options, store)
        await again.start()
        assert (again.incomplete, again.restoring, again.ledgers_in_limbo) == (True, True, 1)
        assert again.copies.limbo() == [LEDGER]
        await again.stop()
        shutil.rmtree(moved)
        await store.close()

    run(story)


def test_a_restore_that_fails_half_way_begins_again(tmp_path: Path) -> None:
    """The store goes away while the ledgers are marked: no cookie is written, the next try marks them all."""

    async def story() -> None:
        store = await new_store()
        await with_ledgers(store, 0, 1)
        options = options_in(tmp_path, store.uri)
        first = Bookie(reactor, options, store)
        await first.start()
        await first.stop()
        wipe(tmp_path)

        class Failing(Files):
            def replace(self, path: str, data: bytes) -> None:
                if path.endswith("VERSION"):
                    raise OSError(5, "Input/output error", path)
                super().replace(path, data)

        from quire.bookie.lifecycle.identity import IdentityError

        with pytest.raises((IdentityError, StorageError, OSError)):
            await Bookie(reactor, options, store, Failing(), restore=True).start()
        assert not list(tmp_path.rglob("VERSION"))
        with pytest.raises(IdentityError, match="--restore"):
            await Bookie(reactor, options, store).start()
        last = Bookie(reactor, options, store, restore=True)
        await last.start()
        assert last.copies.limbo() == [0, 1]
        await last.stop()
        await store.close()

    run(story)


def test_a_store_that_is_set_back_while_ledgers_are_marked_ends_the_start(tmp_path: Path) -> None:
    """It did not list all of them.  Nothing says that they were marked: with the newer state they all are."""

    async def story() -> None:
        store = await new_store()
        assert isinstance(store, MemoryStore)
        await with_ledgers(store, *[await store.new_ledger_id() for _ in range(4)])
        two = {"ledger_directories": (str(tmp_path / "one"), str(tmp_path / "two"))}
        options = options_in(tmp_path, store.uri, **two)
        first = Bookie(reactor, options, store)
        await first.start()
        await first.stop()
        wipe(tmp_path / "two")
        shared, newest = store.shared, dict(store.shared.ledgers)

        def set_back(name: str, _: object) -> None:
            if name == "ledger_ids":
                shared.ledgers, shared.next_ledger = {0: newest[0]}, 1

        store.faults = set_back
        with pytest.raises(BookieFailed, match="set-back"):
            await Bookie(reactor, options, store, restore=True).start()
        store.faults = None
        shared.ledgers, shared.next_ledger = newest, 4
        note = await store.read_set_back()
        await store.swap_set_back(note, bytes_of({**note_of(note), "accepted": True}))
        last = Bookie(reactor, options, store, restore=True)
        await last.start()
        assert last.copies.limbo() == [1, 3]
        await last.stop()
        await store.close()

    run(story)


def test_a_directory_that_fails_while_it_is_restored_stays_to_be_restored(tmp_path: Path) -> None:
    """It got no cookie, so its note must stay, or no start with --restore would take it any more."""

    async def story() -> None:
        store = await new_store()
        await with_ledgers(store, 0, 1, 2, 3)
        options = options_in(tmp_path, store.uri, ledger_directories=(str(tmp_path / "one"), str(tmp_path / "two")))
        first = Bookie(reactor, options, store)
        await first.start()
        await first.stop()
        wipe(tmp_path / "two")

        class Failing(Files):
            def replace(self, path: str, data: bytes) -> None:
                if path == str(tmp_path / "two/current/quire.mark"):
                    raise OSError(5, "Input/output error", path)
                super().replace(path, data)

        failing = Bookie(reactor, options, store, Failing(), restore=True)
        await failing.start()
        assert failing.directories_lost == [str(tmp_path / "two")]
        assert (tmp_path / "two/current/quire.restoring").exists()
        await failing.stop()
        last = Bookie(reactor, options, store, restore=True)
        await last.start()
        assert last.directories_lost == []
        assert last.copies.limbo() == [1, 3]
        assert not list(tmp_path.rglob("quire.restoring"))
        await last.stop()
        await store.close()

    run(story)
