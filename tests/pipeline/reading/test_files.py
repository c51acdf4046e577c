"""Files of a stopped bookie as Arrow batches: ours, and Apache's as they were captured."""

from pathlib import Path
from typing import Any

import pytest

from quire.bookie.offline.listing import index
from quire.conf.pipeline import FileReading
from quire.pipeline.clients import cluster
from quire.pipeline.reading.files import SCHEMA, Sums, batches, found, kind_of, planned
from quire.protocol.digest import Digest, DigestType
from quire.rows.files import Files
from quire.tools.local_cluster.cluster import LocalCluster
from tests.bookie.fakes.apache_files import ledgers_of, unpack
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

PAYLOADS = [b"payload %d" % number for number in range(500)]


def reading(path: object, **options: Any) -> FileReading:
    return FileReading.of({"path": str(path), **{name: str(value) for name, value in options.items()}})


def rows(options: FileReading) -> list[dict[str, Any]]:
    pieces = [piece for group in planned(options) for piece in group]
    return [row for batch in batches(pieces, list(SCHEMA), options) for row in batch.to_pylist()]


def test_entries_of_a_bookie_of_ours(tmp_path: Path) -> None:
    """Of journals and entry logs together all that was written, and the index names what the logs have."""
    with LocalCluster(tmp_path, 1, options=SMALL) as made:
        ours = cluster(made.uri)

        async def write() -> int:
            writer = await ours.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            await writer.append_many(PAYLOADS)
            await writer.close()
            return writer.id

        there = ours.wait(write)
        made.stop()
    for split in (100, 1 << 26):
        given = rows(reading(tmp_path, splitBytes=split, batchBytes=5000))
        entries = [row for row in given if row["kind"] == "entry" and row["ledger_id"] == there]
        assert {row["entry_id"]: row["payload"] for row in entries} == dict(enumerate(PAYLOADS))
        assert all(row["digest_ok"] for row in entries)
        assert {row["length"] - sum(map(len, PAYLOADS[: row["entry_id"] + 1])) for row in entries} == {0}
        logged = [row for row in entries if row["file"].endswith(".log")]
        runs = [row for row in given if row["kind"] == "run" and row["ledger_id"] == there]
        assert sum(row["length"] for row in runs) == len(logged) == len(PAYLOADS)
        kinds = {row["kind"] for row in given}
        assert kinds == {"entry", "run", "ledger"}  # no hole, and not the mark of a clean stop, which is no ledger's


@pytest.mark.parametrize("name", ["rocksdb_bookie0_stopped", "sorted_bookie0_stopped"])
def test_what_an_apache_bookie_left(tmp_path: Path, name: str) -> None:
    """
    Each entry of its ledgers, of every kind of sum, with the password that one of them needs; those without any when it
    is said that they have none.
    """
    root = unpack(name, tmp_path)
    given, unchecked = rows(reading(root, password="secret")), rows(reading(root, digest="DUMMY"))
    ledgers = ledgers_of(name.split("_", maxsplit=1)[0], "stopped")
    for number, (digest, payloads) in ledgers.items():
        here = unchecked if digest.kind is DigestType.DUMMY else given
        mine = [row for row in here if row["kind"] == "entry" and row["ledger_id"] == number and row["digest_ok"]]
        assert {row["entry_id"]: row["payload"] for row in mine} == dict(enumerate(payloads)), number
    without = {row["ledger_id"] for row in rows(reading(root)) if row["kind"] == "entry" and not row["digest_ok"]}
    keyed = {number for number, (digest, _all) in ledgers.items() if digest.kind in {DigestType.MAC, DigestType.DUMMY}}
    assert without == keyed


def test_which_files(tmp_path: Path) -> None:
    """By their names, in any depth; a directory without any is an error, and a kind that there is not."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    kinds = [kind for kind, _path in found(str(root))]
    assert set(kinds) == {"entrylog", "journal", "index"}
    assert {piece.kind for group in planned(reading(root, kinds="journal")) for piece in group} == {"journal"}
    assert [kind_of(name) for name in ("VERSION", "bookie.log", "1f.log", "0.log.compacting")] == [
        *(None, None, "entrylog", None)
    ]
    (tmp_path / "empty").mkdir()
    for path, said in ((tmp_path / "empty", "none is below"), (tmp_path / "no", "is no directory")):
        with pytest.raises(ValueError, match=said):
            planned(reading(path))
    with pytest.raises(ValueError, match="there are entrylog, journal, index"):
        planned(reading(root, kinds="cookies"))


def test_sums() -> None:
    """Found out for each ledger; a damaged entry has no payload."""
    for kind in (DigestType.CRC32C, DigestType.CRC32, DigestType.MAC):
        body = Digest(kind, b"secret").entry(7, 1, 0, 3, b"abc")
        assert Sums("auto", b"secret").opened(7, 1, body) == b"abc"
        assert Sums(kind.name, b"secret").opened(7, 1, body) == b"abc"
        assert Sums("auto", b"secret").opened(7, 1, body[:-1] + b"d") is None


def test_damaged_indexes_and_journals(tmp_path: Path) -> None:
    """Each is a hole, and the other files are read."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    current = root / "ledgers/current"
    before = len(rows(reading(root)))
    (current / "0/1").mkdir(parents=True)
    (current / "locations").mkdir()
    (current / "locations/CURRENT").write_text("MANIFEST-000001\n")
    (current / "locations/MANIFEST-000001").write_bytes(b"junk" * 99)
    for name in ("0/1/1.idx", "2.idx", "zz.idx", "1a.txn", "zz.txn"):
        (current / name).write_bytes(b"junk" * 99)
    given = rows(reading(root))
    holes = {row["file"].removeprefix(f"{current}/") for row in given if row["kind"] == "hole"}
    assert holes == {"0/1/1.idx", "2.idx", "zz.idx", "1a.txn", "zz.txn", "locations"}
    assert len(given) == before + len(holes)


def test_a_damaged_log(tmp_path: Path) -> None:
    """Is read around its damage; the index says what it had."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    log = root / "ledgers/current/0.log"
    before = rows(reading(log, password="secret"))
    data = bytearray(log.read_bytes())
    at = before[len(before) // 2]["pos"]
    data[at : at + 4] = b"\xff\xff\xff\xff"
    log.write_bytes(data)
    after = rows(reading(log, password="secret"))
    (hole,) = [row for row in after if row["kind"] == "hole"]
    assert hole["pos"] == at
    kept = [row for row in after if row["kind"] == "entry"]
    lost = [row for row in before if row not in kept]
    assert lost == [row for row in before if at <= row["pos"] < at + hole["bytes"]]
    assert sum(1 for _row in index(Files(), str(root / "index/current/locations"))) >= len(before)
