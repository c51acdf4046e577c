"""Compressions, and their library when it is missing."""

import sys
import zlib

import pytest

from quire.protocol.pulsar_errors import NotRead
from quire.pulsar.codecs import NAMES, decompress
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("method", range(5))
@pytest.mark.parametrize("data", [b"", b"a", b"abc" * 9999])
def test_there_and_back(method, data):
    """Each method gives what was compressed."""
    assert decompress(method, made.compressed(method, data), len(data)) == data


@pytest.mark.parametrize("method", [made.LZ4, made.ZSTD, made.SNAPPY])
def test_a_missing_library_is_named(method, monkeypatch):
    """With the command that installs it; zlib needs none."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(NotRead, match=rf"{NAMES[method]} .*pip install"):
        decompress(method, b"x", 1)
    assert decompress(made.ZLIB, made.compressed(made.ZLIB, b"x"), 1) == b"x"


def test_zlib_that_is_flushed_and_not_ended():
    """As Pulsar's Java client leaves it; less than was named is an error still."""
    machine = zlib.compressobj()
    flushed = machine.compress(b"abc" * 99) + machine.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(made.ZLIB, flushed, 297) == b"abc" * 99
    for size in (296, 298):
        with pytest.raises(ValueError, match="ZLIB gives"):
            decompress(made.ZLIB, flushed, size)
