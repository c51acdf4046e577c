"""A program in a process of its own, for what one process can do only once: start the reactor, fork, be ended."""

import pathlib
import subprocess
import sys
import textwrap

# SPDX-License-Identifier: Apache-2.0

ROOT = pathlib.Path(__file__).resolve().parent.parent


def alone(program: str) -> str:
    """Runs it to its end; its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
