"""Messages as programs see them."""

import zlib

import pytest

from quire.conf.messages import StoreSettings
from quire.messages import message as messages
from quire.messages.core.record import Flag, unpack
from quire.messages.message import StoredMessage
from quire.protocol.log_errors import UnknownFormat
from quire.protocol.message_errors import StoreDamaged
from tests.messages import archives
from tests.messages.reference import parser

# SPDX-License-Identifier: Apache-2.0

SETTINGS = StoreSettings.made(address="10.0.0.5:10911", progress="p", file_bytes=16384, max_body=10_000)


def test_bodies_of_a_real_broker(tmp_path):
    """Each method of compression gives what was sent."""
    methods = set()
    for _, each in parser.log(archives.unpack("plain-clean", tmp_path)):
        found = StoredMessage(unpack(each["raw"]), 0)
        if found.sys_flag & Flag.COMPRESSED:
            methods.add(found.sys_flag & Flag.ZLIB)
            assert len(found.body) > len(found.stored_body)
        else:
            assert found.body == each["body"]
    assert len(methods) == 3


def test_stored_messages_are_compared_by_record_and_position(tmp_path):
    """Members come from the record, the same each time; equal ones have equal hashes and texts."""
    records = [each["raw"] for _, each in parser.log(archives.unpack("plain-clean", tmp_path))][:2]
    one, same, other = (StoredMessage(unpack(bytes(raw)), 5) for raw in (*records[:1] * 2, records[1]))
    assert one == same
    assert hash(one) == hash(same)
    assert repr(one) == repr(same)
    assert one.properties is one.properties
    assert one not in (other, StoredMessage(unpack(records[0]), 6), "another kind")
    assert f"StoredMessage(topic={one.topic!r}, queue={one.queue}, offset={one.offset}, position=5, " in repr(one)
    assert f"stored_body={one.stored_body!r}, raw={one.raw!r})" in repr(one)


def test_bodies_that_cannot_be_decompressed(monkeypatch):
    """Damage is named; what is not installed, too, with the command that installs it."""
    whole = zlib.compress(b"x" * 1000)
    for flag, data in [(0, whole[:-5]), (Flag.ZLIB, b"no"), (Flag.LZ4, b"no"), (Flag.ZSTD, b"no")]:
        with pytest.raises(StoreDamaged, match="can't be decompressed"):
            messages.decompressed(flag, data)
    assert messages.decompressed(Flag.ZLIB, whole) == b"x" * 1000
    for flag, name in [(Flag.LZ4, "lz4"), (Flag.ZSTD, "zstd")]:
        monkeypatch.setitem(__import__("sys").modules, "lz4.frame" if name == "lz4" else "zstandard", None)
        with pytest.raises(UnknownFormat, match=rf"\[{name}\]"):
            messages.decompressed(flag, b"")
