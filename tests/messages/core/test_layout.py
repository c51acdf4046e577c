"""Values of the log, fillers and places."""

import pytest

from quire.messages.core.layout import entry_header, file_name, filler, filler_at, fits, record_of, rule_of, skip_before
from quire.messages.core.record import unpack
from quire.protocol.message_errors import StoreDamaged
from tests.messages import archives
from tests.messages.reference import builder

# SPDX-License-Identifier: Apache-2.0

F = 16_384


def test_entries_of_a_real_broker(tmp_path):
    """An entry's header says its place; its record is 48 bytes further."""
    store = archives.unpack("dledger-new-leader", tmp_path)
    path = store / "dledger-n2" / "data" / file_name(0)
    data, at, terms = path.read_bytes(), 0, set()
    while filler_at("dledger", data, at) is None:
        header = entry_header(data, at)
        value = data[at : at + header.size]
        far, record = record_of(value)
        assert (rule_of(value), far, header.place) == ("dledger", 48, at)
        assert unpack(record).offset == at + 48
        terms.add(header.term)
        at += header.size
    assert at + filler_at("dledger", data, at) == len(data)
    assert terms == {1}


@pytest.mark.parametrize("rule", ["plain", "dledger"])
def test_fillers(rule):
    """What begins a filler says how long it is, in the order of its layout."""
    made = filler(rule, 1234)
    assert filler_at(rule, made, 0) == 1234
    other = "dledger" if rule == "plain" else "plain"
    assert filler_at(other, made, 0) is None


def test_what_is_no_value_of_a_log():
    """Neither a record nor an entry, and an entry whose lengths do not agree, are named."""
    with pytest.raises(StoreDamaged, match="neither a record nor"):
        rule_of(b"\0" * 8)
    with pytest.raises(StoreDamaged, match="header of 48"):
        record_of(b"\0\0\0\1" + b"\0" * 20)
    with pytest.raises(StoreDamaged, match="is wrong"):
        record_of(b"\0\0\0\1" + b"\0" * 60)


@pytest.mark.parametrize("size", [91, F - 9, F - 8])
def test_places_are_those_of_the_reference(size, tmp_path):
    """A record that would take one of the last 8 bytes of a file goes to the next one."""
    made = builder.Builder(tmp_path, size=F)
    end = 0
    for count in [100, F - 300, 91, 92, size, 91, size]:
        place = end + skip_before(end, 0, count, F)
        assert place == made.place(count)
        made.end = end = place + count


def test_a_region_that_begins_later():
    """The first record behind an import is at the begin of the last region, however many bytes that skips."""
    assert skip_before(1000, 3 * F, 200, F) == 3 * F - 1000
    assert skip_before(3 * F + 200, 3 * F, 200, F) == 0
    assert fits(F - 8, F)
    assert not fits(F - 7, F)
