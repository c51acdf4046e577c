"""The loads of the curves of appends, and syncs that take longer."""

import time
from pathlib import Path

import pytest

from bench.growth.slow_bookie import slow
from bench.growth.streams import BATCH, RUN_BYTES, RUN_ENTRIES, WINDOW, WINDOW_BYTES, of_size, of_window, turns
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0


def test_points_come_by_turns() -> None:
    """Every other round in reverse order, so that none always comes first."""
    assert list(turns((1, 10, 100), 3)) == [1, 10, 100, 100, 10, 1, 1, 10, 100]


@pytest.mark.parametrize("size", [16, 1024, 65_536, 4 << 20])
def test_a_load_of_large_entries_has_fewer_under_way(size: int) -> None:
    """What is under way fits into memory, a run ends in seconds, calls are whole."""
    load = of_size(size, 1.0)
    assert load["window"] * size <= max(WINDOW_BYTES, WINDOW * 16)
    assert load["entries"] * size <= max(RUN_BYTES, RUN_ENTRIES * 16)
    assert load["entries"] % load["batch"] == 0
    assert 1 <= load["batch"] <= BATCH


@pytest.mark.parametrize("window", [1, 4, 64, 16_384])
def test_a_window_is_filled_more_than_once(window: int) -> None:
    """No call is larger than a quarter of it, so that there is always one under way."""
    load = of_window(window, 1.0)
    assert load["entries"] >= 4 * window
    assert load["batch"] == 1 or load["batch"] * 4 <= window


def test_a_sync_is_made_and_takes_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is before it, by as much as was asked for."""
    said: list[tuple[str, float]] = []
    monkeypatch.setattr(Files, "datasync", lambda _self, handle: said.append(("sync", handle)))
    monkeypatch.setattr(time, "sleep", lambda seconds: said.append(("wait", seconds)))
    slow(0.005)
    Files().datasync(7)
    assert said == [("wait", 0.005), ("sync", 7)]
