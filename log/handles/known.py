"""
Attributes of the handles of logs that need no wait, the same in every face.

Knows: the attributes of the Twisted handle behind each.
Does not know: how operations wait.
"""

from quire.log import api
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class KnownOwner:
    """The attributes of an owner."""

    _owner: api.Owner

    @property
    def name(self) -> str:
        """The log's name."""
        return self._owner.name

    @property
    def epoch(self) -> int:
        """The owner's number, one higher with each owner."""
        return self._owner.epoch

    @property
    def token(self) -> str:
        """The name of this handle by which another may hand the log over to it."""
        return self._owner.token

    @property
    def end(self) -> api.Position:
        """The place of the next record, if nothing is under way."""
        return self._owner.end

    @property
    def lost(self) -> bool:
        """True if the log became another's."""
        return self._owner.lost

    @property
    def under_way(self) -> tuple[int, int]:
        """Records and bytes that were taken and are not answered."""
        return self._owner.under_way


class KnownReader:
    """The attributes of a reader."""

    _reader: api.LogReader
    _index: int

    @property
    def index(self) -> int:
        """The index of the next record."""
        return self._index

    @property
    def begin(self) -> int:
        """The index of the first record that the log has, as far as is known here."""
        return self._reader.begin

    @property
    def begin_at(self) -> int:
        """The byte position at which the log begins, as far as is known here."""
        return self._reader.begin_at

    @property
    def end_known(self) -> int:
        """The index after the last record that is known here to be readable."""
        return self._reader.end_known

    @property
    def lost(self) -> list[range]:
        """The indexes that were passed over because their segments are gone."""
        return self._reader.lost

    @property
    def rates(self) -> api.ReadRates:
        """How fast it gives out: `rates.records` and `rates.bytes` a second, -1 for any; may be set at any time."""
        return self._reader.rates

    @property
    def closed(self) -> bool:
        """True once it was closed, by itself or with its logs: it then ends at once."""
        return self._reader.closed

    @property
    def terminated(self) -> bool:
        """True if the log has its end, as far as is known here."""
        return self._reader.terminated


class KnownCursor:
    """The attributes of a cursor."""

    _cursor: api.Cursor

    @property
    def name(self) -> str:
        """The cursor's name."""
        return self._cursor.name

    @property
    def mark(self) -> int:
        """The first index that is not done."""
        return self._cursor.mark

    @property
    def rates(self) -> api.ReadRates:
        """How fast `read` gives out, as `LogReader.rates`; what it has it gives before it waits."""
        return self._cursor.rates


class KnownReplica:
    """The attributes of a replica."""

    _replica: api.Replica

    @property
    def name(self) -> str:
        """The log's name."""
        return self._replica.name

    @property
    def applied(self) -> int:
        """The first index that is not applied."""
        return self._replica.applied

    @property
    def role(self) -> api.Role:
        """Says if it owns the log and has applied what was there before."""
        return self._replica.role

    @property
    def error(self) -> LedgerError | None:
        """The reason why it applies no more."""
        return self._replica.error
