"""Directories that were lost: what is prepared on the empty ones, and when they get their cookies."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from quire.bookie.directory import notes
from quire.bookie.journal.format import START
from quire.bookie.journal.mark import read_mark
from quire.bookie.layout import current
from quire.bookie.lifecycle import restoring
from quire.bookie.lifecycle.bookie import Bookie
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.ids import IdentityError
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.retired_ids import DECOMMISSIONED, retire
from quire.metadata.store import BookieList, ServiceInfo
from quire.protocol.errors import MetaStore, Status
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.disk import Bookie as Storage
from tests.bookie.fakes.disk import body_of, left_behind, run_of
from tests.bookie.fakes.in_process import new_store, options_in
from tests.bookie.fakes.losses import limbo_after, wipe, with_ledgers
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


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


def test_a_restore_that_fails_half_way_begins_again(tmp_path: Path) -> None:
    """The store goes away while the ledgers are marked: no cookie is written, the next try marks them all."""

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri)
        first = Bookie(reactor, options, store)
        await first.start()
        await with_ledgers(store, 0, 1)
        await first.stop()
        wipe(tmp_path)

        class Failing(Files):
            def replace(self, path: str, data: bytes) -> None:
                if path.endswith("VERSION"):
                    raise OSError(5, "Input/output error", path)
                super().replace(path, data)

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


def test_a_directory_that_fails_while_it_is_restored_stays_to_be_restored(tmp_path: Path) -> None:
    """It got no cookie, so its note must stay, or no start with --restore would take it any more."""

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri, ledger_directories=(str(tmp_path / "one"), str(tmp_path / "two")))
        first = Bookie(reactor, options, store)
        await first.start()
        await with_ledgers(store, 0, 1, 2, 3)
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


def incarnations(path: Path) -> set[str | None]:
    """Of all cookies below."""
    return {Cookie.decode(found.read_bytes(), str(found)).incarnation for found in path.rglob("VERSION")}


def test_a_restored_bookie_is_another_incarnation(tmp_path: Path) -> None:
    """
    Once it serves, in all cookies and in what it announces.  Until then the store has both; a restore that was cut off
    goes on, and what it had drawn was told to nobody.
    """

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri, ledger_directories=(str(tmp_path / "one"), str(tmp_path / "two")))
        first = Bookie(reactor, options, store)
        await first.start()
        await first.stop()
        wipe(tmp_path / "two")

        class Failing(Files):
            def replace(self, path: str, data: bytes) -> None:
                if path == str(tmp_path / "one/current/VERSION"):
                    raise OSError(5, "Input/output error", path)
                super().replace(path, data)

        with pytest.raises((IdentityError, StorageError, OSError)):
            await Bookie(reactor, options, store, Failing(), restore=True).start()
        stored = Cookie.decode((await store.read_cookie("raw")).value, "store")
        assert stored.before == first.incarnation
        assert incarnations(tmp_path) == {first.incarnation, stored.incarnation}, "it was cut off amid its last step"
        last = Bookie(reactor, options, store, restore=True)
        await last.start()
        assert last.incarnation == stored.incarnation
        listed = (await store.bookies()).find("raw")
        assert listed is not None
        assert listed.incarnation == last.incarnation
        assert incarnations(tmp_path) == {last.incarnation}
        assert Cookie.decode((await store.read_cookie("raw")).value, "store") == replace(stored, before=None)
        await last.stop()
        await store.close()

    run(story)


def test_an_id_that_was_taken_out_is_let_in_with_every_fence(tmp_path: Path) -> None:
    """
    What is not open refuses plain adds, for a writer of before may still send some; what the metadata gives the bookie
    is in limbo.  Later starts are as any.
    """

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri)
        first = Bookie(reactor, options, store)
        await first.start()
        await first.stop()
        await with_ledgers(store, 0)
        others = LedgerMetadata.new(3, 3, 2, ("b", "c", "d"), password=b"secret")
        for ledger, metadata in ((1, others), (2, others.recovering()), (3, others.closed(5, 50))):
            await store.create_ledger(ledger, metadata)
        wipe(tmp_path)
        await retire(store, "raw", DECOMMISSIONED)
        with pytest.raises(IdentityError, match="raw was decommissioned"):
            await Bookie(reactor, options, store).start()
        again = Bookie(reactor, options, store, restore=True)
        await again.start()
        assert again.incarnation != first.incarnation
        storage = again.service.storage
        states = [storage.ledger(ledger) for ledger in range(4)]
        assert [state and (state.fenced, bool(state.limbo)) for state in states] == [
            (False, True), None, (True, True), (True, False)
        ]  # fmt: skip
        again.copied()
        await again.stop()
        last = Bookie(reactor, options, store)
        await last.start()
        assert last.incarnation == again.incarnation
        await last.stop()
        await store.close()

    run(story)


@pytest.mark.parametrize("kept", [False, True], ids=["before the store has the cookie", "once it has"])
def test_a_restore_under_an_id_that_was_taken_out_may_be_cut_off(tmp_path: Path, kept: bool) -> None:
    """The store goes away as it is to have the cookie, or a kill comes then: the next restore goes on."""

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri)
        first = Bookie(reactor, options, store)
        await first.start()
        await first.stop()
        await with_ledgers(store, 0)
        wipe(tmp_path)
        await retire(store, "raw", DECOMMISSIONED)
        write = store.write_cookie

        async def cut_off(bookie: str, data: bytes, version: int) -> int:
            if kept:
                await write(bookie, data, version)
            raise MetaStore("the store is away")

        store.write_cookie = lambda *given: Deferred.fromCoroutine(cut_off(*given))  # type: ignore[method-assign]
        with pytest.raises(MetaStore):
            await Bookie(reactor, options, store, restore=True).start()
        store.write_cookie = write  # type: ignore[method-assign]
        with pytest.raises(IdentityError, match="--restore"):
            await Bookie(reactor, options, store).start()
        last = Bookie(reactor, options, store, restore=True)
        await last.start()
        assert last.copies.limbo() == [0]
        await last.stop()
        await store.close()

    run(story)


def test_a_bookie_that_is_listed_is_not_restored(tmp_path: Path) -> None:
    """Another machine serves under its id, and has all that is lacking here: nothing is written."""

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri).model_copy(update={"session_timeout_ms": 500})
        first = Bookie(reactor, options, store)
        await first.start()
        await first.stop()
        wipe(tmp_path)
        kept = await store.read_cookie("raw")
        await store.register_bookie("raw", ServiceInfo.of("127.0.0.1", 1))
        with pytest.raises(IdentityError, match=r"raw is listed.*for 1 s.*Stop it first"):
            await Bookie(reactor, options, store, restore=True).start()
        assert await store.read_cookie("raw") == kept
        assert not list(tmp_path.rglob("quire.*"))
        await store.unregister_bookie("raw")
        last = Bookie(reactor, options, store, restore=True)
        await last.start()
        await last.stop()
        await store.close()

    run(story)


@pytest.mark.parametrize(
    ("looks", "after_s", "refused"),
    [
        ([False], 0, None),
        ([True, True, False, False], 11, None),
        ([True, False, True], 10.5, "again, after its session was over"),
        ([True] * 100, 20, "was so for 20 s"),
    ],
)
def test_a_restore_waits_for_the_session_of_a_bookie_that_was_killed(
    looks: list[bool], after_s: float, refused: str | None
) -> None:
    """One that is listed again a session later serves.  It is said once that it is waited for."""
    listed, clock = iter(looks), Clock()
    found = BookieList({"raw": ServiceInfo.of("127.0.0.1", 1)}, {})
    store: Any = SimpleNamespace(bookies=lambda: succeed(found if next(listed) else BookieList({}, {})))
    options: Any = SimpleNamespace(session_timeout_ms=10_000)
    with capturedLogs() as events:
        done = Deferred.fromCoroutine(restoring.check_unlisted(clock, store, options, "raw"))
        while not done.called:
            clock.advance(0.5)
    assert clock.seconds() == after_s
    assert sum("session ends by itself" in (formatEvent(event) or "") for event in events) == (len(looks) > 1)
    if refused is None:
        done.result  # noqa: B018
    else:
        with pytest.raises(IdentityError, match=refused):
            done.result.raiseException()
        done.addErrback(lambda _failure: None)
