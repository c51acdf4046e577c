"""
AutoRecovery in a process, a bookie's or its own: its client, its part in the cluster's repair, and the bookies that an
operator asked over HTTP to be emptied; and its metrics:

    quire_autorecovery_auditor              1 while this process is the auditor
    quire_autorecovery_marked_total, repaired_total, failed_total, entries_total, bytes_total
    quire_autorecovery_working, lost, away  see `SIZES`
    quire_autorecovery_parked{outlook}      ledgers that wait, by what for
    quire_autorecovery_check{figure}        what the auditor's last checks counted
    quire_autorecovery_check_seconds{check}, audit_seconds, repair_seconds, read_seconds, store_seconds   histograms
    auditor_…, replication_worker_…         the same counters under the names that Apache's dashboards ask for
    quire_client_…                          of its client (`quire.client.metrics`), while it takes part
    quire_metadata_…                        of its session with the metadata store, and a bookie's beside it
    replication_bookkeeper_client_…         these under the names that Apache's AutoRecovery has

In a process of its own it has an HTTP server, too:

    GET /metrics, /healthz, /heartbeat     as a bookie's; /healthz is 503 until the metadata store has answered
                                           (there is a token only where `adminTokenFile` or `metricsTokenFile` is set)
    …   /api/v1/autorecovery/…             see `quire.bookie.admin.recovery_paths`

Knows: when the client is opened and put away, that a metadata store which is away is waited for; metrics' names; its
port.
Does not know: what an auditor or a worker does (`replication.autorecovery`).  That, and the client, are loaded only
when they are needed.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.bookie.admin.gate import METRICS, Routes, gated
from quire.bookie.admin.http import Answer, Asked, in_turns
from quire.bookie.admin.recovery_paths import RecoveryPaths
from quire.bookie.lifecycle.ids import ANY_ADDRESS, IdentityError, any_host, derive_id
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.shared_file import Settings
from quire.metadata.auditing import Periodic
from quire.metadata.counters import SessionCounters
from quire.metadata.metrics import APACHE, AUTORECOVERY, BOOKIE, SessionMetrics
from quire.metadata.store import NoCluster
from quire.metadata.tree_store import MetadataStore
from quire.metrics.families import Part, exact, op_stat, seconds
from quire.metrics.text import Metrics, content_type
from quire.protocol.errors import LedgerError, MetaStore, MetaStoreRefused
from quire.tools.daemons.lifetime import Lifetime, adopted, announce, metrics_at
from quire.tools.daemons.process import settle_memory

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from quire.client.api import Client
    from quire.replication.autorecovery.measures import Measures
    from quire.replication.autorecovery.running import AutoRecovery
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 5.0  # after the metadata store did not answer


class Recovering:
    """The AutoRecovery of one process.  `stop` may be called at any time."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(self, reactor: "ProcessReactor", settings: Settings) -> None:
        self.client: Client | None = None  # while it takes part
        self._reactor = reactor
        self._settings = settings
        self._part: AutoRecovery | None = None
        self._starting: Deferred[None] | None = None
        self._emptying: Deferred[None] | None = None

    async def start(self, bookie: str) -> None:
        """
        Takes part under a bookie's id; done when it does, which is when the metadata store answers.  `NoCluster`,
        `MetaStoreRefused`, and `ValueError` for a store of no known form.
        """
        from quire.replication.autorecovery.running import AutoRecovery

        self.client = await self.connected()
        self._part = AutoRecovery(self.client, bookie, self._settings.options)
        self._part.start()
        self.log.info("{bookie} takes part in AutoRecovery", bookie=bookie)

    def begin(self, bookie: str) -> None:
        """Takes part beside a bookie, which serves meanwhile."""
        self._starting = Deferred.fromCoroutine(self.start(bookie)).addErrback(self._not_done, "AutoRecovery's start")

    async def stop(self) -> None:
        for under_way in (self._starting, self._emptying):
            if under_way is not None:
                under_way.cancel()
        if self._part is not None:
            part, self._part = self._part, None
            await part.stop()
        if self.client is not None:
            client, self.client = self.client, None
            await client.close()

    def status(self) -> dict[str, Any] | None:
        """Returns the status of its part; None while it takes none."""
        return None if self._part is None else self._part.status()

    def measured(self) -> "tuple[Measures, float] | None":
        """Returns what its part has measured, and the time; None while it takes none."""
        return None if self._part is None else (self._part.measures, self._reactor.seconds())

    def empty(self, bookie: str, forget: bool) -> str | None:
        """Begins to copy a lost bookie's share, `forget`: and removes its cookie.  Why not: one at a time only."""
        if self._emptying is not None and not self._emptying.called:
            return "another bookie is being emptied by this process; the log says when it is done"
        self._emptying = Deferred.fromCoroutine(self._empty(bookie, forget)).addErrback(
            self._not_done, f"emptying {bookie}"
        )
        return None

    async def connected(self) -> "Client":
        """Opens a client, once the metadata store answers; `NoCluster`, `MetaStoreRefused`."""
        from quire.client.api import connect

        uri = self._settings.options.metadata_uri
        while True:
            try:
                return await connect(self._reactor, uri, self._settings.client)
            except (NoCluster, MetaStoreRefused):
                raise
            except MetaStore as error:
                self.log.error(
                    "AutoRecovery waits for the metadata store, and tries again every {again:.0f} s: {reason}",
                    again=AGAIN_S,
                    reason=str(error),
                )
            await deferLater(cast(IReactorTime, self._reactor), AGAIN_S, lambda: None)

    async def _empty(self, bookie: str, forget: bool) -> None:
        from quire.replication.decommission import decommission
        from quire.replication.lost_bookies import recover_bookies

        client = await self.connected()
        try:
            done = await (decommission(client, bookie) if forget else recover_bookies(client, [bookie]))
        finally:
            await client.close()
        self.log.info(
            "{bookie}: {ledgers} ledgers named it, {entries} entries were copied to others, {failed} ledgers name it "
            "still{cookie}",
            bookie=bookie,
            ledgers=len(done.ledgers),
            entries=done.progress.entries,
            failed=len(done.failed),
            cookie="; its cookie is removed" if forget else "",
        )

    def _not_done(self, failure: Failure, what: str) -> None:
        if isinstance(failure.value, LedgerError | ValueError):
            self.log.error("{what} failed: {reason}", what=what, reason=str(failure.value))
        elif not isinstance(failure.value, CancelledError):
            self.log.failure("{what} failed", failure, what=what)


PREFIX = "quire_autorecovery_"
# What a part counts, under our name and under those that Apache's dashboards ask for.
COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "marked": (
        "ledgers put into the repair queue, or marked for a further bookie, while this process was the auditor",
        (),
    ),
    "repaired": (
        "ledgers that got all their copies again",
        ("replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",),
    ),
    "failed": (
        "tries after which a ledger stayed in the queue",
        ("replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER",),
    ),
    "entries": (
        "entries copied",
        ("replication_worker_NUM_ENTRIES_READ", "replication_worker_NUM_ENTRIES_WRITTEN"),
    ),
    "bytes": ("bytes of entries copied", ()),
}
SIZES = {
    "working": "ledgers that are being repaired",
    "lost": "bookies that count as lost, in the eyes of the auditor",
    "away": "bookies that left and may come back within the delay, in the eyes of the auditor",
}


# Apache's names of figures of the auditor's checks.
FIGURES = {
    "misplaced_ledgers": "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY",
    "ledgers_with_entries_without_copy": "auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY",
    "ledgers_below_ack_quorum": "auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY",
    "ledgers_below_write_quorum": "auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY",
}
COUNTED_BY = {Periodic.PLACEMENT: ("misplaced_ledgers",), Periodic.REPLICAS: tuple(FIGURES)[1:]}


class RecoveryCollector:
    """The metrics of a part in AutoRecovery; none while there is no part."""

    def __init__(
        self,
        status: Callable[[], dict[str, Any] | None],
        apaches: bool = True,
        measured: "Callable[[], tuple[Measures, float] | None]" = lambda: None,
    ) -> None:
        """`apaches`: with the names of Apache's, too.  `measured`: what it has measured, and the time."""
        self._status = status
        self._apaches = apaches
        self._measured = measured

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        status = self._status()
        if status is None:
            return
        yield GaugeMetricFamily(PREFIX + "auditor", "1 while this process is the auditor", value=int(status["auditor"]))
        for name, meaning in SIZES.items():
            yield GaugeMetricFamily(PREFIX + name, meaning, value=len(status[name]))
        for name, (meaning, apaches) in COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, f"{meaning}, since the start", value=status[name])
            for other in apaches if self._apaches else ():
                yield exact(other, meaning, [({}, status[name])])
        parked = GaugeMetricFamily(PREFIX + "parked", "ledgers that wait, by what for", labels=["outlook"])
        for outlook, count in status["parked"].items():
            parked.add_metric([outlook.lower()], count)
        yield parked
        figures = GaugeMetricFamily(PREFIX + "check", "what the auditor's last checks counted", labels=["figure"])
        for figure, count in status["figures"].items():
            figures.add_metric([figure], count)
        yield figures
        if (measured := self._measured()) is not None:
            yield from self._times(*measured, status)

    def _times(self, measures: "Measures", now: float, status: dict[str, Any]) -> "Iterator[Metric]":
        checks = [Part([times], 0, {"check": check.value}) for check, times in measures.checks.items()]
        yield seconds(PREFIX + "check_seconds", "the auditor's checks of all ledgers", checks)
        for name, meaning, times in (
            ("audit_seconds", "passes over all ledgers for lost bookies", measures.audits),
            ("repair_seconds", "tries that left nothing to do of a ledger", measures.repairs),
            ("read_seconds", "requests to read what is copied", measures.reads),
            ("store_seconds", "requests to store copies", measures.stores),
        ):
            yield seconds(PREFIX + name, meaning, [Part([times])])
        if self._apaches:
            yield from self._apaches_times(measures, now, status)

    def _apaches_times(self, measures: "Measures", now: float, status: dict[str, Any]) -> "Iterator[Metric]":
        for name, times in (
            ("auditor_CHECK_ALL_LEDGERS_TIME", measures.checks[Periodic.COPIES]),
            ("auditor_PLACEMENT_POLICY_CHECK_TIME", measures.checks[Periodic.PLACEMENT]),
            ("auditor_REPLICAS_CHECK_TIME", measures.checks[Periodic.REPLICAS]),
            ("auditor_AUDIT_BOOKIES_TIME", measures.audits),
            ("auditor_URL_PUBLISH_TIME_FOR_LOST_BOOKIE", measures.losses),
            ("replication_worker_READ_DATA_LATENCY", measures.reads),
            ("replication_worker_WRITE_DATA_LATENCY", measures.stores),
        ):
            yield op_stat(name, f"{name} in ms, as Apache's", [Part([times])], now)
        tries = Part([measures.repairs], status["failed"])
        yield op_stat("replication_worker_rereplicate", "tries of ledgers in ms, as Apache's", [tries], now)
        for name, sizes in (
            ("auditor_NUM_UNDER_REPLICATED_LEDGERS", measures.marks),
            ("auditor_UNDER_REPLICATED_LEDGERS_TOTAL_SIZE", measures.marked_bytes),
            ("auditor_NUM_FRAGMENTS_PER_LEDGER", measures.fragments),
            ("auditor_NUM_BOOKIES_PER_LEDGER", measures.bookies),
            ("replication_worker_NUM_BYTES_READ", measures.copied_bytes),
            ("replication_worker_NUM_BYTES_WRITTEN", measures.copied_bytes),
        ):
            yield op_stat(name, f"{name}, as Apache's", [Part([sizes])], now, unit=1)
        for name, count in (
            ("auditor_NUM_LEDGERS_CHECKED", measures.checked),
            ("auditor_NUM_BOOKIE_AUDITS_DELAYED", measures.delayed),
            ("auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", measures.came_back),
            ("auditor_NUM_DELAYED_BOOKIE_AUDITS_DELAYES_CANCELLED", measures.came_back),
            ("election_attempts", measures.votes),
            ("replication_worker_exceptions", measures.errors),
            ("replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION", measures.hopeless),
        ):
            yield exact(name, f"{name}, as Apache's", [({}, count)])
        found = status["figures"]
        for check, figures in COUNTED_BY.items():
            for figure in figures if f"{check.value}_ledgers" in found else ():
                yield exact(FIGURES[figure], f"{FIGURES[figure]}, as Apache's", [({}, found.get(figure, 0))])


class ClientCollector:
    """
    The metrics of AutoRecovery's client while there is one, and of its session with the metadata store; of the bookie's
    session, too, where AutoRecovery runs beside one.
    """

    def __init__(self, recovering: Recovering, apaches: bool = True, bookie: MetadataStore | None = None) -> None:
        """`apaches`: with the names of Apache's, too; `bookie`: the bookie's store."""
        self._recovering = recovering
        self._bookie = bookie
        self._apache = APACHE[AUTORECOVERY] if apaches else None
        self._sessions = SessionMetrics(self._counters, apaches)

    def _counters(self) -> dict[str, SessionCounters]:
        stores = {BOOKIE: self._bookie}
        if self._recovering.client is not None:
            stores[AUTORECOVERY] = self._recovering.client.store
        return {name: store.counters for name, store in stores.items() if store is not None}

    def collect(self) -> "Iterator[Metric]":
        if self._recovering.client is not None:
            own = self._recovering.client.own_metrics
            own.apache = self._apache
            yield from own.collect()
        yield from self._sessions.collect()


class Front:
    """The HTTP server of one process."""

    def __init__(
        self, reactor: "ProcessReactor", recovering: Recovering, options: AutoRecoveryOptions, host: str
    ) -> None:
        """`host`: how it is called by others.  `ConfigurationError` for files that can't be used."""
        self._reactor = reactor
        self._recovering = recovering
        apaches = "apache" in options.metrics_names
        part = RecoveryCollector(recovering.status, apaches, recovering.measured)
        metrics = Metrics(part, ClientCollector(recovering, apaches))
        own: Routes = {
            ("GET", METRICS): lambda asked: in_turns(reactor, metrics.parts(asked.accept), content_type(asked.accept)),
            ("GET", "/healthz"): self._health,
            ("GET", "/heartbeat"): lambda _: Answer(200, b"OK\n"),
        }
        paths = RecoveryPaths(lambda: None if recovering.client is None else recovering.client.store, recovering)
        self._server = gated(reactor, options, [own, paths.routes], [host, options.http_address.host])
        self._listening: Any = None

    def listen(self, host: str, port: int) -> int:
        """Listens; returns the port, a free one for 0.  `OSError` says where another is set."""
        remedy = "autoRecoveryHttpPort gives AutoRecovery another port than a bookie with the same file has"
        self._listening, number = adopted(self._reactor, self._server, host, port, remedy)
        return number

    async def close(self) -> None:
        await self._listening.stopListening()
        self._server.abort_all()

    def _health(self, asked: Asked) -> Answer:
        if self._recovering.client is None:
            return Answer(503, b"it waits for the metadata store; the log says why\n")
        return Answer(200, b"OK\n")


class Standalone(Lifetime):
    """AutoRecovery in this process."""

    log = Logger(namespace="quire.autorecovery")
    name = "AutoRecovery"
    failures = (IdentityError, LedgerError, OSError)

    def __init__(self, reactor: "ProcessReactor", settings: Settings, as_json: bool) -> None:
        super().__init__(reactor)
        self._options = settings.options
        self._as_json = as_json
        self._recovering = Recovering(reactor, settings)

    async def serve(self) -> None:
        options = self._options
        host = any_host(options)  # a label here: nobody connects to it
        bookie = derive_id(options, host, options.port)
        front = Front(self._reactor, self._recovering, options, host)
        at = options.http_address
        port = front.listen(at.host, at.port)
        self.to_stop += [front.close, self._recovering.stop]
        await self._recovering.start(bookie)
        self.started = True
        settle_memory()
        seen_at = host if at.host in ANY_ADDRESS else at.host
        url = metrics_at(seen_at, port, options.http_tls)
        announce(self._as_json, f"{bookie} {url}", ready=bookie, metrics=url)
        await Deferred()  # it ends by a signal only
