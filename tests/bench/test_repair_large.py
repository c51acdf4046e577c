"""The bench of a large ledger's repair runs from end to end, there and back."""

import json
from pathlib import Path

import pytest

from bench.repair_large import main

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.long
def test_it_runs_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a small scale; nothing is left on the disk."""
    monkeypatch.setattr("sys.argv", ["repair_large", "--mb=10", "--pairs=2", f"--directory={tmp_path}"])
    main()
    found = json.loads(capsys.readouterr().out)
    assert all(each["mb_per_second"] > 0 for name in ("quire", "copy") for each in found["runs"][name])
    assert list(tmp_path.iterdir()) == []
