"""`quire log mirror` as a command; within one cluster, under another name, so that no second one has to run."""

import signal
import subprocess
from pathlib import Path

from tests.reactor import between_looks
from tests.tools.command import COMMAND, environment, ok, refused

# SPDX-License-Identifier: Apache-2.0


def values(uri: str, log: str) -> bytes:
    """All that a log has, one record a line."""
    return ok("log", "read", log, "--values", metadata=uri).raw


def test_copied_over_and_back(uri: str, tmp_path: Path) -> None:
    """Until the end of now, gone over with --switch, back again; the figures are in a file and in the documents."""
    ok("log", "create", "orders", "--set", "roll_records=2", metadata=uri)
    ok("log", "append", "orders", "--lines", metadata=uri, stdin=b"a\nb\nc\n")
    to = ["log", "mirror", "orders", "--to", uri, "--name", "copy"]
    figures = tmp_path / "mirror.prom"
    said = ok(*to, "--until-end", "--json", "--metrics", str(figures), metadata=uri).rows[-1]
    assert (said["end"], said["records"], said["lag_records"], said["terminated"]) == (3, 3, 0, False)
    assert 'quire_log_mirror_end{log="copy"} 3.0' in figures.read_text()
    assert values(uri, "copy") == b"a\nb\nc\n"
    assert "--promote" in refused(1, "log", "append", "copy", "--lines", metadata=uri, stdin=b"x\n")
    shown = ok("log", "show", "copy", metadata=uri).out
    assert "a copy of orders" in shown
    ok("log", "append", "orders", "--lines", metadata=uri, stdin=b"d\n")
    for _again in range(2):
        assert "is the log from index 4 on" in ok(*to, "--switch", metadata=uri).out
    assert "is a copy of 'copy'" in refused(1, "log", "append", "orders", "--lines", metadata=uri, stdin=b"x\n")
    ok("log", "append", "copy", "--lines", metadata=uri, stdin=b"e\n")
    back = ["log", "mirror", "copy", "--to", uri, "--name", "orders"]
    assert ok(*back, "--switch", "--json", metadata=uri).rows[-1]["switched"] == 5
    assert values(uri, "orders") == values(uri, "copy") == b"a\nb\nc\nd\ne\n"


def test_failed_over_and_set_aside(uri: str) -> None:
    """What was not copied stays, under a name that is given; without one nothing is changed, and it is named."""
    ok("log", "create", "pay", metadata=uri)
    ok("log", "append", "pay", "--lines", metadata=uri, stdin=b"a\n")
    ok("log", "mirror", "pay", "--to", uri, "--name", "pay-copy", "--until-end", metadata=uri)
    ok("log", "append", "pay", "--lines", metadata=uri, stdin=b"lost\n")
    assert ok("log", "mirror", "pay", "--name", "pay-copy", "--to", uri, "--promote", "--json").document["end"] == 1
    ok("log", "append", "pay-copy", "--lines", metadata=uri, stdin=b"b\n")
    back = ["log", "mirror", "pay-copy", "--to", uri, "--name", "pay", "--until-end"]
    assert "--fail-back" in refused(2, *back, metadata=uri)
    assert "records 1 to 1" in refused(1, *back, "--fail-back", metadata=uri)
    assert values(uri, "pay") == b"a\nlost\n"
    said = ok(*back, "--set-aside", "pay-aside", metadata=uri)
    assert "pay-aside" in said.err
    assert values(uri, "pay") == values(uri, "pay-copy") == b"a\nb\n"
    assert values(uri, "pay-aside") == b"a\nlost\n"


def test_a_terminated_log_goes_over_with_its_end(uri: str) -> None:
    """It is told as it is, also by the same command once more; neither takes appends."""
    ok("log", "create", "old", metadata=uri)
    ok("log", "append", "old", "--lines", metadata=uri, stdin=b"a\nb\n")
    ok("log", "terminate", "old", "--yes", metadata=uri)
    for _again in range(2):
        said = ok("log", "mirror", "old", "--to", uri, "--name", "old-copy", "--switch", metadata=uri).out
        assert "old-copy at" in said
        assert "was terminated at index 2: neither takes appends" in said
    for name in ("old", "old-copy"):
        refused(1, "log", "append", name, "--lines", metadata=uri, stdin=b"x\n")


def test_followed_until_it_is_interrupted(uri: str) -> None:
    """What comes is copied, a line tells by how much the copy is behind, and the interrupt ends it in order."""
    ok("log", "create", "news", metadata=uri)
    words = ["log", "mirror", "news", "--to", uri, "--name", "news-copy", "--every", "0.1", "--cursors"]
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(uri)
    ) as mirror:
        assert mirror.stdout is not None
        assert b"s behind news" in mirror.stdout.readline()
        ok("log", "append", "news", "--lines", metadata=uri, stdin=b"a\nb\n")
        while values(uri, "news-copy") != b"a\nb\n":
            between_looks()
        mirror.send_signal(signal.SIGINT)
        said = mirror.stdout.read()
        assert mirror.wait(60) == 0
    assert b"news-copy: index 0 to 2, 2 records" in said


def test_a_directory_leads_to_the_log(uri: str) -> None:
    """Where it says that the log is, from there it is copied; a copy is made in one cluster, which has to be named."""
    ok("log", "create", "placed", metadata=uri)
    ok("log", "append", "placed", "--lines", metadata=uri, stdin=b"a\n")
    ok("clusters", "add", "here", uri, metadata=uri)
    ok("clusters", "place", "placed", "here", metadata=uri)
    directory = f"directory+{uri}"
    ok("log", "mirror", "placed", "--to", uri, "--name", "placed-copy", "--until-end", metadata=directory)
    assert values(uri, "placed-copy") == b"a\n"
    assert "no log 'unplaced'" in refused(
        1, "log", "mirror", "unplaced", "--from", directory, "--to", uri, "--name", "x", "--until-end"
    )
    for more in ((), ("--promote",)):
        assert "--to is the cluster" in refused(
            2, "log", "mirror", "placed", "--from", uri, "--to", directory, "--name", "stray", *more
        )
    assert "stray" not in ok("log", "list", metadata=uri).out


def test_what_makes_no_sense_is_refused(uri: str) -> None:
    """A promotion beside other things, and a log that is partitioned."""
    assert "--promote" in refused(2, "log", "mirror", "a", "--to", uri, "--promote", "--switch", metadata=uri)
    ok("log", "create", "visits", "--partitions", "2", metadata=uri)
    assert "visits/0 to visits/1" in refused(2, "log", "mirror", "visits", "--to", uri, "--name", "v", metadata=uri)
