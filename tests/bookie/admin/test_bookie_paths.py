"""The admin paths: health follows the bookie, the read-only switch takes truth values."""

import json
from collections.abc import Iterator
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from twisted.internet.task import Clock

from quire.bookie.admin.bookie_paths import Admin
from quire.metrics.text import Metrics
from tests.bookie.fakes import asking

# SPDX-License-Identifier: Apache-2.0


class One:
    """A collector of one family."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("quire_x", "one", value=1)


class Held:
    """A bookie as the admin paths see it."""

    def __init__(self) -> None:
        self.serving = True
        self.stopping = False
        self.read_only = False
        self.read_only_reasons: list[str] = []
        self.refusal: str | None = None

    def state(self) -> dict[str, Any]:
        return {"readOnly": self.read_only, "readOnlyReasons": self.read_only_reasons}

    @property
    def metrics(self) -> Metrics:
        return Metrics(One())

    def operator_read_only(self, on: bool) -> str | None:
        if self.refusal is None:
            self.read_only = on
        return self.refusal


def ask(held: Held, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    found = asking.ask([Admin(Clock(), held)], method, path, body)
    return found.status, found.body


def test_health_follows_the_bookie() -> None:
    """Health paths return 503 while the bookie does not serve or stops; metrics are served to the end."""
    held = Held()
    for path in ("/healthz", "/heartbeat", "/api/v1/bookie/is_ready"):
        assert ask(held, "GET", path) == (200, b"OK\n")
    held.serving = False
    assert ask(held, "GET", "/healthz") == (503, b"not serving\n")
    held.stopping = True
    assert ask(held, "GET", "/healthz") == (503, b"stopping\n")
    status, text = ask(held, "GET", "/metrics")
    assert (status, b"quire_x 1.0\n" in text) == (200, True), "a dying bookie can still be looked at"


def test_the_state_says_why_it_is_read_only() -> None:
    """A look at it changes nothing."""
    held = Held()
    held.read_only, held.read_only_reasons = True, ["/journal is 99.0% full"]
    state = json.loads(ask(held, "GET", "/api/v1/bookie/state")[1])
    assert (state["readOnly"], state["readOnlyReasons"]) == (True, ["/journal is 99.0% full"])


def test_the_read_only_switch() -> None:
    """Only with a truth value; its reasons are shown, and a refusal is 400."""
    held, path = Held(), "/api/v1/bookie/state/readonly"
    for bad in (b"", b"{}", b"[]", b'{"readOnly": 1}', b'{"readOnly": "true"}', b"\xff"):
        assert ask(held, "PUT", path, bad)[0] == 400, bad
    assert not held.read_only
    assert ask(held, "PUT", path, b'{"readOnly": true}')[0] == 200
    assert json.loads(ask(held, "GET", path)[1]) == {"readOnly": True, "reasons": []}
    held.refusal = "forced"
    assert ask(held, "PUT", path, b'{"readOnly": false}') == (400, b"forced\n")
