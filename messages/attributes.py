"""
Attributes of an open store that need no wait, the same in every face.

Knows: the attributes of the Twisted store behind each.  Does not know: how operations wait.
"""

from quire.messages import api

# SPDX-License-Identifier: Apache-2.0


class KnownStore:
    """The attributes of a store."""

    _store: api.Store

    @property
    def name(self) -> str:
        """The store's name."""
        return self._store.name

    @property
    def role(self) -> str:
        """`master` once this process owns the log and has applied all that was there before; else `slave`."""
        return self._store.role

    @property
    def epoch(self) -> int:
        """The number of the term in which this process is master, or was last; 0: it never was."""
        return self._store.epoch

    @property
    def lag(self) -> int:
        """How many records that are known here have no rows yet."""
        return self._store.lag
