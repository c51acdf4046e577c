"""The one loop that changes a ledger's metadata: conflicts, intents that went stale, errors."""

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred

from quire.client.handles.ledger_record import LedgerRecord, digest_of
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.memory.cluster import Fault
from quire.metadata.store import Versioned
from quire.protocol.digest import DigestType
from quire.protocol.errors import MetadataSerialization, MetaStore, NoSuchLedgerExistsOnMetadataServer
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored


def a_ledger():
    cluster = FakeCluster(6)
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    return cluster, LedgerRecord(cluster.store, ledger, stored.Ledgers(cluster.shared)[ledger])


def edit(cluster, record, needs, change):
    return cluster.succeed(Deferred.fromCoroutine(record.edit(needs, change)))


def is_open(metadata):
    return metadata.state is LedgerState.OPEN


def test_an_edit_is_stored_and_known():
    """The record holds the new metadata with the version that the store gave."""
    cluster, record = a_ledger()
    after = edit(cluster, record, is_open, lambda metadata: metadata.recovering())
    assert after.state is LedgerState.IN_RECOVERY
    assert record.current == stored.Ledgers(cluster.shared)[record.ledger]


def test_what_is_not_needed_is_not_written():
    """An edit whose condition is false returns the current metadata without a write."""
    cluster, record = a_ledger()
    assert (
        edit(cluster, record, lambda _metadata: False, lambda metadata: metadata.recovering()).state is LedgerState.OPEN
    )
    assert cluster.writes == []


def test_a_conflict_is_merged_when_the_edit_is_still_wanted():
    """The edit is applied to what another writer stored meanwhile, and both changes remain."""
    cluster, record = a_ledger()
    current = stored.Ledgers(cluster.shared)[record.ledger]
    cluster.succeed(
        cluster.store.write_ledger(record.ledger, current.value.replace_bookies(0, ["b0", "b1", "b5"]), current.version)
    )
    after = edit(cluster, record, is_open, lambda metadata: metadata.with_ensemble(7, ["b0", "b1", "b3"]))
    assert [fragment.bookies for fragment in after.fragments] == [("b0", "b1", "b5"), ("b0", "b1", "b3")]


def test_a_conflict_makes_a_stale_intent_stop():
    """S17: another client closed it meanwhile; the edit sees that and writes nothing."""
    cluster, record = a_ledger()
    current = stored.Ledgers(cluster.shared)[record.ledger]
    cluster.succeed(cluster.store.write_ledger(record.ledger, current.value.closed(3, 30), current.version))
    after = edit(cluster, record, is_open, lambda metadata: metadata.with_ensemble(7, ["b0", "b1", "b3"]))
    assert after.is_closed
    assert record.metadata.last_entry == 3


def test_a_success_whose_answer_was_lost_is_not_done_twice():
    """A version conflict with the record's own write counts as success."""
    cluster, record = a_ledger()
    lost = {"once": True}

    def fault(name, _given):
        if name == "write_ledger" and lost.pop("once", False):
            from quire.protocol.errors import MetadataVersion

            return Fault(error=MetadataVersion("the retry met our own write"), applied=True)
        return None

    cluster.store_fault = fault
    edit(cluster, record, is_open, lambda metadata: metadata.recovering())
    assert len(cluster.writes) == 1


def test_errors_pass_through():
    """Errors of the store and a deleted ledger are raised to the caller."""
    cluster, record = a_ledger()
    cluster.store_fault = lambda name, _given: Fault(error=MetaStore("down")) if name == "write_ledger" else None
    with pytest.raises(MetaStore):
        edit(cluster, record, is_open, lambda metadata: metadata.recovering())
    cluster.store_fault = lambda _name, _given: None
    cluster.succeed(cluster.store.delete_ledger(record.ledger))
    with pytest.raises(NoSuchLedgerExistsOnMetadataServer):
        edit(cluster, record, is_open, lambda metadata: metadata.recovering())


@pytest.mark.parametrize(
    "other",
    [{"ctime_ms": 5}, {"password": b"another"}, {"ack_quorum": 3}, {"digest": DigestType.MAC}],
    ids=lambda other: next(iter(other)),
)
def test_another_ledger_of_the_same_id_is_not_changed(other):
    """It was made after the one that this record knows was deleted: its versions begin again, its news are its own."""
    cluster = FakeCluster(6)
    before = LedgerMetadata.new(3, 3, 2, ["b0", "b1", "b2"], digest=DigestType.CRC32C, password=b"", ctime_ms=4)
    record = LedgerRecord(cluster.store, 7, cluster.succeed(cluster.store.create_ledger(7, before)))
    edit(cluster, record, is_open, lambda metadata: metadata.with_ensemble(7, ["b0", "b1", "b3"]))
    cluster.succeed(cluster.store.delete_ledger(7))
    made = cluster.succeed(cluster.store.create_ledger(7, replace(before, **other)))
    known = record.current
    with pytest.raises(NoSuchLedgerExistsOnMetadataServer, match="another one was made"):
        edit(cluster, record, is_open, lambda metadata: metadata.closed(9, 90))
    assert stored.Ledgers(cluster.shared)[7] == made
    assert not record.learn(Versioned(made.value, known.version + 1))
    assert record.current == known


def test_older_news_are_not_taken():
    """Only metadata with a higher version replaces what the record holds."""
    _cluster, record = a_ledger()
    current = record.current
    assert not record.learn(Versioned(current.value.recovering(), current.version))
    assert record.learn(Versioned(current.value.recovering(), current.version + 1))
    assert record.metadata.state is LedgerState.IN_RECOVERY


def test_metadata_without_a_digest_is_said_to_be_uncheckable():
    """The error names the old format of the metadata."""
    metadata = replace(LedgerMetadata.new(1, 1, 1, ["b0"]), digest=None, password=None, format_version=1)
    with pytest.raises(MetadataSerialization, match="format 1"):
        digest_of(3, metadata)
