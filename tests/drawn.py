"""
A part of the tests, drawn anew for each run: `--share 0.25` takes a quarter of those chosen otherwise.

The seed is printed; `--share-seed N` draws the same part again.
"""

import time
from random import Random
from typing import Any

import pytest

# SPDX-License-Identifier: Apache-2.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("drawn")
    group.addoption("--share", type=float, default=1.0, help="so large a part of the tests, drawn by a seed: 0 to 1")
    group.addoption("--share-seed", type=int, help="the seed of that; default: a new one, which is printed")


def pytest_configure(config: pytest.Config) -> None:
    """Draws the seed, which xdist's workers are given (`pytest_configure_node`)."""
    if not 0 < config.option.share <= 1:
        raise pytest.UsageError(f"--share {config.option.share}: give a number above 0, up to 1")
    if config.option.share_seed is None:
        given = getattr(config, "workerinput", {})
        config.option.share_seed = given.get("share_seed", time.time_ns() // 1000 % 1_000_000)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["share_seed"] = node.config.option.share_seed


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each test is drawn by itself, so that all workers have the same; one at least."""
    share, seed = config.option.share, config.option.share_seed
    if share == 1 or not items:
        return
    lots = [Random(f"{seed}/{item.nodeid}").random() for item in items]
    most = max(share, min(lots))
    taken = [item for item, lot in zip(items, lots, strict=True) if lot < share or lot == most]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(taken)])
    items[:] = taken


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    option = terminalreporter.config.option
    if option.share < 1:
        terminalreporter.write_line(f"drawn: --share {option.share} --share-seed {option.share_seed}")
