"""The values of a file, one behind the other: those that the reference finds, and nothing that is not valid."""

import struct

import pytest

from quire.messages.core.layout import FILLER_BYTES
from quire.messages.core.scan import VALUE_BYTES_MAX, Walk, candidates
from tests.messages.archives import ALL, FILE_BYTES, unpack
from tests.messages.reference import parser

# SPDX-License-Identifier: Apache-2.0

IPV6 = bytes(range(16))


def walked(walk, data, begin, window=FILE_BYTES):
    """(place, size, topic, queue, queue offset, flags, store time) of all values."""
    found = []
    while walk.needed:
        place = walk.place
        piece = data[place - begin : place - begin + max(window, walk.needed)]
        if len(piece) < walk.needed:
            break
        found += [(place + at, *rest[:-1]) for at, *rest in walk.values(piece)]
    return found


def record(at=0, topic="T", body=b"body", **fields):
    return parser.pack(topic, body, queue=1, queue_offset=7, offset=at, store_ms=5, **fields)


def entry(place=0, index=3, term=2, magic=1, **fields):
    value = record(place + 48, **fields)
    return parser.ENTRY.pack(magic, 48 + len(value), index, term, place, 0, 0, 0, len(value)) + value


def one(rule, value, last=(-1, -1), size=FILE_BYTES):
    """The values of a file that begins with these bytes, and the walk."""
    walk = Walk(rule, 0, size, last)
    return walked(walk, value.ljust(size, b"\0"), 0), walk


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("window", [FILE_BYTES, 256])
def test_all_values_and_fillers_of_the_archives(tmp_path, name, window):
    """As the reference finds them, whatever bytes are read at once."""
    old, groups = parser.parts(unpack(name, tmp_path))
    for rule, directory in [("plain", old), *(("dledger", group / "data") for group in groups)]:
        expected, fillers = [], []
        for kind, at, *more in getattr(parser, rule)(directory):
            if kind in ("record", "entry"):
                found = more[-1]
                extra = 48 if kind == "entry" else 0
                names = ("topic", "queue", "queue_offset", "sys_flag", "store_ms")
                expected.append((at, found["size"] + extra, *(found[name] for name in names)))
            elif kind == "filler":
                fillers.append(at)
        values, places, last = [], [], (-1, -1)
        for path in parser.files(directory):
            data, begin = path.read_bytes(), int(path.name)
            walk = Walk(rule, begin, begin + len(data), last)
            values += walked(walk, data, begin, window)
            last = walk.index, walk.term
            if walk.filler(data[walk.place - begin :][:FILLER_BYTES], 0):
                places.append(walk.place)
        assert values == expected
        assert places == fillers


def test_records_with_each_kind_of_host_and_the_crc_property():
    """IPv6 hosts move what is behind them; a wrong CRC in the properties is found."""
    for born in (b"\x7f\0\0\1", IPV6):
        for store in (b"\x7f\0\0\1", IPV6):
            for crc in (False, True):
                value = record(born=(born, 1), store=(store, 2), crc_property=crc, properties=b"KEYS\x01k\x02")
                found, walk = one("plain", value)
                assert [(at, size, ms) for at, size, *_, ms in found] == [(0, len(value), 5)]
                assert walk.place == len(value)
                assert walk.needed == 0
                changed = value.replace(b"KEYS\x01k", b"KEYS\x01K")
                assert len(one("plain", changed)[0]) == (0 if crc else 1)


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (0, ">I", 90),
        (0, ">I", 5000),
        (4, ">I", 0xDAA320A8),
        (8, ">I", 1),
        (28, ">q", 8),
        (36, ">I", 0x10),
        (84, ">i", -1),
        (84, ">i", 5),
        (88, "1s", b"B"),
        (92, ">B", 2),
        (92, ">B", 200),
        (93, "1s", b"\xff"),
        (93, "1s", b"\0"),
        (94, ">h", -1),
    ],
)
def test_a_record_with_one_wrong_field(at, form, value):
    """Size, magic, CRC, place, flags that move hosts, lengths, body, a topic that is not UTF-8."""
    data = bytearray(record())
    assert len(one("plain", bytes(data))[0]) == 1
    struct.pack_into(form, data, at, value)
    found, walk = one("plain", bytes(data))
    assert (found, walk.place, walk.needed) == ([], 0, 0)


@pytest.mark.parametrize(
    "change",
    [{"place": 1}, {"index": 5}, {"index": -1}, {"term": 1}, {"index": 3, "term": 2}],
)
def test_an_entry_with_one_wrong_field(change):
    """Place, an index that is not the next one, a term below the one before, a negative index."""
    good = {"index": 4, "term": 2}
    assert len(one("dledger", entry(**good), (3, 2))[0]) == 1
    data = entry(**(good | change))
    if "place" in change:
        data = entry(**good)[:24] + struct.pack(">q", 1) + entry(**good)[32:]
    assert one("dledger", data, (3, 2))[0] == []


def test_entries_whose_sizes_or_zeros_are_wrong():
    """The size of the entry, the length of its body, and the three fields that are 0."""
    for at in (4, 32, 36, 40, 44):
        data = bytearray(entry())
        data[at + 3] += 1
        assert one("dledger", bytes(data))[0] == []
    _found, walk = one("dledger", entry(magic=2))
    assert walk.is_foreign


def test_properties_that_end_in_zeros():
    """They were not written to their end."""
    value = record(properties=b"KEYS\x01k\x02")
    assert len(one("plain", value)[0]) == 1
    assert one("plain", value[:-1] + b"\0")[0] == []


def test_the_last_eight_bytes_of_a_file_belong_to_no_value():
    """A record of all but them is taken, one that is a byte longer is not."""
    room = 4096 - FILLER_BYTES - len(record(body=b""))
    assert len(one("plain", record(body=b"x" * room), size=4096)[0]) == 1
    assert len(one("plain", record(body=b"x" * (room + 1)), size=4096)[0]) == 0


def test_a_value_that_no_log_can_hold():
    """It is told apart from damage."""
    body = VALUE_BYTES_MAX - len(record(body=b"")) + 1
    head = bytearray(record(body=b"")[:88])
    struct.pack_into(">I", head, 0, VALUE_BYTES_MAX + 1)
    struct.pack_into(">i", head, 84, body)
    _found, walk = one("plain", bytes(head), size=4096)
    assert not walk.is_too_large
    walk = Walk("plain", 0, 1 << 30)
    assert list(walk.values(bytes(head))) == []
    assert walk.is_too_large


def test_a_walk_that_stops():
    """No value that ends above the stop is given."""
    value = record()
    data = (value + record(len(value))).ljust(FILE_BYTES, b"\0")
    for stop, count in ((2 * len(value), 2), (2 * len(value) - 1, 1), (len(value), 1), (len(value) - 1, 0)):
        walk = Walk("plain", 0, FILE_BYTES, stop=stop)
        assert len(walked(walk, data, 0)) == count


@pytest.mark.parametrize("rule", ["plain", "dledger"])
def test_places_where_values_may_begin(rule):
    """By magic and place, whatever is around; one that says another place is none."""
    make, far = (record, 0) if rule == "plain" else (entry, 48)
    first, second = make(100), make(700)
    data = b"\xda\xa3" * 50 + first.ljust(300, b"\xda") + make(4)[far:] + bytes(1000)
    data = data[:700] + second + bytes(50)
    assert list(candidates(rule, data, 0, 0)) == [100, 700]
    assert list(candidates(rule, data, 0, 101)) == [700]
