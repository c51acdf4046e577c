"""Copies held against what is written down of them, and against the digests of their entries."""

from dataclasses import replace
from pathlib import Path

import pytest

from quire.pipeline.clients import Cluster
from quire.pipeline.copies.entries import EntryWriter
from quire.pipeline.copies.manifest import CopyDamaged, Manifest, place_of
from quire.pipeline.copies.places import Place
from quire.pipeline.copies.reading import manifest_of
from quire.pipeline.offload.copying import VerifyTask, check, verify
from quire.pipeline.offload.requests import nothing
from quire.pipeline.offload.running import tasks_of
from tests.pipeline.offload.offloading import PAYLOADS, bodies_of, ran, run_of
from tests.pipeline.written import ledger

# SPDX-License-Identifier: Apache-2.0


def copied(ours: Cluster, to: Path) -> tuple[Place, Manifest, list[bytes]]:
    there = ledger(ours, PAYLOADS[:20])
    ran(ours, to, ledgers=str(there))
    place = Place(str(to))
    manifest = manifest_of(place, there)
    assert manifest is not None
    return place, manifest, bodies_of(ours, there)


def rewritten(place: Place, manifest: Manifest, bodies: list[bytes]) -> None:
    """A file with these bodies, with good sums, in the place of the copy's."""
    coming = place.begin(f"{manifest.ledger}/part-0-forged.parquet")
    writer = EntryWriter(coming, manifest.ledger, 36)
    writer.add(0, bodies)
    writer.end()
    coming.end()
    coming.name()
    file = replace(
        manifest.files[0],
        name="part-0-forged.parquet",
        bytes=writer.bytes,
        size=coming.size,
        payload_sum=writer.sum,
        file_sum=coming.sum,
    )
    place.put(place_of(manifest.ledger), replace(manifest, files=(file,)).encode(), nothing)


def test_a_good_copy(ours: Cluster, tmp_path: Path) -> None:
    """Has no problem, also when it is written again as it is."""
    place, manifest, bodies = copied(ours, tmp_path)
    check(place, manifest.ledger, manifest.files[0].name)
    rewritten(place, manifest, bodies)
    assert verify(VerifyTask(str(tmp_path), ((manifest.ledger, "part-0-forged.parquet"),))) == []


@pytest.mark.parametrize("what", ["swapped", "changed", "missing", "lac", "length"])
def test_wrong_entries_under_right_sums(ours: Cluster, tmp_path: Path, what: str) -> None:
    """Are found by their own digests."""
    place, manifest, bodies = copied(ours, tmp_path)
    if what == "swapped":
        bodies[3], bodies[4] = bodies[4], bodies[3]
    elif what == "changed":
        bodies[3] = bodies[3][:-1] + b"!"
    elif what == "missing":
        del bodies[-1]
    else:
        at = {"lac": 23, "length": 31}[what]
        bodies[3] = bodies[3][:at] + bytes([bodies[3][at] ^ 1]) + bodies[3][at + 1 :]
    rewritten(place, manifest, bodies)
    with pytest.raises(CopyDamaged, match="not what was"):
        check(place, manifest.ledger, "part-0-forged.parquet")


def test_what_is_written_down_is_read_back(ours: Cluster, tmp_path: Path) -> None:
    """A file that the manifest does not name, and no manifest at all, are problems."""
    place, manifest, _bodies = copied(ours, tmp_path)
    task = VerifyTask(str(tmp_path), ((manifest.ledger, "part-0-other.parquet"), (9_999_999, None)))
    found = verify(task)
    assert [problem.ledger for problem in found] == [manifest.ledger, 9_999_999]
    place.remove(f"{manifest.ledger}/{manifest.files[0].name}")
    (problem,) = verify(VerifyTask(str(tmp_path), ((manifest.ledger, manifest.files[0].name),)))
    assert manifest.files[0].name in problem.what


def test_tasks_have_about_the_size_of_those_that_copy(ours: Cluster, tmp_path: Path) -> None:
    """Each file is in one of them."""
    _place, manifest, _bodies = copied(ours, tmp_path)
    small = list(tasks_of(run_of(ours, tmp_path, ledgers="all", split_bytes=1), [manifest] * 3))
    large = list(tasks_of(run_of(ours, tmp_path, ledgers="all"), [manifest] * 3))
    assert [len(task.files) for task in small] == [1, 1, 1]
    assert [len(task.files) for task in large] == [3]
