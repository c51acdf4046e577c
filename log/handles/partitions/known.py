"""
Attributes of the handles of partitioned logs that need no wait, the same in every face.

Knows: the attributes of the Twisted handle behind each.
Does not know: how operations wait.
"""

from quire.log import api

# SPDX-License-Identifier: Apache-2.0


class KnownPartitionedOwner:
    """The attributes of an owner of partitions."""

    _owner: api.PartitionedOwner

    @property
    def name(self) -> str:
        """The log's name."""
        return self._owner.name

    @property
    def count(self) -> int:
        """The number of the log's partitions, by which keys are placed."""
        return self._owner.count

    @property
    def partitions(self) -> list[int]:
        """The partitions that are this handle's now, ascending."""
        return self._owner.partitions

    @property
    def closed(self) -> bool:
        """True once it was closed, by itself or with its logs."""
        return self._owner.closed

    def partition_for(self, key: bytes) -> int:
        """Says which partition a key belongs to, as long as the log does not grow."""
        return self._owner.partition_for(key)


class KnownPartitionedReader:
    """The attributes of a reader of partitions."""

    _reader: api.PartitionedReader
    _indexes: dict[int, int]

    @property
    def name(self) -> str:
        """The log's name."""
        return self._reader.name

    @property
    def count(self) -> int:
        """The number of the log's partitions."""
        return self._reader.count

    @property
    def indexes(self) -> dict[int, int]:
        """The index of the next record of each partition that is read."""
        return self._reader.begins | self._indexes

    @property
    def closed(self) -> bool:
        """True once it was closed, by itself or with its logs: it then ends at once."""
        return self._reader.closed


class KnownPartitionedCursor:
    """The attributes of a cursor over partitions."""

    _cursor: api.PartitionedCursor

    @property
    def name(self) -> str:
        """The log's name."""
        return self._cursor.name

    @property
    def cursor(self) -> str:
        """The cursor's name."""
        return self._cursor.cursor

    @property
    def count(self) -> int:
        """The number of the log's partitions."""
        return self._cursor.count

    @property
    def marks(self) -> dict[int, int]:
        """The first index of each partition that is not done."""
        return self._cursor.marks

    @property
    def closed(self) -> bool:
        """True once it was closed, by itself or with its logs."""
        return self._cursor.closed
