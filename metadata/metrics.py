"""
The metrics that a process shows to Prometheus about its sessions with the metadata store.

    quire_metadata_seconds{session,call}                 histogram of calls that were answered
    quire_metadata_failed_total{session,call,error}      a node that is not there is an error, too
    quire_metadata_connections_total, quire_metadata_sessions_expired_total{session}
    zk_get_data{success,quantile}, …                     Apache's names, whichever store it is

Knows: names, which of our calls is what Apache calls so, and what its names begin with in which process.
Does not know: who counts (`counters`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from quire.metadata.counters import SessionCounters
from quire.metrics.families import Part, counter, exact, op_stat, operations
from quire.metrics.operations import Operation

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

PREFIX = "quire_metadata_"
CLIENT, BOOKIE, AUTORECOVERY = "client", "bookie", "autorecovery"  # sessions
APACHE = {CLIENT: "", BOOKIE: "bookie_bookie_", AUTORECOVERY: "replication_bookkeeper_client_"}
CALLS = {
    "create": "zk_create",
    "write": "zk_set_data",
    "delete": "zk_delete",
    "transact": "zk_multi",
    "get": "zk_get_data",
    "exists": "zk_exists",
    "listing": "zk_get_children",
    "sync": "zk_sync",
}
Sessions = Callable[[], Mapping[str, SessionCounters]]


class SessionMetrics:
    """Collects sessions, by name, for a registry of Prometheus.  `apaches`: with the names of Apache's, too."""

    def __init__(self, sessions: Sessions, apaches: bool = True) -> None:
        self._sessions = sessions
        self._apaches = apaches

    def collect(self) -> "Iterator[Metric]":
        """Gives the families that a registry asks for."""
        sessions = self._sessions()
        calls = {
            (name, call): each for name, counters in sessions.items() for call, each in counters.calls.named().items()
        }
        yield from operations(PREFIX, "calls of the metadata store", ("session", "call"), calls.items())
        for name, attribute, meaning in (
            ("connections", "connections", "connections to the metadata store that were made"),
            (
                "sessions_expired",
                "expired",
                "sessions that the metadata store ended, and their registrations with them",
            ),
        ):
            values = [((session,), getattr(counters, attribute)) for session, counters in sessions.items()]
            yield counter(PREFIX + name, meaning, ["session"], values)
        for session, counters in sessions.items() if self._apaches else ():
            yield from _apaches(APACHE[session], counters)


def _apaches(prefix: str, counters: SessionCounters) -> "Iterator[Metric]":
    now, calls = counters.calls.seconds(), counters.calls.named()
    for call, name in CALLS.items():
        one = calls.get(call) or Operation()
        yield op_stat(prefix + name, f"{name} in ms, as Apache's", [Part([one.times], one.failures)], now)
    for state, count in (("SyncConnected", counters.connections), ("Expired", counters.expired)):
        yield exact(f"{prefix}watcher_state_{state}", f"times that the session came to {state}", [({}, count)])
