"""`quire log trim, compact, truncate, terminate, give-up, tidy, orphans, check, purge` against four real bookies."""

import subprocess
from collections.abc import Iterator

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.command import PROGRAM, environment, ok, quire, refused
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

PART = """
from quire.log import connect
with connect({uri!r}) as logs:
    logs.sink("facts", "stream", "run").part(0, 0, 0).append_many([b"a"])
    logs.bk.create_ledger(custom_metadata={{
        "application": b"quire", "component": b"log-segment", "quire/log": logs.info("facts").id.encode(),
        "quire/name": b"facts", "quire/creation": b"x",
    }}).close()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Of these tests alone: what they find is all that is there."""
    with LocalCluster(tmp_path_factory.mktemp("upkeep"), 4, options=SMALL) as made:
        yield made


def test_ledgers_that_no_log_names(uri: str) -> None:
    """Are listed, not those of intents; young ones stay; nothing is deleted unasked."""
    ok("log", "create", "facts", metadata=uri)
    ok("log", "append", "facts", metadata=uri, stdin=b"x")
    assert ok("log", "orphans", "--json", metadata=uri).rows == []
    subprocess.run([*PROGRAM, PART.format(uri=uri)], check=True, env=environment(uri), timeout=60)
    (row,) = ok("log", "orphans", "--json", metadata=uri).rows
    assert (row["name"], row["component"], row["deleted"]) == ("facts", "log-segment", False)
    assert str(row["ledger"]) in ok("log", "orphans", metadata=uri).out
    assert "give --yes" in refused(1, "log", "orphans", "--delete", metadata=uri)
    assert [each["deleted"] for each in ok("log", "orphans", "--delete", "--yes", "--json", metadata=uri).rows] == [
        False
    ]
    refused(2, "log", "orphans", "--really", metadata=uri)


def test_records_go_from_the_beginning(uri: str) -> None:
    """Trimmed ones at once, their ledgers with a round of upkeep; nothing unasked."""
    ok("log", "create", "trimmed", metadata=uri)
    for value in (b"a", b"b", b"c"):
        ok("log", "append", "trimmed", metadata=uri, stdin=value)
    assert "give --yes" in refused(1, "log", "trim", "trimmed", "--before", 2, metadata=uri)
    assert ok("log", "trim", "trimmed", "--before", 2, "--yes", metadata=uri).out == "trimmed begins at index 2\n"
    assert ok("log", "read", "trimmed", "--values", metadata=uri).raw == b"c\n"
    assert "--on-trim skip" in refused(1, "log", "read", "trimmed", "--from", 0, metadata=uri)
    assert ok("log", "read", "trimmed", "--from", 0, "--on-trim", "skip", "--values", metadata=uri).raw == b"c\n"
    dry = ok("log", "tidy", "trimmed", "--dry-run", "--json", metadata=uri).document
    done = ok("log", "tidy", "trimmed", "--json", metadata=uri).document
    assert (dry["dry_run"], done["dry_run"]) == (True, False)
    assert ok("log", "show", "trimmed", "--json", metadata=uri).document["doomed"] == 0
    assert "give --yes" in refused(1, "log", "truncate", "trimmed", metadata=uri)
    assert ok("log", "truncate", "trimmed", "--yes", "--json", metadata=uri).document == {"log": "trimmed", "begin": 3}
    assert ok("log", "read", "trimmed", metadata=uri).raw == b""
    assert ok("log", "append", "trimmed", metadata=uri, stdin=b"d").out == "3 to 3\n"


def test_a_log_is_compacted(uri: str) -> None:
    """The newest record of each key, in ledgers that stay when the log is trimmed; refused where it is not wanted."""
    ok("log", "create", "prices", metadata=uri)
    for value in (b"k 1\nl 2\n", b"k 3\n"):
        ok("log", "append", "prices", "--lines", "--key-field", 1, metadata=uri, stdin=value)
    assert "compaction=true" in refused(2, "log", "compact", "prices", metadata=uri)
    ok("log", "set", "prices", "compaction=true", metadata=uri)
    assert ok("log", "compact", "prices", "--json", metadata=uri).document == {
        "log": "prices",
        "horizon": 2,
        "records": 2,
        "bytes": 6,
        "ledgers": 1,
    }
    assert "nothing new" in ok("log", "compact", "prices", metadata=uri).out
    assert ok("log", "read", "prices", "--compacted", "--values", metadata=uri).raw == b"l 2\nk 3\n"
    ok("log", "trim", "prices", "--before", 3, "--yes", metadata=uri)
    ok("log", "append", "prices", metadata=uri, stdin=b"more")
    rows = ok("log", "read", "prices", "--compacted", "--json", metadata=uri).rows
    assert [(each["index"], each["at"], each["key"]) for each in rows] == [(1, -1, "l"), (2, -1, "k"), (3, 9, None)]


def test_a_log_ends(uri: str) -> None:
    """It takes nothing more, and a reader that follows it ends."""
    ok("log", "create", "ended", metadata=uri)
    ok("log", "append", "ended", metadata=uri, stdin=b"last")
    assert "give --yes" in refused(1, "log", "terminate", "ended", metadata=uri)
    for _ in range(2):
        assert ok("log", "terminate", "ended", "--yes", metadata=uri).out == "ended ends at index 1\n"
    assert ok("log", "tail", "ended", "--from", 0, "--values", metadata=uri).raw == b"last\n"
    assert "LogTerminated" in refused(1, "log", "append", "ended", metadata=uri, stdin=b"more")


def test_what_is_left_of_deleted_logs_goes(uri: str) -> None:
    """With a round over all logs."""
    ok("log", "create", "gone", metadata=uri)
    ok("log", "append", "gone", metadata=uri, stdin=b"x")
    (segment,) = ok("log", "show", "gone", "--segments", "--json", metadata=uri).document["segments"]
    ledger = segment["ledger"]
    id_ = ok("log", "delete", "gone", "--yes", "--json", metadata=uri).document["id"]
    assert id_ in ok("log", "tidy", "--dry-run", "--json", metadata=uri).document["removed"]
    assert "give --yes" in refused(1, "log", "tidy", "--abandon", metadata=uri)
    assert "1 deleted logs removed" in ok("log", "tidy", "--abandon", "--yes", metadata=uri).out
    assert ledger not in [row["ledger"] for row in ok("ledger", "list", "--json", metadata=uri).rows]


def test_a_segment_whose_ledger_is_gone(uri: str) -> None:
    """Readers name the command that goes on without it; what is behind it is read again then."""
    ok("log", "create", "lossy", metadata=uri)
    for value in (b"a", b"b"):
        ok("log", "append", "lossy", metadata=uri, stdin=value)
    first = ok("log", "show", "lossy", "--segments", "--json", metadata=uri).document["segments"][0]
    assert "is there" in refused(2, "log", "give-up", "lossy", 0, "--yes", metadata=uri)
    assert ok("log", "check", "lossy", metadata=uri).err == "lossy is whole\n"
    ok("ledger", "delete", first["ledger"], "--force", metadata=uri)
    found = quire("log", "check", "lossy", "--json", metadata=uri)
    assert found.code == 1
    assert [(row["segment"], row["ledger"]) for row in found.rows] == [(0, first["ledger"])]
    assert "quire log give-up lossy 0" in refused(1, "log", "read", "lossy", metadata=uri)
    assert "give --yes" in refused(1, "log", "give-up", "lossy", 0, metadata=uri)
    done = ok("log", "give-up", "lossy", 0, "--yes", "--json", metadata=uri).document
    assert (done["segment"], done["first"], done["end"]) == (0, 0, 1)
    assert ok("log", "read", "lossy", "--on-loss", "skip", "--values", metadata=uri).raw == b"b\n"


def test_logs_of_a_former_cluster(uri: str) -> None:
    """Those of the present one are not touched; nothing unasked."""
    ok("log", "create", "present", metadata=uri)
    assert "give --yes" in refused(1, "log", "purge", "--of", "another", metadata=uri)
    assert "WrongCluster" in refused(1, "log", "purge", "--of", "another", "--yes", metadata=uri)
    assert {"name": "present"} in ok("log", "list", "--json", metadata=uri).rows


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
