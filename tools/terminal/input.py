"""
Payloads from a file or standard input, in batches.

Knows: how to read without stopping the reactor when the other end of a pipe is slow, or a person has to answer, and how
to cut bytes into lines or blocks.
Does not know: ledgers.

A line keeps its line end, so that the payloads of a ledger joined together are the input, byte for byte.
"""

import os
import stat
import sys
from errno import EISDIR
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from quire.tools.terminal.options import Usage

if TYPE_CHECKING:
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

CHUNK_BYTES = 256 * 1024
PAYLOAD_BYTES_MAX = 1 << 20  # of an entry; a frame may be at most 5 MiB
BLOCK_BYTES = 64 * 1024


class Lines:
    """Cuts chunks into lines; what has no line end yet waits for the next chunk.  `Usage` names one above `most`."""

    def __init__(self, most: int = PAYLOAD_BYTES_MAX) -> None:
        self._rest = b""
        self._most = most
        self._before = 0  # lines that earlier chunks had

    def feed(self, chunk: bytes) -> list[bytes]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        out = [line + b"\n" for line in lines]
        if max(map(len, out), default=0) > self._most or len(self._rest) > self._most:
            number = next(number for number, line in enumerate([*out, self._rest], 1) if len(line) > self._most)
            raise Usage(
                f"line {self._before + number} has more than {self._most:,} bytes, the most that --lines takes of one"
            )
        self._before += len(out)
        return out

    def rest(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class Blocks:
    """Cuts chunks into blocks of `size` bytes; the last one may be shorter."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        data = self._rest + chunk
        whole = len(data) // self._size * self._size
        self._rest = data[whole:]
        return [data[at : at + self._size] for at in range(0, whole, self._size)]

    def rest(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def opened(file: Path | None) -> int:
    """The descriptor of a file to be read; standard input's without one, and for `-`."""
    if file is None or str(file) == "-":
        return sys.stdin.fileno()
    if file.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(file))
    return os.open(file, os.O_RDONLY)


class Input:
    """
    The bytes of a file descriptor, chunk by chunk.  A regular file is read at once; of anything else (pipe, terminal)
    the reactor says when there is something, so that a writer stays alive while its input is silent.
    """

    def __init__(self, reactor: "ProcessReactor", descriptor: int) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._waiting: Deferred[None] | None = None

    @property
    def size(self) -> int | None:
        """How many bytes there are; None when that is unknown."""
        return os.fstat(self._descriptor).st_size if self._regular else None

    async def chunk(self) -> bytes:
        """The next bytes, b"" at the end."""
        if not self._regular:
            self._waiting = Deferred(lambda _: self._reactor.removeReader(self))
            self._reactor.addReader(self)
            await self._waiting
        return os.read(self._descriptor, CHUNK_BYTES)

    # what the reactor calls

    def fileno(self) -> int:
        return self._descriptor

    def doRead(self) -> None:
        self._reactor.removeReader(self)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def connectionLost(self, reason: object) -> None:
        """The other end hung up: the next read finds the end."""
        self.doRead()

    def logPrefix(self) -> str:
        return "standard input"


async def answer_to(reactor: "ProcessReactor", question: str) -> str:
    """The line that standard input has for it, "" at its end.  Ctrl-C ends the wait, as it ends other work."""
    print(f"{question}: ", end="", file=sys.stderr, flush=True)
    source, said = Input(reactor, opened(None)), b""
    while b"\n" not in said and (chunk := await source.chunk()):
        said += chunk
    return said.split(b"\n")[0].decode(errors="replace").strip()
