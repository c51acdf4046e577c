"""What `quire doctor` finds in the metadata store and on this machine, each provoked."""

from functools import partial
from pathlib import Path

from twisted.internet.defer import Deferred

from quire.bookie.upkeep.store_notes import bytes_of, note_of
from quire.conf.client import ClientOptions
from quire.metadata.bookies.drain_orders import DrainOrders
from quire.metadata.memory.cluster import Fault
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import NEW, ServiceInfo
from quire.protocol.errors import MetaStore
from quire.replication.autorecovery.notes import Note, Notes
from quire.tools.commands.doctor.cluster import MACHINE
from quire.tools.commands.doctor.examining import Finding, Limits, Machine, Severity, examine
from tests.reactor import reactor, run
from tests.security.authority import Authority
from tests.tools.commands.doctor.conftest import AUDITOR, World, only

# SPDX-License-Identifier: Apache-2.0


def test_a_healthy_cluster_has_no_finding(world: World) -> None:
    """Nothing is said of what is as it should be."""
    assert run(world.found) == []


def test_a_store_that_is_slow(world: World) -> None:
    """By its answer to one question."""

    def slow(store: MemoryStore) -> None:
        store.faults = lambda operation, arguments: Fault(after=0.05) if operation == "clock" else None

    found = only(run(lambda: world.found(Limits(store_s=0.04), store=slow)))
    assert (found.check, found.severity, found.about) == ("store", Severity.WARNING, world.uri)
    assert "s to answer" in found.problem


def test_a_store_that_is_away(world: World) -> None:
    """It is an error, and what was not looked at is named; this machine is looked at."""

    def away(store: MemoryStore) -> None:
        store.faults = lambda operation, arguments: Fault(error=MetaStore("gone"))

    found = run(lambda: world.found(Limits(files_min=1 << 40), store=away))
    assert [(each.check, each.severity, each.made) for each in found] == [
        ("store", Severity.ERROR, True),
        ("own-files", Severity.WARNING, True),
        ("", Severity.NOTE, False),
    ]
    assert "gone" in found[0].problem
    assert "ledgers that lack copies" in found[2].problem


def test_clocks_that_are_apart(world: World) -> None:
    """The store's is not set as ours."""
    right = world.shared.time_of_day
    world.shared.time_of_day = lambda: right() - 60
    try:
        found = only([each for each in run(world.found) if each.check == "store"])
    finally:
        world.shared.time_of_day = right
    assert "60.0 s apart" in found.problem
    assert "timedatectl" in found.next


def test_a_store_that_was_set_back(world: World) -> None:
    """And ledgers of a single bookie whose ids the store never gave; once it is accepted nothing is said."""

    async def story() -> None:
        before = await world.store.read_set_back()
        seen = {"number": 1, "changes": 90, "ledgers": 80, "unknown": 7, "cleared": 0}
        note = {**note_of(before), "number": 1, "accepted": False, "ledgers": 80, "bookies": {"b0": seen}}
        held = bytes_of({**note, "doubts": {"b1": [99]}})
        assert await world.store.swap_set_back(before, held)
        found = [each for each in await world.found() if each.check == "set-back"]
        assert await world.store.swap_set_back(held, bytes_of(note_of(b"")))
        assert [(each.severity, each.about) for each in found] == [
            (Severity.ERROR, world.uri),
            (Severity.WARNING, "b1"),
        ]
        assert "7 copies of ledgers that it does not know" in found[0].problem
        assert found[0].next == f"quire metadata set-back --metadata '{world.uri}'"
        assert await world.found() == []

    run(story)


def test_bookies_that_are_away_or_to_be_emptied(world: World) -> None:
    """One that has a cookie and no registration; and one with an order."""

    async def story() -> None:
        await world.store.write_cookie("lost:3181", b"cookie", NEW)
        orders = DrainOrders(world.store.records)
        await orders.give("lost:3181")
        away, emptied = [each for each in await world.found() if each.about == "lost:3181"]
        await orders.withdraw("lost:3181")
        await world.store.remove_cookie("lost:3181")
        assert (away.check, away.severity) == ("up", Severity.WARNING)
        assert "quire decommission lost:3181" in away.next
        assert (emptied.check, emptied.severity) == ("drained", Severity.NOTE)

    run(story)


def test_too_few_that_are_writable(world: World) -> None:
    """Two are a warning, one is an error: a ledger with three copies, two of them acknowledged, is the usual one."""

    async def story() -> None:
        told = []
        for bookie in world.bookies[:2]:
            bookie.operator_read_only(True)
            await world.writable(2 - len(told))
            told.append(only(await world.found(), "bookies"))
        for bookie in world.bookies[:2]:
            bookie.operator_read_only(False)
        await world.writable(3)
        assert [(each.severity, each.problem[:18]) for each in told] == [
            (Severity.WARNING, "2 of them writable"),
            (Severity.ERROR, "1 of them writable"),
        ]
        assert await world.found() == []

    run(story)


def test_repair_that_is_off_or_without_an_auditor(world: World) -> None:
    """Each with the command that changes it."""

    async def story() -> None:
        await world.store.repairs.set_enabled(False)
        await world.store.auditing.withdraw()
        off, none = [each for each in await world.found() if each.check == "repair"]
        await world.store.repairs.set_enabled(True)
        await world.store.auditing.vote(AUDITOR)
        assert off.next == "quire autorecovery enable"
        assert "no auditor" in none.problem
        assert off.severity == none.severity == Severity.WARNING

    run(story)


def test_ledgers_that_lack_copies(world: World) -> None:
    """Counted by what they wait for; those with entries that are gone are an error of their own."""

    async def story() -> None:
        notes = Notes(world.store.records)
        for ledger in (1, 2, 3):
            await world.store.repairs.mark(ledger, ["b9"], 1_800_000_000_000)
        made = [Note(2, "GONE", "no copy", 1, 1, 1, "h"), Note(3, "WAITS_FOR_SPARE", "none", 1, 1, 1, "h")]
        for note in made:
            await notes.write(note)
        gone, short = [each for each in await world.found() if each.check == "copies"]
        for note in made:
            await notes.drop(note)
        while lock := await world.store.repairs.take():
            assert await world.store.repairs.finish(lock)
        assert (gone.severity, gone.about) == (Severity.ERROR, "repair queue")
        assert (short.severity, short.about) == (Severity.WARNING, "repair queue")
        assert "no copy left: 1;" in gone.problem
        assert "1 queued" in short.problem
        assert "1 waits for a spare" in short.problem
        assert await world.found() == []

    run(story)


def test_files_that_this_machine_allows(world: World) -> None:
    """Fewer than are wanted, or nearly all of them open."""
    (few,), full = (
        [each for each in run(partial(world.found, limits)) if each.check == "own-files"]
        for limits in (Limits(files_min=1 << 40), Limits(files=0.0))
    )
    assert full == [few]
    assert "ulimit -n" in few.next


def test_certificates_that_end(tmp_path: Path) -> None:
    """One that has ended is an error, one that ends soon a warning; a file without one is named."""
    authority = Authority(tmp_path)
    old = authority.issue("old", expired=True)
    options = ClientOptions(tls=True, tls_trust=authority.trust, tls_certificate=old.certificate, tls_key=old.key)

    def found(**limits: int) -> list[Finding]:
        machine = Machine(clock=reactor, options=options, limits=Limits(**limits))  # type: ignore[arg-type]
        return run(lambda: Deferred.fromCoroutine(examine(MACHINE, machine)))

    ended = only(found())
    assert (ended.check, ended.severity, ended.about) == ("certificates", Severity.ERROR, old.certificate)
    assert "CN=old" in ended.problem
    assert [(each.severity, each.about) for each in found(certificate_ms=1 << 60)] == [
        (Severity.ERROR, old.certificate),
        (Severity.WARNING, authority.trust),
    ]
    Path(authority.trust).write_text("no certificate")
    broken = only(found(), authority.trust)
    assert broken.severity == Severity.ERROR
    assert not broken.made


def test_one_that_is_registered_by_hand_is_no_stranger(world: World) -> None:
    """A bookie without a cookie, as a client sees it that may not read those, counts as up."""

    async def story() -> None:
        await world.store.register_bookie("guest", ServiceInfo.of("127.0.0.1", 1))
        found = [each for each in await world.found(Limits(bookie_s=2.0)) if each.about == "guest"]
        await world.store.unregister_bookie("guest")
        assert [each.severity for each in found] == [Severity.ERROR, Severity.NOTE]
        assert "does not answer" in found[0].problem
        assert "it announced no HTTP address" in found[1].problem

    run(story)
