"""What is in limbo after a start, and that nothing in limbo is forgotten."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.directory import notes
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.journal.format import START
from quire.bookie.journal.mark import encode_mark
from quire.bookie.lifecycle.bookie import Bookie
from quire.bookie.lifecycle.ids import BookieFailed
from quire.bookie.offline.rebuild import rebuild
from quire.bookie.offline.stopped import Stopped
from quire.bookie.server.contract import Own
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.bookie.upkeep.store_notes import bytes_of, note_of
from quire.conf.bookie import BookieOptions
from quire.metadata.memory.store import MemoryStore
from quire.protocol.errors import (
    MetaStore,
    Status,
)
from quire.rows.files import Files
from tests.bookie.fakes.in_process import connect, new_store, options_in, running
from tests.bookie.fakes.losses import limbo_after, wipe, with_ledgers
from tests.bookie.fakes.storage import FakeStorage, FakeUpkeep
from tests.bookie.fakes.wires import LEDGER, adds
from tests.metadata import stored
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def nothing(path: Path) -> None:
    """All is as it was."""


def test_a_clean_restart_marks_nothing(tmp_path: Path) -> None:
    """Also with --restore, when nothing is lost."""
    assert limbo_after(tmp_path, nothing, restore=True) == []
    assert not list(tmp_path.rglob("DIRTY"))
    assert not list(tmp_path.rglob("quire.limbo"))


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
    configured to do; where the boot isn't known, or Apache's note says nothing, the worst is assumed.
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


def test_a_directory_that_is_back_does_not_say_how_the_last_run_ended(tmp_path: Path) -> None:
    """
    Its note is of the run in which it was given up; the machine was started again since, and the runs without it ended
    cleanly.
    """
    two = (str(tmp_path / "one"), str(tmp_path / "two"))

    def given_up_before(path: Path) -> None:
        (path / "two" / "current" / "DIRTY").write_bytes(b"1 unsynced\n")
        notes.note_failed(Files(), [two[0]], [two[1]])

    assert limbo_after(tmp_path, given_up_before, boots=(b"1", b"2"), ledger_directories=two) == [1, 3]


@pytest.mark.parametrize("synced", [True, False])
def test_the_marker_exists_while_the_bookie_runs(tmp_path: Path, synced: bool) -> None:
    """
    Apache's name, in every ledger directory, and no other; it says whether this run syncs, whatever the next is
    configured to do.
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
def test_limbo_that_is_in_the_journal_is_looked_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """
    It was journaled and not yet in the table when the process was killed: the start finds it, and asks for its
    copies.  That is not forgotten when this start fails, whose last checkpoint takes it out of the journal.
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
        assert (again.limbo.incomplete, again.restoring, again.ledgers_in_limbo) == (True, True, 1)
        assert again.copies.limbo() == [LEDGER]
        await again.stop()
        shutil.rmtree(moved)
        await store.close()

    run(story)


def test_a_store_that_is_set_back_while_ledgers_are_marked_ends_the_start(tmp_path: Path) -> None:
    """It did not list all of them.  Nothing says that they were marked: with the newer state they all are."""

    async def story() -> None:
        store = await new_store()
        assert isinstance(store, MemoryStore)
        two = {"ledger_directories": (str(tmp_path / "one"), str(tmp_path / "two"))}
        options = options_in(tmp_path, store.uri, **two)
        first = Bookie(reactor, options, store)
        await first.start()
        await with_ledgers(store, *[await store.new_ledger_id() for _ in range(4)])
        await first.stop()
        wipe(tmp_path / "two")
        shared, newest = store.shared, dict(stored.Ledgers(store.shared))

        def set_back(name: str, _: object) -> None:
            if name == "ledger_ids":
                for ledger in (1, 2, 3):
                    stored.Ledgers(shared).pop(ledger, None)
                stored.set_next_ledger(shared, 1)

        store.faults = set_back
        with pytest.raises(BookieFailed, match="set-back"):
            await Bookie(reactor, options, store, restore=True).start()
        store.faults = None
        stored.Ledgers(shared).update(newest)
        stored.set_next_ledger(shared, 4)
        note = await store.read_set_back()
        await store.swap_set_back(note, bytes_of({**note_of(note), "accepted": True}))
        last = Bookie(reactor, options, store, restore=True)
        await last.start()
        assert last.copies.limbo() == [1, 3]
        await last.stop()
        await store.close()

    run(story)


def test_ledgers_that_are_doubted_while_copies_come_to_their_end_are_not_forgotten(tmp_path: Path) -> None:
    """The note that ledgers are in limbo stays, and they are reported."""

    async def story() -> None:
        store = await new_store()
        storage = FakeStorage()
        marked: Deferred[None] = Deferred()

        async def mark_limbo(rows: Mapping[int, LedgerRow]) -> None:
            await marked

        storage.mark_limbo = mark_limbo  # type: ignore[method-assign]
        bookie = Bookie(
            reactor, options_in(tmp_path, store.uri), store, storage=lambda *_: storage, upkeep=lambda *_: FakeUpkeep()
        )  # type: ignore[arg-type, return-value]
        await bookie.start()
        assert not bookie.limbo.incomplete
        doubting = Deferred.fromCoroutine(bookie.limbo.mark_incomplete({5: LedgerRow(b"", limbo=True)}))
        bookie.copied()
        marked.callback(None)
        await doubting
        assert bookie.limbo.incomplete
        assert (bookie.copies.limbo(), bookie.ledgers_in_limbo) == ([5], 1)
        await bookie.stop()
        await store.close()

    run(story)


def test_what_is_noted_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said every half minute for as long as a ledger waits for its writer, and each note takes syncs."""
    written: list[bytes | None] = []

    async def story() -> None:
        async with running(tmp_path) as bookie:
            bookie.limbo.ready_to_copy()
            await bookie.limbo.mark_incomplete({5: LedgerRow(b"", limbo=True)})
            bookie.limbo.ready_to_copy()
            note = notes.note_limbo

            def noting(files: Files, options: BookieOptions, state: bytes | None) -> None:
                written.append(state)
                note(files, options, state)

            monkeypatch.setattr(notes, "note_limbo", noting)
            for _ in range(3):
                bookie.copied()
            assert written == [notes.WAITING]

    run(story)


def test_what_copies_entries_hears_when_limbo_grew(tmp_path: Path) -> None:
    """Not when ledgers are marked, but when it is decided what they have; and without a listener nothing happens."""

    class Copying:
        grew = 0

        def limbo_grew(self) -> None:
            self.grew += 1

    async def story() -> None:
        copying = Copying()
        async with running(tmp_path) as bookie:
            bookie.limbo.ready_to_copy()
            bookie.limbo.grew = copying.limbo_grew
            await bookie.limbo.mark_incomplete({5: LedgerRow(b"", limbo=True)})
            assert copying.grew == 0
            bookie.limbo.ready_to_copy()
            assert copying.grew == 1

    run(story)
