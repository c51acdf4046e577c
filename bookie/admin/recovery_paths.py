"""
The paths of AutoRecovery over HTTP.

    GET /api/v1/autorecovery/status                        {"enabled": bool}, and our own "here": this process's part
    PUT /api/v1/autorecovery/status?enabled=true|false     the switch of the repair queue
    GET /api/v1/autorecovery/list_under_replicated_ledger  [ids], or with printmissingreplica=true {"id": [bookies]};
                                                           missingreplica=ID, excludingmissingreplica=ID choose; 404:
                                                           there is none
    GET /api/v1/autorecovery/who_is_auditor                Auditor: ID; 404: there is none
    PUT /api/v1/autorecovery/trigger_audit
    GET /api/v1/autorecovery/lost_bookie_recovery_delay    and PUT {"delay_seconds": n}
    PUT /api/v1/autorecovery/decommission                  {"bookie_src": "ID", "delete_cookie": "true"}
    PUT /api/v1/autorecovery/bookie                        {"bookie_src": ["ID"], "delete_cookie": bool}

Paths, keys and texts are BookKeeper's.
Knows: paths, and that the metadata store has the truth.  Does not know: how a bookie is emptied; its process does.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from quire.bookie.admin.gate import Routes
from quire.bookie.admin.http import Answer, Asked, document, given
from quire.metadata.ledger import check_bookie_id
from quire.metadata.repair_queue import Shortage
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import IncorrectParameter, LedgerError

# SPDX-License-Identifier: Apache-2.0

ROOT = "/api/v1/autorecovery"
STATUS, LIST, AUDITOR = f"{ROOT}/status", f"{ROOT}/list_under_replicated_ledger", f"{ROOT}/who_is_auditor"
TRIGGER, DELAY = f"{ROOT}/trigger_audit", f"{ROOT}/lost_bookie_recovery_delay"
DECOMMISSION, RECOVER = f"{ROOT}/decommission", f"{ROOT}/bookie"
PAGE = 1000


OnStore = Callable[[MetadataStore, Asked], Awaitable[Answer]]
ByStore = Mapping[tuple[str, str], OnStore]  # by method and path


def by_store(store: Callable[[], MetadataStore | None], done: ByStore) -> Routes:
    """Makes routes that ask the metadata store: 503 while it is not open or silent, 400 for what it does not take."""

    def answering(doing: OnStore, asked: Asked) -> Answer | Deferred[Answer]:
        found = store()
        if found is None:
            return Answer(503, b"the metadata store is not open yet; the log says why\n")
        return Deferred.fromCoroutine(answer(doing(found, asked)))

    async def answer(doing: Awaitable[Answer]) -> Answer:
        try:
            return await doing
        except (IncorrectParameter, ValueError) as wrong:
            return Answer(400, f"{wrong}\n".encode())
        except LedgerError as failure:
            return Answer(503, f"the metadata store did not do it: {failure}\n".encode())

    return {way: partial(answering, doing) for way, doing in done.items()}


class Repairing(Protocol):
    """A process that repairs ledgers, as the paths see it."""

    def status(self) -> dict[str, Any] | None:
        """Describes its part in AutoRecovery; None where it has none."""
        ...

    def empty(self, bookie: str, forget: bool) -> str | None:
        """Begins to copy what a lost bookie held to others, and removes its cookie then; the text says why not."""
        ...


class RecoveryPaths:
    """Answers requests about the repair of one cluster.  `store`: None while the metadata store is not open."""

    def __init__(self, store: Callable[[], MetadataStore | None], repairing: Repairing) -> None:
        self._repairing = repairing
        done: ByStore = {
            ("GET", STATUS): self._status,
            ("PUT", STATUS): self._switch,
            ("GET", LIST): self._list,
            ("GET", AUDITOR): self._auditor,
            ("PUT", TRIGGER): self._trigger,
            ("GET", DELAY): self._delay,
            ("PUT", DELAY): self._set_delay,
            ("PUT", DECOMMISSION): self._decommission,
            ("PUT", RECOVER): self._recover,
        }
        self.routes = by_store(store, done)

    async def _status(self, store: MetadataStore, asked: Asked) -> Answer:
        here = self._repairing.status()
        return document({"enabled": await store.repairs.enabled()} | ({} if here is None else {"here": here}))

    async def _switch(self, store: MetadataStore, asked: Asked) -> Answer:
        wanted = asked.query.get("enabled", "").lower()
        if wanted not in ("true", "false"):
            return Answer(400, b"ask for enabled=true or enabled=false\n")
        await store.repairs.set_enabled(wanted == "true")
        return document({"enabled": wanted == "true"})

    async def _list(self, store: MetadataStore, asked: Asked) -> Answer:
        missing, excluding = asked.query.get("missingreplica"), asked.query.get("excludingmissingreplica")
        found: list[Shortage] = []
        after = -1
        while page := await store.repairs.shortages(after, PAGE):
            after = page[-1].ledger
            found += (each for each in page if each.fits(missing, excluding))
        if not found:
            return Answer(404, b"No under replicated ledgers found\n")
        if asked.query.get("printmissingreplica") == "true":
            return document({str(each.ledger): list(each.missing) for each in found})
        return document([each.ledger for each in found])

    async def _auditor(self, store: MetadataStore, asked: Asked) -> Answer:
        auditor = (await store.auditing.election()).auditor
        return Answer(404, b"No auditor found\n") if auditor is None else Answer(200, f"Auditor: {auditor}".encode())

    async def _trigger(self, store: MetadataStore, asked: Asked) -> Answer:
        await store.auditing.ask()
        return Answer(200, b"Success trigger audit.")

    async def _delay(self, store: MetadataStore, asked: Asked) -> Answer:
        return Answer(200, f"lostBookieRecoveryDelay value: {await store.auditing.delay() or 0}".encode())

    async def _set_delay(self, store: MetadataStore, asked: Asked) -> Answer:
        seconds = given(asked).get("delay_seconds")
        if not isinstance(seconds, int) or isinstance(seconds, bool):
            return Answer(400, b'the body must be {"delay_seconds": N}\n')
        await store.auditing.set_delay(seconds)
        return Answer(200, f"Success set lostBookieRecoveryDelay to {seconds}".encode())

    async def _decommission(self, store: MetadataStore, asked: Asked) -> Answer:
        wanted = given(asked)
        bookie = wanted.get("bookie_src")
        if not isinstance(bookie, str):
            return Answer(400, b'the body must be {"bookie_src": "ID", "delete_cookie": "true" or "false"}\n')
        return self._empty(bookie, wanted, f"Success send decommission Bookie command {bookie}")

    async def _recover(self, store: MetadataStore, asked: Asked) -> Answer:
        wanted = given(asked)
        bookies = wanted.get("bookie_src")
        if not isinstance(bookies, list) or not bookies or not isinstance(bookies[0], str):
            return Answer(400, b'the body must be {"bookie_src": ["ID"], "delete_cookie": true or false}\n')
        return self._empty(bookies[0], wanted, "Success send recovery request command.")

    def _empty(self, bookie: str, wanted: dict[str, Any], done: str) -> Answer:
        refused = self._repairing.empty(
            check_bookie_id(bookie), str(wanted.get("delete_cookie", False)).lower() == "true"
        )
        return Answer(200, done.encode()) if refused is None else Answer(409, f"{refused}\n".encode())
