"""The worked example of the pipeline without its Spark: its orders, its own check, its page."""

import importlib
import json
import sqlite3
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from quire.log import connect
from quire.tools.local_cluster.cluster import LocalCluster
from tests.manual.blocks import ROOT
from tests.requirements import need
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

SHOP = ROOT / "docs" / "examples" / "shop"
AT = datetime(2026, 11, 27, 12, 34, 56, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)
RIGHT = {"order": "o1", "at": AT.isoformat(), "sku": "tea-1", "quantity": 2}
COUNTED = {"begin": "2026-11-27T12:30", "category": "tea", "orders": 1, "items": 2, "cents": 2700}


def text(**changes: object) -> bytes:
    return json.dumps(RIGHT | changes).encode()


REASONS = [
    (text(), None),
    (text(more=[1]), None),
    (text()[:-1], "not JSON"),
    (text() + text(), "not JSON"),
    (text() + b"," + text(), "not JSON"),
    (text() + b" and more", "not JSON"),
    (b"", "not JSON"),
    (text() + b"\xff", "not UTF-8"),
    (text(quantity="2"), "wrong type"),
    (text(quantity=2.0), "wrong type"),
    (text(quantity=True), "wrong type"),
    (text(at="yesterday"), "wrong type"),
    (b"[]", "wrong type"),
    (b"[" + text() + b"]", "wrong type"),
    (b"7", "wrong type"),
    (b"null", "wrong type"),
    (b"{}", "missing field"),
    (text(sku=None), "missing field"),
    (text(sku="tea-99"), "unknown product"),
    (text(quantity=0), "out of range"),
    (text(quantity=101), "out of range"),
    (text(at=(AT + timedelta(seconds=1)).isoformat()), "from the future"),
    (text(at=(AT - timedelta(minutes=30)).isoformat()), None),
    (text(at=(AT - timedelta(minutes=30, milliseconds=1)).isoformat()), "too late"),
]


@contextmanager
def modules() -> Iterator[Callable[[str], Any]]:
    """Imports modules of the example as the example does, by their bare names, and forgets them."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SHOP))
        yield importlib.import_module
    for file in SHOP.glob("*.py"):
        if file.stem not in before:
            sys.modules.pop(file.stem, None)


@pytest.fixture
def shop() -> Iterator[Callable[[str], Any]]:
    with modules() as found:
        yield found


def test_a_day(shop: Any) -> None:
    """A seed draws one day, in order of arrival, with each kind of what goes wrong, and orders that are sent twice."""
    events, check = shop("events"), shop("check")
    arrivals = events.day(7, 4000)
    assert arrivals == events.day(7, 4000) != events.day(8, 4000)
    times = [each.time_ms for each in arrivals]
    assert times == sorted(times)
    reasons = Counter(check.wrong(each.value, each.time_ms) for each in arrivals)
    assert reasons.keys() == {
        None, "not UTF-8", "not JSON", "wrong type", "missing field", "unknown product", "out of range",
        "from the future", "too late",
    }  # fmt: skip
    right = [json.loads(each.value) for each in arrivals if check.wrong(each.value, each.time_ms) is None]
    assert len({order["order"] for order in right}) < len(right)
    assert [order["at"] for order in right] != sorted(order["at"] for order in right)


@pytest.mark.parametrize(("value", "reason"), REASONS)
def test_what_is_wrong(shop: Any, value: bytes, reason: str | None) -> None:
    """The first reason that holds."""
    assert shop("check").wrong(value, AT_MS) == reason


def test_the_check_finds_what_differs(shop: Any, tmp_path: Path) -> None:
    """A sum or a reject that is wrong, missing or too much, in a log or in the table."""
    check = shop("check")
    alone = {"ensemble": 1, "write": 1, "ack": 1}
    with LocalCluster(tmp_path / "cluster", 1, options=SMALL) as cluster, connect(cluster.uri) as logs:

        def filled(name: str, values: list[bytes], **how: Any) -> None:
            logs.create(name, **alone)
            with logs.own(name) as owner:
                owner.append_many(values, **how)

        filled("orders", [text(), b"broken", text()], times_ms=[AT_MS] * 3)
        filled("sales", [json.dumps(each).encode() for each in (COUNTED | {"items": 1}, COUNTED)])
        filled("rejects", [b"broken"], headers=[[("reason", b"not JSON"), ("index", b"1")]])
        filled("others", [b"broken"], headers=[[("reason", b"not JSON"), ("index", b"2")]])
        want = check.expected(cluster.uri, "orders")
        assert (want.records, want.counted, want.duplicates, want.rejects.total()) == (3, 1, 1, 1)
        assert not check.differences(want, cluster.uri, "sales", "rejects", [COUNTED])
        assert len(check.differences(want, cluster.uri, "sales", "others", [COUNTED])) == 2
        for rows in ([], [COUNTED | {"cents": 1}], [COUNTED, COUNTED | {"category": "coffee"}]):
            (found,) = check.differences(want, cluster.uri, "sales", "rejects", rows)
            assert found.startswith("the table differs at ")


def test_the_page(shop: Any, tmp_path: Path) -> None:
    """It shows the table as it is at each request, the chart, and rejects as text."""
    need("matplotlib")
    page = shop("page")
    rejects = [page.Reject(AT, "not JSON", b"<script>")]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as table:
        table.execute(f"CREATE TABLE sales ({', '.join(page.COLUMNS)})")
        with page.server(tmp_path / "shop.db", rejects) as server:
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:

                def got(place: str) -> bytes:
                    address = f"http://127.0.0.1:{server.server_port}/{place}"
                    with urllib.request.urlopen(address, timeout=120) as answer:
                        return bytes(answer.read())

                assert json.loads(got("sales.json")) == []
                table.execute("INSERT INTO sales VALUES (?, ?, ?, ?, ?)", tuple(COUNTED.values()))
                table.commit()
                assert json.loads(got("sales.json")) == [COUNTED]
                shown = got("").decode()
                assert "<svg" in shown
                assert "€27.00" in shown
                assert "&lt;script&gt;" in shown
                assert "<script>" not in shown
                assert got("chart.png").startswith(b"\x89PNG")
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    got("nothing")
            finally:
                server.shutdown()
                thread.join()


def test_the_chart_has_no_empty_bars(shop: Any) -> None:
    """Each bar has a height, and stands on the one below it."""
    need("matplotlib")
    page = shop("page")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    series = {"tea": Counter({AT: 2.0}), "coffee": Counter({AT: 3.0, AT + page.QUARTER: 1.0})}
    page.bars(axes, series, page.CATEGORIES, "{}")
    assert [(bar.get_y(), bar.get_height()) for bar in axes.patches] == [(0, 3), (0, 1), (3, 2)]
    assert [each.get_text() for each in axes.get_legend().get_texts()] == ["coffee  4.0", "tea  2.0"]
