"""Why a bookie is read-only: its configuration, an operator, its disks; and who hears of it."""

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater

from quire.bookie.directory import notes
from quire.bookie.lifecycle.bookie import Bookie
from quire.bookie.lifecycle.ids import IdentityError
from quire.bookie.lifecycle.read_only import DiskWatch, ReadOnly
from quire.metadata.bookies.drain_orders import DrainOrders
from quire.protocol.errors import Status as S
from quire.rows.files import Files, NotBegun, Usage
from tests.bookie.fakes.in_process import connect, http, new_store, options_in, running
from tests.bookie.fakes.wires import KEY, adds, options, read, status
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_read_only_by_configuration_and_by_an_operator(tmp_path: Path) -> None:
    """Adds are refused, reads go on, the list says so; a forced one can't be switched."""

    async def put(bookie: Bookie, on: bool) -> tuple[int, bytes]:
        body = json.dumps({"readOnly": on}).encode()
        assert bookie.token_file is not None
        token = Path(bookie.token_file).read_bytes().strip()
        head = b"PUT /api/v1/bookie/state/readonly HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" % token
        return await http(bookie.http_port, head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def story() -> None:
        store = await new_store()
        async with running(tmp_path, store) as bookie:
            raw = await connect(bookie)
            await raw.ask(adds(b"a"))
            assert (await put(bookie, True))[0] == 200
            assert status(await raw.ask(adds(b"b", first=1))) is S.EREADONLY
            assert status(await raw.ask(adds(b"b", first=1, recovery=True, priority=100))) is S.EOK
            assert status(await raw.ask(read(0, fence=True, master_key=KEY))) is S.EOK
            assert list((await store.bookies()).read_only) == ["raw"]
            assert (await put(bookie, False))[0] == 200
            assert list((await store.bookies()).writable) == ["raw"]
        async with running(tmp_path, store, force_read_only=True) as bookie:
            assert list((await store.bookies()).read_only) == ["raw"]
            found, text = await put(bookie, False)
            assert (found, b"forceReadOnlyBookie" in text) == (400, True)
        await store.close()

    run(story)


def test_what_an_operator_said_holds_through_restarts_where_it_is_to(tmp_path: Path) -> None:
    """With `persistBookieStatusEnabled`, until it is taken back; without it a restart forgets it."""

    async def story() -> None:
        store = await new_store()
        for keeps, on, after in ((True, True, True), (True, False, False), (False, True, False)):
            async with running(tmp_path, store, keeps_read_only=keeps) as bookie:
                assert bookie.operator_read_only(on) is None
            async with running(tmp_path, store, keeps_read_only=keeps) as bookie:
                assert bookie.read_only is after
                assert bookie.read_only_reasons == (["an operator said so"] if after else [])
                assert list((await store.bookies()).read_only) == (["raw"] if after else [])
        await store.close()

    run(story)


def test_a_full_disk_stays_full_down_to_the_low_water_mark() -> None:
    """The watch remembers which disks were full."""

    class Filling(Files):
        free = 500

        def usage(self, path: str) -> Usage:
            return Usage(1, 1000, self.free)

    files = Filling()
    nobody: Any = SimpleNamespace(
        read_only=False, switch=lambda read_only: None, under_pressure=lambda: None, failed_directories=[]
    )
    read_only = ReadOnly("b", nobody, nobody)
    told = options(disk_usage_threshold=0.9, disk_usage_warn_threshold=0.8, disk_usage_low_water_mark=0.7)
    watch = DiskWatch(Clock(), files, told, nobody, nobody, read_only)
    for free, full in ((150, False), (50, True), (150, True), (301, False), (150, False)):
        files.free = free
        watch.look()
        assert read_only.on is full, free


def test_a_full_disk_makes_it_read_only_and_room_makes_it_writable(tmp_path: Path) -> None:
    """
    Looked at while it runs; the operator's wish is another matter.  A look that fails for what nobody foresaw is not
    the last one.
    """

    class Filling(Files):
        free = 500
        odd = 0

        def usage(self, path: str) -> Usage:
            if self.odd:
                self.odd -= 1
                raise ZeroDivisionError("a file system of no size")
            return Usage(1, 1000, self.free)

    async def story() -> None:
        store = await new_store()
        files = Filling()
        options = options_in(
            tmp_path, store.uri, disk_check_interval_ms=100, disk_usage_threshold=0.9, disk_usage_warn_threshold=0.8
        )
        bookie = Bookie(reactor, options, store, files)
        await bookie.start()
        for free, listed, other in ((50, "read_only", "writable"), (500, "writable", "read_only")):
            files.odd, files.free = 1, free
            moved: Deferred[None] = Deferred()
            watch = store.watch_bookies(
                lambda found, listed=listed, other=other, moved=moved: (
                    moved.called
                    or ("raw" in getattr(found, listed) and "raw" not in getattr(found, other) and moved.callback(None))
                )
            )  # type: ignore[misc]
            await moved
            watch.cancel()
        await bookie.stop()
        await store.close()

    run(story)


def test_a_start_on_a_full_journal_disk_is_read_only(tmp_path: Path) -> None:
    """It says so, and is read as before.  Without room for what a start must write, it says what to do."""

    class Full(Files):
        full = str(tmp_path / "journal")

        def usage(self, path: str) -> Usage:
            return Usage(len(path), 1000, 0 if path.startswith(self.full) else 500)

        def open(self, path: str, create: bool = False) -> int:
            if create and path.startswith(self.full) and not self.exists(path):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return super().open(path, create)

    async def story() -> None:
        store = await new_store()
        files = Full()
        async with running(tmp_path, store) as bookie:
            assert status(await (await connect(bookie)).ask(adds(b"a"))) is S.EOK
        bookie = Bookie(reactor, options_in(tmp_path, store.uri), store, files)
        await bookie.start()
        assert bookie.read_only_reasons == [f"{tmp_path}/journal is 100.0% full"]
        raw = await connect(bookie)
        assert status(await raw.ask(read(0))) is S.EOK
        assert status(await raw.ask(adds(b"b", first=1))) is S.EREADONLY
        assert list((await store.bookies()).read_only) == ["raw"]
        await bookie.stop()
        files.full = str(tmp_path / "ledgers")
        bookie = Bookie(reactor, options_in(tmp_path, store.uri), store, files)
        with pytest.raises(IdentityError, match=r"No space left on device.*/ledgers/.*Nothing is lost: make room"):
            await bookie.start()
        await bookie.stop()
        await store.close()

    run(story)


def test_a_dead_disk_is_dropped_alone(tmp_path: Path) -> None:
    """One ledger directory of two: the bookie stays writable, its space is that of the other; both: read-only."""

    class Dying(Files):
        dead = ""

        def usage(self, path: str) -> Usage:
            if self.dead and path.endswith(self.dead):
                raise OSError(errno.EIO, "Input/output error", path)
            return Usage(len(path), 1 << 40, 1 << 39)

    async def story() -> None:
        store = await new_store()
        files = Dying()
        two = (str(tmp_path / "one"), str(tmp_path / "second"))
        bookie = Bookie(
            reactor, options_in(tmp_path, store.uri, disk_check_interval_ms=100, ledger_directories=two), store, files
        )
        await bookie.start()
        raw = await connect(bookie)
        assert status(await raw.ask(adds(b"a", ledger=1))) is S.EOK
        files.dead = "second"
        while status(await raw.ask(adds(b"b", first=1, ledger=1))) is S.EOK:
            await deferLater(reactor, 0.02, lambda: None)
        assert status(await raw.ask(adds(b"b", first=1, ledger=1))) is S.EREADONLY
        assert status(await raw.ask(adds(b"a", ledger=2))) is S.EOK
        assert status(await raw.ask(read(0, ledger=3))) is S.EIO, "unknown, in V2's words"
        assert not bookie.read_only
        assert bookie.service.storage.disk_usage() == (1 << 40, 1 << 39)
        files.dead = ""
        await bookie.stop()
        again = Bookie(reactor, options_in(tmp_path, store.uri, ledger_directories=two), store)
        await again.start()
        assert again.copies.limbo() == [], "the metadata gives it no ledger"
        assert notes.noted_failed(Files(), two) == []
        await again.stop()
        await store.close()

    run(story)


def test_the_disk_of_an_index_fails_its_ledger_directory() -> None:
    """Which is no reason any more then, nor is it at a look that comes before the timed ones."""

    class Dead(Files):
        def usage(self, path: str) -> Usage:
            if path == "/i2":
                raise OSError(errno.EIO, "Input/output error", path)
            return Usage(len(path), 1 << 40, 1 << 39)

    service: Any = SimpleNamespace(read_only=False)
    registration: Any = SimpleNamespace(switch=lambda read_only: None)
    failed: list[str] = []
    storage: Any = SimpleNamespace(failed_directories=failed, fail_directory=lambda path, _why: failed.append(path))
    unasked: Any = None
    read_only = ReadOnly("b", service, registration)
    some = options(ledger_directories=("/l1", "/l2"), index_directories=("/i1", "/i2"))
    clock = Clock()
    watch = DiskWatch(clock, Dead(), some, storage, unasked, read_only)
    watch.look()
    assert (failed, read_only.on) == ([], True), "a start decides by itself"
    watch.start()
    clock.advance(some.disk_check_interval_ms / 1000)
    assert (failed, read_only.on) == (["/l2"], False)
    watch.stop()
    watch.look()
    assert not read_only.on


def test_what_holds_from_the_start_needs_no_look_at_the_disks() -> None:
    """A look that could not be made says nothing; a forced bookie is read-only before one could."""

    class Short(Files):
        def usage(self, path: str) -> Usage:
            raise NotBegun(errno.ENOMEM, "Cannot allocate memory", path)

    service: Any = SimpleNamespace(read_only=False)
    registration: Any = SimpleNamespace(switch=lambda read_only: None)
    read_only = ReadOnly("b", service, registration)
    unasked: Any = None
    storage: Any = SimpleNamespace(failed_directories=[])
    watch = DiskWatch(Clock(), Short(), options(), storage, unasked, read_only)
    watch.look()
    assert (read_only.on, service.read_only) == (False, False)
    read_only.begin(forced=True, restoring=False, by_operator=False)
    watch.look()
    assert (read_only.reasons, service.read_only) == (["forceReadOnlyBookie is set"], True)


def test_a_bookie_that_is_only_being_restored_takes_what_limbo_lets_it_take() -> None:
    """It is listed as read-only, but requests go on to the ledgers' limbo; other reasons refuse them."""
    service: Any = SimpleNamespace(read_only=False)
    listed: list[bool] = []
    registration: Any = SimpleNamespace(switch=listed.append)
    read_only = ReadOnly("b", service, registration)
    read_only.begin(forced=False, restoring=True, by_operator=False)
    assert (read_only.on, read_only.restoring, service.read_only) == (True, True, False)
    read_only.by_storage("no room for a new log")
    assert service.read_only
    read_only.by_storage(None)
    assert (read_only.on, service.read_only, listed) == (True, False, [])
    read_only.restored()
    assert (read_only.on, read_only.restoring, listed) == (False, False, [False])


def test_an_order_to_be_emptied_holds_through_restarts(tmp_path: Path) -> None:
    """
    It comes by the metadata store, from anywhere: adds are refused and reads go on; a bookie that starts with it is
    never listed as writable; an operator's switch does not undo it; withdrawn, the bookie takes entries again.
    """

    async def listed(store: Any, kind: str) -> None:
        while list(getattr(await store.bookies(), kind)) != ["raw"]:
            await deferLater(reactor, 0.01, lambda: None)  # type: ignore[arg-type]

    async def story() -> None:
        store = await new_store()
        orders = DrainOrders(store.records)
        async with running(tmp_path, store) as bookie:
            raw = await connect(bookie)
            await raw.ask(adds(b"a"))
            await orders.give("raw")
            await listed(store, "read_only")
            assert status(await raw.ask(adds(b"b", first=1))) is S.EREADONLY
            assert status(await raw.ask(read(0))) is S.EOK
            assert bookie.operator_read_only(False) is None
            assert bookie.read_only
            assert "quire decommission --undo raw" in bookie.read_only_reasons[0]
        seen: list[str] = []
        watch = store.watch_bookies(lambda now: seen.extend(now.writable))
        async with running(tmp_path, store) as bookie:
            assert bookie.read_only
            await listed(store, "read_only")
            assert seen == []
            watch.cancel()
            await orders.withdraw("raw")
            await listed(store, "writable")
            raw = await connect(bookie)
            assert status(await raw.ask(adds(b"b", first=1))) is S.EOK
        await store.close()

    run(story)
