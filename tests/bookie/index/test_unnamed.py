"""Records of a log that no index names."""

import pytest

from quire.bookie.index.run import encode_run
from quire.bookie.index.run_index import RunIndex
from quire.bookie.logs import walk as module
from quire.bookie.logs.format import HEADER_BYTES
from quire.bookie.logs.walk import LogWalk, unnamed
from tests.bookie.fakes.disk import reader, records
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0

LEDGERS = (1, 2, 3)


def found(data: bytes, index: RunIndex, passed_over: int = 3) -> list[tuple[int, int, int]]:
    walk = LogWalk(reader(data), len(data), "x.log", 1 << 20)
    return list(unnamed(walk, len(data), index.named, lambda ledger: ledger != passed_over))


def test_each_record_that_no_row_names_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By ledger and entry, wherever the row says that it is; also where few ranges are remembered."""
    parts = [(ledger, entry) for entry in range(20) for ledger in LEDGERS]
    data = bytes(HEADER_BYTES)
    places = {}
    for ledger, entry in parts:
        places[ledger, entry] = len(data)
        data += records(ledger, entry, 1)
    index = RunIndex(DictRows())
    assert found(data, index) == [(ledger, entry, places[ledger, entry]) for ledger, entry in parts if ledger != 3]
    index.put(1, 0, 20, encode_run(7, 0, [40] * 20, [0] * 20))
    index.put(2, 5, 5, encode_run(7, 0, [40] * 5, [0] * 5))
    index.commit()
    missing = [(2, entry, places[2, entry]) for entry in (*range(5), *range(10, 20))]
    assert found(data, index) == missing
    monkeypatch.setattr(module, "RANGES_MAX", 1)
    assert found(data, index) == missing


def test_a_record_that_the_log_is_too_short_for_was_never_acknowledged() -> None:
    """Its ids are there, its body is not."""
    data = bytes(HEADER_BYTES) + records(1, 0, 2)
    index = RunIndex(DictRows())
    assert [entry for _ledger, entry, _at in found(data, index)] == [0, 1]
    assert [entry for _ledger, entry, _at in found(data[:-1], index)] == [0]
