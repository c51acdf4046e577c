"""The calls of one operation: counted, and no more than the bounds, which only fall."""

import json
import subprocess
import sys

from bench.calls import BOUNDS, Calls
from tests.tools.command import environment

# SPDX-License-Identifier: Apache-2.0

SLACK = 1.15  # answers that come one by one, the more the busier the machine; the bench itself allows nothing


def test_calls_are_counted() -> None:
    """Those of Python and of C, by operation, only while it is asked for."""

    def two(values: list[int]) -> int:
        return len(values) + one(values)

    def one(values: list[int]) -> int:
        return max(values)

    calls = Calls()
    try:
        with calls.here():
            found = calls.of(lambda: two([1]), 10)
            two([1])
    finally:
        calls.end()
    assert found.python == 3  # the lambda, two, one
    assert found.c in (2, 2.1)  # len, max; and the end of the profile
    assert sum(calls.functions.values()) == 30


def test_no_operation_is_dearer_than_its_bound() -> None:
    """Each row of the bench, in a process of its own, over bookies that are processes."""
    command = [sys.executable, "-m", "bench.calls", "--pairs", "5", "--quick", "--json"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 2 * len(BOUNDS)
    dearer = {row["name"]: (row["ours"], row["theirs"]) for row in found if row["median"] > SLACK}
    assert not dearer
