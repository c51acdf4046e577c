"""
What runs inside a bookie's process: the bookie, its refilling and its surplus runs, and AutoRecovery where
`autoRecoveryDaemonEnabled` says so.

Knows: in which order they start.  Does not know: how the process begins and ends; see `lifetime`, `process`.
"""

import json
import os
from functools import partial
from typing import TYPE_CHECKING

from twisted.logger import Logger

from quire.bookie.admin.bookie_paths import Shown
from quire.bookie.admin.recovery_paths import RecoveryPaths
from quire.bookie.lifecycle.bookie import START_FAILURES, Bookie
from quire.bookie.lifecycle.contract import open_storage
from quire.metadata.uri import open_store
from quire.tools.daemons.descriptors import divided, raised
from quire.tools.daemons.lifetime import Lifetime
from quire.tools.daemons.process import settle_memory
from quire.tools.daemons.recovering import Recovering
from quire.tools.daemons.recovery_metrics import RecoveryCollector
from quire.tools.daemons.refill import Refill
from quire.tools.daemons.settings import Settings
from quire.tools.daemons.surplus import SurplusRuns

if TYPE_CHECKING:
    from quire.conf.bookie import BookieOptions
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0


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
            announce(bookie, self._as_json)
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
        bookie = Bookie(
            reactor,
            served,
            store,
            storage=partial(open_storage, tables_open_max=parts.store, logs_open_max=parts.logs),
            restore=self._restore,
            shown=Shown([RecoveryPaths(lambda: store, recovering)], [RecoveryCollector(recovering.status)]),
        )
        await bookie.start()
        to_stop.append(bookie.stop)
        refill = Refill(reactor, bookie, self._settings.client)
        to_stop.append(refill.stop)
        bookie.limbo.listen(refill)
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


def announce(bookie: Bookie, as_json: bool) -> None:
    """The ready line."""
    scheme = "https" if bookie.options.http_tls else "http"
    url = f"{scheme}://{bookie.options.metrics_host}:{bookie.http_port}/metrics"
    if as_json:
        ready = {
            "ready": bookie.id,
            "address": f"{bookie.host}:{bookie.port}",
            "metrics": url,
            "token_file": bookie.token_file,
            "pid": os.getpid(),
            "read_only": bookie.read_only,
        }
        print(json.dumps(ready), flush=True)
    else:
        print(f"ready {bookie.id} {bookie.host}:{bookie.port} {url}", flush=True)
