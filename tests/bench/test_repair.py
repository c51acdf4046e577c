"""The bench of repair runs from end to end: ledgers are made, a bookie goes, its copies are made good, it returns."""

import json
from pathlib import Path

import pytest

from bench.repair import main

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.long
def test_it_runs_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a small scale, ours alone; nothing is left on the disk."""
    monkeypatch.setattr("sys.argv", ["repair", "--alone", "--ledgers=5", "--pairs=2", f"--directory={tmp_path}"])
    main()
    found = json.loads(capsys.readouterr().out)
    assert [run["ledgers_per_second"] > 0 for run in found["runs"]["quire"]] == [True, True]
    assert list(tmp_path.iterdir()) == []
