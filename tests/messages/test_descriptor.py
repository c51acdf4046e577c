"""The descriptor of a message store."""

import json
from dataclasses import replace

import pytest

from quire.messages.core.queues import Place
from quire.messages.core.record import Host, pack, unpack
from quire.messages.descriptor import Descriptor, Import, Next, Region, Shift
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

SETTINGS = {"file_bytes": 65536, "address": "10.0.0.5:10911", "max_body": 4 << 20, "record_crc": False, "progress": "p"}
MADE = Descriptor(
    needs=(),
    state="ready",
    settings=SETTINGS,
    regions=(Region(0, "plain"), Region(196608, "dledger", group="dledger-n0"), Region(327680, "plain")),
    imported=Import("import-51be", "ab", 5, 108, 311458, 1_700_000_000_000),
    next=(Next("T", 7, 343),),
    shifts=(Shift("T", 0, 489, 2),),
    doubles=(652,),
)


def test_it_comes_back_with_members_of_a_newer_quire():
    """Members that are not known stay, at any depth."""
    stored = json.loads(MADE.encode())
    assert stored["quire"] == "messages"
    stored["new"] = 1
    stored["regions"][0]["new"] = 2
    found = Descriptor.read(json.dumps(stored).encode())
    assert replace(found, extra={}, regions=MADE.regions) == MADE
    assert json.loads(found.encode()) == stored


def test_what_it_says_of_the_log():
    """Regions by offset, the place of a record by the exceptions."""
    assert [MADE.region_at(at).layout for at in (0, 196607, 196608, 1 << 40)] == ["plain", "plain", "dledger", "plain"]
    assert MADE.store_settings.file_bytes == 65536
    host = Host(b"\x7f\0\0\1", 1)
    record = unpack(pack("T", queue_offset=9, offset=489, born_host=host, store_host=host))
    assert MADE.placing.place(record, 489) == Place(7, 1)
    assert MADE.placing.place(record, 652) is None
    assert MADE.placing.next == (("T", 7, 343),)
    assert MADE.placing.end == 311458


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"needs": ["renumber"]}, UnknownFormat, "needs renumber"),
        ({"format": 2}, UnknownFormat, "format 2"),
        ({"state": "lost"}, LogDamaged, "state 'lost'"),
        ({"regions": []}, LogDamaged, "regions"),
        ({"regions": [{"begin": 5, "rule": "plain"}, {"begin": 5, "rule": "plain"}]}, LogDamaged, "ascend"),
        ({"regions": [{"begin": 0, "rule": "tiered"}]}, UnknownFormat, "tiered"),
        ({"regions": [{"begin": 0, "rule": "dledger"}]}, LogDamaged, "last region"),
    ],
)
def test_what_is_refused(change, error, text):
    """A newer one, and what contradicts itself."""
    with pytest.raises(error, match=text):
        Descriptor.read(json.dumps(json.loads(MADE.encode()) | change).encode())


def test_settings_that_cannot_be():
    """They are damage, by name."""
    with pytest.raises(LogDamaged, match="address"):
        _ = replace(MADE, settings=SETTINGS | {"address": "nobody"}).store_settings
