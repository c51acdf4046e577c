"""
The example of change data capture as processes: what publishes and what copies is killed again and again while the
table changes, and each change is in the log once.  `ROUNDS=50` in the environment kills so often.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.tools.command import environment

# SPDX-License-Identifier: Apache-2.0

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "capture"
ROUNDS = os.environ.get("ROUNDS", "2")


def test_a_capture_that_is_killed(tmp_path):
    """The trial finds table, log and copies alike."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--kills", ROUNDS], capture_output=True, text=True, check=False,
        env={**environment(), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith("table, log and copies are alike, and each change is in the log once\n")
    assert not list(tmp_path.iterdir())
