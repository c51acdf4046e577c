"""
The formats of a log against the vectors of `tests/vectors/log/`, which `tests/log/fakes/drawn.py` draws a second time.
"""

import json

import pytest

from quire.log.core import manifest, publishing
from quire.log.core.batch import ProducerRun, Records, encode_body
from quire.log.core.frame import (
    HEADER_BYTES,
    Assembler,
    Compression,
    Kind,
    TableRow,
    decode_table,
    encode_table,
    pack_entries,
    unpack_header,
)
from quire.log.core.machine import snapshots
from quire.log.core.streams.cursors import CursorValue
from quire.log.core.values import Value, to_json
from quire.log.owner.appending.encoder import decompress
from quire.log.owner.claims import token_of
from quire.log.store import paths
from quire.metadata.store import Versioned
from quire.protocol import log_errors
from tests.log.fakes import drawn

# SPDX-License-Identifier: Apache-2.0


def vectors(name):
    """The lines of a file."""
    return [json.loads(line) for line in drawn.VECTORS.joinpath(name).read_text().splitlines()]


ENTRIES, RECORDS = vectors("entries.jsonl"), vectors("records.jsonl")


def case(vector):
    """What a vector is of."""
    return f"{vector.get('record', 'entries')}: {vector['case']}"


def meant(found):
    """Those that say something."""
    return [vector for vector in found if "means" in vector]


def refused(found):
    """Those that are refused."""
    return [vector for vector in found if "refused" in vector]


@pytest.mark.parametrize("name", drawn.FILES)
def test_the_files_are_what_is_drawn(name):
    """No vector was changed by hand, or forgotten: `python -m tests.log.fakes.drawn` writes them."""
    assert vectors(name) == json.loads(json.dumps(list(drawn.FILES[name]())))


# -- entries ---------------------------------------------------------------------------------------------------------


def entries_of(vector):
    """Its bytes."""
    return [bytes.fromhex(each) for each in vector["hex"]]


def optional(found, change):
    """A column, or None where it is not there."""
    return None if found is None else [change(each) for each in found]


def from_hex(found):
    """Bytes, or None."""
    return None if found is None else bytes.fromhex(found)


def to_hex(found):
    """Of bytes, or None."""
    return None if found is None else found.hex()


def records_of(said):
    """As an owner appends them."""
    return Records(
        [from_hex(each) for each in said["values"]],
        optional(said.get("keys"), from_hex),
        said.get("times"),
        optional(said.get("headers"), lambda each: [(name, from_hex(value)) for name, value in each]),
        [ProducerRun(*run) for run in said.get("producers", ())],
        said.get("skips"),
        said.get("indexes"),
    )


def written(said):
    """The entries that the package makes of it."""
    place = {"ordinal": said.get("ordinal", 0), "offset": said.get("offset", 0), "stamp": said["stamp"]}
    place["table"] = said.get("table", 0)
    if said["kind"] == "barrier":
        return pack_entries(Kind.BARRIER, b"", **place)
    if said["kind"] == "table":
        rows = {name: TableRow(*row) for name, row in said["rows"].items()}
        return pack_entries(Kind.TABLE, encode_table(rows), **place)
    records = records_of(said)
    place |= {"records": len(records.values), "value_bytes": records.size}
    if "part_bytes" in said:
        place["part_bytes"] = said["part_bytes"]
    if "deflated" in said:
        place |= {"compression": Compression.ZLIB, "compress": lambda _body: from_hex(said["deflated"])}
    return pack_entries(Kind.BATCH, encode_body(records), **place)


def read(entries):
    """What the package reads in entries of one ledger, as the JSON of the vectors says it."""
    first = unpack_header(entries[0])
    assembler = Assembler(decompress, first.ordinal, first.offset)
    found = []
    begun = None  # the header of a group's first part
    for entry in entries:
        header = unpack_header(entry)
        batch = assembler.feed(entry)
        said = {"stamp": header.stamp}
        said |= {name: getattr(header, name) for name in ("ordinal", "offset", "table") if getattr(header, name)}
        if header.kind == Kind.TABLE:
            rows = {name: list(row) for name, row in decode_table(entry[HEADER_BYTES:]).items()}
            found.append({"kind": "table", "rows": rows, **said})
        elif header.kind == Kind.BARRIER:
            found.append({"kind": "barrier", **said})
        elif header.kind == Kind.PART and batch is None:
            begun = begun or (said, len(entry) - HEADER_BYTES - 16)
        elif batch is not None:
            columns = batch_said(batch)
            if header.compression == Compression.ZLIB:
                start = HEADER_BYTES + 16 if begun else HEADER_BYTES
                columns["deflated"] = b"".join(each[start:] for each in entries).hex()
            if begun is not None:
                said, columns["part_bytes"] = begun
                begun = None
            assert (batch.first, batch.offset, batch.stamp) == (header.ordinal, header.offset, header.stamp)
            found.append({"kind": "batch", **said, **columns})
    return found


def batch_said(batch):
    """The columns of a batch, as the JSON of the vectors has them."""
    said = {
        "values": [each.hex() for each in batch.values],
        "keys": optional(batch.keys, to_hex),
        "times": batch.times,
        "headers": optional(batch.headers, lambda each: [[name, value.hex()] for name, value in each]),
        "producers": [list(run) for run in batch.producers] or None,
        "skips": optional(batch.skips, int),
        "indexes": optional(batch.indexes, int),
    }
    return {name: column for name, column in said.items() if column is not None}


@pytest.mark.parametrize("vector", meant(ENTRIES), ids=case)
def test_entries_say_what_the_vector_says(vector):
    """Each column, count and place; what a later version added below the limits is passed over."""
    assert read(entries_of(vector)) == vector["means"]


@pytest.mark.parametrize("vector", [each for each in ENTRIES if each.get("again")], ids=case)
def test_entries_are_the_same_bytes_again(vector):
    """Made of what they mean: batches with each column, large ones in parts, tables, barriers, compressed ones."""
    assert [entry for said in vector["means"] for entry in written(said)] == entries_of(vector)


@pytest.mark.parametrize("vector", refused(ENTRIES), ids=case)
def test_entries_that_are_refused(vector):
    """What a newer version wrote is told apart from damage."""
    with pytest.raises(getattr(log_errors, vector["refused"])):
        read(entries_of(vector))


def test_there_are_vectors_of_every_kind_and_column():
    """The vectors are all there, so the tests above can't pass by being empty."""
    groups = [said for vector in meant(ENTRIES) for said in vector["means"]]
    assert {said["kind"] for said in groups} == {"batch", "table", "barrier"}
    assert set(drawn.COLUMNS) | {"part_bytes", "deflated"} <= {name for said in groups for name in said}
    assert len(refused(ENTRIES)) > 10
    assert drawn.OF_LATER.count('"later"') == 12  # each object of a manifest has one
    assert {vector["record"] for vector in meant(RECORDS)} == {*DECODED, *AS_JSON, "claim"}


# -- records ---------------------------------------------------------------------------------------------------------

DECODED = {
    "manifest": manifest.Manifest,
    "chunk": manifest.Chunk,
    "txn": publishing.Txn,
    "intent": publishing.Intent,
    "cursor": CursorValue,
    "adopted ledger": manifest.Adopted,
    "snapshot": snapshots.Head,
    "end of a snapshot": snapshots.End,
}
AS_JSON = {"name", "cursor's name", "lease"}
WITH_FORMAT = {"adopted ledger", "snapshot"}  # whose decoder takes it out


def plain(value):
    """A value as JSON has it, without its members that are as by default."""
    if isinstance(value, Value):
        return {name: plain(member) for name, member in value.members().items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def decoded(vector):
    """The members that the package finds."""
    data, record = bytes.fromhex(vector["hex"]), vector["record"]
    if record in DECODED:
        return plain(DECODED[record].decode(data))
    if record == "name":
        return {"log": manifest.decode_name(data)}
    if record == "claim":
        return {"token": token_of(Versioned(data, 0))}
    return json.loads(data)


def encoded(vector):
    """The bytes that the package makes of the meaning."""
    means, record = vector["means"], vector["record"]
    if record == "intent":
        known = {name: means[name] for name in ("run", "claim", "at")}
        extra = {"extra": {"later": means["later"]}} if "later" in means else {}
        return publishing.Intent(ledgers=tuple(means["ledgers"]), **known, **extra).encode()
    if record in DECODED:
        head = {"quire", "format"} if record in WITH_FORMAT else {"quire"}
        return DECODED[record].parse({name: member for name, member in means.items() if name not in head}).encode()
    if record == "name":
        return manifest.encode_name(means["log"])
    return to_json(means).encode()


@pytest.mark.parametrize("vector", meant(RECORDS), ids=case)
def test_records_say_what_the_vector_says(vector):
    """Each member; those that are not known, at any depth, too."""
    found, means = decoded(vector), vector["means"]
    if vector["record"] in {"name", "claim"}:
        means = {name: means[name] for name in found}
    elif vector["record"] in {"manifest", "chunk", "cursor"}:
        found = {"quire": means["quire"], **found}
    elif vector["record"] in WITH_FORMAT:
        found = {"quire": means["quire"], "format": means["format"], **found}
    assert found == means


@pytest.mark.parametrize("vector", meant(RECORDS), ids=case)
def test_records_are_the_same_bytes_again(vector):
    """In their order of members and lines; what is not known survives."""
    assert encoded(vector) == bytes.fromhex(vector["hex"])


@pytest.mark.parametrize("vector", refused(RECORDS), ids=case)
def test_records_that_are_refused(vector):
    """A higher format and an unknown need are a newer version's, the rest is damage."""
    with pytest.raises(getattr(log_errors, vector["refused"])):
        decoded(vector)


def test_where_records_are():
    """The paths of names, logs, chunks and adopted ledgers."""
    at = {vector["record"]: vector["path"] for vector in meant(RECORDS)}
    assert at["name"] == paths.name_path("orders/eu")
    assert at["manifest"] == paths.log_path(drawn.LOG)
    assert at["chunk"] == paths.chunk_path(drawn.LOG, "000000000005-5f3a9c01")
    assert at["adopted ledger"] == paths.adopted_path(4712)
    assert str(publishing.IntentName.parse(at["intent"].rpartition("/")[2])) == "17-3-0-0011aabb"
