"""Metrics, the small HTTP server and the admin paths below it, and the look at the disks."""

import json
import re
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from quire.bookie import disks
from quire.bookie.admin import Admin
from quire.bookie.files import Files, Usage
from quire.bookie.http import CONNECTIONS_MAX, REQUEST_S_MAX, Answer, Asked, HttpServer
from quire.bookie.metrics import BookieCollector, Metrics, numbers
from quire.bookie.registration import Listed, Registration
from quire.metadata.memory_store import MemoryCluster, MemoryStore
from tests.bookie.fake_storage import FakeCounters
from tests.bookie.wires import Scene, Wire, adds, options, read

# SPDX-License-Identifier: Apache-2.0


def scrape(scene: Scene, registration: Registration) -> dict[str, float]:
    metrics = Metrics(BookieCollector(scene.service, scene.listener, registration, scene.storage.counters))
    text = metrics.text().decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.M)}


def registration() -> Registration:
    return Registration(MemoryStore(Clock(), MemoryCluster("metrics")), "b:1", lambda reason: None)


def test_every_number_has_its_name() -> None:
    """The storage's and the service's counters, and the gauges that are documented."""
    scene = Scene()
    scene.connect().send(adds(b"a", b"bc")).send(adds(b"x", first=9, ledger=8)).send(read(0) + read(7))
    listed = registration()
    found = scrape(scene, listed)
    assert found["quire_journal_syncs_total"] == 2
    assert found["quire_service_add_runs_total"] == 2
    assert found["quire_service_add_entries_total"] == 3
    assert found["quire_service_reads_total"] == 2
    assert found["quire_service_read_entries_total"] == 1
    assert found["quire_service_refusals_total"] == 1
    assert found["quire_connections"] == 1
    assert found["quire_connections_accepted_total"] == 1
    assert (found["quire_disk_bytes"], found["quire_disk_free_bytes"]) == (1000, 500)
    assert found["quire_bookie_status"] == -1
    listed.listed = Listed.READ_ONLY
    assert scrape(scene, listed)["quire_bookie_status"] == 0
    assert "quire__hidden_total" not in found


def test_pressure_shows() -> None:
    scene = Scene()
    scene.storage.room = 0
    scene.connect().send(adds(bytes(100)))
    found = scrape(scene, registration())
    assert found["quire_parked_runs"] == 1
    assert found["quire_parked_bytes"] == 28 + 36 + 100


def test_numbers_of_a_slots_object() -> None:
    assert dict(numbers(FakeCounters())) == {"journal_syncs": 0}
    assert list(numbers(object())) == []


def test_docs_name_every_metric() -> None:
    """docs/operating.md lists what is served."""
    text = Path(__file__).parents[2].joinpath("docs/operating.md").read_text()
    missing = [name for name in scrape(Scene(), registration()) if name.startswith("quire_") and name not in text]
    assert missing == []


# --- http


class Exchange:
    def __init__(self, server: HttpServer) -> None:
        self.wire = Wire()
        self.protocol = server.buildProtocol(None)
        self.protocol.makeConnection(self.wire)

    def send(self, data: bytes) -> "Exchange":
        self.protocol.dataReceived(data)
        return self

    @property
    def status(self) -> int:
        return int(self.wire.value().split()[1]) if self.wire.value() else 0


def echo(asked: Asked) -> Answer:
    return Answer(200, f"{asked.method} {asked.path} {asked.local} ".encode() + asked.body)


def test_requests_in_pieces() -> None:
    """Head and body may come byte by byte; the answer closes the connection."""
    exchange = Exchange(HttpServer(Clock(), echo))
    for byte in b"PUT /x?y=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc":
        assert exchange.status == 0
        exchange.send(bytes((byte,)))
    assert exchange.status == 200
    assert exchange.wire.value().endswith(b"PUT /x False abc")
    assert exchange.wire.disconnecting


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", 413),
        (b"G" * 9000, 413),
    ],
)
def test_what_is_refused(data: bytes, status: int) -> None:
    assert Exchange(HttpServer(Clock(), echo)).send(data).status == status


def test_a_request_has_a_deadline() -> None:
    clock = Clock()
    exchange = Exchange(HttpServer(clock, echo)).send(b"GET")
    clock.advance(REQUEST_S_MAX)
    assert exchange.wire.aborted


def test_connections_are_bounded() -> None:
    server = HttpServer(Clock(), echo)
    held = [Exchange(server) for _ in range(CONNECTIONS_MAX)]
    assert Exchange(server).wire.aborted
    assert not any(exchange.wire.aborted for exchange in held)
    server.abort_all()
    assert all(exchange.wire.aborted for exchange in held)


def test_a_fault_of_ours_is_500() -> None:
    def broken(asked: Asked) -> Answer:
        raise RuntimeError("no")

    assert Exchange(HttpServer(Clock(), broken)).send(b"GET / HTTP/1.1\r\n\r\n").status == 500


# --- admin


class Held:
    """A bookie as the admin paths see it."""

    def __init__(self) -> None:
        self.serving = True
        self.stopping = False
        self.read_only = False
        self.read_only_reasons: list[str] = []
        self.high_priority_writes = True
        self.refusal: str | None = None

    def metrics_text(self) -> bytes:
        return b"quire_x 1\n"

    def operator_read_only(self, on: bool) -> str | None:
        if self.refusal is None:
            self.read_only = on
        return self.refusal


def ask(held: Held, method: str, path: str, body: bytes = b"", local: bool = True) -> tuple[int, bytes]:
    found = Admin(held).serve(Asked(method, path, body, local))
    return found.status, found.body


def test_health_follows_the_bookie() -> None:
    held = Held()
    for path in ("/healthz", "/heartbeat", "/api/v1/bookie/is_ready"):
        assert ask(held, "GET", path) == (200, b"OK\n")
    held.serving = False
    assert ask(held, "GET", "/healthz") == (503, b"not serving\n")
    held.stopping = True
    assert ask(held, "GET", "/healthz") == (503, b"stopping\n")
    assert ask(held, "GET", "/metrics") == (200, b"quire_x 1\n"), "a dying bookie can still be looked at"


def test_the_read_only_switch() -> None:
    """Only from this machine, only with a truth value."""
    held, path = Held(), "/api/v1/bookie/state/readonly"
    assert ask(held, "PUT", path, b'{"readOnly": true}', local=False)[0] == 403
    for bad in (b"", b"{}", b"[]", b'{"readOnly": 1}', b'{"readOnly": "true"}', b"\xff"):
        assert ask(held, "PUT", path, bad)[0] == 400, bad
    assert not held.read_only
    assert ask(held, "PUT", path, b'{"readOnly": true}')[0] == 200
    assert json.loads(ask(held, "GET", path)[1]) == {"readOnly": True, "reasons": []}
    held.refusal = "forced"
    assert ask(held, "PUT", path, b'{"readOnly": false}') == (400, b"forced\n")


# --- disks


class Disks(Files):
    def __init__(self, free: dict[str, int]) -> None:
        self.free = free

    def usage(self, path: str) -> Usage:
        if self.free[path] < 0:
            raise OSError(5, "Input/output error")
        return Usage(1, 1000, self.free[path])


@pytest.mark.parametrize(
    ("free", "reason", "nearly", "room"),
    [
        ({"/j": 500, "/l": 500}, None, [], True),
        ({"/j": 500, "/l": 99}, None, ["/l"], False),
        ({"/j": 500, "/l": 50}, None, ["/l"], False),
        ({"/j": 500, "/l": 40}, "/l is 96.0% full", [], False),
        ({"/j": 10, "/l": 500}, "/j is 99.0% full", [], True),
        ({"/j": 500, "/l": -1}, "/l can't be used (Input/output error)", [], False),
    ],
)
def test_looks_at_the_disks(free: dict[str, int], reason: str | None, nearly: list[str], room: bool) -> None:
    """Full, nearly full, broken; journals too.  Room for recovery is counted on ledger disks only."""
    found = disks.look(Disks(free), options(high_priority_free_bytes_min=100))
    assert found.reason == reason
    assert [directory for directory, _ in found.nearly_full] == nearly
    assert found.room_for_recovery is room

