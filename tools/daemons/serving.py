"""
The inside of a bookie's process: the bookie, its refilling and its surplus runs, and AutoRecovery where
`autoRecoveryDaemonEnabled` says so.

Knows: in which order they start; how many file descriptors each part may have open, so that neither files nor
connections take what the other needs.
Does not know: how the process begins and ends; see `lifetime`, `process`.  Each part keeps its own bound.

Safety: a part that meets the limit of descriptors all the same tries again (`NotBegun`); no disk is taken for failed by
that.
"""

import resource
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from twisted.logger import Logger

from quire.bookie.admin.bookie_paths import Shown
from quire.bookie.admin.http import CONNECTIONS_MAX as HTTP_MAX
from quire.bookie.admin.recovery_paths import RecoveryPaths
from quire.bookie.index.rocks import open_rows as open_rocks
from quire.bookie.layout import OPEN_LOGS_MAX
from quire.bookie.lifecycle.bookie import START_FAILURES, Bookie
from quire.bookie.storage.storage import Storage
from quire.conf.bookie import BookieOptions
from quire.conf.shared_file import Settings
from quire.metadata.uri import open_store
from quire.rows.files import StorageError
from quire.rows.rocks import FILES_MAX
from quire.tools.daemons.apache_paths import BookiePaths, ClusterPaths
from quire.tools.daemons.lifetime import Lifetime, announce, metrics_at
from quire.tools.daemons.own_copies import Refill, SurplusRuns
from quire.tools.daemons.process import settle_memory
from quire.tools.daemons.recovering import ClientCollector, Recovering, RecoveryCollector
from quire.tools.daemons.sanity import Sanity

if TYPE_CHECKING:
    from quire.conf.bookie import BookieOptions
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

# standard streams, the reactor, ports, metadata, connections of our own to other bookies, connections that just end
RESERVE = 48
PER_JOURNAL = 4  # its lock, the segment that is written, one in the making, the directory
# its lock, logs that are written, synced or compacted, small files that are replaced, what each RocksDB has open
# besides tables
PER_LEDGER_DIRECTORY = 20
STORES = 2  # RocksDBs of a ledger directory
STORE_MIN, LOGS_MIN = 20, 8  # tables open in one RocksDB, which takes no less; logs open for reading
CONNECTIONS_MIN = 32
UNLIMITED = 1 << 20  # files, where the process may have any number of them


class Descriptors(NamedTuple):
    """How many files and connections each part may have open."""

    limit: int
    connections: int  # of clients
    store: int  # tables of each RocksDB
    logs: int  # entry logs open for reading, of each ledger directory


def raised() -> int:
    """Raises the soft limit of the process to the hard one where the system lets it be, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def divided(limit: int, options: BookieOptions) -> Descriptors:
    """
    Divides descriptors: half of what is left for files and connections goes to files, the rest to connections.
    `StorageError` when that is too little for a bookie with these directories.
    """
    directories = len(options.ledger_directories)
    fixed = RESERVE + HTTP_MAX + PER_JOURNAL * len(options.journal_directories) + PER_LEDGER_DIRECTORY * directories
    files_min, files_max = STORES * STORE_MIN + LOGS_MIN, STORES * FILES_MAX + OPEN_LOGS_MAX
    least = fixed + files_min * directories + CONNECTIONS_MIN
    if limit < least:
        raise StorageError(
            f"this process may have {limit} files open, and a bookie with these directories needs {least}, better "
            f"{fixed + files_max * directories} and as "
            "many as it has connections: raise the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit)"
        )
    files = max(files_min, min(files_max, (limit - fixed) // 2 // directories))
    logs = max(LOGS_MIN, files * OPEN_LOGS_MAX // files_max)
    store = (files - logs) // STORES
    left = limit - fixed - (STORES * store + logs) * directories
    return Descriptors(limit, min(options.connections_max, left), store, logs)


class Serving(Lifetime):
    """One bookie in this process.  `settings` are those of AutoRecovery beside it, and of the bookie's own client."""

    log = Logger(namespace="quire.bookie")
    name = "the bookie"
    failures = START_FAILURES

    def __init__(
        self,
        reactor: "ProcessReactor",
        options: "BookieOptions",
        restore: bool,
        as_json: bool,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(reactor)
        self._options = options
        self._restore = restore
        self._as_json = as_json
        self._settings = settings or Settings.beside(options)
        self._bookie: Bookie | None = None
        self._reads_again = False  # once it serves

    def reload(self) -> None:
        if self._bookie is not None:
            self._bookie.reload()
        else:  # it may have read them already
            self._reads_again = True

    async def serve(self) -> None:
        bookie = self._bookie = await self._start()
        self.started = True
        settle_memory()
        if self._reads_again:
            bookie.reload()
        if not bookie.ended.called:
            options, address = bookie.options, f"{bookie.host}:{bookie.port}"
            url = metrics_at(options.http_address.host, bookie.http_port, options.http_tls)
            more = {"token_file": bookie.token_file, "read_only": bookie.read_only}
            line = f"{bookie.id} {address} {url}"
            announce(self._as_json, line, ready=bookie.id, address=address, metrics=url, **more)
        await bookie.ended

    async def _start(self) -> Bookie:
        reactor, options, to_stop = self._reactor, self._options, self.to_stop
        parts = divided(raised(), options)
        self.log.info(
            "{limit} files may be open: {store} in each index and table, {logs} entry logs in each ledger directory, "
            "{connections} connections (connectionsMax={wanted})",
            wanted=options.connections_max,
            **parts._asdict(),
        )
        served = options.model_copy(update={"connections_max": parts.connections})
        timeout_ms = options.session_timeout_ms
        store = await open_store(reactor, options.metadata_uri, session_timeout_ms=timeout_ms, security=options)
        to_stop.append(store.close)
        recovering = Recovering(reactor, self._settings)
        open_rows = partial(open_rocks, files_max=parts.store)
        apaches = "apache" in options.metrics_names
        cluster = ClusterPaths(lambda: store, recovering.connected)
        paths = BookiePaths(options, lambda: (bookie.id, bookie.read_only), cluster)
        sanity = [Sanity(reactor, paths.tried, apaches)] if options.tries_itself else []
        bookie = Bookie(
            reactor,
            served,
            store,
            storage=partial(Storage, open_rows=open_rows, logs_open_max=parts.logs),
            restore=self._restore,
            shown=Shown(
                [
                    RecoveryPaths(lambda: store, recovering).routes,
                    cluster.routes,
                    paths.routes,
                ],
                [
                    RecoveryCollector(recovering.status, apaches, recovering.measured),
                    ClientCollector(recovering, apaches, store),
                    *sanity,
                ],
            ),
        )
        await bookie.start()
        to_stop.append(bookie.stop)
        for each in sanity:
            to_stop.append(each.stop)
            each.start()
        refill = Refill(reactor, bookie, self._settings.client)
        to_stop.append(refill.stop)
        bookie.limbo.grew = refill.start
        refill.start()
        if self._restore:
            await refill.first_round()
        surplus = SurplusRuns(reactor, bookie, self._settings.client)
        to_stop.append(surplus.stop)
        surplus.start()
        to_stop.append(recovering.stop)
        if options.auto_recovery:
            recovering.begin(bookie.id)
        return bookie
