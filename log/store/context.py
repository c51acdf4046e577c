"""
What all work on one log has at hand: its records, the client, options, clocks.

Knows: these parts.  Does not know: what is done with them.
"""

from collections.abc import Callable
from typing import NamedTuple

from quire.client.api import Client
from quire.conf.log import LogOptions
from quire.log.core.streams.rates import Together
from quire.log.store.ages import Ages
from quire.log.store.editing import LogRecords
from quire.log.store.leases import Leases
from quire.log.store.ledgers import LogLedgers
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

TRIES_MAX = 100  # each upon a manifest that changed meanwhile


class LogContext(NamedTuple):
    """`ages`, `together`: one for all logs of a process.  `reached(name)` is called right after each step."""

    client: Client
    log: LogRecords
    ledgers: LogLedgers
    options: LogOptions
    ages: Ages
    reached: Callable[[str], None]
    together: Together | None = None

    @property
    def leases(self) -> Leases:
        """Its lease, for who ends it."""
        return Leases(self.log, self.client.reactor, self.ages.boottime, self.reached)

    def too_many_conflicts(self) -> MetaStore:
        """The error of work during which the manifest changed too often."""
        return MetaStore(f"the manifest of the log {self.log.log} changed {TRIES_MAX} times meanwhile: try it again")
