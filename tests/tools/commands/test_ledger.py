"""`quire ledger` against four real bookies."""

import hashlib
import json
import re
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from quire.log.api import connect
from quire.metadata.ledger import Fragment
from quire.metadata.uri import open_store
from quire.tools.local_cluster.cluster import LocalCluster
from tests.metadata.stored import PATHS
from tests.reactor import reactor, run
from tests.tools.command import COMMAND, environment, ok, quire, refused

# SPDX-License-Identifier: Apache-2.0

TEXT = b"".join(b"line %d of a text that is long enough to be one\n" % number for number in range(5000))


def written(uri: str, data: bytes, *options: object) -> int:
    """Writes a ledger from standard input; its id."""
    return int(ok("ledger", "write", *options, metadata=uri, stdin=data).out)


@pytest.fixture(scope="module")
def text(cluster: LocalCluster) -> int:
    """A closed ledger with TEXT, a line an entry."""
    return written(cluster.uri, TEXT, "--lines")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("open sesame\n")
    return path


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize(
    ("options", "entries"),
    [(["--lines"], 5000), (["--size", 1000], -(-len(TEXT) // 1000)), ([], -(-len(TEXT) // 65536))],
)
def test_what_goes_in_comes_out(uri: str, tmp_path: Path, options: list[object], entries: int, protocol: str) -> None:
    """Lines or blocks, from a file, over both protocols: the payloads joined are the file."""
    file = tmp_path / "text"
    file.write_bytes(TEXT)
    done = ok("ledger", "write", "-f", file, *options, "--json", "--protocol", protocol, metadata=uri).document
    assert (done["entries"], done["bytes"], done["closed"], done["ensemble_changes"]) == (entries, len(TEXT), True, 0)
    assert ok("ledger", "read", done["ledger"], "--raw", "--protocol", protocol, metadata=uri).raw == TEXT


def test_the_id_is_all_that_is_printed(uri: str) -> None:
    """So that a shell can take it; the rest goes to standard error."""
    done = ok("ledger", "write", "--lines", metadata=uri, stdin=b"x\n")
    assert re.fullmatch(r"\d+\n", done.out)
    assert f"writing ledger {done.out.strip()}" in done.err


def test_a_range_of_entries(uri: str, text: int) -> None:
    """Both ends included."""
    lines = TEXT.splitlines(keepends=True)
    assert ok("ledger", "read", text, "--from", 17, "--to", 19, metadata=uri).raw == b"".join(lines[17:20])
    assert ok("ledger", "read", text, "--from", 4999, metadata=uri).raw == lines[4999]
    assert "ends at entry 4999" in refused(2, "ledger", "read", text, "--to", 5000, metadata=uri)


def test_payloads_as_text_hex_json_and_raw(uri: str) -> None:
    """Text gets a line end where it has none; bytes that are no text are shown as digits in JSON."""
    ledger = written(uri, b"ab\nc\xff", "--size", "3")
    assert ok("ledger", "read", ledger, metadata=uri).raw == b"ab\nc\xff\n"
    assert ok("ledger", "read", ledger, "--raw", metadata=uri).raw == b"ab\nc\xff"
    assert ok("ledger", "read", ledger, "--hex", metadata=uri).out == "61620a\n63ff\n"
    assert ok("ledger", "read", ledger, "--json", metadata=uri).rows == [
        {"ledger": ledger, "entry": 0, "data": "ab\n"},
        {"ledger": ledger, "entry": 1, "hex": "63ff"},
    ]


def test_an_empty_input_is_an_empty_closed_ledger(uri: str) -> None:
    """It reads as nothing, and has nothing to miss."""
    ledger = written(uri, b"")
    assert ok("ledger", "read", ledger, metadata=uri).raw == b""
    shown = ok("ledger", "show", ledger, "--json", metadata=uri).document
    assert (shown["state"], shown["last_entry"], shown["bytes"]) == ("CLOSED", -1, 0)
    assert ok("ledger", "check", ledger, "--json", metadata=uri).document["copies"] == 0


def test_show(uri: str, cluster: LocalCluster, secret: Path) -> None:
    """Quorums, digest, fragments; never the password."""
    ledger = written(
        uri,
        b"a\nb\n",
        "--lines",
        "--ensemble",
        4,
        "--write",
        2,
        "--ack",
        1,
        "--digest",
        "MAC",
        "--password-file",
        secret,
    )
    done = ok("ledger", "show", ledger, "--json", metadata=uri)
    shown = done.document
    assert (shown["ensemble_size"], shown["write_quorum"], shown["ack_quorum"], shown["digest"]) == (4, 2, 1, "MAC")
    assert (shown["state"], shown["last_entry"], shown["bytes"], shown["password"]) == ("CLOSED", 1, 4, "set")
    (fragment,) = shown["fragments"]
    assert (fragment["first"], fragment["last"]) == (0, 1)
    assert sorted(fragment["bookies"]) == sorted(cluster.ids)
    plain = ok("ledger", "show", ledger, metadata=uri).out
    assert "0 to 1: 127.0.0.1:" in plain
    assert "sesame" not in done.out + plain


def test_list(uri: str, text: int) -> None:
    """All ledgers in the order of their ids, one document a line with --json."""
    rows = ok("ledger", "list", "--json", metadata=uri).rows
    assert [row["ledger"] for row in rows] == sorted(row["ledger"] for row in rows)
    (row,) = [row for row in rows if row["ledger"] == text]
    assert (row["state"], row["entries"], row["bytes"], row["copies"], row["fragments"]) == (
        "CLOSED",
        5000,
        len(TEXT),
        3,
        1,
    )
    assert len(ok("ledger", "list", metadata=uri).out.splitlines()) == len(rows) + 1


def test_delete(uri: str) -> None:
    """Several at once; none when one of them does not exist, and none without --yes where nobody can be asked."""
    gone, kept = written(uri, b"x"), written(uri, b"y")
    assert "nothing was done: give --yes" in refused(1, "ledger", "delete", gone, metadata=uri)
    assert "no ledger 987654" in refused(1, "ledger", "delete", "--yes", kept, 987654, metadata=uri)
    assert ok("ledger", "delete", "--yes", gone, "--json", metadata=uri).document == {"deleted": [gone]}
    ids = [row["ledger"] for row in ok("ledger", "list", "--json", metadata=uri).rows]
    assert kept in ids
    assert gone not in ids
    assert "NoSuchLedger" in refused(1, "ledger", "read", gone, metadata=uri)


@pytest.mark.parametrize("words", [["read"], ["show"], ["tail"], ["check"], ["recover"]], ids=" ".join)
def test_a_ledger_that_does_not_exist(uri: str, words: list[str]) -> None:
    """Is named, and the next step too."""
    line = refused(1, "ledger", *words, 123456789, metadata=uri)
    assert "NoSuchLedger" in line
    assert "123456789" in line
    assert "`quire ledger list`" in line


def test_a_wrong_password_is_unauthorized(uri: str, tmp_path: Path, secret: Path) -> None:
    """Whether it is missing or another one; the right one reads."""
    ledger = written(uri, b"treasure\n", "--lines", "--password-file", secret)
    wrong = tmp_path / "wrong"
    wrong.write_text("open barley")
    for options in ([], ["--password-file", wrong]):
        line = refused(1, "ledger", "read", ledger, *options, metadata=uri)
        assert "UnauthorizedAccess" in line
        assert "--password-file" in line
    assert ok("ledger", "read", ledger, "--password-file", secret, metadata=uri).raw == b"treasure\n"


def test_too_few_bookies(uri: str) -> None:
    """The error has the numbers."""
    line = refused(1, "ledger", "write", "--ensemble", 9, "--write", 9, "--ack", 5, metadata=uri, stdin=b"x")
    assert "NotEnoughBookies" in line
    assert re.search(r"\b9\b", line)
    assert re.search(r"\b4\b", line)
    assert "`quire bookie list`" in line


def test_files_that_can_not_be_read(uri: str, tmp_path: Path) -> None:
    """The file is named; no ledger is made."""
    before = ok("ledger", "list", metadata=uri).out
    assert "/no/such/file" in refused(1, "ledger", "write", "-f", "/no/such/file", metadata=uri)
    assert "/dev: Is a directory" in refused(1, "ledger", "write", "-f", "/dev", metadata=uri)
    assert "/no/such/secret" in refused(
        1, "ledger", "write", "--password-file", "/no/such/secret", metadata=uri, stdin=b"x"
    )
    assert ok("ledger", "list", metadata=uri).out == before


def test_a_line_that_is_too_long(uri: str) -> None:
    """Is named, and the ledger that stays open; the lines are not cut."""
    done = quire("ledger", "write", "--lines", metadata=uri, stdin=b"one\n" + b"x" * 3_000_000)
    assert (done.code, done.raw) == (2, b"")
    assert "stays open: `quire ledger recover" in done.err
    assert "line 2 has more than 1,048,576 bytes" in done.err


def test_keep_open_and_recover(uri: str) -> None:
    """A ledger that is kept open reads up to its end, is closed by `recover`, and `recover` again changes nothing."""
    ledger = written(uri, b"one\ntwo\nthree\n", "--lines", "--keep-open")
    shown = ok("ledger", "show", ledger, "--json", metadata=uri).document
    assert (shown["state"], shown["last_entry"]) == ("OPEN", None)
    assert ok("ledger", "read", ledger, metadata=uri).raw == b"one\ntwo\nthree\n"
    assert ok("ledger", "show", ledger, "--json", metadata=uri).document["state"] == "OPEN", "reading never fences"
    closed = {"ledger": ledger, "state": "CLOSED", "last_entry": 2, "bytes": 14}
    assert ok("ledger", "recover", ledger, "--json", metadata=uri).document == closed
    assert ok("ledger", "recover", ledger, "--json", metadata=uri).document == closed


class Command:
    """A `quire` command that runs beside the test."""

    def __init__(self, uri: str, *arguments: object) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], stdin=pipe, stdout=pipe, stderr=pipe, env=environment(uri)
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr

    def say(self, text: bytes) -> None:
        self.stdin.write(text)
        self.stdin.flush()

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()


def begin_writing(command: Command) -> int:
    """The ledger of a `ledger write` that has just started."""
    found = re.search(rb"writing ledger (\d+)", command.stderr.readline())
    assert found is not None
    return int(found[1])


def test_tail_follows_a_writer_to_its_close(uri: str) -> None:
    """Each line comes while the writer waits for the next one, and the end is printed when it closes."""
    with Command(uri, "ledger", "write", "--lines") as writer:
        ledger = begin_writing(writer)
        with Command(uri, "ledger", "tail", ledger, "--from", 0) as tail:
            for number in range(5):
                writer.say(b"line %d\n" % number)
                assert tail.stdout.readline() == b"line %d\n" % number
            writer.say(b"the end")
            writer.stdin.close()
            assert tail.stdout.read() == b"the end\n"
            assert tail.process.wait(60) == 0
        assert writer.process.wait(60) == 0


def test_tail_ends_after_silence(uri: str) -> None:
    """--timeout, for scripts."""
    ledger = written(uri, b"a\nb\n", "--lines", "--keep-open")
    assert ok("ledger", "tail", ledger, "--from", 0, "--timeout", "2", metadata=uri).raw == b"a\nb\n"


def test_recovery_takes_a_ledger_from_its_writer(uri: str) -> None:
    """The writer that goes on reports that it was fenced, in one line, and every line it had in by then is there."""
    with Command(uri, "ledger", "write", "--lines") as writer:
        ledger = begin_writing(writer)
        writer.say(b"mine\n")
        with Command(uri, "ledger", "tail", ledger, "--from", 0) as tail:
            assert tail.stdout.readline() == b"mine\n"
        assert ok("ledger", "recover", ledger, "--json", metadata=uri).document["state"] == "CLOSED"
        writer.stdin.write(b"not any more\n")
        writer.stdin.close()
        assert writer.process.wait(60) == 1
        line = writer.stderr.read().decode().strip().splitlines()[-1]
        assert "LedgerFenced" in line
        assert "Traceback" not in line
    assert ok("ledger", "read", ledger, metadata=uri).raw == b"mine\n"


def test_check_counts_every_copy(uri: str, text: int) -> None:
    """Three of each entry, each read and its digest verified."""
    found = ok("ledger", "check", text, "--json", metadata=uri).document
    assert found == {"ledger": text, "state": "CLOSED", "entries": 5000, "copies": 15000, "good": 15000, "missing": []}
    assert "15,000 of 15,000 copies are good" in ok("ledger", "check", text, metadata=uri).out


def test_check_lists_by_fragment_and_bookie_what_is_missing(cluster: LocalCluster) -> None:
    """
    Metadata that names bookies without the entries: status 1, each range with its reason, and a word on what to do.
    """
    ledger = written(cluster.uri, b"a\nb\nc\nd\n", "--lines", "--ensemble", 3, "--write", 3, "--ack", 2)

    async def move() -> tuple[str, str]:
        store = await open_store(reactor, cluster.uri)
        found = await store.read_ledger(ledger)
        (fragment,) = found.value.fragments
        (spare,) = set(cluster.ids) - set(fragment.bookies)
        moved = Fragment(2, (spare, *fragment.bookies[1:]))
        gone = Fragment(0, ("127.0.0.1:1", *fragment.bookies[1:]))
        await store.write_ledger(ledger, replace(found.value, fragments=(gone, moved)), found.version)
        await store.close()
        return spare, fragment.bookies[0]

    spare, _first = run(move)
    done = quire("ledger", "check", ledger, metadata=cluster.uri)
    assert done.code == 1
    assert done.out.splitlines() == [
        f"ledger {ledger} (CLOSED): 4 entries, 8 of 12 copies are good",
        "  fragment from entry 0:",
        "    127.0.0.1:1 misses 0 to 1: no answer (BookieHandleNotAvailable, code -8)",
        "  fragment from entry 2:",
        f"    {spare} misses 2 to 3: no such ledger there",
    ]
    assert "quire recover BOOKIE" in done.err


def test_interrupted_writing_leaves_no_traceback(uri: str) -> None:
    """
    SIGINT, or two, ends it with status 130; the ledger stays open and can be recovered with what was acknowledged,
    which is printed.
    """
    with Command(uri, "ledger", "write", "--lines") as writer:
        ledger = begin_writing(writer)
        writer.say(b"before\n")
        with Command(uri, "ledger", "tail", ledger, "--from", 0) as tail:
            assert tail.stdout.readline() == b"before\n"
        writer.process.send_signal(2)
        writer.process.send_signal(2)
        assert writer.process.wait(60) == 130
        said = writer.stderr.read().decode().strip().splitlines()
        assert said[-1] == "quire: interrupted"
        assert f"`quire ledger recover {ledger}` closes it" in said[-2]
        assert not [line for line in said if "thread" in line]
    ok("ledger", "recover", ledger, metadata=uri)
    assert ok("ledger", "read", ledger, metadata=uri).raw == b"before\n"


def test_a_large_file_has_the_same_digest(uri: str) -> None:
    """Thirty megabytes of blocks, striped over four bookies."""
    block = hashlib.sha512(b"seed").digest() * 1000
    data = b"".join(hashlib.md5(b"%d" % number).digest() + block for number in range(500))
    ledger = written(uri, data, "--ensemble", 4, "--write", 3, "--ack", 2)
    assert ok("ledger", "read", ledger, "--raw", metadata=uri).raw == data
    found = json.loads(ok("ledger", "check", ledger, "--json", metadata=uri).out)
    assert found["good"] == found["copies"] == 3 * found["entries"]


def test_ledgers_of_logs_are_not_deleted(uri: str) -> None:
    """One that was made for a log, and one that was taken in: refused with its name, and not by force."""
    taken, plain = written(uri, b"x"), written(uri, b"y")

    async def with_log() -> int | None:
        logs = await connect(reactor, uri)
        try:
            await logs.create("orders")
            await logs.adopt("orders", [taken])
            await (await logs.own("orders")).append(b"x")
            return (await logs.info("orders")).ledger
        finally:
            await logs.close()

    own = run(with_log)
    for ledger in (own, taken):
        line = refused(1, "ledger", "delete", "--yes", plain, ledger, metadata=uri)
        assert f"ledger {ledger} belongs to the log 'orders'" in line
    assert ok("ledger", "delete", "--yes", plain, "--json", metadata=uri).document == {"deleted": [plain]}
    assert ok("ledger", "delete", own, taken, "--force", "--json", metadata=uri).document == {"deleted": [own, taken]}


def test_a_ledger_that_can_not_be_read_is_named_in_the_list(uri: str) -> None:
    """Its neighbours are listed all the same."""
    before, bad, after = (written(uri, TEXT, "--lines") for _ in range(3))
    with closing(sqlite3.connect(uri.removeprefix("sqlite://"))) as store, store:
        (whole,) = store.execute("SELECT data FROM nodes WHERE path = ?", (PATHS.path_of(bad),)).fetchone()
        store.execute("UPDATE nodes SET data = ? WHERE path = ?", (b"no metadata", PATHS.path_of(bad)))
    done = ok("ledger", "list", "--json", metadata=uri)
    states = {row["ledger"]: row["state"] for row in done.rows}
    assert [states[each] for each in (before, bad, after)] == ["CLOSED", "UNREADABLE", "CLOSED"]
    assert f"ledger {bad}" in done.err
    with closing(sqlite3.connect(uri.removeprefix("sqlite://"))) as store, store:
        store.execute("UPDATE nodes SET data = ? WHERE path = ?", (whole, PATHS.path_of(bad)))
