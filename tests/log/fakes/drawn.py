"""
The formats of a log drawn a second time, by hand, and the vectors that are made so:

    python -m tests.log.fakes.drawn

writes `tests/vectors/log/`: `entries.jsonl`, entries of one ledger beside what they say; `records.jsonl`, records of
the metadata store and lines of a snapshot beside theirs; `cursors.jsonl`, entries of cursors' ledgers.  In a line,
`hex` are the bytes and `means` is what they say;
with `again` the same bytes come of `means`, without it they hold what this version passes over; `refused` is the error
where there is no meaning.

Knows: the layouts, as they are drawn in the packages.  Does not know: the packages' code, so that no error is in both.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.log.fakes import drawn_cursors as cursors

# SPDX-License-Identifier: Apache-2.0

VECTORS = Path(__file__).parents[2] / "vectors" / "log"
Vector = dict[str, Any]

KINDS = {"batch": 0, "part": 1, "table": 2, "barrier": 3}
COLUMNS = {"keys": 2, "times": 3, "headers": 4, "producers": 5, "skips": 6, "indexes": 7, "values": 1}
STAMP = 1_700_000_000_000
NO_TIME = -(1 << 63)
MIB = 1 << 20

# What zlib made of the body of `PLAIN`; another release of it may make other bytes of the same.
PLAIN = {"kind": "batch", "stamp": STAMP, "values": [b"a".hex() * 300, b"b".hex() * 300], "keys": ["6b", None]}
DEFLATED = "78da6362626060e0646460604a003218ff03413690d601e1c4514034481a054403000822e9b7"


def u(number: int, width: int) -> bytes:
    """Big-endian."""
    return number.to_bytes(width, "big")


def i64(number: int) -> bytes:
    """Big-endian, signed."""
    return number.to_bytes(8, "big", signed=True)


def text(name: str) -> bytes:
    """With its length before it."""
    return u(len(name.encode()), 2) + name.encode()


def pieces(found: list[bytes | None]) -> bytes:
    """A column of lengths, then the bytes."""
    lengths = [u(0xFFFFFFFF if each is None else len(each), 4) for each in found]
    return b"".join(lengths) + b"".join(each or b"" for each in found)


def bytes_of(found: list[str | None]) -> list[bytes | None]:
    """Of their hex."""
    return [None if each is None else bytes.fromhex(each) for each in found]


def column(name: str, found: list[Any]) -> bytes:
    """The bytes of one column."""
    if name in {"values", "keys"}:
        return pieces(bytes_of(found))
    if name == "times":
        return b"".join(i64(NO_TIME if each is None else each) for each in found)
    if name == "headers":
        return pieces(
            [
                b"".join(text(key) + u(len(value) // 2, 4) + bytes.fromhex(value) for key, value in each)
                for each in found
            ]
        )
    if name == "skips":
        return b"".join(u(each, 4) for each in found)
    if name == "indexes":
        return b"".join(u(each, 8) for each in found)
    names = list(dict.fromkeys(run[0] for run in found))
    runs = [u(names.index(run[0]), 2) + u(run[1], 4) + u(run[2], 4) + u(run[3], 8) for run in found]
    return u(len(names), 2) + b"".join(map(text, names)) + u(len(runs), 4) + b"".join(runs)


def columns(found: list[tuple[int, bytes]]) -> bytes:
    """A body of these columns."""
    heads = [u(number, 1) + u(len(data), 4) for number, data in found]
    return u(len(found), 1) + b"".join(heads) + b"".join(data for _, data in found)


def body(said: Vector) -> bytes:
    """Of a batch, a table or a barrier."""
    if said["kind"] == "batch":
        return columns([(number, column(name, said[name])) for name, number in COLUMNS.items() if name in said])
    if said["kind"] == "table":
        rows = [text(name) + u(row[0], 8) + u(row[1], 8) + i64(row[2]) for name, row in said["rows"].items()]
        return u(len(rows), 4) + b"".join(rows)
    return b""


def header(said: Vector, kind: int, records: int, size: int, table: int, body_bytes: int) -> bytes:
    """The first 48 bytes."""
    compression = 1 if "deflated" in said else 0
    return b"".join(
        (
            b"qlog",
            bytes((1, kind, compression, 0)),
            u(said.get("ordinal", 0), 8),
            u(said.get("offset", 0), 8),
            u(said["stamp"], 8),
            u(records, 4),
            u(size, 4),
            u(table, 4),
            u(body_bytes, 4),
        )
    )


def drawn(said: Vector) -> list[bytes]:
    """The entries that say this: one, or the parts of a large batch."""
    whole = body(said)
    stored = bytes.fromhex(said["deflated"]) if "deflated" in said else whole
    values = said.get("values", [])
    size = sum(len(value) // 2 for value in values) + sum(said.get("skips", []))
    table, most = said.get("table", 0), said.get("part_bytes", MIB)
    if len(stored) <= most:
        return [header(said, KINDS[said["kind"]], len(values), size, table, len(whole)) + stored]
    cut = [stored[at : at + most] for at in range(0, len(stored), most)]
    found = []
    for number, piece in enumerate(cut):
        counts = (len(values), size) if number == len(cut) - 1 else (0, 0)
        head = header(said, KINDS["part"], *counts, table + number if table else 0, len(whole))
        found.append(head + u(number, 4) + u(len(cut), 4) + u(len(stored), 8) + piece)
    return found


# -- entries ---------------------------------------------------------------------------------------------------------


def batch(*values: bytes, **more: Any) -> Vector:
    """What a batch says."""
    return {"kind": "batch", "stamp": STAMP, "values": [value.hex() for value in values], **more}


EVERY_COLUMN = batch(
    b"one",
    b"",
    b"drei",
    ordinal=7,
    offset=100,
    table=4,
    keys=["6b", None, ""],
    times=[0, None, -5],
    headers=[[["a", "01"], ["ö", ""]], [], [["a", "02"]]],
    producers=[["p", 0, 1, (1 << 64) - 1], ["q", 1, 1, 0], ["p", 2, 1, 9]],
    skips=[0, 12, 1],
    indexes=[5, 9, (1 << 64) - 1],
)

ACCEPTED: dict[str, list[Vector]] = {
    "one record": [batch(b"hello")],
    "one empty record": [batch(b"")],
    "every column": [EVERY_COLUMN],
    "keys": [batch(b"v", b"w", keys=[None, "6b6579"])],
    "event times": [batch(b"v", b"w", times=[None, STAMP - 1])],
    "headers": [batch(b"v", headers=[[["content-type", "6a736f6e"]]])],
    "producers": [batch(b"v", b"w", producers=[["p", 0, 2, 41]])],
    "skips": [batch(b"v", b"w", skips=[0, 4096])],
    "original indexes, of a compacted ledger": [batch(b"v", b"w", indexes=[3, 1 << 40])],
    "a large batch in three parts": [
        batch(bytes(range(100)), b"x" * 60, ordinal=3, offset=30, table=2, keys=["6b", "6c"], part_bytes=80)
    ],
    "a producers' table": [
        {"kind": "table", "stamp": STAMP, "rows": {"p": [(1 << 64) - 1, 1 << 63, STAMP], "ö": [0, 0, -1]}}
    ],
    "an empty producers' table": [{"kind": "table", "stamp": STAMP, "rows": {}}],
    "a barrier": [{"kind": "barrier", "stamp": STAMP, "ordinal": 12, "offset": 345, "table": 6}],
    "a body that zlib made smaller": [{**PLAIN, "deflated": DEFLATED}],
    "a body that zlib made smaller, in parts": [{**PLAIN, "deflated": DEFLATED, "part_bytes": 20}],
    "entries of one ledger": [
        {"kind": "table", "stamp": STAMP, "rows": {"p": [1, 0, STAMP]}},
        batch(b"ab", b"c", table=1),
        {"kind": "barrier", "stamp": STAMP, "ordinal": 2, "offset": 3, "table": 2},
        batch(b"def", ordinal=2, offset=3, table=3, stamp=STAMP + 1),
    ],
}


def patched(entry: bytes, at: int, value: int) -> bytes:
    """With another byte."""
    return entry[:at] + bytes((value,)) + entry[at + 1 :]


def with_column(number: int) -> list[bytes]:
    """One record, with a column of that number before the values."""
    said = batch(b"a")
    made = columns([(number, b"xyz"), (1, column("values", said["values"]))])
    return [header(said, 0, 1, 1, 0, len(made)) + made]


def entries() -> Iterator[Vector]:
    """The lines of `entries.jsonl`."""
    for case, said in ACCEPTED.items():
        found = [entry for each in said for entry in drawn(each)]
        yield {"case": case, "means": said, "again": True, "hex": [entry.hex() for entry in found]}
    one, two = batch(b"a"), batch(b"b", ordinal=1, offset=1)
    (entry,), (later,) = drawn(one), drawn(two)
    of_later = header({**two, "values": []}, 9, 0, 0, 0, 8) + b"of later"
    passed = {
        "a column that is not known, below 128": (with_column(127), [one]),
        "flags of the low half": ([patched(entry, 7, 0x0F)], [one]),
        "a kind that is not known and completes nothing": ([entry, of_later, later], [one, two]),
        "a large batch without its last part": (drawn(batch(b"x" * 100, part_bytes=40))[:-1], []),
    }
    for case, (found, means) in passed.items():
        yield {"case": case, "means": means, "hex": [each.hex() for each in found]}
    body_max = u((64 << 20) + 1, 4)
    refused = {
        "version 2": ("UnknownFormat", [patched(entry, 4, 2)]),
        "a flag of the high half": ("UnknownFormat", [patched(entry, 7, 0x10)]),
        "a kind that is not known and completes a record": ("UnknownFormat", [patched(entry, 5, 4)]),
        "a compression that is not known": ("UnknownFormat", [patched(entry, 6, 3)]),
        "column 128": ("UnknownFormat", with_column(128)),
        "column 255": ("UnknownFormat", with_column(255)),
        "another magic": ("LogDamaged", [patched(entry, 0, 0x51)]),
        "a header that is cut": ("LogDamaged", [entry[:47]]),
        "a body that is cut": ("LogDamaged", [entry[:-1]]),
        "a body above 64 MiB": ("LogDamaged", [entry[:44] + body_max + entry[48:]]),
        "a barrier that completes a record": ("LogDamaged", [patched(entry, 5, 3)]),
        "an entry that does not continue the one before": ("LogDamaged", [entry, entry]),
        "a part that is missing": ("LogDamaged", drawn(batch(b"x" * 100, part_bytes=40))[1:]),
        "bytes of values that are not theirs": ("LogDamaged", [patched(entry, 39, 2)]),
    }
    for case, (error, found) in refused.items():
        yield {"case": case, "refused": error, "hex": [each.hex() for each in found]}


# -- records ---------------------------------------------------------------------------------------------------------

LOG = "6f1c0000000000000000000000000001"
AT = f"logs/6f/{LOG}"
MANIFEST = """{"quire":"log","format":1,"needs":[],"name":"orders/eu","id":"6f1c0000000000000000000000000001",\
"state":"open","edit":"9d02","recent":["9d02","77aa"],
 "settings":{"ensemble":3,"write":3,"ack":2,"digest":"CRC32C","roll_bytes":268435456,"publish":true,"lease_ms":0},
 "epoch":7,"owner":{"token":"51be","epoch":7,"address":"10.0.0.5:7100","host":"web3:4711","since":1700000000000},\
"transfer":{"to":"77","wait_ms":500},
 "begin":{"n":0,"index":5,"at":40},"next":453,"table":448,
 "chunks":[
  {"c":"000000000000-5f3a9c01","n":[0,447],"first":0,"at":0,"records":2240000,"bytes":229376000,"t":[1690,1699]}],
 "segments":[
  {"n":448,"ledger":4711,"epoch":6,"first":2240000,"at":229376000,"records":5000,"bytes":512000,"entries":79,\
"t":[1699,1700]},
  {"n":449,"ledger":4713,"epoch":6,"first":2245000,"at":229888000,"records":900,"bytes":92160,"entries":15,\
"t":[1701,1701],"txn":"0b6e","batch":17,"part":3},
  {"n":450,"ledger":4714,"epoch":6,"first":2245900,"at":229980160,"records":1,"bytes":3,"entries":1,"t":[1701,1701],\
"raw":true,"leased":true,"lost":true,"offload":{"id":"a","state":"complete","uri":"s3://b/c","at":1,"bookies":"kept"}},
  {"n":452,"ledger":4720,"epoch":7,"first":2245901,"at":229980163}],
 "doomed":[
  {"ledger":4699,"why":"empty","since":1700000000000}],
 "snapshots":[
  {"index":2200000,"ledger":4702,"bytes":81920,"entries":3,"crc":123456,"machine":"kv/1","epoch":6}],
 "compacted":{"horizon":2239999,"at":229376000,"ledgers":[{"ledger":4703,"first":7,"last":2239990,"records":10,\
"bytes":90,"entries":1}]}}"""
WITH_LOST = MANIFEST.replace(
    '"bytes":90,"entries":1}]}}', '"bytes":90,"entries":1}],"lost":[{"n":3,"first":70,"end":90}]}}'
).replace('"t":[1690,1699]}', '"t":[1690,1699],"lost":200}')
NEW = """{"quire":"log","format":1,"needs":[],"name":"ö","id":"6f1c0000000000000000000000000001","state":"open",\
"edit":"1","recent":["1"],
 "settings":{},
 "epoch":0,"owner":null,"transfer":null,
 "begin":{"n":0,"index":0,"at":7},"next":0,"table":null,
 "chunks":[],
 "segments":[],
 "doomed":[],
 "snapshots":[],
 "compacted":null}"""
TERMINATED = NEW.replace('"state":"open"', '"state":"terminated"').replace(
    '"compacted":null', '"compacted":null,"end":0'
)
MIRRORED = NEW.replace('"needs":[]', '"needs":["mirror"]').replace(
    '"compacted":null}',
    """"compacted":null,
 "origins":[
  {"cluster":"6c0d","log":"7a01","name":"ö","uri":"zk://east:2181/ledgers","end":9},
  {"cluster":"6c0d","log":"7a02","name":"ö","uri":"zk://east:2181/ledgers","start":9}]}""",
)
MOVING = NEW.replace(
    '"compacted":null',
    '"compacted":null,"moved":{"id":"00ff","cluster":"eu","uri":"zk://eu:2181/ledgers",'
    '"directory":"zk://home:2181/ledgers"}',
)
OF_LATER = (
    MANIFEST.replace('"lease_ms":0', '"lease_ms":0,"later":{"deep":[1]}')
    .replace('"since":1700000000000},"transfer"', '"since":1700000000000,"later":"a"},"transfer"')
    .replace('"wait_ms":500', '"wait_ms":500,"later":1')
    .replace('"at":40}', '"at":40,"later":null}')
    .replace('"t":[1690,1699]}', '"t":[1690,1699],"later":[]}')
    .replace('"part":3}', '"part":3,"later":{"a":{"b":1}}}')
    .replace('"bookies":"kept"}', '"bookies":"kept","later":2}')
    .replace('"why":"empty","since":1700000000000}', '"why":"empty","since":1700000000000,"later":true}')
    .replace('"epoch":6}],\n "compacted"', '"epoch":6,"later":0.5}],\n "compacted"')
    .replace('"bytes":90,"entries":1}]}', '"bytes":90,"entries":1,"later":3}],"later":"b"}')[:-1]
    + ',"later":[1,{"a":2}]}'
)
CHUNK = """{"quire":"chunk","format":1,"log":"6f1c0000000000000000000000000001","edit":"77aa",\
"at":1700000000000,"segments":[
 {"n":5,"ledger":11,"epoch":1,"first":50,"at":500,"records":10,"bytes":100,"entries":2,"t":[1,2]},
 {"n":7,"ledger":12,"epoch":2,"first":60,"at":600,"records":1,"bytes":0,"entries":1,"t":[2,9]}]}"""
CHUNK_OF_LATER = CHUNK.replace('"t":[2,9]}]}', '"t":[2,9],"later":{"a":1}}],"later":[2]}')
TXN = (
    '{"txn":"0b6e","run":"r3","claim":3,"past":["r2","r1"],"last":17,"receipt":{"first":10,"end":30,"n":[4,6]},'
    '"aborted":{"batch":18,"claim":3},"at":1700000000000,"edit":"9d02"}'
)
CURSOR = (
    '{"quire":"cursor","format":1,"name":"billing/eu","edit":"9d02","holder":"51be","ledger":4711,"checkpoint":17,'
    '"mark":2200000,"acks":"","doomed":[{"ledger":4702,"why":"checkpoint","since":1700}],"state":"open",'
    '"properties":{"team":"billing"},"touched":1700000000000}'
)
ADOPTED = f'{{"quire":"adopted","format":1,"log":"{LOG}","n":451,"first":2246000,"end":2246020,"edit":"9d02"}}'
RECORDS: list[tuple[str, str, str, str]] = [
    ("a log with everything", "manifest", AT, MANIFEST),
    ("a new log", "manifest", AT, NEW),
    ("a log that ended", "manifest", AT, TERMINATED),
    ("members that are not known, at any depth", "manifest", AT, OF_LATER),
    ("two segments", "chunk", f"{AT}/chunk/000000000005-5f3a9c01", CHUNK),
    ("members that are not known, at any depth", "chunk", f"{AT}/chunk/000000000005-5f3a9c01", CHUNK_OF_LATER),
    ("of orders/eu", "name", "names/d0/orders%2Feu", f'{{"quire":"name","format":1,"log":"{LOG}"}}'),
    ("a publisher", "txn", f"{AT}/txn/0b6e", TXN),
    (
        "a publisher of nothing",
        "txn",
        f"{AT}/txn/0b6e",
        '{"txn":"0b6e","run":"r1","claim":1,"past":[],"last":-1,"receipt":null,"aborted":null,"at":0,"edit":"1"}',
    ),
    (
        "members that are not known, at any depth",
        "txn",
        f"{AT}/txn/0b6e",
        TXN.replace('"n":[4,6]', '"later":1').replace('"claim":3}', '"claim":3,"later":{}}')[:-1] + ',"later":[1]}',
    ),
    (
        "of a part",
        "intent",
        f"{AT}/intents/0b6e/17-3-0-0011aabb",
        '{"run":"r3","claim":3,"ledgers":[11,12,13],"at":1700000000000}',
    ),
    (
        "members that are not known",
        "intent",
        f"{AT}/intents/0b6e/17-3-0-0011aabb",
        '{"run":"r3","claim":3,"ledgers":[],"at":0,"later":{"a":[1]}}',
    ),
    ("of an owner", "claim", f"{AT}/owner", '{"token":"51be","priority":1,"address":"h:1","host":"web3","since":17}'),
    ("off", "lease", f"{AT}/lease", '{"epoch":0,"token":"","state":"off","ms":0,"edit":"9d02"}'),
    ("held", "lease", f"{AT}/lease", '{"epoch":7,"token":"51be","state":"held","ms":4000,"edit":"9d02"}'),
    (
        "the first entry of a snapshot",
        "snapshot",
        "",
        f'{{"quire":"snapshot","format":1,"log":"{LOG}","index":2200000,"epoch":6,"machine":"kv/1"}}',
    ),
    ("the last entry of a snapshot", "end of a snapshot", "", '{"entries":3,"bytes":81920,"crc":123456}'),
    ("of billing/eu", "cursor's name", f"{AT}/cursors/billing%2Feu", '{"cursor":"c0ffee"}'),
    ("with a ledger of acknowledgements", "cursor", f"{AT}/cursor/c0ffee", CURSOR),
    (
        "that was closed with what little is acknowledged",
        "cursor",
        f"{AT}/cursor/c0ffee",
        '{"quire":"cursor","format":1,"name":"\u00f6","edit":"77aa","holder":"51be","ledger":null,"checkpoint":0,'
        '"mark":2200000,"acks":"wqOGAQMFAQ==","doomed":[],"state":"open","properties":{},"touched":0}',
    ),
    ("that is being deleted", "cursor", f"{AT}/cursor/c0ffee", CURSOR.replace('"state":"open"', '"state":"deleting"')),
    (
        "members that are not known, at any depth",
        "cursor",
        f"{AT}/cursor/c0ffee",
        CURSOR.replace('"since":1700}', '"since":1700,"later":[1]}')[:-1] + ',"later":{"a":1}}',
    ),
    ("a plain ledger that was taken in", "adopted ledger", "adopted/68/4712", ADOPTED),
    (
        "members that are not known",
        "adopted ledger",
        "adopted/68/4712",
        ADOPTED[:-1] + ',"later":{"a":[1]}}',
    ),
    ("a log whose compaction met a segment that was given up", "manifest", AT, WITH_LOST),
    ("a copy of a log of another cluster", "manifest", AT, MIRRORED),
    ("on its way to another cluster", "manifest", AT, MOVING),
]


def records() -> Iterator[Vector]:
    """The lines of `records.jsonl`."""
    for case, record, path, written in RECORDS:
        yield {
            "case": case,
            "record": record,
            "path": path,
            "means": json.loads(written),
            "again": True,
            "hex": written.encode().hex(),
        }
    for record, written in (
        ("manifest", MANIFEST),
        ("chunk", CHUNK),
        ("name", RECORDS[6][3]),
        ("snapshot", RECORDS[15][3]),
        ("cursor", CURSOR),
        ("adopted ledger", ADOPTED),
    ):
        for number, error in ((2, "UnknownFormat"), (0, "LogDamaged")):
            other = written.replace('"format":1', f'"format":{number}')
            yield {"case": f"format {number}", "record": record, "refused": error, "hex": other.encode().hex()}
    needy = MANIFEST.replace('"needs":[]', '"needs":["compaction/9"]')
    wrong = {
        ("a need that is not known", "manifest", "UnknownFormat"): needy,
        ("segments that do not follow each other", "manifest", "LogDamaged"): MANIFEST.replace("2245000", "2245001"),
        ("two open segments", "manifest", "LogDamaged"): MANIFEST.replace(
            '"records":1,"bytes":3,"entries":1,"t":[1701,1701],', ""
        ),
        ("a count that is text", "chunk", "LogDamaged"): CHUNK.replace('"records":10', '"records":"10"'),
        ("another kind of record", "chunk", "LogDamaged"): MANIFEST,
        ("half of it", "txn", "LogDamaged"): TXN[:50],
        ("ledgers that are text", "intent", "LogDamaged"): '{"run":"r","claim":1,"ledgers":["1"],"at":0}',
        ("a mark that is text", "cursor", "LogDamaged"): CURSOR.replace('"mark":2200000', '"mark":"2200000"'),
        ("a doomed ledger without a number", "cursor", "LogDamaged"): CURSOR.replace('"ledger":4702,', ""),
        ("no end", "adopted ledger", "LogDamaged"): ADOPTED.replace('"end":2246020,', ""),
        ("an id that is no text", "name", "LogDamaged"): '{"quire":"name","format":1,"log":5}',
    }
    for (case, record, error), written in wrong.items():
        yield {"case": case, "record": record, "refused": error, "hex": written.encode().hex()}


FILES = {"entries.jsonl": entries, "records.jsonl": records, "cursors.jsonl": cursors.lines}


def main() -> None:
    """Writes the files."""
    VECTORS.mkdir(exist_ok=True)
    for name, lines in FILES.items():
        VECTORS.joinpath(name).write_text("".join(f"{json.dumps(line)}\n" for line in lines()))


if __name__ == "__main__":
    main()
