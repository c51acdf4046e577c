"""The manifest as bytes and as a value: what survives, what is refused, and how a segment is found."""

import json
from dataclasses import replace

import pytest

from quire.log.core import manifest as values
from quire.log.core.manifest import Adopted, Chunk, Manifest, above, new_manifest, to_index, to_position, to_time
from quire.log.core.values import Begin, Line, Segment
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

TEXT = """{"quire":"log","format":1,"needs":[],"name":"orders","id":"6f1c","state":"open","edit":"9d02","recent":["9d02","77aa"],
 "settings":{"ensemble":3,"roll_bytes":268435456,"later":{"deep":[1]}},
 "epoch":7,"owner":{"token":"51be","epoch":7,"address":"10.0.0.5:7100","host":"web3:4711","since":1700000000000},"transfer":null,
 "begin":{"n":0,"index":0,"at":0},"next":451,"table":null,
 "chunks":[
  {"c":"000000000000-5f3a9c01","n":[0,447],"first":0,"at":0,"records":2240000,"bytes":229376000,"t":[1690,1699]}],
 "segments":[
  {"n":448,"ledger":4711,"epoch":6,"first":2240000,"at":229376000,"records":5000,"bytes":512000,"entries":79,"t":[1699,1700]},
  {"n":449,"ledger":4713,"epoch":6,"first":2245000,"at":229888000,"records":900,"bytes":92160,"entries":15,"t":[1701,1701],"txn":"0b6e","batch":17,"part":3,"later":{"a":1}},
  {"n":450,"ledger":4720,"epoch":7,"first":2245900,"at":229980160}],
 "doomed":[
  {"ledger":4699,"why":"empty","since":1700000000000}],
 "snapshots":[
  {"index":2200000,"ledger":4702,"bytes":81920,"entries":3,"crc":123456,"machine":"kv/1","epoch":6}],
 "compacted":null,"later":[1,2]}"""  # noqa: E501


def orders() -> Manifest:
    """The manifest above."""
    return Manifest.decode(TEXT.encode())


def test_a_manifest_is_the_same_bytes_again():
    """Members that are not known survive at any depth, in their order of members and lines."""
    assert orders().encode() == TEXT.encode()
    assert orders().segments[1].extra == {"later": {"a": 1}}


def test_members_that_are_not_known_survive_a_change():
    """In the manifest itself, in the settings and in a segment."""
    changed = replace(orders(), name="other", segments=orders().segments[:2])
    found = json.loads(changed.encode())
    assert found["later"] == [1, 2]
    assert found["settings"]["later"] == {"deep": [1]}
    assert found["segments"][1]["later"] == {"a": 1}


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"format": 2}, UnknownFormat, "format 2"),
        ({"needs": ["compaction/9"]}, UnknownFormat, "compaction/9"),
        ({"needs": None}, LogDamaged, "needs"),
        ({"needs": 5}, LogDamaged, "needs"),
        ({"needs": [[]]}, LogDamaged, "needs"),
        ({"next": 1 << 63}, LogDamaged, "64 bits"),
        (
            {"segments": [{**json.loads(TEXT)["segments"][0], "records": -4, "bytes": -50}], "owner": None},
            LogDamaged,
            "before it begins",
        ),
        ({"format": "1"}, LogDamaged, "format"),
        ({"quire": "chunk"}, LogDamaged, "no log"),
        ({"state": "gone"}, LogDamaged, "state"),
        ({"epoch": True}, LogDamaged, "epoch"),
        ({"epoch": 8}, LogDamaged, "epoch"),
        ({"next": 450}, LogDamaged, "next"),
        ({"segments": {}}, LogDamaged, "segments"),
        ({"begin": {"n": 0}}, LogDamaged, "begin"),
        ({"begin": {"n": 450, "index": 2245901, "at": 229980160}}, LogDamaged, "begins at"),
        ({"recent": [1]}, LogDamaged, "recent"),
        ({"state": "terminated", "end": 3}, LogDamaged, "terminated"),
        ({"owner": None, "name": 5}, LogDamaged, "name"),
    ],
)
def test_what_contradicts_the_format_is_refused(change, error, said):
    """Damage names the member; what a newer version wrote is told apart."""
    with pytest.raises(error, match=said):
        Manifest.decode(json.dumps({**json.loads(TEXT), **change}).encode())


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (1, {"first": 2245001}),
        (1, {"records": -4, "bytes": -50}),
        (1, {"bytes": -50}),
        (1, {"at": 1}),
        (1, {"n": 448}),
        (0, {"records": None}),
        (1, {"entries": None}),
        (1, {"records": 0}),
        (2, {"bytes": 5}),
        (1, {"t": [1]}),
        (1, {"t": [1, 2, 3]}),
        (1, {"t": [1, "2"]}),
        (0, {"n": 447}),
    ],
)
def test_segments_follow_each_other(number, change):
    """Only the last is open, each begins where the one before ends, with all its counts."""
    data = json.loads(TEXT)
    data["segments"][number].update(change)
    with pytest.raises(LogDamaged):
        Manifest.decode(json.dumps(data).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"quire":"log"}'])
def test_bytes_that_are_no_manifest(data):
    """Each is `LogDamaged`."""
    with pytest.raises(LogDamaged):
        Manifest.decode(data)


def test_a_segment_is_found():
    """By index, by number, by time, in the manifest or as the line of its chunk."""
    found = orders()
    line, first, second, last = (*found.chunks, *found.segments)
    assert found.first(to_index(0)) == found.first(to_index(2239999)) == line
    assert found.first(to_index(2240000)) == first
    assert found.first(to_index(2245899)) == second
    assert found.first(to_index(2245900)) == found.first(to_index(9999999)) == last
    assert found.segment(449) == second
    assert found.segment(447) is found.segment(451) is None
    assert found.line(447) == found.line(0) == line
    assert found.line(448) is None
    assert found.first(to_time(0)) == found.first(to_time(1699)) == line
    assert found.first(to_time(1700)) == first
    assert found.first(to_time(1701)) == second
    assert found.first(to_time(1702)) == last
    assert [found.first(above(number)) for number in (-1, 446, 447, 448, 450)] == [line, line, first, second, None]
    closed = replace(found, segments=found.segments[:2])
    assert found.first(to_position(229375999)) == line
    assert found.first(to_position(229376000)) == first
    assert found.first(to_position(229980159)) == second
    assert found.first(to_position(229980160)) == last
    assert (
        closed.first(to_index(2245900)) is closed.first(to_time(1702)) is closed.first(to_position(229980160)) is None
    )
    assert found.closed_end == closed.closed_end == (2245900, 229980160)
    assert (found.last_stamp, found.open_segment, closed.open_segment) == (1701, last, None)
    assert found.named_ledgers() == {4711, 4713, 4720, 4699, 4702}


def test_an_empty_log():
    """It begins where it was told to, and has no segments."""
    made = new_manifest("a", "id", "edit", {}, begin=Begin(0, 0, 7))
    assert Manifest.decode(made.encode()) == made
    assert made.closed_end == (0, 7)
    assert made.first(to_index(0)) is made.first(to_time(0)) is made.first(above(-1)) is made.last_closed is None
    only = replace(orders(), segments=(), chunks=())
    assert only.closed_end == (0, 0)
    chunked = replace(orders(), segments=())
    assert chunked.closed_end == (2240000, 229376000)
    assert chunked.last_stamp == 1699


def test_a_chunk_round_trips():
    """With each segment on a line of its own, and its line in the manifest."""
    segments = tuple(Segment(n, 100 + n, 1, 10 * n, 50 * n, 10, 50, 2, (n, n + 1)) for n in range(5, 9))
    chunk = Chunk(1, "id", "edit", 17, segments, extra={"later": 1})
    assert Chunk.decode(chunk.encode()) == chunk
    assert chunk.encode().count(b"\n") == 4
    assert chunk.line("c") == Line("c", (5, 8), 50, 250, 40, 200, (5, 9))
    with pytest.raises(LogDamaged):
        Chunk.decode(TEXT.encode())


def test_a_name_points_at_a_log():
    """By its id."""
    assert values.decode_name(values.encode_name("6f1c")) == "6f1c"
    for data in (b"{}", b'{"quire":"name","format":1}', b'{"quire":"name","format":1,"log":7}'):
        with pytest.raises(LogDamaged):
            values.decode_name(data)


def test_the_record_of_an_adopted_ledger():
    """It says in which log it is, and where."""
    adopted = Adopted("6f1c", 3, 10, 20, "e1")
    assert Adopted.decode(adopted.encode()) == adopted
    with pytest.raises(LogDamaged):
        Adopted.decode(b'{"quire":"adopted","format":1,"log":7}')
    with pytest.raises(UnknownFormat):
        Adopted.decode(adopted.encode().replace(b'"format":1', b'"format":2'))
