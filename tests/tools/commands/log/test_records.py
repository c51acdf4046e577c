"""`quire log append, read, tail` against four real bookies."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.tools.commands.log.records import Sending
from tests.client.fakes.cluster import FakeCluster
from tests.tools.command import COMMAND, environment, ok, refused

# SPDX-License-Identifier: Apache-2.0

LINES = b"".join(b"line %d of a text\n" % number for number in range(20_000))


@pytest.fixture
def log(uri: str, request: pytest.FixtureRequest) -> str:
    """An empty log named as the test."""
    ok("log", "create", request.node.name, metadata=uri)
    return request.node.name


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_what_goes_in_comes_out(uri: str, tmp_path: Path, log: str, protocol: str) -> None:
    """A record for each line, from a file or from standard input, over both protocols: the values are the lines."""
    file = tmp_path / "text"
    file.write_bytes(LINES)
    done = ok("log", "append", log, "--lines", "-f", file, "--json", "--protocol", protocol, metadata=uri).document
    assert (done["log"], done["first"], done["last"], done["records"]) == (log, 0, 19_999, 20_000)
    assert done["bytes"] == len(LINES) - 20_000
    assert ok("log", "append", log, "--lines", "--protocol", protocol, metadata=uri, stdin=b"one\nmore").out == (
        "20000 to 20001\n"
    )
    read = ok("log", "read", log, "--values", "--protocol", protocol, metadata=uri).raw
    assert read == LINES + b"one\nmore\n"


def test_a_record_of_all_that_is_read(uri: str, log: str) -> None:
    """Line ends and all; of nothing there is no record."""
    assert ok("log", "append", log, metadata=uri, stdin=b"two\nlines\n").out == "0 to 0\n"
    assert ok("log", "append", log, metadata=uri).out == "no record\n"
    (row,) = ok("log", "read", log, "--json", metadata=uri).rows
    assert row == {
        "index": 0,
        "at": 0,
        "stamp_ms": row["stamp_ms"],
        "key": None,
        "value": "two\nlines\n",
        "time_ms": None,
        "headers": [],
    }


def test_keys_are_words_of_the_lines(uri: str, log: str) -> None:
    """The line stays the value; one without that word has no key."""
    ok(
        "log",
        "append",
        log,
        "--lines",
        "--key-field",
        2,
        metadata=uri,
        stdin=b"get  /a 200\nput /b\nping\n\n\xff \xfe\n",
    )
    rows = ok("log", "read", log, "--json", metadata=uri).rows
    assert [row["key"] for row in rows] == ["/a", "/b", None, None, "hex:fe"]
    assert [row["value"] for row in rows] == ["get  /a 200", "put /b", "ping", "", "hex:ff20fe"]
    assert "--key-field is for --lines" in refused(2, "log", "append", log, "--key-field", 1, metadata=uri)


def test_keys_count_in_the_window() -> None:
    """What is read waits for room with its keys, however full the owner's window is."""
    fake = FakeCluster()
    fake.spin(5)
    logs = Logs(fake.client(), LogOptions(window_bytes=1000))
    fake.succeed(logs.create("a"))
    sending = Sending(fake.succeed(logs.own("a")), 1)

    async def story() -> None:
        for _ in range(5):
            await sending.send([b"k" * 300])
        await sending.drain()

    fake.succeed(story())
    assert (sending.first, sending.last, sending.bytes) == (0, 4, 1500)
    fake.succeed(logs.close())


def test_a_range_of_records(uri: str, log: str) -> None:
    """Both ends included; with index, time and key of each."""
    ok("log", "append", log, "--lines", metadata=uri, stdin=b"".join(b"%d\n" % number for number in range(100)))
    assert ok("log", "read", log, "--from", 17, "--to", 19, "--values", metadata=uri).raw == b"17\n18\n19\n"
    assert ok("log", "read", log, "--from", 99, "--to", 200, "--values", metadata=uri).raw == b"99\n"
    assert ok("log", "read", log, "--from", "end", metadata=uri).raw == b""
    assert ok("log", "read", log, "--from", "end", "--to", 3, metadata=uri).raw == b""
    index, time, key, value = ok("log", "read", log, "--to", 0, metadata=uri).out.rstrip("\n").split("\t")
    assert (index, key, value) == ("0", "-", "0")
    assert time.startswith("20")
    assert time.endswith("Z")
    for wrong in (["--from", 5, "--to", 4], ["--from", "yesterday"], ["--on-loss", "cry"], ["--values", "--json"]):
        refused(2, "log", "read", log, *wrong, metadata=uri)


def test_a_time(uri: str, log: str) -> None:
    """Records from a time on, and where that is."""
    for value in (b"a", b"b", b"c"):
        ok("log", "append", log, metadata=uri, stdin=value)
    stamps = [row["stamp_ms"] for row in ok("log", "read", log, "--json", metadata=uri).rows]
    times = [datetime.fromtimestamp(stamp / 1000, UTC).isoformat() for stamp in stamps]
    assert ok("log", "read", log, "--from", times[1], "--values", metadata=uri).raw == b"b\nc\n"
    assert ok("log", "tail", log, "--from", times[2], "--values", "--timeout", 0.1, metadata=uri).raw == b"c\n"
    assert ok("log", "seek", log, times[1], metadata=uri).out == "1\n"
    assert ok("log", "seek", log, stamps[2], "--json", metadata=uri).document == {
        "log": log,
        "index": 2,
        "trimmed": False,
    }
    assert ok("log", "seek", log, "2100-01-01", metadata=uri).out == "3\n"
    for wrong in ("tomorrow", "end"):
        assert f"ms since 1970, not '{wrong}'" in refused(2, "log", "seek", log, wrong, metadata=uri)


def test_a_tail_sees_what_another_process_appends(uri: str, log: str) -> None:
    """From its beginning or from its end on; it ends after silence."""
    ok("log", "append", log, "--lines", metadata=uri, stdin=b"a\nb\n")
    assert ok("log", "tail", log, "--timeout", 0.2, metadata=uri).raw == b""
    assert ok("log", "tail", log, "--from", "begin", "--timeout", 0.2, "--values", metadata=uri).raw == b"a\nb\n"
    with subprocess.Popen(
        [*COMMAND, "log", "tail", log, "--from", "1", "--values"], stdout=subprocess.PIPE, env=environment(uri)
    ) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"b\n"
        ok("log", "append", log, "--lines", metadata=uri, stdin=b"c\n")
        assert tail.stdout.readline() == b"c\n"
        ok("log", "append", log, "--lines", metadata=uri, stdin=b"d\n")
        assert tail.stdout.readline() == b"d\n"
        tail.terminate()
        assert tail.wait(60) == 130


def test_a_log_that_another_one_owns(uri: str, log: str) -> None:
    """Is named with its owner, and not taken without --force; the other one ends then."""
    with subprocess.Popen(
        [*COMMAND, "log", "own", log, "--hold"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(uri)
    ) as owner:
        assert owner.stdout is not None
        assert b"is owned" in owner.stdout.readline()
        said = refused(1, "log", "append", log, metadata=uri, stdin=b"x")
        assert f"the log '{log}' is owned by epoch 1" in said
        assert "--force" in said
        assert ok("log", "append", log, "--force", metadata=uri, stdin=b"x").out == "0 to 0\n"
        assert owner.wait(60) == 1
        assert owner.stderr is not None
        assert b"another one owns the log" in owner.stderr.read()


def test_what_is_not_there(uri: str, tmp_path: Path) -> None:
    """A log, a file, a store: each is named."""
    assert "there is no log 'nowhere'" in refused(1, "log", "append", "nowhere", metadata=uri, stdin=b"x")
    assert "there is no log 'nowhere'" in refused(1, "log", "tail", "nowhere", metadata=uri)
    assert "no-such-file" in refused(1, "log", "append", "nowhere", "-f", tmp_path / "no-such-file", metadata=uri)
    assert "holds no cluster" in refused(1, "log", "list", metadata=f"sqlite://{tmp_path}/none.db")
