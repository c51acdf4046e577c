"""
Attributes of writers and readers that need no wait, the same in every face.

Knows: the attributes of the Twisted handle behind each.
Does not know: how operations wait.
"""

from quire.client import api
from quire.metadata.ledger import LedgerMetadata

# SPDX-License-Identifier: Apache-2.0


class KnownWriter:
    """The attributes of a writer."""

    _writer: api.Writer

    @property
    def id(self) -> int:
        """The ledger's id."""
        return self._writer.id

    @property
    def last_add_confirmed(self) -> int:
        """The highest id that is acknowledged, and all below it; -1: none."""
        return self._writer.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """The highest id handed out; -1: none."""
        return self._writer.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes appended."""
        return self._writer.length

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata, as this writer stored it last."""
        return self._writer.metadata


class KnownReader:
    """The attributes of a reader."""

    _reader: api.Reader

    @property
    def id(self) -> int:
        """The ledger's id."""
        return self._reader.id

    @property
    def last_entry_id(self) -> int:
        """The last entry that may be read: a closed ledger's end, else the last add confirmed.  -1: none."""
        return self._reader.last_entry_id

    @property
    def length(self) -> int:
        """Payload bytes, as far as is known."""
        return self._reader.length

    @property
    def closed(self) -> bool:
        """True if the ledger (not this handle) is closed."""
        return self._reader.closed
