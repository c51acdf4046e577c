"""Copies read as ledgers and segments are."""

from pathlib import Path

import pytest

from quire.client import connect
from quire.conf.extras import installs
from quire.conf.pipeline import LedgerReading
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.copies.manifest import CopyDamaged
from quire.pipeline.copies.reading import Offloaded, copies, openers
from quire.pipeline.core.filters import Bounds, bounded
from quire.pipeline.core.selection import Selection
from quire.pipeline.reading.ledgers import batches, divided, planned, selected
from quire.protocol.errors import LedgerError, UnauthorizedAccess
from tests.alone import alone
from tests.pipeline.offload.offloading import HOUR, NOW, PAYLOADS, ran
from tests.pipeline.written import ledger

# SPDX-License-Identifier: Apache-2.0


def moved(ours: Cluster, to: Path, password: bytes = b"") -> int:
    """A ledger that only its copy is left of, in several files."""
    there = ledger(ours, PAYLOADS, password=password)
    ran(ours, to, ledgers=str(there), split_bytes=8000)
    assert ran(ours, to, NOW + 5 * HOUR, ledgers=str(there), delete=True).deleted == [there]
    return there


def test_with_a_client(ours: Cluster, tmp_path: Path) -> None:
    """The blocking one: all that a reader of a closed ledger can do."""
    there = moved(ours, tmp_path, b"secret")
    with connect(ours.uri, copies=copies(str(tmp_path))) as bk:
        with pytest.raises(UnauthorizedAccess):
            bk.open_ledger(there)
        with bk.open_ledger(there, b"secret") as reader:
            assert [entry.data for entry in reader] == PAYLOADS
            assert [entry.data for entry in reader.read(123, 130)] == PAYLOADS[123:131]
            assert reader.last_entry_id == len(PAYLOADS) - 1
            assert reader.closed


def test_the_source_plans_by_files(ours: Cluster, tmp_path: Path) -> None:
    """Each task reads files of the copy; ranges of numbers find ledgers that only copies are left of."""
    there = moved(ours, tmp_path)
    theirs = cluster(ours.uri, str(tmp_path))
    options = LedgerReading.of({"metadata": ours.uri, "ledgers": str(there), "splitBytes": "8000"})
    extents = theirs.wait(lambda: planned(theirs.client, options, bounded((), ("ledger_id", "entry_id"))))
    files = len(list((tmp_path / str(there)).glob("part-*")))
    assert len(extents[0].cuts) == files - 1 > 1
    rows = [row for ranges in divided(extents, options) for row in rows_of(theirs, ranges, options)]
    assert rows == [(there, entry, payload) for entry, payload in enumerate(PAYLOADS)]
    wide = Selection([(there, there + 5000)])
    assert there in theirs.wait(lambda: selected(theirs.client, wide, Bounds()))
    assert there not in ours.wait(lambda: selected(ours.client, wide, Bounds()))


def rows_of(theirs: Cluster, ranges: list, options: LedgerReading) -> list[tuple[int, int, bytes]]:
    """Of one task."""
    names = ["ledger_id", "entry_id", "payload"]
    return [tuple(row.values()) for batch in batches(theirs, ranges, names, options) for row in batch.to_pylist()]


def test_a_damaged_copy_is_an_error(ours: Cluster, tmp_path: Path) -> None:
    """Never other bytes; a segment's copy likewise."""
    there = moved(ours, tmp_path)
    found = Offloaded(str(tmp_path)).opened(there)
    assert found is not None
    assert found.payloads(0, len(PAYLOADS) - 1) == PAYLOADS
    assert b"".join(body[36:] for _first, some in found.groups() for body in some) == b"".join(PAYLOADS)
    for file in (tmp_path / str(there)).glob("part-*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 3] ^= 1
        file.write_bytes(data)
    theirs = cluster(ours.uri, str(tmp_path))

    async def read() -> int:
        reader = await theirs.client.open_ledger(there, recover=False)
        return len(await reader.read(0, len(PAYLOADS) - 1))

    with pytest.raises(LedgerError):
        theirs.wait(read)
    again = Offloaded(str(tmp_path)).opened(there)
    assert again is not None
    with pytest.raises(CopyDamaged):
        again.payloads(0, len(PAYLOADS) - 1)
    with pytest.raises(CopyDamaged):
        list(again.groups())


def test_openers(ours: Cluster, tmp_path: Path) -> None:
    """Take the URI of a manifest, which has the sum that its segment is marked with, and nothing else."""
    opener = openers()["file"]
    for uri in (
        f"file://{tmp_path}/7/other.json",
        f"file://{tmp_path}/x/manifest.json",
        f"file://{tmp_path}/7/manifest.json",
    ):
        with pytest.raises(CopyDamaged):
            ours.wait(lambda uri=uri: opener({"uri": uri}))
    there = moved(ours, tmp_path)
    found = Offloaded(str(tmp_path)).opened(there)
    assert found is not None
    mark = {"uri": f"file://{tmp_path}/{there}/manifest.json", "sum": found.manifest.sum}
    assert ours.wait(lambda: opener(mark)).manifest == found.manifest
    for sum_ in (found.manifest.sum ^ 1, None):
        with pytest.raises(CopyDamaged, match="is not the manifest"):
            ours.wait(lambda sum_=sum_: opener({**mark, "sum": sum_}))


def test_no_arrow_until_a_copy_is_opened() -> None:
    """The client, the log and this module don't import it; without it the error names the command."""
    assert alone("""
        import sys
        import quire.client, quire.log, quire.log.aio, quire.pipeline, quire.pipeline.clients
        from quire.pipeline.copies.reading import Offloaded, openers
        from quire.tools.commands import log, pipeline
        openers()
        assert not {"pyarrow", "pyspark"} & set(sys.modules), "imported"
        sys.modules["pyarrow"] = None
        try:
            Offloaded("/x").opened(1)
        except ImportError as error:
            print(error)
        """).startswith(f"offloaded ledgers need PyArrow: {installs('pipeline')} (")
