"""
A ledger that is looked at: what its metadata says about how its copies are read.

Knows: one state of the metadata.  Does not know: whether that is still so.
"""

from quire.client.core.quorum import Quorums
from quire.client.handles.ledger_record import digest_of
from quire.metadata.ledger import LedgerMetadata
from quire.replication.replicas import ReadPool, ReplicaReader
from quire.replication.scrub.examine import Examination, Manner
from quire.replication.scrub.sums import Sums

# SPDX-License-Identifier: Apache-2.0

MAX_ENTRY = (1 << 63) - 1


class Subject:
    """`MetadataSerialization` for metadata that names no digest."""

    def __init__(self, pool: ReadPool, ledger: int, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        self.quorums = Quorums.of(metadata)
        self.reader = ReplicaReader(pool, ledger, digest_of(ledger, metadata))

    def examination(self, bookie: str, manner: Manner) -> Examination:
        return Examination(self.reader, self.quorums, bookie, manner)

    def sums(self) -> Sums:
        metadata = self.metadata
        if metadata.is_closed:
            return Sums(self.quorums, self.reader.digest, metadata.last_entry + 1, metadata.last_entry)
        return Sums(self.quorums, self.reader.digest, metadata.last_fragment.first, MAX_ENTRY)
