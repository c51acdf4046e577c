"""Whole runs of an offload, ended after each of their steps in turn."""

import contextlib
import os
from pathlib import Path
from random import Random

import pytest

from quire.pipeline.clients import Cluster
from quire.pipeline.copies import entries
from quire.pipeline.copies.manifest import NAME, Manifest
from quire.pipeline.offload.marks import Subject, complete, put
from quire.pipeline.offload.requests import OffloadRequest
from quire.pipeline.offload.restoring import RestoreTask, restored
from quire.pipeline.offload.running import LEDGERS_MAX, WrongPlace, rounds
from quire.protocol.errors import NoSuchLedger
from tests.pipeline.offload.offloading import HOUR, NOW, PAYLOADS, Crash, Steps, bodies_of, ids, ran, reading, run_of
from tests.pipeline.written import entries_of, ledger, log, values_of

# SPDX-License-Identifier: Apache-2.0


def test_what_is_offloaded(ours: Cluster, tmp_path: Path) -> None:
    """Closed ledgers, empty ones too; open ones and those of logs are left alone.  The next run has nothing to do."""
    full, empty, still = ledger(ours, PAYLOADS), ledger(ours, []), ledger(ours, PAYLOADS[:3], close=False)
    name = log(ours, PAYLOADS[:20])
    segment = max(ids(ours))
    wanted = f"{full},{empty},{still},{segment},9999999"
    done = ran(ours, tmp_path, ledgers=wanted)
    assert (done.offloaded, done.entries, done.bytes) == ([full, empty], 300, sum(map(len, PAYLOADS)))
    assert done.left == {"not closed": 1, "of a log: give its name with --log": 1, "not there": 1}
    assert not done.problems
    done = ran(ours, tmp_path, ledgers=wanted)
    assert (done.offloaded, done.waiting, done.deleted) == ([], [full, empty], [])
    done = ran(ours, tmp_path, log=name)
    assert len(done.offloaded) == 2
    assert values_of(ours, name) == PAYLOADS[:20]


def test_young_ones_are_left_alone(ours: Cluster, tmp_path: Path) -> None:
    """By their creation; a segment by its last record."""
    there, name = ledger(ours, PAYLOADS[:5]), log(ours, PAYLOADS[:5])
    born = ours.wait(lambda: ours.client.metadata(there)).ctime_ms
    assert born is not None
    at = born / 1000 + 10
    assert ran(ours, tmp_path, at, ledgers=str(there), older_than_s=11).left == {"too young": 1}
    assert ran(ours, tmp_path, at, log=name, older_than_s=60).left == {"too young": 1}
    assert ran(ours, tmp_path, at, ledgers=str(there), older_than_s=9).offloaded == [there]


def test_a_dry_run_changes_nothing(ours: Cluster, tmp_path: Path) -> None:
    """It says what would be done."""
    there = ledger(ours, PAYLOADS)
    before = ours.wait(lambda: ours.client.metadata(there))
    done = ran(ours, tmp_path / "to", ledgers=str(there), dry_run=True)
    assert (done.offloaded, done.entries) == ([there], 300)
    assert not (tmp_path / "to").exists()
    assert ours.wait(lambda: ours.client.metadata(there)) == before
    ran(ours, tmp_path / "to", ledgers=str(there))
    later = ran(ours, tmp_path / "to", NOW + 5 * HOUR, ledgers=str(there), delete=True, dry_run=True)
    assert later.deleted == [there]
    assert there in ids(ours)


def test_bookies_lose_ledgers_only_after_the_lag(ours: Cluster, tmp_path: Path) -> None:
    """By another run, and only when that is asked for; entries are then read from the copy."""
    there = ledger(ours, PAYLOADS)
    wanted = str(there)
    first = ran(ours, tmp_path, ledgers=wanted, delete=True, deletion_lag_s=0)
    assert (first.offloaded, first.deleted) == ([there], [])
    assert ran(ours, tmp_path, NOW + 3.9 * HOUR, ledgers=wanted, delete=True).deleted == []
    assert ran(ours, tmp_path, NOW + 4.1 * HOUR, ledgers=wanted).waiting == [there]
    assert there in ids(ours)
    assert ran(ours, tmp_path, NOW + 4.1 * HOUR, ledgers=wanted, delete=True).deleted == [there]
    assert there not in ids(ours)
    assert entries_of(reading(ours, tmp_path), there) == PAYLOADS
    with pytest.raises(NoSuchLedger):
        entries_of(ours, there)


def test_segments_of_a_log_go_and_are_read(ours: Cluster, tmp_path: Path) -> None:
    """Without any option of the reader: the mark says where the copy is."""
    name = log(ours, PAYLOADS, roll_records=100)
    before = ids(ours)
    ran(ours, tmp_path, log=name)
    done = ran(ours, tmp_path, NOW + 5 * HOUR, log=name, delete=True)
    assert len(done.deleted) == 3
    assert before - ids(ours) == set(done.deleted)
    assert values_of(ours, name) == PAYLOADS
    assert ran(ours, tmp_path, log=name).left == {"deleted before": 3}


def test_a_place_is_of_one_cluster(ours: Cluster, other: Cluster, tmp_path: Path) -> None:
    """Numbers of ledgers mean nothing in another one."""
    (tmp_path / "cluster").touch()  # as a killed run leaves it, where files show before they are whole
    ran(ours, tmp_path, ledgers="all", dry_run=False, older_than_s=1e12)
    with pytest.raises(WrongPlace, match="copies of another cluster"):
        ran(other, tmp_path, ledgers="all")


def test_a_place_whose_uri_has_no_room_in_a_segments_mark(ours: Cluster, tmp_path: Path) -> None:
    """Is refused before anything is copied, in a dry run too; of plain ledgers it is as good as any."""
    long = tmp_path / ("x" * 200) / ("y" * 200)
    name, there = log(ours, PAYLOADS[:5]), ledger(ours, PAYLOADS[:5])
    for dry_run in (True, False):
        with pytest.raises(ValueError, match="give a shorter one"):
            ran(ours, long, log=name, dry_run=dry_run)
    assert not list(long.rglob("*.parquet"))
    assert ran(ours, long, ledgers=str(there)).offloaded == [there]


def test_a_ledger_offloaded_elsewhere_is_left_alone(ours: Cluster, tmp_path: Path) -> None:
    """Its copy there is the one that counts."""
    there = ledger(ours, PAYLOADS[:5])
    ran(ours, tmp_path / "one", ledgers=str(there))
    done = ran(ours, tmp_path / "two", NOW + 9 * HOUR, ledgers=str(there), delete=True)
    assert done.left == {"offloaded to another place": 1}


@pytest.mark.parametrize("at", [None, "x", [1], True, 1.5])
def test_a_mark_that_is_not_understood(ours: Cluster, tmp_path: Path, at: object) -> None:
    """Any client may have written it: its ledger is left alone, and never deleted; others are done."""
    strange, there = ledger(ours, PAYLOADS[:5]), ledger(ours, PAYLOADS[:5])
    subject = Subject.plain(strange, ours.wait(lambda: ours.client.metadata(strange)))
    mark = complete("another run", run_of(ours, tmp_path, ledgers="all").uri_of(strange), 1, 0)
    ours.wait(lambda: put(ours, None, subject, {**mark, "at": at}))
    done = ran(ours, tmp_path, ledgers=f"{strange},{there}", delete=True)
    assert (done.offloaded, done.deleted) == ([there], [])
    assert done.left == {"marked in a way that is not understood": 1}


def test_a_manifest_of_another_format_is_never_replaced(ours: Cluster, tmp_path: Path) -> None:
    """A newer version may have written it; the ledger stays on its bookies, unmarked, and the others are offloaded."""
    newer, there = ledger(ours, PAYLOADS[:5]), ledger(ours, PAYLOADS[:5])
    manifest = tmp_path / str(newer) / NAME
    manifest.parent.mkdir()
    manifest.write_text('{"quire": "offloaded ledger", "format": 2}')
    done = ran(ours, tmp_path, ledgers=f"{newer},{there}")
    assert done.offloaded == [there]
    (problem,) = done.problems
    assert problem.ledger == newer
    assert "format 2: this version reads format 1: offload by a newer version" in problem.what
    assert manifest.read_text() == '{"quire": "offloaded ledger", "format": 2}'


def test_a_damaged_manifest_is_moved_aside(ours: Cluster, tmp_path: Path) -> None:
    """It may be all there is of another ledger that had the number."""
    there = ledger(ours, PAYLOADS[:5])
    manifest = tmp_path / str(there) / NAME
    manifest.parent.mkdir()
    manifest.write_bytes(b"half of one")
    done = ran(ours, tmp_path, ledgers=str(there))
    assert (done.offloaded, done.problems) == ([there], [])
    (aside,) = manifest.parent.glob("manifest-*.damaged")
    assert aside.read_bytes() == b"half of one"
    assert Manifest.decode(manifest.read_bytes()).ledger == there


class Life:
    """Two ledgers and a log: offloaded, deleted, read, brought back to another cluster."""

    def __init__(self, ours: Cluster, other: Cluster, to: Path) -> None:
        self.ours, self.other, self.to = ours, other, to
        self.ledgers = [ledger(ours, PAYLOADS[:40]), ledger(ours, PAYLOADS[40:60])]
        self.log = log(ours, PAYLOADS[:12], roll_records=8)
        self.bodies = {each: bodies_of(ours, each) for each in self.ledgers}

    def go(self, steps: Steps) -> None:
        """From the beginning to the end; what was done before is found done."""
        wanted = ",".join(map(str, self.ledgers))
        for at in (NOW, NOW + 5 * HOUR):
            delete = at > NOW
            done = [
                ran(self.ours, self.to, at, steps, ledgers=wanted, delete=delete, split_bytes=6000),
                ran(self.ours, self.to, at, steps, log=self.log, delete=delete),
            ]
            assert [each.problems for each in done] == [[], []]
            self.check()
        for each in self.ledgers:
            made = restored(RestoreTask(self.other.uri, str(self.to), each), steps)
            assert made.problem is None

    def check(self) -> None:
        """Nothing is lost: everything can be read, by who looks for copies."""
        for each in self.ledgers:
            assert entries_of(reading(self.ours, self.to), each) == [body[36:] for body in self.bodies[each]]
        assert values_of(self.ours, self.log) == PAYLOADS[:12]

    def end(self) -> None:
        """Bookies here have nothing, those there every bit."""
        self.check()
        assert not ids(self.ours).intersection(self.ledgers)
        for each in self.ledgers:
            assert bodies_of(self.other, each) == self.bodies[each]


def test_a_run_may_end_after_any_step(
    ours: Cluster, other: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each kind of step is the last one of its run once, in a place that is drawn, or with `ROUNDS` in each: then
    everything can be read, and the next runs bring all to the same end.
    """
    seed = int(os.environ.get("SEED", "0")) or Random().randrange(1, 1 << 30)
    print(f"SEED={seed}")
    monkeypatch.setattr(entries, "GROUP_BYTES", 700)
    steps = Steps()
    whole = Life(ours, other, tmp_path / "whole")
    whole.go(steps)
    whole.end()
    kinds = {"copy.group", "copy.written", "copy.named", "copied", "manifest.written", "manifest.named", "verified"}
    kinds |= {"marked", "verified again", "mark.deleted", "deleted", "tidied"}
    kinds |= {"claimed", "group", "stored", "checked", "released"}
    assert set(steps.reached) == kinds
    places: dict[str, list[int]] = {}
    for at, step in enumerate(steps.reached):
        if steps.reached[at - 1 : at] != [step] or step not in places:  # not of the same file or ledger, again
            places.setdefault(step, []).append(at)
    dice, most = Random(seed), int(os.environ.get("ROUNDS", "1"))
    for at in sorted(at for some in places.values() for at in dice.sample(some, min(most, len(some)))):
        step = steps.reached[at]
        life = Life(ours, other, tmp_path / str(at))
        with contextlib.suppress(Crash):
            life.go(Steps(at))
            pytest.fail(f"step {at}, {step}, was not reached")
        life.check()
        life.go(Steps())
        life.end()
        half = [each for each in (tmp_path / str(at)).rglob(".coming-*") if step not in ("copy.group", "copy.written")]
        assert not half


def test_rounds() -> None:
    """Have about so many bytes, and not too many ledgers."""

    class Length:
        metadata = type("metadata", (), {"length": 10})

    several = [Length()] * 25
    assert [len(some) for some in rounds(several, 100)] == [10, 10, 5]
    assert [len(some) for some in rounds([Length()] * (LEDGERS_MAX + 1), 10**9)] == [LEDGERS_MAX, 1]


def test_what_can_be_wished() -> None:
    """A log or ledgers, by numbers that can be."""
    with pytest.raises(ValueError, match="either ledgers or a log"):
        OffloadRequest("uri", "to")
    with pytest.raises(ValueError, match="either ledgers or a log"):
        OffloadRequest("uri", "to", ledgers="1", log="x")
    with pytest.raises(ValueError, match="no ledger id"):
        OffloadRequest("uri", "to", ledgers="one")
    with pytest.raises(ValueError, match="0 or more"):
        OffloadRequest("uri", "to", ledgers="1", deletion_lag_s=-1)
