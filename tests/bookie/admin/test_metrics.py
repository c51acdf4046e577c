"""What Prometheus reads: every number under its documented name."""

import re
from pathlib import Path

from quire.bookie.admin.metrics import BookieCollector
from quire.bookie.server.parking import REQUEST_BYTES
from quire.metrics.text import Metrics, numbers
from tests.bookie.fakes.storage import FakeCounters
from tests.bookie.fakes.wires import KEY, Scene, adds, read

# SPDX-License-Identifier: Apache-2.0


def scrape(scene: Scene) -> dict[str, float]:
    metrics = Metrics(BookieCollector(scene.service, scene.listener, scene.storage.counters))
    text = metrics.text().decode()
    return {name: float(value) for name, value in re.findall(r'^(\w+(?:{of="\w+"})?) (\S+)$', text, re.M)}


def test_every_number_has_its_name() -> None:
    """The storage's and the service's counters, and the gauges that are documented."""
    scene = Scene()
    scene.connect().send(adds(b"a", b"bc")).send(adds(b"x", first=9, ledger=8)).send(read(0) + read(7))
    found = scrape(scene)
    assert found["quire_journal_syncs_total"] == 2
    assert found["quire_service_add_runs_total"] == 2
    assert found["quire_service_add_entries_total"] == 3
    assert found["quire_service_reads_total"] == 2
    assert found["quire_service_read_entries_total"] == 1
    assert found["quire_service_refusals_total"] == 1
    assert (found["quire_connections"], found["quire_connections_in_lobby"]) == (1, 0)
    assert found["quire_connections_accepted_total"] == 1
    for kind, total, free in (("ledgers", 1000, 500), ("journals", 100, 10)):
        assert found[f'quire_disk_bytes{{of="{kind}"}}'] == total
        assert found[f'quire_disk_free_bytes{{of="{kind}"}}'] == free
    assert "quire__hidden_total" not in found
    scene.connect().send(read(7))
    found = scrape(scene)
    assert (found["quire_connections"], found["quire_connections_in_lobby"]) == (2, 1)


def test_pressure_shows() -> None:
    """Runs of adds that wait for room are gauges, with their number and bytes."""
    scene = Scene()
    scene.storage.room = 0
    scene.connect().send(adds(bytes(100)))
    found = scrape(scene)
    assert found["quire_parked_runs"] == 1
    assert found["quire_pending_bytes"] == REQUEST_BYTES + len(KEY) + 28 + 36 + 100


def test_refusals_have_their_reasons() -> None:
    """Connections that were closed are counted by reason, beside the addresses that the others come from."""
    scene = Scene(connections_per_address_max=1)
    scene.connect().send(bytes(4))
    for _ in range(3):
        scene.connect()
    text = Metrics(BookieCollector(scene.service, scene.listener, scene.storage.counters)).text().decode()
    assert 'quire_connections_refused_total{why="what they sent"} 1.0' in text
    assert 'quire_connections_refused_total{why="too many connections of an address"} 2.0' in text
    assert scrape(scene)["quire_connection_addresses"] == 1


def test_numbers_of_a_slots_object() -> None:
    """Counters are read from `__slots__`; an object without slots has none."""
    assert dict(numbers(FakeCounters())) == {"gc_ledgers_deleted": 0, "gc_rounds": 0, "journal_syncs": 0}
    assert list(numbers(object())) == []


def test_docs_name_every_metric() -> None:
    """docs/watching.md lists what is served."""
    text = Path(__file__).parents[3].joinpath("docs/watching.md").read_text()
    served = {name.partition("{")[0] for name in scrape(Scene())}
    missing = [name for name in served if name.startswith("quire_") and name not in text]
    assert missing == []


def test_alarms_are_on_metrics_that_there_are() -> None:
    """docs/deploying.md names none that the pages of metrics do not list."""
    docs = Path(__file__).parents[3] / "docs"
    listed = (docs / "watching.md").read_text() + (docs / "security.md").read_text()
    alarms = set(re.findall(r"`((?:quire|process)_\w+)", (docs / "deploying.md").read_text()))
    assert "quire_bookie_status" in alarms
    assert [name for name in sorted(alarms) if name not in listed] == []
