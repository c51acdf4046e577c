"""`quire log snapshots` beside a replica in a process of its own."""

import subprocess

from tests.tools.command import COMMAND, environment, ok

# SPDX-License-Identifier: Apache-2.0

PROGRAM = """
from quire.log import connect

class Words:
    name = "words/1"
    def __init__(self): self.words = []
    def apply(self, record): self.words.append(record.value); return len(self.words)
    def save(self): return [b" ".join(self.words)]
    def load(self, data): self.words = b"".join(data).split()

with connect({uri!r}) as logs, logs.replica("config", Words, stand=True) as replica:
    assert replica.leads(60)
    for number in (1, 2, 3):
        assert replica.propose(b"word") == number
        assert replica.snapshot() == number
    assert replica.read(lambda words: words.words).value == [b"word"] * 3
"""


def test_snapshots_are_listed(uri: str) -> None:
    """Index, ledger, size, and by which machine; where a log begins without any, none."""
    ok("log", "create", "config", metadata=uri)
    assert ok("log", "snapshots", "config", "--json", metadata=uri).rows == []
    subprocess.run([COMMAND[0], "-c", PROGRAM.format(uri=uri)], check=True, env=environment(uri), timeout=120)
    rows = ok("log", "snapshots", "config", "--json", metadata=uri).rows
    assert [(row["index"], row["bytes"], row["entries"], row["epoch"]) for row in rows] == [
        (1, 4, 1, 1),
        (2, 9, 1, 1),
        (3, 14, 1, 1),
    ]
    assert {row["machine"] for row in rows} == {"words/1"}
    table = ok("log", "snapshots", "config", metadata=uri).out
    assert str(rows[0]["ledger"]) in table
    assert "the oldest kept snapshot" in ok("log", "show", "config", metadata=uri).out
