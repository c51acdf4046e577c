"""Payloads from files and pipes, and the answers of who is asked."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.tools.terminal.input import PAYLOAD_BYTES_MAX, Blocks, Input, Lines
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
