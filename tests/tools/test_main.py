"""The entry point: help, usage, exit statuses, and what it does not import."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from quire.tools import main
from quire.tools.commands.log.group import COMMANDS as LOGS
from tests.tools.command import COMMAND, environment, ok, quire, refused

# SPDX-License-Identifier: Apache-2.0

SUBCOMMANDS = {
    "metadata": ["init", "show", "destroy", "dump", "restore"],
    "bookie": [
        "start",
        "stop",
        "format",
        "list",
        "info",
        "check",
        "readonly",
        "gc",
        "export-check",
        "export",
        "rebuild-index",
    ],
    "conf": ["check"],
    "host": ["start", "stop", "bookies"],
    "inspect": ["journal", "entrylog", "index"],
    "cookie": ["show", "create", "delete"],
    "ledger": ["write", "read", "tail", "show", "list", "delete", "recover", "check"],
    "log": list(LOGS),
    "clusters": ["add", "list", "remove", "place", "find", "logs"],
    "messages": [
        *("create", "put", "import", "list", "show", "get", "pull", "query", "queues", "check", "export", "delete"),
    ],
    "pulsar": ["topics", "show", "read", "export"],
    "bench": ["write", "read"],
    "autorecovery": ["start", "stop", "status", "enable", "disable", "trigger", "delay"],
    "underreplicated": ["list"],
    "pipeline": ["export", "import", "scrub", "repair", "report", "offload", "restore", "merge"],
}
# they have a bookie's configuration, or need no cluster
LOCAL = [["bookie", name] for name in ("stop", "format", "check", "export-check", "export", "rebuild-index")]
LOCAL += [["conf", "check"], ["host", "stop"], ["host", "bookies"], ["pipeline", "report"], ["autorecovery", "stop"]]
LOCAL += [["log", "mirror"]]  # which names two clusters
SINGLE = ["demo", "local", "doctor", "console", "recover", "decommission", "rebalance", "scrub", "shell"]
ALL = [[name] for name in [*SINGLE, *SUBCOMMANDS]] + [
    [group, name] for group, names in SUBCOMMANDS.items() for name in names
]


def test_help_lists_every_command() -> None:
    """With a line for each, examples, and the exit statuses."""
    done = ok("--help")
    for name, command in main.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.about)}$", done.out, re.MULTILINE)
    assert "Examples:" in done.out
    assert "2 wrong usage" in done.out
    assert done.err == ""


def test_the_tables_agree() -> None:
    """Every command is tested here."""
    assert set(main.COMMANDS) == {*SUBCOMMANDS, *SINGLE}


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_help_with_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And names the options that all of them share."""
    assert main.status([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"Examples?:\n +.*quire " + words[0], text), text
    if len(words) == 2 or words[0] in SINGLE:
        assert "--json" in text
        if words[0] != "inspect" and words not in LOCAL:
            assert "--metadata" in text
        assert "TEXT" not in text.replace("--metadata TEXT", ""), "a metavar says what is wanted"


def test_no_command_is_wrong_usage() -> None:
    """It gets the help, and status 2."""
    done = quire()
    assert done.code == 2
    assert "Commands:" in done.out


@pytest.mark.parametrize("words", [["--version"], ["-V"]])
def test_version(words: list[str]) -> None:
    """Of the installed package."""
    assert re.fullmatch(r"quire \d+\.\d+\S*\n", ok(*words).out)


def test_a_mistyped_command_names_the_nearest() -> None:
    """Or points to the list."""
    assert "did you mean `quire ledger`" in refused(2, "legder")
    assert "`quire --help`" in refused(2, "zzz")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["ledger", "raed", "1"], "raed"),
        (["ledger", "read"], "ID"),
        (["ledger", "read", "x"], "ID"),
        (["ledger", "read", "-1"], "-1"),
        (["ledger", "read", "1", "--unknown"], "--unknown"),
        (["ledger", "read", "1", "--from", "9", "--to", "3"], "--to 3"),
        (["ledger", "read", "1", "--raw", "--hex"], "--raw"),
        (["ledger", "write", "--lines", "--size", "5"], "--lines"),
        (["ledger", "write", "--size", "0"], "--size"),
        (["ledger", "write", "--write", "2", "--ack", "3"], "--ack 3"),
        (["ledger", "read", "1", "--protocol", "v4", "--metadata", "sqlite:///x.db"], "v4"),
        (["ledger", "list"], "QUIRE_METADATA"),
        (["metadata", "init", "--metadata", "memory://x"], "memory://x is the memory of this command"),
        (["bookie", "check", "--conf", "/dev/null", "--quick", "--offline"], "--offline and --quick"),
        (["bench", "write", "--pids", "one"], "one"),
        (["bench", "write", "--ensemble", "2"], "--ensemble 2"),
        (["bench", "read", "--rate", "5"], "--random"),
        (["demo", "--metadata", "oracle"], "oracle"),
        (["local", "--bookies", "0"], "--bookies"),
        (["rebalance", "--rate", "fast"], "--rate fast"),
        (["rebalance", "--capacity", "b1"], "--capacity b1"),
        (["rebalance", "--capacity", "b1=0"], "--capacity b1"),
        (["local", "--metadata", "zk://x"], "zk://x"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage(
    words: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and the text names what is wrong; nothing is started."""
    monkeypatch.delenv("QUIRE_METADATA", raising=False)
    monkeypatch.setenv("QUIRE_CONF", "/dev/null")
    assert main.status(words) == 2
    captured = capsys.readouterr()
    assert named in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("uri", ["http://x", "zk://host", "zk:/tmp", "sqlite://relative.db", "nonsense"])
def test_a_uri_of_no_known_form(uri: str) -> None:
    """Is wrong usage; the text shows the forms."""
    line = refused(2, "ledger", "list", "--metadata", uri)
    assert repr(uri) in line
    assert "zk://host:port" in line
    assert "sqlite:///path/metadata.db" in line


def imported(words: list[str]) -> set[str]:
    """The modules that a command line imports."""
    code = f"import sys; from quire.tools.main import status; status({words!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment(), check=True
    )
    return set(done.stderr.split())


def test_the_overview_imports_next_to_nothing() -> None:
    """Neither the command line library, nor Twisted, nor any part of quire but the entry point."""
    modules = imported(["--help"])
    assert not modules & {"typer", "rich", "twisted", "pydantic", "google.protobuf"}
    assert {name for name in modules if name.startswith("quire")} == {"quire", "quire.tools", "quire.tools.main"}


def test_help_of_a_command_imports_neither_rich_nor_the_other_commands() -> None:
    """rich costs a tenth of a second, and is for bars only."""
    modules = imported(["metadata", "--help"])
    assert "rich" not in modules
    assert "quire.tools.commands.bench" not in modules
    assert "quire.bookie" not in modules


def test_a_closed_pipe_ends_quietly() -> None:
    """`quire … | head` ends quietly, though not as if all had been said."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "--help"], stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(tmp_path: Path, closed: str) -> None:
    """Are the null device: what the command opens gets other numbers, and what it does is done."""
    words = shlex.join([*COMMAND, "metadata", "init", "--metadata", f"sqlite://{tmp_path}/metadata.db"])
    done = subprocess.run(
        ["sh", "-c", f"{words} {closed}"], check=False, capture_output=True, timeout=60, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (">&-" not in closed.split())
    assert ok("metadata", "show", metadata=f"sqlite://{tmp_path}/metadata.db")


def test_an_output_that_takes_nothing_is_named() -> None:
    """Once, also where what is left is written at the end."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60, env=environment()
        )
    assert (done.returncode, done.stderr) == (1, b"quire: standard output: No space left on device\n")


def test_an_error_without_an_explanation_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours is not dressed up as the user's."""
    monkeypatch.setitem(main.COMMANDS, "broken", main.Command("quire.tools.no_such_module", ""))
    with pytest.raises(ModuleNotFoundError):
        main.status(["broken"])


def test_the_module_is_the_command() -> None:
    """`python -m quire.tools` and the script `quire` are one."""
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="quire")
    assert script.load() is main.main
