"""
What is fuzzed of message stores: records, the files of a broker's directory, its documents, progress.  The rules are
those of `targets`.
"""

from quire.messages import progress
from quire.messages.core import layout, queues, record
from quire.messages.rocketmq import documents
from quire.messages.rocketmq.importing import cut
from quire.messages.rocketmq.plan import make_plan
from quire.messages.rocketmq.source import Wanted
from quire.protocol.message_errors import ImportRefused, NotAMessage, StoreDamaged
from tests.fuzz.registry import lengths, refused_as, target
from tests.messages.rocketmq.memory_tree import MemoryTree

# SPDX-License-Identifier: Apache-2.0

FILE_BYTES = 4096
ROOTS = ("/a", "/b")
KINDS = ("commitlog", "dledger-n0/data", "consumequeue/T/0", "batchconsumequeue/T/0")


@target("messages.core.record", "messages.core.record.parse_properties", "messages.core.layout")
def message_record(data: bytes) -> None:
    """A record is packed to its bytes again; an entry has its record."""
    with refused_as(StoreDamaged):
        at, inner = layout.record_of(data)
        assert data[at:] == inner
    with refused_as(StoreDamaged):
        layout.rule_of(data)
    if len(data) >= layout.FILLER_BYTES:
        layout.filler_at("plain", data, 0)
        layout.filler_at("dledger", data, 0)
    with refused_as(NotAMessage):
        found = record.unpack(data)
        assert found.raw == data[: found.size]
        found.positions()
        found.tags_code(found.properties)
        found.keys(found.properties)
        host, offset = record.parse_id(found.message_id)
        assert (host, offset) == (found.store_host, found.offset)


@target("messages.core.record.parse_id")
def message_id(data: bytes) -> None:
    text = data.decode("latin-1")
    with refused_as(NotAMessage):
        assert record.message_id(*record.parse_id(text)) == text.upper()


@target("messages.core.queues")
def queue_table(data: bytes) -> None:
    table = queues.QueueTable()
    with refused_as(StoreDamaged):
        table.load([data])
        table.load(table.save())


@target(
    "messages.core.scan",
    "messages.rocketmq.source",
    "messages.rocketmq.plan",
    "messages.rocketmq.queue_files",
    "messages.rocketmq.replicas",
    "messages.rocketmq.importing",
)
def rocketmq_directory(data: bytes) -> None:
    """Of files, each behind a byte that says where it is: what is planned can be cut, and each value is a record."""
    files = {f"{root}/{KINDS[0]}/{0:020d}": bytes(FILE_BYTES) for root in ROOTS[:1]}
    checkpoint = b"committedIndex="
    for piece in lengths(data):
        where, content = piece[:1] or b"\0", piece[1:]
        root, kind, number = ROOTS[where[0] & 1], KINDS[where[0] >> 1 & 3], where[0] >> 3 & 3
        if where[0] >> 5 == 7:
            files[f"{root}/dledger-n0/checkpoint"] = checkpoint + content
        elif where[0] >> 5 == 6:
            files[f"{root}/config/consumerOffset.json"] = content
        else:
            size = FILE_BYTES if kind in KINDS[:2] else 2000
            files[f"{root}/{kind}/{number * size:020d}"] = content[:size].ljust(size, b"\0")
    roots = tuple(root for root in ROOTS if any(name.startswith(f"{root}/") for name in files))
    tree = MemoryTree(files)
    for wanted in (Wanted(roots, single=True, accept_tail=True), Wanted(roots[:1], group_size=1)):
        with refused_as(ImportRefused):
            plan = make_plan(tree, wanted)
            count = 0
            for file in plan.files:
                whole = tree.read(file.file.path, 0, file.end - file.file.begin)
                place = file.file.begin
                for value in cut(whole, file.file, place):
                    at, inner = layout.record_of(value)
                    found = record.unpack(inner)
                    assert (found.offset, found.size) == (place + at, len(inner))
                    place += len(value)
                    count += 1
                assert place == file.end
            assert count == plan.records
            plan.as_json()


@target("messages.rocketmq.documents")
def broker_document(data: bytes) -> None:
    with refused_as(ValueError):
        value = documents.read(data)
        assert repr(documents.read(documents.write(value))) == repr(value)
        documents.topics_of(value)
        found = documents.offsets_of(value)
        assert documents.offsets_of(documents.with_offsets(value, found)) == found


@target("messages.progress", "messages.progress.DocumentHead.decode")
def progress_records(data: bytes) -> None:
    """Keys and values by turns; a document is what its head says, or damaged."""
    found = progress.Progress(with_documents=True)
    pieces = lengths(data)
    for key, value in zip(pieces[::2], pieces[1::2], strict=False):
        with refused_as(StoreDamaged):
            found.apply(key, value)
    for name, size in found.documents().items():
        with refused_as(StoreDamaged):
            if size < 64 << 20:
                assert sum(map(len, found.document(name))) == size
