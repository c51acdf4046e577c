"""Ledgers brought back to bookies that never had them."""

from dataclasses import replace
from pathlib import Path

import pytest

from quire.client.handles.copies import RESTORING
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.copies.manifest import NAME
from quire.pipeline.offload.requests import here
from quire.pipeline.offload.restoring import RestoreTask, restore, restored
from quire.protocol.errors import LedgerError
from tests.pipeline.offload.offloading import PAYLOADS, Crash, Steps, bodies_of, ran
from tests.pipeline.written import entries_of, ledger, log

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "MAC", "DUMMY"])
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2), (1, 1, 1)])
def test_bit_for_bit(ours: Cluster, other: Cluster, tmp_path: Path, digest: str, quorums: tuple[int, int, int]) -> None:
    """With every digest, striped too: heads and digests are those that the writer gave, the metadata is the same."""

    async def story() -> int:
        size, write, ack = quorums
        writer = await ours.client.create_ledger(
            ensemble_size=size,
            write_quorum=write,
            ack_quorum=ack,
            password=b"secret",
            digest=digest,
            custom_metadata={"mine": b"1"},
        )
        for start in range(0, 100, 10):
            await writer.append_many(PAYLOADS[start : start + 10])
        await writer.close()
        return writer.id

    there = ours.wait(story)
    before = bodies_of(ours, there)
    ran(ours, tmp_path, ledgers=str(there), split_bytes=6000)
    done = restore(other.uri, str(tmp_path), "all", here)
    assert (done.offloaded, done.entries, done.problems) == ([there], 100, [])
    assert bodies_of(other, there) == before
    mine, theirs = (each.wait(lambda each=each: each.client.metadata(there)) for each in (ours, other))
    assert (theirs.last_entry, theirs.length, theirs.digest, theirs.password, theirs.ctime_ms, theirs.custom) == (
        *(mine.last_entry, mine.length, mine.digest, mine.password, mine.ctime_ms, {"mine": b"1"}),
    )
    assert restore(other.uri, str(tmp_path), "all", here).left == {"on bookies": 1}


def test_what_is_not_brought_back(ours: Cluster, other: Cluster, tmp_path: Path) -> None:
    """A log's ledger, one without a copy, one whose number another ledger has, a damaged copy."""
    there, bad = ledger(ours, PAYLOADS[:9]), ledger(ours, PAYLOADS[:9])
    (segment,) = ran(ours, tmp_path, log=log(ours, PAYLOADS[:5])).offloaded
    ran(ours, tmp_path, ledgers=f"{there},{bad}")
    other.wait(lambda: other.client.create_ledger(ledger_id=there))
    (file,) = (tmp_path / str(bad)).glob("part-*")
    file.write_bytes(file.read_bytes()[:-30])
    done = restore(other.uri, str(tmp_path), f"{there},{bad},{segment}", here)
    assert done.left == {"of a log, which reads the copy as it is": 1}
    assert [problem.ledger for problem in done.problems] == [there, bad]
    assert "there is another ledger" in done.problems[0].what
    (tmp_path / str(bad) / NAME).unlink()
    assert restored(RestoreTask(other.uri, str(tmp_path), bad)).left == "without a copy"


def test_copies_that_are_not_there(ours: Cluster, other: Cluster, tmp_path: Path) -> None:
    """Ids without one are counted; a place where none are is refused."""
    with pytest.raises(FileNotFoundError, match="offload --to"):
        restore(other.uri, str(tmp_path / "mistyped"), "all", here)
    there = ledger(ours, PAYLOADS[:9])
    ran(ours, tmp_path, ledgers=str(there))
    done = restore(other.uri, str(tmp_path), f"{there},{there + 10_000}-{there + 10_002}", here)
    assert (done.offloaded, done.left) == ([there], {"without a copy": 3})


def test_half_a_ledger_is_not_filled_from_another_ones_copy(ours: Cluster, other: Cluster, tmp_path: Path) -> None:
    """As long and with the same password, but made at another time: an earlier life of the number."""
    there = ledger(ours, PAYLOADS[:9])
    ran(ours, tmp_path, ledgers=str(there))
    with pytest.raises(Crash):
        restored(RestoreTask(other.uri, str(tmp_path), there), Steps(0))

    async def made_later() -> None:
        found = await other.client.store.read_ledger(there)
        later = replace(found.value, ctime_ms=(found.value.ctime_ms or 0) + 1)
        await other.client.store.write_ledger(there, later, found.version)

    other.wait(made_later)
    assert "there is another ledger" in (restored(RestoreTask(other.uri, str(tmp_path), there)).problem or "")
    with pytest.raises(LedgerError):
        entries_of(cluster(other.uri, str(tmp_path)), there)


def test_half_a_ledger_is_read_from_its_copy(ours: Cluster, other: Cluster, tmp_path: Path) -> None:
    """Until all is there nobody reads bookies, and nobody can recover and cut it."""
    there = ledger(ours, PAYLOADS)
    ran(ours, tmp_path, ledgers=str(there))
    with pytest.raises(Crash):
        restored(RestoreTask(other.uri, str(tmp_path), there), Steps(0))
    metadata = other.wait(lambda: other.client.metadata(there))
    assert metadata.is_closed
    assert RESTORING in metadata.custom
    reader = cluster(other.uri, str(tmp_path))
    assert entries_of(reader, there) == PAYLOADS
    assert ran(other, tmp_path / "else", ledgers=str(there)).left == {"being restored": 1}
    assert restored(RestoreTask(other.uri, str(tmp_path), there)).problem is None
    assert entries_of(other, there) == PAYLOADS
