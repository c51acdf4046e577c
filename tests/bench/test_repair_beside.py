"""The bench of a repair beside a load runs from end to end: the load alone, beside a repair, and the rest of it."""

import json
from pathlib import Path

import pytest

from bench.repair_beside import main

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.long
@pytest.mark.parametrize("more", [[], ["--inside"]])
def test_it_runs_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """On a small scale, whenever the repair begins; nothing is left on the disk."""
    words = ["--pairs=1", "--seconds=0.5", "--rate=200", "--mb=40", f"--directory={tmp_path}", *more]
    monkeypatch.setattr("sys.argv", ["repair_beside", *words])
    main()
    found = json.loads(capsys.readouterr().out)
    assert [len(found["runs"][name]) for name in ("alone", "beside")] == [1, 1]
    assert all(run["p99_ms"] > 0 for runs in found["runs"].values() for run in runs)
    assert list(tmp_path.iterdir()) == []
