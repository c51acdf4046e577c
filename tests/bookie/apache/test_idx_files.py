"""The `.idx` files of Apache's sorted storage."""

import pathlib
import struct

import pytest

from quire.bookie.apache.idx_files import Pages, decode_idx_header, encode_idx_header, idx_ledgers, idx_path
from quire.bookie.apache.index import location
from quire.bookie.index.ledger_table import LedgerRow
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

ROW = LedgerRow(b"k" * 20, fenced=True, explicit_lac=b"l" * 24)


def test_headers_of_idx_files(tmp_path: pathlib.Path) -> None:
    """Both versions; damage names the file; files are found again by their ledgers."""
    assert decode_idx_header("x", encode_idx_header(ROW)) == ROW
    assert decode_idx_header("x", encode_idx_header(LedgerRow(b""))) == LedgerRow(b"")
    old = struct.pack(">4sii", b"BKLE", 0, 20) + b"k" * 20 + struct.pack(">i", 1)
    assert decode_idx_header("x", old.ljust(1024, b"\0")) == LedgerRow(b"k" * 20, fenced=True)
    for bad in (
        b"",
        b"BKLX" + bytes(1020),
        struct.pack(">4sii", b"BKLE", 1, -1).ljust(1024, b"\0"),
        struct.pack(">4sii", b"BKLE", 9, 20).ljust(1024, b"\0"),
    ):
        with pytest.raises(StorageError, match="some/path"):
            decode_idx_header("some/path", bad)
    index = Pages(Files(), str(tmp_path), lambda log, offset, count: b"", lambda ledger: ROW)
    ledgers = [0, 5, 0x100, 0x12345, 1 << 40]
    for ledger in ledgers:
        index.store_header(ledger)
        index.store([(ledger, 3, [location(3, 1024)])])
        assert index.header(ledger) == ROW
        assert ((tmp_path / idx_path(ledger)).stat().st_size - 1024) % 8192 == 0
    index.sync()
    assert sorted(idx_ledgers(Files(), str(tmp_path))) == ledgers
    assert idx_path(0x12345) == "23/45/12345.idx"
