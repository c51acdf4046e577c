"""The curves of one bookie: that they run from end to end."""

from pathlib import Path

import pytest

from bench.growth.curves import CURVES
from bench.growth.held import clients, entries, ledgers

# SPDX-License-Identifier: Apache-2.0

FIGURES = {curve.verb: set(curve.figures) for curve in CURVES}
PART = 0.01


def test_connections_are_counted_by_what_they_cost(tmp_path: Path) -> None:
    """Every figure of the curve is there in every round; each connection has read an entry."""
    found = clients((1, 3), 1, PART, str(tmp_path))
    assert list(found) == [1, 3]
    assert all(len(runs) == 1 and FIGURES["clients"] <= set(runs[0]) for runs in found.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_ledgers_and_entries_run_from_end_to_end(tmp_path: Path) -> None:
    """On a small scale every figure is there in the first round."""
    assert FIGURES["ledgers"] <= set(ledgers((250, 300), 1, PART, str(tmp_path))[300][0])
    assert FIGURES["entries"] <= set(entries((256, 512), 1, PART, str(tmp_path))[512][0])
