"""The alert rules and dashboards that come with quire, and those made for Apache's, on a bookie that is at work."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from quire.bookie.admin.bookie_paths import Shown
from quire.bookie.lifecycle.bookie import Bookie
from quire.tools.daemons.recovering import RecoveryCollector
from quire.tools.watching import ALERTS, BOOKIE, CLUSTER, DIRECTORY, files
from tests.bookie.fakes.in_process import connect, new_store, options_in
from tests.bookie.fakes.wires import LEDGER, adds, read
from tests.reactor import reactor, run
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60.0
NAME = re.compile(r"\b((?:quire|process|bookie|bookkeeper|auditor|replication)_\w+|up)\b(?!\s*\()")
AUDITOR = {
    "auditor": True,
    "working": {},
    "lost": ["gone"],
    "away": [],
    **dict.fromkeys(("marked", "repaired", "failed", "entries", "bytes"), 0),
    "parked": {"GONE": 1, "WAITS_FOR_SPARE": 0},
    "figures": {"ledgers": 1},
}


def ours() -> list[str]:
    """Every expression of our dashboards, for one bookie or all."""
    return [
        expression.replace("$bookie", ".+") for panel in (*CLUSTER, *BOOKIE) for expression, _legend in panel.curves
    ]


@contextmanager
def at_work(path: Path) -> Iterator[Bookie]:
    """A bookie with entries and reads, that audits; its metrics are open."""

    store = run(new_store)

    async def begin() -> Bookie:
        await store.raise_ledger_ids(LEDGER + 1)  # so that it knows of the one that is written
        bookie = Bookie(
            reactor,
            options_in(path, store.uri, admin_open=("health", "metrics")),
            store,
            shown=Shown(collectors=[RecoveryCollector(lambda: AUDITOR)]),
        )
        await bookie.start()
        client = await connect(bookie)
        await client.ask(adds(b"first"))
        await client.ask(read(0))
        return bookie

    bookie = run(begin)
    yield bookie

    async def end() -> None:
        await bookie.stop()
        await store.close()

    run(end)


def test_files_are_current() -> None:
    """`python -m quire.tools.watching` writes them."""
    assert {name: (DIRECTORY / name).read_text() for name in files()} == files()


def test_each_alert_says_what_to_do() -> None:
    """And no two have one name."""
    assert len({each.name for each in ALERTS}) == len(ALERTS)
    assert all(each.means and each.do and each.severity in {"warning", "critical"} for each in ALERTS)


def test_every_metric_is_served(tmp_path: Path) -> None:
    """Each name in an expression of ours is one that a bookie gives."""
    with at_work(tmp_path) as bookie:
        served = set(re.findall(r"^(\w+)", bookie.metrics.text().decode(), re.M)) | {"up"}
    named = {name for text in (*ours(), *(each.expression for each in ALERTS)) for name in NAME.findall(text)}
    assert len(named) > 40
    assert named - served == set()


def test_promtool_takes_the_rules() -> None:
    """As a Prometheus server would."""
    need("prometheus")
    done = subprocess.run(
        ["promtool", "check", "rules", str(DIRECTORY / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@contextmanager
def prometheus(path: Path, port: int) -> Iterator[str]:
    """A server that asks that port each second; its address."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()[1]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(DIRECTORY / "alerts.yml")],
        "scrape_configs": [{"job_name": "bookies", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    (path / "prometheus.yml").write_text(json.dumps(config))
    with open(path / "log", "wb") as log:
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={path / 'prometheus.yml'}",
                f"--storage.tsdb.path={path / 'data'}",
                f"--web.listen-address=127.0.0.1:{own}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{own}"
    finally:
        server.terminate()
        server.wait()


def value(server: str, expression: str) -> list[object]:
    """The result of an expression now; empty while there is none, or the server is not up."""
    try:
        with urlopen(f"{server}/api/v1/query?{urlencode({'query': expression})}", timeout=5) as answer:
            found: list[object] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


def test_every_expression_has_a_value_in_prometheus(tmp_path: Path) -> None:
    """Ours, and the names that dashboards made for Apache's select, as far as a bookie has them."""
    need("prometheus")
    (tmp_path / "bookie").mkdir()
    vectors = Path(__file__).parents[1] / "vectors" / "dashboard_metrics.txt"
    theirs = [line for line in vectors.read_text().splitlines() if not line.startswith("#")]
    with at_work(tmp_path / "bookie") as bookie, prometheus(tmp_path, bookie.http_port) as server:
        served = set(re.findall(r"^(\w+)", bookie.metrics.text().decode(), re.M))
        waiting = {*ours(), *(name for name in theirs if name in served)}
        deadline = time.monotonic() + WAIT_S
        while waiting and time.monotonic() < deadline:
            waiting = {each for each in waiting if not value(server, each)}
        assert waiting == set()
        firing = {"EntriesGone", "BookieLost"}
        while time.monotonic() < deadline:
            found = {each["metric"]["alertname"] for each in value(server, 'ALERTS{alertstate="firing"}')}  # type: ignore[index, call-overload]
            if found >= firing:
                break
        assert found == firing


def test_dashboards_are_whole() -> None:
    """Each panel has its place and its curves."""
    for name in ("cluster.json", "bookie.json"):
        panels = json.loads(files()[name])["panels"]
        assert len({(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels}) == len(panels)
        assert all(each["targets"] and each["title"] for each in panels)
