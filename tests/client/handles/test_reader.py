"""Readers on a fake cluster: ranges, replicas, damage, repairs meanwhile."""

from itertools import chain

import pytest

from quire.client.handles.reader import Entries, Entry
from quire.metadata.memory.store import Fault
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import (
    ClientClosed,
    DigestMatch,
    MetaStore,
    NoSuchEntry,
    Read,
)
from tests.client.fakes.cluster import NO_ENTRY, FakeCluster
from tests.client.fakes.ledgers import collect, ensemble, payloads, written
from tests.metadata import stored

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")


def test_read_and_stream_of_a_closed_ledger():
    """Ranges and the whole ledger are returned complete and in order."""
    cluster = FakeCluster()
    client, writer = written(cluster, read_ahead_entries_max=7)
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert payloads(cluster.succeed(reader.read(3, 20))) == [b"%d" % entry for entry in range(3, 21)]
    entries = cluster.succeed(collect(reader.stream()))
    assert [entry.entry_id for entry in entries] == list(range(50))
    assert {entry.ledger_id for entry in entries} == {writer.id}
    assert len(cluster.succeed(collect(reader.stream(10, 19)))) == 10


def test_ranges_that_make_no_sense():
    """Negative and reversed ranges raise `ValueError`, a range past the last entry raises `Read`."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    for first, last in ((-1, 3), (5, 4)):
        assert isinstance(cluster.fails(reader.read(first, last)), ValueError)
    error = cluster.fails(reader.read(0, 50))
    assert isinstance(error, Read)
    assert "entry 50 is past 49" in str(error)
    assert isinstance(cluster.fails(collect(reader.stream(0, 50))), Read)


def test_where_an_entry_is_in_its_ledger():
    """The payload bytes before it, by its own header; also after the entries were moved; not past the end."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert [cluster.succeed(reader.offset_of(entry)) for entry in (0, 1, 10, 11, 49)] == [0, 1, 10, 12, 88]
    assert isinstance(cluster.fails(reader.offset_of(-1)), ValueError)
    assert isinstance(cluster.fails(reader.offset_of(50)), Read)
    (kept, *others) = ensemble(cluster, writer)
    for bookie in others:
        del cluster.bookies[bookie].ledgers[writer.id].entries[3]
    assert cluster.succeed(reader.offset_of(3)) == 3
    del cluster.bookies[kept].ledgers[writer.id].entries[3]
    assert isinstance(cluster.fails(reader.offset_of(3)), NoSuchEntry)


def test_a_reader_asks_for_less_at_a_time():
    """The bytes that it was asked to read ahead bound each delivery, from then on."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    lists = cluster.succeed(whole_lists(reader))
    reader.read_ahead(100)
    smaller = cluster.succeed(whole_lists(reader))
    assert list(chain(*smaller)) == list(chain(*lists))
    assert len(smaller) > 10 > len(lists)


async def whole_lists(reader):
    return [payloads(some) async for some in reader.stream()]


def test_d9_unconfirmed_reads_stop_at_the_end_of_a_closed_ledger():
    """Entries behind the last one are never returned, though bookies have them."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10)
    for bookie in cluster.bookies.values():
        bookie.ledgers[writer.id].entries[10] = DIGEST.entry(writer.id, 10, 9, 99, b"orphan")
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert len(cluster.succeed(reader.read_unconfirmed(5, 100))) == 5
    assert cluster.succeed(reader.read_unconfirmed(10, 100)) == []


def test_an_empty_ledger_streams_nothing():
    """Its last entry is -1 and its stream ends at once."""
    cluster = FakeCluster()
    client, writer = written(cluster, 0)
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert reader.last_entry_id == -1
    assert cluster.succeed(collect(reader.stream())) == []


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (4, 2, 2)])
def test_dead_bookies_are_read_around(shape):
    """With any single bookie down every entry is read."""
    cluster = FakeCluster(4)
    client, writer = written(cluster, shape=shape)
    reader = cluster.succeed(client.open_ledger(writer.id))
    for name in cluster.metadata(writer.id).last_fragment.bookies:
        cluster.kill(name)
        assert len(cluster.succeed(reader.read(0, 49))) == 50
        cluster.restart(name)


def test_an_entry_damaged_everywhere_fails_the_read():
    """The read raises `DigestMatch`, and the other entries stay readable."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    for bookie in cluster.bookies.values():
        bookie.ledgers[writer.id].entries[7] = b"damage" * 10
    reader = cluster.succeed(client.open_ledger(writer.id))
    error = cluster.fails(reader.read(0, 49))
    assert isinstance(error, DigestMatch)
    assert "sent bytes whose digest is wrong" in str(error)
    assert len(cluster.succeed(reader.read(8, 49))) == 42


def test_a_lost_entry_is_named():
    """The error names the range that no bookie has."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    for bookie in cluster.bookies.values():
        del bookie.ledgers[writer.id].entries[30]
    reader = cluster.succeed(client.open_ledger(writer.id))
    error = cluster.fails(reader.read(0, 49))
    assert isinstance(error, NoSuchEntry)
    assert "entries 30 to 49" in str(error)


def test_a_reader_finds_entries_that_were_moved_to_other_bookies():
    """
    A repair copied a closed ledger to others, and those that it was opened with have forgotten it: no entry is said to
    be missing.
    """
    cluster = FakeCluster(6)
    client, writer = written(cluster)
    reader, second = (cluster.succeed(client.open_ledger(writer.id)) for _ in range(2))
    before = cluster.metadata(writer.id).last_fragment.bookies
    after = tuple(name for name in cluster.bookies if name not in before)
    for old, new in zip(before, after, strict=True):
        cluster.bookies[new].ledgers[writer.id] = cluster.bookies[old].ledgers.pop(writer.id)
    current = stored.Ledgers(cluster.shared)[writer.id]
    cluster.succeed(cluster.store.write_ledger(writer.id, current.value.replace_bookies(0, after), current.version))
    assert payloads(cluster.succeed(reader.read(1, 4))) == [b"1", b"2", b"3", b"4"]
    assert cluster.succeed(second.offset_of(11)) == 12


def test_an_unconfirmed_read_that_finds_the_ledger_closed_stops_at_its_end():
    """When the ledger is closed meanwhile, entries up to the close are returned."""
    cluster = FakeCluster(3)
    client, writer = written(cluster, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    cluster.store_fault = lambda name, _arguments: Fault(before=5.0) if name == "read_ledger" else None
    reading = cluster.outcome(reader.read_unconfirmed(40, 60))
    cluster.succeed(writer.close())
    cluster.spin(30)
    assert [entry.entry_id for entry in reading.result()] == list(range(40, 50))


def test_an_entry_that_is_nowhere_fails_also_when_the_store_can_not_be_asked():
    """The error is that of the entry, not that of the store."""
    cluster = FakeCluster(3)
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    for bookie in cluster.bookies.values():
        del bookie.ledgers[writer.id].entries[30]
    cluster.store_fault = lambda name, _arguments: Fault(error=MetaStore("down")) if name == "read_ledger" else None
    assert isinstance(cluster.fails(reader.read(0, 49)), NoSuchEntry)


def test_a_reader_that_is_closed_fails_what_is_under_way():
    """Reads in progress and later ones raise `ClientClosed`."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    cluster.judge = lambda _request: "hold"
    reading = cluster.outcome(reader.read(0, 49))
    cluster.succeed(reader.close())
    assert isinstance(reading.error, ClientClosed)
    assert isinstance(cluster.fails(reader.read(0, 1)), ClientClosed)
    assert isinstance(cluster.fails(collect(reader.stream())), ClientClosed)


def test_ids_that_no_frame_holds_are_refused_at_once():
    """Ids beyond 63 bits raise `ValueError` and other types `TypeError`; the largest id passes."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    for reading in (reader.read, reader.read_unconfirmed):
        for first, last in ((-1, 0), (1, 0), (0, 1 << 63), (1 << 63, 1 << 63), (1 << 200, 1 << 200)):
            assert isinstance(cluster.fails(reading(first, last)), ValueError)
        for first, last in ((0.5, 1.5), ("0", "1"), (None, None)):
            assert isinstance(cluster.fails(reading(first, last)), TypeError)
    assert isinstance(cluster.fails(reader.read((1 << 63) - 1, (1 << 63) - 1)), Read)
    assert cluster.fails(reader.read_unconfirmed((1 << 63) - 1, (1 << 63) - 1)).code == NO_ENTRY
    assert len(cluster.succeed(reader.read_unconfirmed(0, 4))) == 5


def test_what_another_reader_saw_as_confirmed():
    """May be read here, too, though no bookie says so; the end of a closed ledger stays its end."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False, explicit_lac_interval_ms=0)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert isinstance(cluster.fails(reader.read(0, 9)), Read)
    reader.learn_confirmed(9)
    assert (reader.last_entry_id, reader.confirmed_entry_id) == (9, 9)
    assert payloads(cluster.succeed(reader.read(0, 9))) == [b"%d" % entry for entry in range(10)]
    cluster.succeed(writer.close())
    closed = cluster.succeed(client.open_ledger(writer.id))
    closed.learn_confirmed(50)
    assert closed.last_entry_id == 9


def test_entries_are_made_when_they_are_asked_for_and_look_like_a_list():
    """By index, slice, iteration, sum and comparison; payloads and ids stay together."""
    entries = Entries(7, 5, [b"a", b"b", b"c"])
    whole = [Entry(7, 5, b"a"), Entry(7, 6, b"b"), Entry(7, 7, b"c")]
    assert (len(entries), list(entries), repr(entries)) == (3, whole, repr(whole))
    assert entries == whole == entries
    assert entries != whole[:2]
    assert (entries[0], entries[-1]) == (whole[0], whole[-1])
    assert entries[1:] == whole[1:]
    assert entries[::-2] == whole[::-2]
    more = whole[:1]
    assert entries + more == whole + more
    assert more + entries == more + whole
    with pytest.raises(IndexError):
        entries[3]
