"""
Ledgers that bookies no longer have, read from copies elsewhere: the files of a copy take the places of bookies.

Knows: that bookies are asked while the store names the ledger, unless it is just being brought back to them.
Does not know: where copies are, and what they look like.

Safety: a copy is believed as little as a bookie is: the reader checks each entry's digest.
"""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from quire.client.connections.answers import Answer, BatchAnswer, LacAnswer
from quire.client.handles.end_of_ledger import LastConfirmedPool
from quire.metadata.formats.json_text import parse_json
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import (
    OK,
    BookieHandleNotAvailable,
    LedgerError,
    NoSuchEntry,
    NoSuchLedgerExistsOnMetadataServer,
)

# SPDX-License-Identifier: Apache-2.0

log = Logger()

RESTORING = "quire/restoring"  # custom metadata of a ledger whose entries are on their way back to bookies
MARK = "quire/offload"  # custom metadata of one with a copy that is verified
Mark = Mapping[str, Any]


def mark_of(metadata: LedgerMetadata) -> Mark | None:
    """The mark of an offloaded plain ledger; None also where it is not ours."""
    try:
        found = parse_json(metadata.custom.get(MARK, b"null"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def is_on_its_way(metadata: LedgerMetadata) -> bool:
    """True if its bookies are about to lose it, or do not have all of it back."""
    mark = mark_of(metadata)
    return RESTORING in metadata.custom or (mark is not None and mark.get("bookies") == "deleted")


class LedgerCopy(Protocol):
    """One closed ledger.  `metadata`: with files as its bookies, each entry in one of them."""

    metadata: LedgerMetadata

    def bodies(self, file: str, first: int, count_max: int, bytes_max: int) -> Awaitable[list[bytes]]:
        """Whole entries from `first` on, at least one; `OSError`, `LedgerError` when they can't be read."""


class Copies(Protocol):
    """Where copies are looked for."""

    def find(self, ledger: int) -> Awaitable[LedgerCopy | None]:
        """None when there is none of this ledger."""

    def ledgers(self) -> Awaitable[list[int]]:
        """The ledgers of which there are copies, ascending."""


class CopyPool:
    """The files of one ledger's copy, asked as bookies are."""

    def __init__(self, copy: LedgerCopy) -> None:
        self._copy = copy

    def read(
        self, bookie: str, ledger: int, entry: int, fence_key: bytes | None = None, priority: int = 0
    ) -> Deferred[Answer]:
        def one(answer: BatchAnswer) -> Answer:
            return Answer(answer.code, answer.bodies[0] if answer.code == OK else None, entry=entry)

        return self.batch_read(bookie, ledger, entry, 1, 1).addCallback(one)

    def batch_read(self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int) -> Deferred[BatchAnswer]:
        return Deferred.fromCoroutine(self._bodies(bookie, ledger, first, count_max, bytes_max))

    async def _bodies(self, file: str, ledger: int, first: int, count_max: int, bytes_max: int) -> BatchAnswer:
        try:
            return BatchAnswer(OK, await self._copy.bodies(file, first, count_max, bytes_max))
        except (OSError, LedgerError) as error:
            text = "the copy of ledger {ledger} can't be read at entry {first}: {file}: {error}"
            log.error(text, ledger=ledger, first=first, file=file, error=str(error))
            return BatchAnswer(BookieHandleNotAvailable.code)

    def read_lac(self, bookie: str, ledger: int) -> Deferred[LacAnswer]:
        """Not asked for: the end of a closed ledger is in its metadata."""
        return succeed(LacAnswer(NoSuchEntry.code))

    def long_poll(self, bookie: str, ledger: int, previous_lac: int, timeout_ms: int) -> Deferred[Answer]:
        """Nor this."""
        return succeed(Answer(NoSuchEntry.code))


async def located(
    store: MetadataStore,
    pool: LastConfirmedPool,
    copies: Copies | None,
    ledger: int,
    known: Versioned[LedgerMetadata] | None = None,
) -> tuple[Versioned[LedgerMetadata], LastConfirmedPool]:
    """
    A ledger's metadata, and whom to ask for its entries.  While the store names the ledger, a copy has to be of this
    very one.  `NoSuchLedger` when there is no copy either.  `known`: what the store said just now.
    """
    try:
        found = known or await store.read_ledger(ledger)
    except NoSuchLedgerExistsOnMetadataServer:
        copy = None if copies is None else await copies.find(ledger)
        if copy is None:
            raise
        return Versioned(copy.metadata, -1), CopyPool(copy)
    if copies is not None and RESTORING in found.value.custom:
        copy = await copies.find(ledger)
        if copy is not None and copy.metadata.identity == found.value.identity:
            return Versioned(copy.metadata, -1), CopyPool(copy)
    return found, pool
