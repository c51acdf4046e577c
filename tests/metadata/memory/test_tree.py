"""Records in memory under faults: lost answers, and requests that land after their sender gave up."""

from twisted.internet.task import Clock

from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.records import NoRecord, RecordChanged
from quire.protocol.errors import MetaStore
from tests.metadata.stored import init
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

LOST = Fault(error=MetaStore("no answer"), applied=True)
LATE = Fault(late=5.0)


def opened(clock):
    """Two handles on one cluster, and the faults of the first, which are used up one by one."""
    cluster = MemoryCluster("test")
    init(cluster)
    faults = []
    store = MemoryStore(clock, cluster, faults=lambda *_: faults.pop(0) if faults else None)
    store.records.sync()  # it knows then whose the records are
    return store, MemoryStore(clock, cluster), faults


def test_a_lost_answer_was_done():
    """The write failed for its caller, and is there; repeated with the same version it is refused."""

    async def story():
        store, other, faults = opened(Clock())
        version = await store.records.create("a", b"1")
        faults.append(LOST)
        await failing(store.records.write("a", b"2", version), MetaStore)
        assert (await other.records.read("a")).value == b"2"
        await failing(store.records.write("a", b"2", version), RecordChanged)

    run(story)


def test_a_late_write_lands_unless_its_version_moved():
    """It fails at once and takes effect later; after another write of that version it can't land any more."""

    async def story():
        clock = Clock()
        store, other, faults = opened(clock)
        version = await store.records.create("a", b"1")
        faults.append(LATE)
        await failing(store.records.write("a", b"late", version), MetaStore)
        assert (await other.records.read("a")).value == b"1"
        clock.advance(5)
        assert (await other.records.read("a")).value == b"late"
        version = (await other.records.read("a")).version
        faults.append(LATE)
        await failing(store.records.write("a", b"late again", version), MetaStore)
        await other.records.write("a", b"theirs", version)
        clock.advance(5)
        assert (await other.records.read("a")).value == b"theirs"

    run(story)


def test_a_late_create_lands_while_its_path_is_free():
    """It names no version: it lands even where the path was used meanwhile and is free again; a claim only while its
    session lives."""

    async def story():
        clock = Clock()
        store, other, faults = opened(clock)
        faults.append(LATE)
        await failing(store.records.create("a", b"late"), MetaStore)
        await other.records.delete("a", await other.records.create("a", b"theirs"))
        clock.advance(5)
        assert (await other.records.read("a")).value == b"late"
        faults.append(LATE)
        await failing(store.records.create("b", b"late", claim=True), MetaStore)
        store.expire_session()
        clock.advance(5)
        await failing(other.records.read("b"), NoRecord)

    run(story)
