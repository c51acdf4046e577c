"""
A ledger's metadata as one handle knows it, and the only loop that changes it (protocol-rules.md 2.6).

Knows: the value and version read last, which digest it names, and how to retry an edit after a conflict.
Does not know: what an edit is for.

Safety: whether an edit is still wanted is asked again of every freshly read value, so a stale intent never overwrites
newer state; nothing is written but by compare-and-set on the version that was looked at.  Versions begin again when a
ledger is deleted and its id is used again, so a freshly read value may be another ledger's: then nothing is written.
"""

from collections.abc import Awaitable, Callable

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.metadata.tree_store import MetadataStore
from quire.protocol.digest import Digest
from quire.protocol.errors import MetadataSerialization, MetadataVersion, NoSuchLedgerExistsOnMetadataServer

# SPDX-License-Identifier: Apache-2.0

CONFLICTS_MAX = 100

Needs = Callable[[LedgerMetadata], bool]
Change = Callable[[LedgerMetadata], LedgerMetadata]
WriteIt = Callable[[LedgerMetadata, int], Awaitable[Versioned[LedgerMetadata]]]


def digest_of(ledger: int, metadata: LedgerMetadata) -> Digest:
    """The digest that the metadata names.  `MetadataSerialization` for metadata of format 1, which names none."""
    if metadata.digest is None or metadata.password is None:
        raise MetadataSerialization(
            f"ledger {ledger}: its metadata (format {metadata.format_version}) names no digest, so its entries "
            "can't be checked"
        )
    return Digest(metadata.digest, metadata.password)


class LedgerRecord:
    """Metadata of one ledger, shared by everything that one handle does to it.  `quorums` never change."""

    def __init__(self, store: MetadataStore, ledger: int, current: Versioned[LedgerMetadata]) -> None:
        self.store = store
        self.ledger = ledger
        self.current = current
        self.quorums = Quorums.of(current.value)

    @property
    def metadata(self) -> LedgerMetadata:
        return self.current.value

    def replicas(self, entry: int) -> list[str]:
        """The bookies that hold an entry, as is known now."""
        ensemble = self.metadata.ensemble_at(entry)
        return [ensemble[index] for index in self.quorums.write_set(entry)]

    def learn(self, seen: Versioned[LedgerMetadata]) -> bool:
        """
        Takes a newer value, from a watch say; False when it is not newer, or another ledger's of the same id.  A copy's
        (version -1) has none: its bookies are files, and those that the store names are others.
        """
        newer = 0 <= self.current.version < seen.version and self.metadata.is_same(seen.value)
        if newer:
            self.current = seen
        return newer

    async def edit(self, needs: Needs, change: Change, write: WriteIt | None = None) -> LedgerMetadata:
        """
        Applies `change` unless `needs` says that it is not, or no longer, wanted; returns the metadata that holds then.
        `needs` may raise to end it; `write` is another compare-and-set than the store's.  Raises what that raises,
        `MetadataVersion` after too many conflicts, `NoSuchLedgerExistsOnMetadataServer` where it meets another ledger
        of this id.
        """
        current = self.current
        for _ in range(CONFLICTS_MAX):
            if not needs(current.value):
                return current.value
            try:
                changed = change(current.value)
                if write is None:
                    written = await self.store.write_ledger(self.ledger, changed, current.version)
                else:
                    written = await write(changed, current.version)
            except MetadataVersion:
                fresh = await self.store.read_ledger(self.ledger)
                if not current.value.is_same(fresh.value):
                    raise NoSuchLedgerExistsOnMetadataServer(
                        f"ledger {self.ledger} was deleted, and another one was made under its id: that one is not "
                        "changed"
                    ) from None
                self.learn(fresh)
                current = fresh
                continue
            self.learn(written)
            return written.value
        raise MetadataVersion(
            f"ledger {self.ledger}: its metadata at {self.store.uri} changed {CONFLICTS_MAX} times while it "
            "was being changed here"
        )
