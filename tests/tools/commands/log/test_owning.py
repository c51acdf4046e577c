"""`quire log own, transfer` against four real bookies."""

import signal
import subprocess

from tests.reactor import between_looks
from tests.tools.command import COMMAND, PROGRAM, environment, ok, quire, refused

# SPDX-License-Identifier: Apache-2.0


def holding(uri: str, log: str) -> "subprocess.Popen[bytes]":
    """A process that owns the log until it is interrupted."""
    process = subprocess.Popen(
        [*COMMAND, "log", "own", log, "--hold"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(uri)
    )
    assert process.stdout is not None
    assert b"is owned" in process.stdout.readline()
    return process


def test_what_a_killed_owner_left_is_closed(uri: str) -> None:
    """By whoever owns the log next; then there is no open segment."""
    ok("log", "create", "left", metadata=uri)
    appending = subprocess.Popen(
        [*COMMAND, "log", "append", "left", "--lines"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(uri),
    )
    with appending:
        assert appending.stdin is not None
        appending.stdin.write(b"a\nb\n")
        appending.stdin.flush()
        while ok("log", "read", "left", "--values", metadata=uri).raw != b"a\nb\n":
            between_looks()
        appending.kill()
    assert ok("log", "show", "left", "--json", metadata=uri).document["ledger"] is not None
    done = ok("log", "own", "left", "--force", "--json", metadata=uri).document
    assert (done["epoch"], done["end"]) == (2, 2)
    shown = ok("log", "show", "left", "--json", metadata=uri).document
    assert (shown["ledger"], shown["end"], shown["owner"]) == (None, 2, None)


def test_a_log_is_held_until_the_interrupt(uri: str) -> None:
    """Then it is free at once."""
    ok("log", "create", "held", metadata=uri)
    with holding(uri, "held") as owner:
        assert "the log 'held' is owned" in refused(1, "log", "own", "held", metadata=uri)
        assert ok("log", "show", "held", "--json", metadata=uri).document["owner"] is not None
        owner.send_signal(signal.SIGINT)
        assert owner.wait(60) == 0
    assert ok("log", "own", "held", "--json", metadata=uri).document["epoch"] == 2


TEXT = """
from quire.log import connect
with connect({uri!r}) as logs:
    with logs.own("moved", address={address!r}) as owner:
        print(owner.epoch, flush=True)
        input()
"""


def test_a_log_is_handed_to_a_candidate(uri: str) -> None:
    """The one at that address gets it, though another one waits too; without candidates nothing happens."""
    ok("log", "create", "moved", metadata=uri)
    assert "no candidate waits" in refused(1, "log", "transfer", "moved", metadata=uri)
    with holding(uri, "moved") as first:
        others = [
            subprocess.Popen(
                [*PROGRAM, TEXT.format(uri=uri, address=address)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment(uri),
            )
            for address in ("one:1", "two:2")
        ]
        assert "no candidate at three:3" in refused(1, "log", "transfer", "moved", "--to", "three:3", metadata=uri)
        done = quire("log", "transfer", "moved", "--to", "two:2", "--json", metadata=uri)
        while done.code:  # the program is not there yet
            done = quire("log", "transfer", "moved", "--to", "two:2", "--json", metadata=uri)
        assert (done.document["owner"], done.document["epoch"]) == ("two:2", 3)
        assert first.wait(60) == 1
        assert others[1].stdout is not None
        assert others[1].stdout.readline() == b"3\n"
        for each in others:
            each.kill()
            each.wait(60)
            assert each.stdin is not None
            assert each.stdout is not None
            each.stdin.close()
            each.stdout.close()


def test_a_log_that_other_commands_keep(uri: str) -> None:
    """What would fill, rename or end it is refused and names the commands to use instead; the rest is free."""
    ok("log", "create", "kept", "--set", "use=messages", metadata=uri)
    for words in (
        ["append", "kept", "--lines"],
        ["own", "kept"],
        ["adopt", "kept", "1"],
        ["rename", "kept", "free"],
        ["truncate", "kept", "--yes"],
        ["terminate", "kept", "--yes"],
        ["delete", "kept", "--yes"],
        ["set", "kept", "use="],
    ):
        said = refused(2, "log", *words, metadata=uri, stdin=b"x\n")
        assert "'messages'" in said
        assert "`quire messages --help` lists the commands to use instead" in said or words[0] == "set"
    assert ok("log", "read", "kept", "--values", metadata=uri).raw == b""
    assert ok("log", "set", "kept", "retention_ms=7", "--json", metadata=uri).document["settings"]["use"] == "messages"
    assert ok("log", "show", "kept", metadata=uri)
