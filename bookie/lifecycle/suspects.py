"""
Suspects: ledgers of which a bookie may have lost something, by what it lost and by what the metadata store says; and
a search for a ledger that names a bookie at all.

Knows: how a ledger's directories follow from its id, and what of its metadata makes it suspect.
Does not know: how a storage keeps limbo, how copies are made.

Safety: the metadata store is asked after the bookie lost its disks and before it serves, so every entry that it ever
acknowledged belongs to a ledger that is listed here.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.layout import pairs, share_of
from quire.conf.bookie import BookieOptions
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.store import at_once
from quire.metadata.tree_store import MetadataStore
from quire.protocol.digest import Digest
from quire.protocol.errors import MetadataSerialization, NoSuchLedgerExistsOnMetadataServer

# SPDX-License-Identifier: Apache-2.0

log = Logger()
LEDGERS_PER_PAGE = 10_000
READS_AT_ONCE = 50  # of metadata
LOGGED_LEDGERS = 100_000  # whole pages, half a minute and more


class Lost(NamedTuple):
    """The numbers of lost journal and ledger directories, and of all; `doubted`: ledgers that may lack entries, too."""

    journals: frozenset[int]
    ledgers: frozenset[int]
    journal_count: int
    ledger_count: int
    doubted: frozenset[int] = frozenset()

    @classmethod
    def of(cls, options: BookieOptions, directories: Sequence[str], doubted: frozenset[int] = frozenset()) -> "Lost":
        """Ledger directories whose index directory is lost count, too."""
        return cls(
            frozenset(number for number, path in enumerate(options.journal_directories) if path in directories),
            frozenset(
                number
                for number, pair in enumerate(pairs(options))
                if pair.ledger_directory in directories or pair.index_directory in directories
            ),
            len(options.journal_directories),
            len(options.ledger_directories),
            doubted,
        )

    @classmethod
    def all_of(cls, options: BookieOptions) -> "Lost":
        """Everything: after a power loss of a bookie that does not sync, say."""
        return cls.of(options, (*options.journal_directories, *options.ledger_directories))

    def concerns(self, ledger: int) -> bool:
        return (
            ledger in self.doubted
            or share_of(ledger, self.ledger_count) in self.ledgers
            or share_of(ledger, self.journal_count) in self.journals
        )


Suspects = Callable[[Lost], AsyncIterator[dict[int, LedgerRow]]]  # those of one bookie, in pages


async def suspects(store: MetadataStore, bookie: str, lost: Lost) -> AsyncIterator[dict[int, LedgerRow]]:
    """
    Every ledger that lay on what is lost, in pages, as it has to be marked.  Fails as the store does.

    One that the metadata gives the bookie is in limbo, which refuses plain adds.  So is one that is being recovered:
    the recovery may count on entries that it wrote here, though the metadata names its bookies only when it closes the
    ledger.  (A writer has the metadata name a bookie before it sends it any entry, and a repair looks again at whom it
    has named.)  One that is not open is fenced, for its fence may have been here: a recovery says so in the metadata
    before it fences.  That goes for ledgers that do without the bookie, too: it may have been replaced after it was
    fenced, by a repair, of which a writer that sleeps has not heard.  Of one whose metadata can't be decoded all of
    this may be true.
    """
    after = -1
    while page := await store.ledger_ids(after, LEDGERS_PER_PAGE):
        concerned = [ledger for ledger in page if lost.concerns(ledger)]
        rows: dict[int, LedgerRow] = {}
        for start in range(0, len(concerned), READS_AT_ONCE):
            some = concerned[start : start + READS_AT_ONCE]
            read = await at_once([_row(store, bookie, ledger) for ledger in some])
            for ledger, row in zip(some, read, strict=True):
                if row is not None and (row.fenced or row.limbo):
                    rows[ledger] = row
        yield rows
        after = page[-1]


async def ledger_naming(store: MetadataStore, bookie: str) -> int | None:
    """
    A ledger whose metadata names the bookie, if there is one; reads all ledgers for that.  Fails as the store does.
    One whose metadata can't be decoded counts for none: it can be neither recovered nor repaired, so nothing rests on
    what a bookie denies of it.  What takes long is logged.
    """

    async def names(ledger: int) -> bool:
        try:
            return bookie in (await store.read_ledger(ledger)).value.bookies()
        except (NoSuchLedgerExistsOnMetadataServer, MetadataSerialization):
            return False

    after, count = -1, 0
    while page := await store.ledger_ids(after, LEDGERS_PER_PAGE):
        if not count and len(page) == LEDGERS_PER_PAGE:
            log.info("{bookie}: the metadata of all ledgers is read, to see whether one names it", bookie=bookie)
        for start in range(0, len(page), READS_AT_ONCE):
            some = page[start : start + READS_AT_ONCE]
            for ledger, named in zip(some, await at_once([names(ledger) for ledger in some]), strict=True):
                if named:
                    log.info("{bookie}: ledger {ledger} names it", bookie=bookie, ledger=ledger)
                    return ledger
        after, count = page[-1], count + len(page)
        if count % LOGGED_LEDGERS == 0:
            log.info("{bookie}: none of {count} ledgers names it, up to {last}", bookie=bookie, count=count, last=after)
    if count >= LEDGERS_PER_PAGE:
        log.info("{bookie}: none of {count} ledgers names it; these are all", bookie=bookie, count=count)
    return None


async def _row(store: MetadataStore, bookie: str, ledger: int) -> LedgerRow | None:
    """None: there is no such ledger any more."""
    try:
        metadata = (await store.read_ledger(ledger)).value
    except NoSuchLedgerExistsOnMetadataServer:
        return None
    except MetadataSerialization:
        return LedgerRow(b"", fenced=True, limbo=True)
    being_recovered = metadata.state is LedgerState.IN_RECOVERY
    return LedgerRow(
        master_key(metadata),
        fenced=metadata.state is not LedgerState.OPEN,
        limbo=being_recovered or bookie in metadata.bookies(),
    )


def master_key(metadata: LedgerMetadata) -> bytes:
    """Empty where the metadata does not have it: then the first key that is given is taken."""
    return (
        b""
        if metadata.digest is None or metadata.password is None
        else Digest(metadata.digest, metadata.password).master_key
    )
