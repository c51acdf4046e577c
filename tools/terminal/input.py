"""
Payloads from a file or standard input, in batches, and appending them to one ledger.

Knows: how to read without stopping the reactor when the other end of a pipe is slow, or a person has to answer, and how
to cut bytes into lines or blocks; the pace of appends (the writer's window decides), and that the first failure ends
them.
Does not know: what payloads mean.

A line keeps its line end, so that the payloads of a ledger joined together are the input, byte for byte.
"""

import os
import stat
import sys
from errno import EISDIR
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from quire.metadata.clock import Clock
from quire.tools.terminal.options import Usage

if TYPE_CHECKING:
    from quire.client.api import Writer
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


PAUSE_S = 0.1


class UnderWay:
    """Operations that overlap: how many there are, and the first failure."""

    def __init__(self) -> None:
        self._pending = 0
        self._failure: Failure | None = None
        self._drained: Deferred[None] | None = None

    def add(self, operation: "Deferred[Any]") -> None:
        """One more; its failure is raised by `drain`, or by `check`."""
        self._pending += 1
        operation.addCallbacks(self._ended, self._failed)

    async def drain(self) -> None:
        """Waits until all have ended; raises the first failure."""
        if self._pending and self._failure is None:
            self._drained = Deferred()
            await self._drained
        self.check()

    def check(self) -> None:
        """Raises the first failure."""
        if self._failure is not None:
            assert self._failure.value is not None
            raise self._failure.value

    def idle(self) -> None:
        """Called when the last one has ended."""

    def _ended(self, _: object) -> None:
        self._pending -= 1
        if not self._pending:
            self._wake()
            self.idle()

    def _failed(self, failure: Failure) -> None:
        self._pending -= 1
        if self._failure is None:
            self._failure = failure
        self._wake()

    def _wake(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.callback(None)


class Appender(UnderWay):
    """Keeps a writer's window full: `send` returns when the next batch may follow, `flush` once all are stored."""

    def __init__(self, writer: "Writer", clock: Clock | None = None) -> None:
        """With a clock, the last add confirmed is sent after a pause, so that followers see the last entry."""
        super().__init__()
        self._writer = writer
        self._clock = clock
        self._pause: Any = None  # the timer of the pause
        self._changed: Deferred[None] = Deferred()
        writer.on_ensemble_change = self._change

    async def send(self, payloads: list[bytes]) -> None:
        """Appends a batch; raises what an earlier one failed with."""
        await self._writer.ready()
        self.check()
        self.add(self._writer.append_many(payloads))

    async def flush(self) -> None:
        """Waits until all are acknowledged; nothing may follow."""
        await self.drain()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._clock = None

    async def ensemble_changed(self, clock: Clock, seconds: float) -> bool:
        """Waits for the ledger's first ensemble change, `seconds` at most; whether there was one."""
        if not self._writer.ensemble_changes and not self._changed.called:
            try:
                await self._changed.addTimeout(seconds, cast(IReactorTime, clock))
            except DeferredTimeout:
                return False
        return True

    def idle(self) -> None:
        """Readers that follow are to see the last entry soon."""
        if self._clock is not None and self._pause is None:
            self._pause = self._clock.callLater(PAUSE_S, self._send_lac)

    def _send_lac(self) -> None:
        self._pause = None
        if not self._pending and not self._writer.closed:
            # It is a courtesy: the next entry carries the same, and the close too.
            self._writer.write_lac().addErrback(lambda _failure: None)

    def _change(self, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        if not self._changed.called:
            self._changed.callback(None)
