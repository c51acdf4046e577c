"""The bench of very long ledgers: its store is a bookie's, its bounds, and that it runs from end to end."""

import json
import pathlib
from typing import Any

import pytest

from bench.long_ledger import DIGEST, INDEX_BYTES_MAX, LEDGER, LOG_BYTES_MAX, PAYLOAD, main, missed, write_store
from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.index.ledger_table import LedgerRow
from quire.rows.files import Files
from quire.rows.rocks import RocksRows

# SPDX-License-Identifier: Apache-2.0

ENTRIES = 100_000


def test_its_store_is_read_with_one_seek_and_one_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the length; and what the index takes for an entry is below the bound, its log of writes included."""
    (tmp_path / "current").mkdir()
    write_store(str(tmp_path), ENTRIES)
    calls: list[str] = []
    floor, pread = RocksRows.floor, Files.pread
    monkeypatch.setattr(RocksRows, "floor", lambda self, key: calls.append("seek") or floor(self, key))
    monkeypatch.setattr(Files, "pread", lambda self, *where: calls.append("read") or pread(self, *where))
    directory = LedgerDirectory(Files(), RocksRows, str(tmp_path), str(tmp_path), LOG_BYTES_MAX, lambda: None)
    try:
        assert directory.table.get(LEDGER) == LedgerRow(DIGEST.master_key)
        assert directory.survey(LEDGER)[0] == ENTRIES - 1
        assert sum(count for _first, count in directory.ranges(LEDGER)) == ENTRIES
        for entry in (0, 255, 256, 65_537, ENTRIES - 1):
            calls.clear()
            body = directory.read(LEDGER, entry)
            assert body is not None
            assert DIGEST.open(LEDGER, entry, body) == PAYLOAD
            assert calls == ["seek", "read"]
    finally:
        directory.close()
    taken = sum(
        path.stat().st_size for path in (tmp_path / "current" / "runs").iterdir() if path.suffix in (".sst", ".log")
    )
    assert taken / ENTRIES <= INDEX_BYTES_MAX


@pytest.mark.parametrize(
    ("warm", "cold", "index", "said"),
    [
        (1.5, 1.5, 4.3, []),
        (1.6, 1.0, 4.3, ["p99 warm, ratio: 1.60, at most 1.5"]),
        (1.0, 2.0, 4.4, ["index bytes per entry of 1000000: 4.40, at most 4.3"]),
    ],
)
def test_missed_bounds_are_named(warm: float, cold: float, index: float, said: list[str]) -> None:
    """
    An index of few entries has a log of writes beside them, so it is not judged; nor is what depends on what else lies
    in memory.
    """
    found: dict[str, Any] = {
        "ratios": {"warm": {"p99": warm}, "cold": {"p99": cold}},
        "entries": {"1000": {"index_bytes_per_entry": 9.0}, "1000000": {"index_bytes_per_entry": index}},
    }
    assert missed(found) == said


@pytest.mark.long
def test_it_runs_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    """On a small scale every figure is there; none is judged."""
    main(["--entries", "1000", "100000", "--reads", "20", "--rounds", "2", "--cold", "2"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"entries", "ratios", "missed"}
    assert set(found["entries"]) == {"1000", "100000"}
    assert set(found["entries"]["1000"]) >= {
        "warm_p99_ms",
        "cold_p99_ms",
        "index_bytes_per_entry",
        "resident_mb",
        "cpu_us_per_read",
    }
