"""
The paths that a bookie serves over HTTP.

    GET /metrics                         Prometheus text
    GET /healthz                         200 while the bookie serves, else 503; the reason in the body
    GET /api/v1/bookie/is_ready          200 OK, or 503 (BookKeeper's readiness probe)
    GET /api/v1/bookie/state             {"running", "readOnly", "shuttingDown", "availableForHighPriorityWrites"}, and
                                         our own "readOnlyReasons", "ledgersInLimbo", "directoriesLost",
                                         "metadataStore"
    GET /api/v1/bookie/state/readonly    {"readOnly": bool}
    PUT /api/v1/bookie/state/readonly    the same as a request
    …   /api/v1/bookie/gc…               see `gc_paths`
    …   /api/v1/bookie/rebuild_index     see `index_paths`
    …   /api/v1/autorecovery/…           see `recovery_paths`

Paths and keys are BookKeeper's.
Knows: paths.  Does not know: how a bookie does what they ask.
"""

from typing import Any, Protocol

from quire.bookie.admin.gate import METRICS, Routes
from quire.bookie.admin.http import Answer, Asked, document, given
from quire.bookie.admin.metrics import CONTENT_TYPE

# SPDX-License-Identifier: Apache-2.0

STATE, READONLY = "/api/v1/bookie/state", "/api/v1/bookie/state/readonly"
HEALTH = ("/healthz", "/heartbeat", "/api/v1/bookie/is_ready")


class Administered(Protocol):
    """What the paths need of a bookie."""

    @property
    def serving(self) -> bool: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def read_only_reasons(self) -> list[str]: ...

    @property
    def high_priority_writes(self) -> bool: ...

    @property
    def ledgers_in_limbo(self) -> int: ...

    @property
    def directories_lost(self) -> list[str]: ...

    @property
    def metadata_store(self) -> dict[str, Any]: ...

    def metrics_text(self) -> bytes: ...

    def operator_read_only(self, on: bool) -> str | None:
        """Carries the request out; the text says why it can't be."""
        ...


class Paths(Protocol):
    """Some paths and how they are answered."""

    @property
    def routes(self) -> Routes: ...


class Admin:
    """Answers requests for one bookie."""

    def __init__(self, bookie: Administered) -> None:
        self._bookie = bookie
        self.routes: Routes = {
            **{("GET", path): self._health for path in HEALTH},
            ("GET", METRICS): lambda _: Answer(200, bookie.metrics_text(), CONTENT_TYPE),
            ("GET", STATE): self._state,
            ("GET", READONLY): self._read_only,
            ("PUT", READONLY): self._switch,
        }

    def _health(self, asked: Asked) -> Answer:
        if not self._bookie.serving:
            return Answer(503, b"stopping\n" if self._bookie.stopping else b"not serving\n")
        return Answer(200, b"OK\n")

    def _state(self, asked: Asked) -> Answer:
        bookie = self._bookie
        return document(
            {
                "running": bookie.serving,
                "readOnly": bookie.read_only,
                "shuttingDown": bookie.stopping,
                "availableForHighPriorityWrites": bookie.high_priority_writes,
                "readOnlyReasons": bookie.read_only_reasons,
                "ledgersInLimbo": bookie.ledgers_in_limbo,
                "directoriesLost": bookie.directories_lost,
                "metadataStore": bookie.metadata_store,
            }
        )

    def _read_only(self, asked: Asked) -> Answer:
        return document({"readOnly": self._bookie.read_only, "reasons": self._bookie.read_only_reasons})

    def _switch(self, asked: Asked) -> Answer:
        wanted = given(asked).get("readOnly")
        if not isinstance(wanted, bool):
            return Answer(400, b'the body must be {"readOnly": true} or {"readOnly": false}\n')
        refused = self._bookie.operator_read_only(wanted)
        if refused is not None:
            return Answer(400, refused.encode() + b"\n")
        return self._read_only(asked)
