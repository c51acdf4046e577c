"""What the raw clients of the benches do with a bookie's answers."""

import socket
import struct
import threading

import pytest

from bench.interference import appended
from bench.restart import ACK_BYTES, take

# SPDX-License-Identifier: Apache-2.0


def ack(entry: int, code: int = 0) -> bytes:
    return struct.pack(">iiiqq", ACK_BYTES - 4, 0x02010000, code, 1, entry)


def test_take_reads_just_so_many() -> None:
    """What follows stays in the socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(map(ack, range(5))))
        take(ours, 3)
        assert ours.recv(1000) == ack(3) + ack(4)


def test_take_refuses_what_is_no_success() -> None:
    """An error code, or an end in between: then the figures would be of something else."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(ack(0) + ack(1, 104))
        with pytest.raises(OSError, match="1 adds were refused, the first with 104"):
            take(ours, 2)
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(ack(0))
        theirs.close()
        with pytest.raises(ConnectionResetError):
            take(ours, 2)


def test_latencies_count_from_the_tick() -> None:
    """Every entry has one; none is negative; they come ascending."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            link, _ = server.accept()
            with link, link.makefile("rb") as frames:
                for entry in range(60):
                    frames.read(int.from_bytes(frames.read(4), "big"))
                    link.sendall(ack(entry))

        thread = threading.Thread(target=answer)
        thread.start()
        found = appended(server.getsockname()[1], 1, 0.02, 3000, 10)
        thread.join()
    assert len(found) == 60
    assert found == sorted(found)
    assert found[0] >= 0
