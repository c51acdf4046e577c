"""`quire log cursors`, `quire log cursor seek, delete`, `quire log snapshots` beside a replica, on real bookies."""

import subprocess

from tests.tools.command import PROGRAM, environment, ok, refused

# SPDX-License-Identifier: Apache-2.0

CONSUMER = """
from quire.log import connect
with connect({uri!r}) as logs, logs.cursor({log!r}, "billing", start="begin") as cursor:
    for record in cursor.read():
        if record.value != b"two":
            cursor.ack(record.index)
"""
REPLICA = """
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


def consume(uri: str, log: str) -> None:
    """A program that is not done with the second record."""
    subprocess.run([*PROGRAM, CONSUMER.format(uri=uri, log=log)], check=True, env=environment(uri), timeout=60)


def test_cursors_are_listed_moved_and_deleted(uri: str) -> None:
    """With the backlog from the mark on; nothing moves unasked, and a log is kept for them."""
    ok("log", "create", "consumed", metadata=uri)
    assert ok("log", "cursors", "consumed", "--json", metadata=uri).rows == []
    ok("log", "append", "consumed", "--lines", metadata=uri, stdin=b"one\ntwo\nthree\n")
    consume(uri, "consumed")
    (row,) = ok("log", "cursors", "consumed", "--json", metadata=uri).rows
    assert (row["cursor"], row["mark"], row["records"], row["bytes"]) == ("billing", 1, 2, 8)
    assert row["ms"] >= 0
    assert "billing" in ok("log", "cursors", "consumed", metadata=uri).out
    assert "the cursor 'billing'" in refused(2, "log", "trim", "consumed", "--before", 2, "--yes", metadata=uri)
    move = ("log", "cursor", "seek", "consumed", "billing")
    assert "give --yes" in refused(1, *move, 3, metadata=uri)
    refused(2, *move, "x", "--yes", metadata=uri)
    refused(2, *move, 4, "--yes", metadata=uri)
    assert ok(*move, 3, "--yes", metadata=uri).out == "billing is at index 3\n"
    assert ok(*move, "begin", "--yes", "--json", metadata=uri).document["mark"] == 0
    assert ok(*move, "end", "--yes", "--json", metadata=uri).document["mark"] == 3
    assert "no cursor 'other'" in refused(1, "log", "cursor", "seek", "consumed", "other", 1, "--yes", metadata=uri)
    gone = ("log", "cursor", "delete", "consumed", "billing")
    assert "give --yes" in refused(1, *gone, metadata=uri)
    assert ok(*gone, "--yes", metadata=uri).out == "deleted billing\n"
    assert "no cursor 'billing'" in refused(1, *gone, "--yes", metadata=uri)
    assert ok("log", "cursors", "consumed", "--json", metadata=uri).rows == []


def test_snapshots_are_listed(uri: str) -> None:
    """Index, ledger, size, and by which machine; where a log begins without any, none."""
    ok("log", "create", "config", metadata=uri)
    assert ok("log", "snapshots", "config", "--json", metadata=uri).rows == []
    subprocess.run([*PROGRAM, REPLICA.format(uri=uri)], check=True, env=environment(uri), timeout=120)
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
