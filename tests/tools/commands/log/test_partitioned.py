"""The commands of logs where a log has partitions, against four real bookies."""

import pytest

from quire.log import connect, partition_for
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0

LINES = b"".join(b"k%d %d\n" % (number % 7, number) for number in range(50))


def test_a_partitioned_log_from_a_shell(uri: str) -> None:
    """Created, appended to by key, read whole and by partition, shown, grown, deleted."""
    made = ok("log", "create", "p1", "--partitions", 3, "--set", "retention_ms=7000", "--json", metadata=uri).document
    assert made["settings"]["partitions"] == 3
    done = ok("log", "append", "p1", "--lines", "--key-field", 1, "--json", metadata=uri, stdin=LINES).document
    assert (done["records"], sum(each["records"] for each in done["partitions"])) == (50, 50)
    said = ok("log", "append", "p1", "--lines", "--key-field", 1, metadata=uri, stdin=b"k1 again\n").out
    place = partition_for(b"k1", 3)
    before = next(each["records"] for each in done["partitions"] if each["partition"] == place)
    assert said == f"p1/{place}: {before} to {before}\n"
    rows = ok("log", "read", "p1", "--json", metadata=uri).rows
    assert len(rows) == 51
    for row in rows:
        assert row["partition"] == partition_for(row["key"].encode(), 3)
    for key in {row["key"] for row in rows} - {"k1"}:
        numbers = [int(row["value"].split()[1]) for row in rows if row["key"] == key]
        assert numbers == sorted(numbers)
    lines = ok("log", "read", "p1", "--partition", 0, "--partition", place, metadata=uri).out.splitlines()
    assert {line.split("\t")[0] for line in lines} <= {"0", str(place)}
    one = ok("log", "read", "p1", "--partition", place, "--from", before, "--values", metadata=uri).out
    assert one == "k1 again\n" == ok("log", "read", f"p1/{place}", "--from", before, "--values", metadata=uri).out
    tailed = ok("log", "tail", "p1", "--from", "begin", "--timeout", 0.5, "--json", metadata=uri).rows
    assert len(tailed) == 51
    shown = ok("log", "show", "p1", "--json", metadata=uri).document
    assert [(each["partition"], each["name"]) for each in shown["partitions"]] == [(n, f"p1/{n}") for n in range(3)]
    assert sum(each["end"] for each in shown["partitions"]) == 51
    assert "PARTITION" in ok("log", "show", "p1", metadata=uri).out
    ok("log", "set", "p1", "partitions=4", metadata=uri)
    assert len(ok("log", "show", "p1", "--json", metadata=uri).document["partitions"]) == 4
    assert "only grows" in refused(2, "log", "set", "p1", "partitions=2", metadata=uri)
    names = ok("log", "list", metadata=uri).out.splitlines()
    assert {"p1", "p1/0", "p1/3"} <= set(names)
    (row,) = [row for row in ok("log", "list", "--long", "--json", metadata=uri).rows if row["name"] == "p1"]
    assert row["partitions"] == 4
    assert "p1 is whole" in ok("log", "check", "p1", metadata=uri).err
    assert ok("log", "tidy", "p1", "--json", metadata=uri).document["logs"] == 4
    ok("log", "delete", "p1", "--yes", metadata=uri)
    assert not {"p1", "p1/0", "p1/3"} & set(ok("log", "list", metadata=uri).out.splitlines())


def test_places_of_partitions(uri: str) -> None:
    """A time has an index in each; cursors are listed, moved and deleted in all."""
    ok("log", "create", "p2", "--partitions", 2, metadata=uri)
    ok("log", "append", "p2", "--lines", "--key-field", 1, metadata=uri, stdin=LINES)
    assert ok("log", "seek", "p2", "0", metadata=uri).out == "p2/0: 0\np2/1: 0\n"
    with connect(uri) as logs, logs.partition_cursor("p2", "billing", start="begin"):
        pass
    rows = ok("log", "cursors", "p2", "--json", metadata=uri).rows
    assert [(row["partition"], row["cursor"], row["mark"]) for row in rows] == [(0, "billing", 0), (1, "billing", 0)]
    assert "PARTITION" in ok("log", "cursors", "p2", metadata=uri).out
    moved = ok("log", "cursor", "seek", "p2", "billing", "end", "--yes", metadata=uri).out.splitlines()
    assert [line.split(" ")[0] for line in moved] == ["p2/0:", "p2/1:"]
    assert sum(row["records"] for row in ok("log", "cursors", "p2", "--json", metadata=uri).rows) == 0
    ok("log", "cursor", "seek", "p2/1", "billing", "0", "--yes", metadata=uri)
    ok("log", "cursor", "delete", "p2", "billing", "--yes", metadata=uri)
    assert "has no cursors" in ok("log", "cursors", "p2", metadata=uri).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["read", "p3", "--from", "3"], "is for one partition"),
        (["read", "p3", "--to", "3"], "is for one partition"),
        (["read", "p3", "--compacted"], "is for one partition"),
        (["read", "p3", "--partition", "2"], "p3 has no partition 2: they are 0 to 1"),
        (["read", "p3one", "--partition", "0"], "p3one has no partitions"),
        (["tail", "p3", "--from", "3"], "is for one partition"),
        (["cursor", "seek", "p3", "c", "3", "--yes"], "is for one partition"),
    ],
)
def test_what_is_about_one_partition(uri: str, words: list[str], said: str) -> None:
    """The error names a partition, or what there is instead."""
    if "p3" not in ok("log", "list", metadata=uri).out.splitlines():
        ok("log", "create", "p3", "--partitions", 2, metadata=uri)
        ok("log", "create", "p3one", metadata=uri)
    assert said in refused(2, "log", *words, metadata=uri)


def test_what_only_partitions_have(uri: str) -> None:
    """An owner, an end, another name: the error names the partitions."""
    ok("log", "create", "p4", "--partitions", 2, metadata=uri)
    for words in (["own", "p4"], ["terminate", "p4", "--yes"], ["trim", "p4", "--before", "1", "--yes"]):
        assert "p4/0 to p4/1" in refused(2, "log", *words, metadata=uri)
    assert "keeps its name" in refused(2, "log", "rename", "p4", "p5", metadata=uri)
    assert "quire log delete p4" in refused(2, "log", "delete", "p4/1", "--yes", metadata=uri)
