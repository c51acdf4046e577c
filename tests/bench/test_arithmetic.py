"""The arithmetic of docs/scale.md: its costs are those of the code, its tables those of its formulas."""

import json
import math

from bench import arithmetic, store_costs
from bench.arithmetic import INTERNET, SIZES, ends_at, limits, page, short
from quire.log import connect
from quire.testing.in_process import InProcessCluster

# SPDX-License-Identifier: Apache-2.0

COSTS = json.loads(store_costs.FIGURES.read_text())
NOISY = ("append", "takeover", "read", "sync")  # what depends on who was faster


def test_the_page_has_the_tables_of_the_formulas() -> None:
    """`python -m bench.arithmetic --write` makes them again."""
    text = arithmetic.PAGE.read_text()
    assert page(text, COSTS) == text


def test_the_costs_are_those_of_the_code() -> None:
    """Writes, watches and bytes, counted again: `python -m bench.store_costs --counts --write` notes new ones."""
    assert store_costs.value_bytes() == COSTS["bytes"]
    found = store_costs.counts((3, 5))
    assert found["watches"] == COSTS["watches"]
    for part in ("life", "log"):
        wanted = {name: each for name, each in COSTS[part].items() if not any(word in name for word in NOISY)}
        assert {name: found[part].get(name) for name in wanted} == wanted


def test_a_segment_has_the_metadata_that_is_counted() -> None:
    """The custom metadata of a log's ledger has these names."""
    with InProcessCluster(bookies=3) as cluster, connect(cluster.uri) as logs:
        logs.create("orders")
        with logs.own("orders") as owner:
            owner.append(b"x")
            (segment,) = logs.segments("orders")
            assert set(logs.bk.metadata(segment.ledger).custom) == set(store_costs.SEGMENT)


def test_a_limit_is_reached_where_it_says() -> None:
    """The largest cluster within a limit is within it, and one that is a little larger is not."""
    for limit in limits(COSTS):
        found = ends_at(limit, INTERNET, COSTS)
        assert limit.asks(found, COSTS) <= limit.most
        larger = arithmetic.scaled(INTERNET, math.ceil(found.bookies * 1.02) + 1)
        assert limit.asks(larger, COSTS) > limit.most, limit.demand


def test_what_grows_with_the_square_is_seen() -> None:
    """Watches and listed ids grow faster than the cluster; nodes and writes with it."""
    small, _middle, large = SIZES
    growth = {name: asks(large, COSTS) / asks(small, COSTS) for name, asks in arithmetic.LINES}
    assert growth["nodes"] < 101
    assert growth["writes/s"] < 101
    assert growth["watches"] > 5_000
    assert growth["ids that bookies list, /s"] > 9_000
    assert growth["lists of bookies that clients read, bytes/s"] > 900_000


def test_numbers_are_short() -> None:
    """Three digits and a unit."""
    assert [short(each) for each in (0.25, 12.345, 1234, 5.6e6, 7e12)] == ["0.25", "12.3", "1.23 k", "5.6 M", "7 T"]
