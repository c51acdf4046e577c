"""Notes beside the queue: what is written is read, and only what was read is dropped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.replication.autorecovery.notes import FOUND, Note, Notes, path_of
from tests.client.fakes.cluster import FakeCluster
from tests.metadata.stored import records

# SPDX-License-Identifier: Apache-2.0


def note(ledger: int, outlook: str = "GONE", reason: str = "why") -> Note:
    return Note(ledger, outlook, reason, 2, 1000, 2000, "host")


def test_what_is_written_is_read() -> None:
    """In place of what was noted before; a long reason is cut."""
    cluster = FakeCluster(3)
    notes = Notes(cluster.store.records)
    assert cluster.succeed(notes.read_one(7)) is None
    for each in (note(7), note(7, FOUND, "x" * 5000)):
        cluster.succeed(notes.write(each))
        found = cluster.succeed(notes.read_one(7))
        assert found._replace(version=-1, reason="") == each._replace(reason="")
        assert found.reason == each.reason[:1000]
    assert found.is_of_a_scrub
    assert list(records(cluster.shared)[path_of(7)].data)
    assert b"version" not in records(cluster.shared)[path_of(7)].data


def test_what_was_noted_since_stays() -> None:
    """Only the version that was read is dropped; one that is gone is no error."""
    cluster = FakeCluster(3)
    notes = Notes(cluster.store.records)
    cluster.succeed(notes.write(note(7)))
    old = cluster.succeed(notes.read_one(7))
    cluster.succeed(notes.write(note(7, FOUND)))
    cluster.succeed(notes.drop(old))
    new = cluster.succeed(notes.read_one(7))
    assert new.is_of_a_scrub
    cluster.succeed(notes.drop(new))
    cluster.succeed(notes.drop(new))
    assert cluster.succeed(notes.read_one(7)) is None


def test_only_what_was_noted_before_is_replaced() -> None:
    """Nothing where there was nothing; one that is gone meanwhile is no error."""
    cluster = FakeCluster(3)
    notes = Notes(cluster.store.records)
    cluster.succeed(notes.replace(None, note(7)))
    old = cluster.succeed(notes.read_one(7))
    cluster.succeed(notes.replace(None, note(7, "FAILED")))
    assert cluster.succeed(notes.read_one(7)) == old
    cluster.succeed(notes.replace(old, note(7, "FAILED")))
    assert cluster.succeed(notes.read_one(7)).outlook == "FAILED"
    cluster.succeed(notes.replace(old, note(7)))
    now = cluster.succeed(notes.read_one(7))
    assert now.outlook == "FAILED"
    cluster.succeed(notes.drop(now))
    cluster.succeed(notes.replace(now, note(7)))
    assert cluster.succeed(notes.read_one(7)) is None


def test_all_are_listed() -> None:
    """Also those in one bucket; names of others are left alone."""
    cluster = FakeCluster(3)
    notes = Notes(cluster.store.records)
    ids = [*range(300), 256 * 7 + 3, (1 << 62) + 5]

    async def listed() -> list[int]:
        return [ledger async for ledger in notes.ledgers()]

    assert cluster.succeed(listed()) == []
    for ledger in ids:
        cluster.succeed(notes.write(note(ledger)))
    for other in ("other", "9" * 200, "9" * 19, str((1 << 63) - 1)):
        cluster.succeed(cluster.store.records.create(f"autorecovery/notes/00/{other}", b""))
    assert sorted(cluster.succeed(listed())) == sorted(ids)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"outlook": 1}', b"\xff"])
def test_what_cant_be_read_says_so(data: bytes) -> None:
    """It holds nobody up: its time is over."""
    found = Note.decode(7, data, 3)
    assert (found.outlook, found.due_ms, found.version) == ("FAILED", 0, 3)
    assert "can't be read" in found.reason


@given(st.binary(max_size=60))
def test_any_bytes_are_a_note(data: bytes) -> None:
    """Whatever lies there."""
    assert Note.decode(1, data).ledger == 1
