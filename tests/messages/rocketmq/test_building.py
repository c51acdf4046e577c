"""Queues and index of plain files that DLedger's files follow, beside what the reference makes of the same records."""

import shutil

import pytest

from quire.messages.core.queues import Placing
from quire.messages.core.record import unpack
from quire.messages.rocketmq import building
from quire.messages.rocketmq.building import Building, Sizes
from quire.rows.files import Files
from tests.messages import archives
from tests.messages.exported import SIZES, Stored, tree
from tests.messages.reference import parser

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("name", archives.UPGRADED)
def test_an_upgraded_store(name, tmp_path):
    """Rows of the plain files alone, each queue and each key of theirs; DLedger's are left to the broker."""
    out = tmp_path / "out"
    assert not Stored.of(archives.unpack(name, tmp_path)).export(out).unkept
    shutil.rmtree(out / "dledger-n0")
    report = parser.check(out)
    assert report["trouble"] == []
    assert report["queues equal"] == len({(r["topic"], r["queue"]) for _at, r in parser.log(out)})
    assert "queue differs" not in report
    assert "queues without files" not in report
    assert report["index rows"].endswith("equal in order")
    assert report["index seconds wrong"] == 0


def built(store, out, sizes=SIZES):
    """All plain records of a store."""
    made = Building(Files(), str(out), Placing(), sizes)
    for _at, record in parser.log(store):
        made.take(unpack(record["raw"]))
    made.finish()
    return made


def test_queues_are_those_of_the_broker(tmp_path):
    """Byte for byte, batch queues too; the index has the same header and rows."""
    store = archives.unpack("plain-clean", tmp_path)
    built(store, tmp_path / "out")
    out, theirs = tree(tmp_path / "out"), tree(store)
    names = [name for name, data in theirs.items() if "consumequeue/" in name and any(data)]
    assert sorted(name for name in out if "consumequeue/" in name) == names
    for name in names:
        assert out[name].ljust(len(theirs[name]), b"\0")[: len(theirs[name])] == theirs[name]
    mine, its = (next(iter((base / "index").iterdir())) for base in (tmp_path / "out", store))
    assert parser.index(mine, 1000) == parser.index(its, 1000)
    assert mine.stat().st_size == its.stat().st_size


@pytest.mark.parametrize("gathered", [0, 1 << 20])
def test_several_files(tmp_path, monkeypatch, gathered):
    """A queue that begins in the middle of a file has blank units before; files are full before the next is begun."""
    monkeypatch.setattr(building, "GATHERED_BYTES_MAX", gathered)
    sizes = Sizes(queue_file_bytes=200, batch_queue_file_bytes=460, index_slots=4, index_rows=8)
    made = Building(Files(), str(tmp_path), Placing(), sizes)
    place, units = 0, []
    for number in range(25):
        raw = parser.pack("T", b"", queue_offset=34 + number, offset=place, properties=b"KEYS\x01k\x02")
        made.take(unpack(raw))
        units.append((34 + number, place, len(raw), 0))
        place += len(raw)
    made.finish()
    found = list(parser.units(tmp_path / "consumequeue/T/0"))
    assert found == [(n, 0, 0x7FFFFFFF, 0) for n in range(30, 34)] + units
    assert {path.stat().st_size for path in (tmp_path / "consumequeue/T/0").iterdir()} == {200}
    indexes = sorted((tmp_path / "index").iterdir())
    assert [parser.index(path, 4)[0]["count"] for path in indexes] == [8, 8, 8, 5]
    assert [row[2] for path in indexes for row in parser.index(path, 4)[1]] == [at for _n, at, _size, _code in units]
