"""Who is asked for the entries of a ledger: bookies, or the files of a copy."""

from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.client.handles.copies import MARK, RESTORING, CopyPool, is_on_its_way, located
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import OK, BookieHandleNotAvailable, NoSuchLedgerExistsOnMetadataServer, Read
from tests.client.fakes.cluster import FakeCluster
from tests.client.fakes.ledgers import payloads

# SPDX-License-Identifier: Apache-2.0

CLOSED = LedgerMetadata.new(1, 1, 1, ["a:1"]).closed(9, 100)


class Copy:
    """
    Of these entries, else of such that are their number's text; `error`: why none can be read; `files`: that were asked
    for.
    """

    metadata = CLOSED
    error: Exception | None = None

    def __init__(self, entries: list[bytes] | None = None) -> None:
        self.files: list[str] = []
        self._entries = entries

    async def bodies(self, file: str, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        self.files.append(file)
        if self.error is not None:
            raise self.error
        if self._entries is not None:
            return self._entries[first : first + count_max]
        return [f"{file} {entry}".encode() for entry in range(first, first + count_max)]


class Copies:
    def __init__(self, copy: Copy | None) -> None:
        self._copy = copy

    def find(self, ledger: int) -> Deferred[Copy | None]:
        return succeed(self._copy)

    def ledgers(self) -> Deferred[list[int]]:
        return succeed([])


class Store:
    def __init__(self, metadata: LedgerMetadata | None) -> None:
        self._metadata = metadata

    async def read_ledger(self, ledger: int) -> Versioned[LedgerMetadata]:
        if self._metadata is None:
            raise NoSuchLedgerExistsOnMetadataServer(f"no ledger {ledger}")
        return Versioned(self._metadata, 7)


@pytest.mark.parametrize("mark", [b"", b"7", b"[]", b"\xff", b"[" * 100_000, b'{"bookies": NaN}'])
def test_a_mark_that_is_none_of_ours_says_nothing(mark: bytes) -> None:
    """Who creates a ledger writes what he likes there: whoever looks at all ledgers goes on."""
    assert not is_on_its_way(CLOSED.with_custom(MARK, mark))


def test_a_mark_of_deleted_bookies_says_that_the_ledger_is_on_its_way() -> None:
    """It is in files, and they are about to lose it."""
    assert is_on_its_way(CLOSED.with_custom(MARK, b'{"bookies": "deleted"}'))
    assert not is_on_its_way(CLOSED.with_custom(MARK, b'{"bookies": "kept"}'))


def asked(metadata: LedgerMetadata | None, copies: Copies | None) -> tuple[int, Any]:
    """The version that was found, and the pool."""
    bookies: Any = "bookies"
    store: Any = Store(metadata)
    found: list[tuple[int, Any]] = []

    async def story() -> None:
        versioned, pool = await located(store, bookies, copies, 1)
        found.append((versioned.version, pool))

    errors: list[BaseException] = []
    Deferred.fromCoroutine(story()).addErrback(lambda failure: errors.append(failure.value))
    if errors:
        raise errors[0]
    return found[0]


def test_bookies_first() -> None:
    """While the store names the ledger; a copy when it doesn't, or when the ledger is just being brought back."""
    coming = replace(CLOSED, custom={RESTORING: b"true"})
    assert asked(CLOSED, Copies(Copy())) == (7, "bookies")
    assert asked(coming, None) == (7, "bookies")
    assert asked(coming, Copies(None)) == (7, "bookies")
    for metadata in (coming, None):
        version, pool = asked(metadata, Copies(Copy()))
        assert version == -1
        assert isinstance(pool, CopyPool)


@pytest.mark.parametrize("other", [{"ctime_ms": 7}, {"last_entry": 8}, {"length": 99}])
def test_a_copy_of_another_life_of_the_number_is_not_read(other: dict[str, Any]) -> None:
    """While the ledger is brought back from elsewhere: its bookies may lack entries, and never give other ones."""
    coming = replace(CLOSED, custom={RESTORING: b"true"}, **other)
    assert asked(coming, Copies(Copy())) == (7, "bookies")


def test_a_reader_of_a_copy_goes_on_after_an_outage() -> None:
    """While the ledger is brought back the store names bookies, which are not asked in the copy's place."""
    cluster, digest = FakeCluster(), Digest(DigestType.CRC32C, b"")
    stored = LedgerMetadata.new(3, 3, 2, ["b0", "b1", "b2"], ctime_ms=5, custom={RESTORING: b"true"}).closed(2, 3)
    cluster.succeed(cluster.store.create_ledger(7, stored))
    copy = Copy([digest.entry(7, entry, entry - 1, entry + 1, b"x") for entry in range(3)])
    copy.metadata = LedgerMetadata.new(1, 1, 1, ["f"], ctime_ms=5).closed(2, 3)
    client = cluster.client()
    client.copies = Copies(copy)
    reader = cluster.succeed(client.open_ledger(7))
    copy.error = OSError("the store of files is busy")
    assert isinstance(cluster.fails(reader.read(0, 2)), BookieHandleNotAvailable)
    assert cluster.succeed(reader.read_horizon()) == (2, 2)
    copy.error = None
    assert payloads(cluster.succeed(reader.read(0, 2))) == [b"x"] * 3
    assert set(copy.files) == {"f"}


def test_neither_ledger_nor_copy() -> None:
    """Is the store's own error."""
    for copies in (None, Copies(None)):
        with pytest.raises(NoSuchLedgerExistsOnMetadataServer, match="no ledger 1"):
            asked(None, copies)


def test_a_copy_answers_as_bookies_do() -> None:
    """Also when it can't be read: with a code."""
    copy = Copy()
    pool = CopyPool(copy)
    answers: list[Any] = []
    pool.batch_read("f", 1, 3, 2, 1000).addCallback(answers.append)
    pool.read("f", 1, 4).addCallback(answers.append)
    assert answers[0] == (OK, [b"f 3", b"f 4"])
    assert (answers[1].code, answers[1].body) == (OK, b"f 4")
    for error in (OSError("no disk"), Read("damaged")):
        copy.error = error
        answers.clear()
        pool.batch_read("f", 1, 3, 2, 1000).addCallback(answers.append)
        pool.read("f", 1, 4).addCallback(answers.append)
        assert [answer.code for answer in answers] == [BookieHandleNotAvailable.code] * 2
    answers.clear()
    pool.read_lac("f", 1).addCallback(answers.append)
    pool.long_poll("f", 1, 0, 1).addCallback(answers.append)
    assert all(answer.code for answer in answers)
