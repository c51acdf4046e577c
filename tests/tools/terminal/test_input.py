"""Payloads from files and pipes, and the answers of who is asked."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from quire.protocol.errors import LedgerFenced, Write
from quire.tools.terminal.input import PAUSE_S, PAYLOAD_BYTES_MAX, Appender, Blocks, Input, Lines
from quire.tools.terminal.options import Usage
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def cut(cutter: Lines | Blocks, data: bytes, sizes: list[int]) -> list[bytes]:
    """The payloads of data that comes in chunks of these sizes, the last one taking the rest."""
    out, at = [], 0
    for size in sizes:
        out += cutter.feed(data[at : at + size])
        at += size
    return out + cutter.feed(data[at:]) + cutter.rest()


@pytest.mark.parametrize("data", [b"", b"one", b"one\n", b"one\ntwo\n\n\nthree", b"\n", b"a\r\nb\rc\n"])
def test_lines_keep_their_ends(data: bytes) -> None:
    """Cut at line feeds only, wherever the chunks end; joined they are the input."""
    expected = [line + b"\n" for line in data.split(b"\n")[:-1]] + (
        [data.split(b"\n")[-1]] if data.split(b"\n")[-1] else []
    )
    for at in range(len(data) + 1):
        assert cut(Lines(), data, [at]) == expected


def test_lines_of_random_chunks() -> None:
    """A slow twin on random data and chunks."""
    dice = random.Random(5)
    for _ in range(200):
        data = bytes(dice.choice(b"ab\n") for _ in range(dice.randrange(60)))
        sizes = [dice.randrange(9) for _ in range(12)]
        found = cut(Lines(), data, sizes)
        assert b"".join(found) == data
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in found[:-1])


@pytest.mark.parametrize("end", [b"", b"\n", b"\nshort\n"])
def test_a_line_above_the_limit_is_named(end: bytes) -> None:
    """Wherever the chunks end, and before it is whole; one that has as much as it may is taken."""
    most = b"x" * (PAYLOAD_BYTES_MAX - 1) + b"\n"
    for sizes in ([100_000] * 40, [4 * PAYLOAD_BYTES_MAX], [PAYLOAD_BYTES_MAX] * 3):
        assert cut(Lines(), b"short\n" + most + most, sizes) == [b"short\n", most, most]
        with pytest.raises(Usage, match="line 3 has more than 1,048,576 bytes"):
            cut(Lines(), b"short\n" + most + b"x" * PAYLOAD_BYTES_MAX + (end or b"x"), sizes)


def test_blocks_have_one_size() -> None:
    """All but the last; none is empty."""
    dice = random.Random(6)
    for _ in range(100):
        data, size = dice.randbytes(dice.randrange(50)), dice.randrange(1, 12)
        found = cut(Blocks(size), data, [dice.randrange(9) for _ in range(8)])
        assert b"".join(found) == data
        assert all(len(block) == size for block in found[:-1])
        assert not found or 0 < len(found[-1]) <= size


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    """Its size is known beforehand."""
    path = tmp_path / "file"
    path.write_bytes(b"z" * 600_000)

    async def story() -> bytes:
        descriptor = os.open(path, os.O_RDONLY)
        source = Input(reactor, descriptor)
        assert source.size == 600_000
        parts = []
        while chunk := await source.chunk():
            parts.append(chunk)
        os.close(descriptor)
        return b"".join(parts)

    assert run(story) == b"z" * 600_000


def test_a_silent_pipe_does_not_stop_the_reactor() -> None:
    """A chunk comes when the other end writes, and the reactor goes on meanwhile; the end of the pipe is the end."""
    ours, theirs = os.pipe()

    async def story() -> list[bytes]:
        source = Input(reactor, ours)
        assert source.size is None
        waiting = Deferred.fromCoroutine(source.chunk())
        turned: Deferred[None] = Deferred()
        reactor.callLater(0.01, turned.callback, None)
        await turned
        assert not waiting.called
        os.write(theirs, b"at last")
        first = await waiting
        os.close(theirs)
        return [first, await source.chunk()]

    assert run(story) == [b"at last", b""]
    os.close(ours)


ASKS = """
from quire.tools.terminal.input import answer_to
from quire.tools.terminal.running import run
try:
    print(run(lambda reactor: answer_to(reactor, "Which")))
except KeyboardInterrupt:
    print("interrupted")
"""


AT_A_TERMINAL = """
import fcntl, os, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
"""


def asks(program: str = ASKS, stdin: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
    """A process that has just asked."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program], stdin=stdin, stdout=pipe, stderr=pipe)
    assert process.stderr is not None
    assert process.stderr.read(7) == b"Which: "
    return process


@pytest.mark.parametrize(
    ("given", "answer"), [(b" this one\nrest\n", b"this one\n"), (b"this", b"this\n"), (b"", b"\n")]
)
def test_an_answer_is_a_line(given: bytes, answer: bytes) -> None:
    """Or what there is before the end."""
    with asks() as process:
        assert process.communicate(given, timeout=60) == (answer, b"")


def test_who_is_asked_may_interrupt() -> None:
    """At once, though nothing was answered."""
    with asks() as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.read() == b"interrupted\n"


@pytest.mark.parametrize(
    ("typed", "said"), [(b"this one\n", b"this one\n"), (b"half\x03", b"interrupted\n"), (b"\x04", b"\n")]
)
def test_a_question_at_a_terminal(typed: bytes, said: bytes) -> None:
    """A line is the answer, Ctrl-C an interrupt, Ctrl-D no answer."""
    ours, theirs = os.openpty()
    with asks(AT_A_TERMINAL + ASKS, theirs) as process:
        os.write(ours, typed)
        assert process.communicate(timeout=60) == (said, b"")
    os.close(ours)
    os.close(theirs)


class Window:
    """A writer: appends wait until the test answers them, `ready` until it opens the window."""

    def __init__(self) -> None:
        self.given: list[list[bytes]] = []
        self.answers: list[Deferred[range]] = []
        self.full: Deferred[None] | None = None
        self.closed = False
        self.ensemble_changes = 0
        self.lacs_written = 0
        self.on_ensemble_change: Any = None

    def ready(self) -> Deferred[None]:
        return self.full or succeed(None)

    def append_many(self, payloads: list[bytes]) -> Deferred[range]:
        self.given.append(payloads)
        self.answers.append(Deferred())
        return self.answers[-1]

    def write_lac(self) -> Deferred[None]:
        self.lacs_written += 1
        failed: Deferred[None] = Deferred()
        failed.errback(Write("a courtesy that fails is no failure"))
        return failed


def outcome(coroutine: Any) -> list[Any]:
    """What came of it; empty while it waits."""
    found: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(lambda result: found.append(getattr(result, "value", result)))
    return found


@pytest.fixture
def writer() -> Window:
    return Window()


def test_batches_follow_as_the_window_allows(writer: Window) -> None:
    """Without a wait for their answers; while the window is full the next one waits."""
    appender = Appender(writer)  # type: ignore[arg-type]
    assert outcome(appender.send([b"a"])) == [None]
    assert outcome(appender.send([b"b"])) == [None]
    writer.full = Deferred()
    waiting = outcome(appender.send([b"c"]))
    assert (waiting, writer.given) == ([], [[b"a"], [b"b"]])
    writer.full.callback(None)
    assert (waiting, writer.given[2:]) == ([None], [[b"c"]])


def test_the_end_waits_for_every_answer(writer: Window) -> None:
    """Of an appender that has sent nothing it does not wait."""
    appender = Appender(writer)  # type: ignore[arg-type]
    assert outcome(appender.flush()) == [None]
    for payload in (b"a", b"b"):
        outcome(appender.send([payload]))
    ending = outcome(appender.flush())
    writer.answers[1].callback(range(1, 2))
    assert ending == []
    writer.answers[0].callback(range(1))
    assert ending == [None]


def test_the_first_failure_is_the_one_that_is_reported(writer: Window) -> None:
    """A wait for the end gets it, and each batch after it, which is not sent."""
    appender = Appender(writer)  # type: ignore[arg-type]
    for payload in (b"a", b"b"):
        outcome(appender.send([payload]))
    ending = outcome(appender.drain())
    writer.answers[0].errback(LedgerFenced("first"))
    assert [str(error) for error in ending] == ["first"]
    assert str(outcome(appender.drain())[0]) == "first", "what still waits is not waited for"
    writer.answers[1].errback(Write("second"))
    assert str(outcome(appender.send([b"c"]))[0]) == "first"
    assert str(outcome(appender.flush())[0]) == "first"
    assert len(writer.given) == 2


def test_after_a_pause_the_last_entry_is_confirmed(writer: Window) -> None:
    """Once, when everything is acknowledged and nothing follows; not after the end, nor of a closed ledger."""
    clock = Clock()
    appender = Appender(writer, clock)  # type: ignore[arg-type]
    outcome(appender.send([b"a"]))
    clock.advance(PAUSE_S)
    assert writer.lacs_written == 0, "not acknowledged yet"
    writer.answers[0].callback(range(1))
    clock.advance(PAUSE_S / 2)
    outcome(appender.send([b"b"]))
    clock.advance(PAUSE_S / 2)
    assert writer.lacs_written == 0, "something follows"
    writer.answers[1].callback(range(1, 2))
    clock.advance(PAUSE_S)
    assert writer.lacs_written == 1
    writer.closed = True
    outcome(appender.send([b"c"]))
    writer.answers[2].callback(range(2, 3))
    clock.advance(PAUSE_S)
    assert writer.lacs_written == 1
    outcome(appender.send([b"d"]))
    writer.answers[3].callback(range(3, 4))
    assert outcome(appender.flush()) == [None]
    assert clock.getDelayedCalls() == []


def test_an_ensemble_change_is_waited_for(writer: Window) -> None:
    """As long as was said; one that has happened is there at once."""
    clock = Clock()
    appender = Appender(writer)  # type: ignore[arg-type]
    waiting = outcome(appender.ensemble_changed(clock, 5))
    clock.advance(4)
    writer.on_ensemble_change(("a",), ("b",))
    writer.on_ensemble_change(("b",), ("c",))
    assert waiting == [True]
    assert outcome(appender.ensemble_changed(clock, 5)) == [True]
    other = Window()
    late = outcome(Appender(other).ensemble_changed(clock, 5))  # type: ignore[arg-type]
    clock.advance(5)
    assert late == [False]
    other.ensemble_changes = 1
    assert outcome(Appender(other).ensemble_changed(clock, 5)) == [True]  # type: ignore[arg-type]
