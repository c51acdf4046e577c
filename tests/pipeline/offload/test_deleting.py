"""What bookies lose, and what they keep because a copy is not good."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from quire.client.handles.copies import mark_of
from quire.pipeline.clients import Cluster
from quire.pipeline.copies.manifest import NAME, Manifest
from quire.pipeline.offload import marks
from tests.pipeline.offload.offloading import HOUR, NOW, PAYLOADS, ids, ran, reading
from tests.pipeline.written import entries_of, ledger, log, values_of

# SPDX-License-Identifier: Apache-2.0


def part(to: Path, number: int) -> Path:
    """The newest file of a copy."""
    return max((to / str(number)).glob("part-*.parquet"), key=lambda file: file.stat().st_mtime_ns)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at % len(data)] ^= 1
    file.write_bytes(data)


def other(manifest: Path) -> None:
    """One of another run, of the same files."""
    manifest.write_bytes(replace(Manifest.decode(manifest.read_bytes()), run="another").encode())


DAMAGE: dict[str, Callable[[Path, int], object]] = {
    "a bit of the file": lambda to, number: flip(part(to, number), 200),
    "its foot": lambda to, number: flip(part(to, number), -6),
    "shorter": lambda to, number: part(to, number).write_bytes(part(to, number).read_bytes()[:-1]),
    "gone": lambda to, number: part(to, number).unlink(),
    "a bit of the manifest": lambda to, number: flip(to / str(number) / NAME, 100),
    "no manifest": lambda to, number: (to / str(number) / NAME).unlink(),
    "another manifest": lambda to, number: other(to / str(number) / NAME),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_copy_is_never_the_only_one(ours: Cluster, tmp_path: Path, what: str) -> None:
    """Nothing is deleted, the mark goes, and the next run copies the ledger anew."""
    there, name = ledger(ours, PAYLOADS), log(ours, PAYLOADS[:5])
    later = NOW + 5 * HOUR
    ran(ours, tmp_path, ledgers=str(there))
    (segment,) = ran(ours, tmp_path, log=name).offloaded
    for number in (there, segment):
        DAMAGE[what](tmp_path, number)
    done = [ran(ours, tmp_path, later, delete=True, **{kind: which}) for kind, which in both(there, name)]
    assert [each.deleted for each in done] == [[], []]
    assert [[problem.ledger for problem in each.problems] for each in done] == [[there], [segment]]
    assert {there, segment} <= ids(ours)
    assert mark_of(ours.wait(lambda: ours.client.metadata(there))) is None
    done = [ran(ours, tmp_path, later, **{kind: which}) for kind, which in both(there, name)]
    assert [each.offloaded for each in done] == [[there], [segment]]
    done = [ran(ours, tmp_path, later + 5 * HOUR, delete=True, **{kind: which}) for kind, which in both(there, name)]
    assert [each.deleted for each in done] == [[there], [segment]]
    assert entries_of(reading(ours, tmp_path), there) == PAYLOADS
    assert values_of(ours, name) == PAYLOADS[:5]


def both(there: int, name: str) -> list[tuple[str, str]]:
    """As a request has them."""
    return [("ledgers", str(there)), ("log", name)]


def test_two_runs_at_once(ours: Cluster, tmp_path: Path) -> None:
    """The later one finds that its ledger was marked meanwhile; what it wrote harms nothing."""
    there = ledger(ours, PAYLOADS)

    def overtaken(step: str) -> None:
        if step == "copied":
            assert ran(ours, tmp_path, NOW - 1, ledgers=str(there)).offloaded == [there]

    done = ran(ours, tmp_path, steps=overtaken, ledgers=str(there))
    assert done.offloaded == []
    assert done.left == {f"not marked: ledger {there} was marked by another run": 1}
    deadline = NOW + 5 * HOUR
    while there in ids(ours):  # the mark is of the first run's manifest, so it goes first
        ran(ours, tmp_path, deadline, ledgers=str(there), delete=True)
        deadline += 5 * HOUR
        assert deadline < NOW + 30 * HOUR
    assert entries_of(reading(ours, tmp_path), there) == PAYLOADS


def test_a_late_run_never_takes_the_place_of_a_copy(ours: Cluster, tmp_path: Path) -> None:
    """It copied, and another run marked and deleted meanwhile: what is written down stays what was marked."""
    there = ledger(ours, PAYLOADS)

    def overtaken(step: str) -> None:
        if step == "copied":
            late = part(tmp_path, there)
            assert ran(ours, tmp_path, ledgers=str(there)).offloaded == [there]
            assert ran(ours, tmp_path, NOW + 5 * HOUR, ledgers=str(there), delete=True).deleted == [there]
            flip(late, 200)

    done = ran(ours, tmp_path, steps=overtaken, ledgers=str(there))
    assert done.offloaded == []
    assert entries_of(reading(ours, tmp_path), there) == PAYLOADS


def test_a_number_that_is_used_again(ours: Cluster, tmp_path: Path) -> None:
    """The copy of the ledger that had it before stays, for nothing else has its entries."""
    there = ledger(ours, PAYLOADS)
    ran(ours, tmp_path, ledgers=str(there))
    assert ran(ours, tmp_path, NOW + 5 * HOUR, ledgers=str(there), delete=True).deleted == [there]
    before = (tmp_path / str(there) / NAME).read_bytes()

    async def again() -> None:
        writer = await ours.client.create_ledger(ledger_id=there)
        await writer.append(b"another")
        await writer.close()

    ours.wait(again)
    done = ran(ours, tmp_path, NOW + 5 * HOUR, ledgers=str(there), delete=True)
    assert (tmp_path / str(there) / NAME).read_bytes() == before
    assert (done.offloaded, [problem.ledger for problem in done.problems]) == ([], [there])
    assert "another ledger" in done.problems[0].what
    assert entries_of(ours, there) == [b"another"]


def test_a_number_that_is_used_again_during_a_run(ours: Cluster, tmp_path: Path) -> None:
    """The mark is of the ledger that was copied, so another one, which may be open, never gets it."""
    there = ledger(ours, PAYLOADS)

    def exchanged(step: str) -> None:
        if step == "verified":
            ours.wait(lambda: ours.client.delete_ledger(there))
            ours.wait(lambda: ours.client.create_ledger(ledger_id=there))

    done = ran(ours, tmp_path, steps=exchanged, ledgers=str(there))
    assert done.offloaded == []
    assert done.left == {f"not marked: ledger {there} is another one by now": 1}
    assert mark_of(ours.wait(lambda: ours.client.metadata(there))) is None


def test_a_ledger_that_a_log_took_in_meanwhile(ours: Cluster, tmp_path: Path) -> None:
    """Is the log's from then on; its mark is what it was."""
    there, name = ledger(ours, PAYLOADS[:5]), log(ours, [b"first"])
    ran(ours, tmp_path, ledgers=str(there))

    def taken(step: str) -> None:
        if step == "verified again":
            ours.wait(lambda: ours.logs.adopt(name, [there]))

    done = ran(ours, tmp_path, NOW + 5 * HOUR, steps=taken, ledgers=str(there), delete=True)
    assert done.deleted == []
    assert done.left == {"not deleted: of a log: give its name with --log": 1}
    assert values_of(ours, name) == [b"first", *PAYLOADS[:5]]
    mark = mark_of(ours.wait(lambda: ours.client.metadata(there)))
    assert mark is not None
    assert mark["bookies"] == "kept"


def test_a_copy_that_changes_after_it_was_verified(ours: Cluster, tmp_path: Path) -> None:
    """Is not the one that was marked any more, so nothing is deleted."""
    there = ledger(ours, PAYLOADS[:5])
    ran(ours, tmp_path, ledgers=str(there))

    def changed(step: str) -> None:
        if step == "verified again":
            other(tmp_path / str(there) / NAME)

    done = ran(ours, tmp_path, NOW + 5 * HOUR, steps=changed, ledgers=str(there), delete=True)
    assert (done.deleted, [problem.ledger for problem in done.problems]) == ([], [there])
    assert there in ids(ours)


def test_a_mark_that_changes_before_the_deletion(ours: Cluster, tmp_path: Path) -> None:
    """Stops it: another run has unmarked the ledger."""
    there = ledger(ours, PAYLOADS[:5])
    ran(ours, tmp_path, ledgers=str(there))

    def unmarked(step: str) -> None:
        if step == "verified again":
            metadata = ours.wait(lambda: ours.client.metadata(there))
            subject = marks.Subject(there, metadata, mark_of(metadata), 0)
            ours.wait(lambda: marks.put(ours, None, subject, None))

    done = ran(ours, tmp_path, NOW + 5 * HOUR, steps=unmarked, ledgers=str(there), delete=True)
    assert done.deleted == []
    assert there in ids(ours)
