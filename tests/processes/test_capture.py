"""
The example of change data capture as processes: what publishes and what copies is killed again and again while the
table changes, and each change is in the log once.  `ROUNDS=50` in the environment kills so often.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.pipeline.capture.server import postgres
from tests.requirements import need
from tests.tools.command import environment

# SPDX-License-Identifier: Apache-2.0

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "capture"
ROUNDS = os.environ.get("ROUNDS", "2")


def tried(directory, *options):
    """Runs the trial, which finds table, log and copies alike, and leaves nothing."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--kills", ROUNDS, *options], capture_output=True, text=True, check=False,
        env={**environment(), "TMPDIR": str(directory)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith("table, log and copies are alike, and each change is in the log once\n")
    assert not list(directory.iterdir())


def test_a_capture_of_sqlite_that_is_killed(tmp_path):
    """Each change that the triggers noted is in the log once."""
    tried(tmp_path)


def test_a_capture_of_postgresql_that_is_killed(tmp_path):
    """Each change that was decoded is in the log once, in the order of the commits."""
    need("postgres")
    with postgres() as uri:
        tried(tmp_path, "--postgres", uri)
