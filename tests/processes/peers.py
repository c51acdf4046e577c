"""
Peers of a bookie that mean it ill, as a program beside the test: `python peers.py KIND COUNT ADDRESSES PORT`.

It opens COUNT connections from so many addresses of 127.0.0.0/8, brings them where they should be, says `ready`, and
goes on until its standard input ends; then it says how many it has opened a second since.  A connection that the bookie
closes stays closed, but for those kinds that live by coming again.

    silent      connects and says nothing
    trickle     one byte a second of a large frame
    large       4 MB of a frame of 5 MB; 10 more come each second
    small       one read of a ledger that is not there after the other, one a second each
    half-open   vanishes without a word, as if its machine had lost its power (needs root; else it closes its half)
    resets      connects, resets the connection, comes again: 1,000 a second together
    stranger    begins to authenticate, then says nothing
    handshake   asks for TLS, then says nothing
    hello       asks for TLS, says nearly as much as a handshake may have, and then nothing
    secured     has TLS on, then says nothing
    reconnects  has TLS on, goes, comes again: 1,000 a second together
"""

import select
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice

# SPDX-License-Identifier: Apache-2.0

KINDS = (
    "silent", "trickle", "large", "small", "half-open", "resets", "stranger", "handshake", "hello", "secured",
    "reconnects",
)  # fmt: skip
MB = 1_000_000
WAIT_S = 60
TCP_REPAIR = 19
MORE_EACH_SECOND = {"large": 10, "resets": 1000, "reconnects": 1000}
AT_ONCE = {"reconnects": 4}  # one after the other they would wait for each other's round trips
LARGE = struct.pack(">I", 5 * MB) + bytes.fromhex("02010000") + bytes(4 * MB)  # of a V2 add
READ = bytes.fromhex("0000001402020000") + struct.pack(">qq", 1 << 40, 0)
START_TLS = bytes.fromhex("0000000b0a06080310091801d20600")
# A record of 16,000 bytes with the beginning of a first message of 131,000.
HELLO = b"\x16\x03\x01" + struct.pack(">H", 16_000) + (b"\x01" + struct.pack(">I", 131_000)[1:]).ljust(16_000, b"\0")
AUTH = bytes.fromhex("0000000c02030000") + b"\x0a\x04sasl\x12\x00"


def addresses(count: int) -> Iterator[str]:
    """So many, round and round."""
    while True:
        for number in range(count):
            yield f"127.1.{number // 250}.{number % 250 + 1}"


def connected(address: str, port: int) -> socket.socket | None:
    peer = socket.socket()
    peer.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    peer.bind((address, 0))
    peer.settimeout(WAIT_S)
    try:
        peer.connect(("127.0.0.1", port))
    except OSError:
        peer.close()
        return None
    return peer


def vanish(peer: socket.socket) -> None:
    try:
        peer.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        peer.close()
    except PermissionError:
        peer.shutdown(socket.SHUT_WR)


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@cache
def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def secure(peer: socket.socket) -> ssl.SSLSocket | None:
    """With TLS on, unless the bookie has had enough."""
    try:
        peer.sendall(START_TLS)
        peer.recv(1000)
        return trusting().wrap_socket(peer)
    except OSError:
        return None


def come_and_go(peer: socket.socket) -> None:
    (secure(peer) or peer).close()


def say(peer: socket.socket, data: bytes) -> None:
    """All of it, unless the bookie has had enough."""
    try:
        peer.sendall(data)
    except OSError:
        return


def begin_long(peer: socket.socket) -> None:
    """After the answer to START_TLS, for what comes with it in the clear ends the connection."""
    say(peer, START_TLS)
    try:
        peer.recv(1000)
    except OSError:
        return
    say(peer, HELLO)


BEGIN: dict[str, Callable[[socket.socket], socket.socket | None]] = {
    "trickle": lambda peer: say(peer, LARGE[:100]),
    "large": lambda peer: say(peer, LARGE),
    "small": lambda peer: say(peer, READ),
    "half-open": vanish,
    "resets": reset,
    "stranger": lambda peer: say(peer, AUTH),
    "handshake": lambda peer: say(peer, START_TLS),
    "hello": begin_long,
    "secured": secure,
    "reconnects": come_and_go,
}
EACH_SECOND = {"trickle": b"x", "small": READ}


def go_on(data: bytes, peers: Iterable[socket.socket]) -> None:
    """One second's share of what is said again and again; who was closed says nothing any more."""
    for peer in peers if data else ():
        peer.setblocking(False)
        try:
            peer.send(data)
            peer.recv(65536)
        except OSError:
            continue


def over(seconds: float) -> bool:
    """Whether standard input ends within so many."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def main(kind: str, count: int, sources: int, port: int) -> None:
    source = addresses(sources)
    begin = BEGIN.get(kind, lambda peer: None)
    peers: deque[socket.socket] = deque(maxlen=count)
    hands = ThreadPoolExecutor(AT_ONCE.get(kind, 1))

    def one(address: str) -> None:
        peer = connected(address, port)
        if peer is not None:
            peers.append(begin(peer) or peer)

    def more(number: int) -> int:
        for made in range(0, number, 100):
            if made and over(0.0):
                return made
            deque(hands.map(one, islice(source, min(100, number - made))), 0)
        return number

    more(count)
    print(f"ready {len(peers)}", flush=True)
    opened, begun = 0, time.monotonic()
    due = begun
    while not over(max(0.0, due - time.monotonic())):
        due += 1
        opened += more(MORE_EACH_SECOND.get(kind, 0))
        go_on(EACH_SECOND.get(kind, b""), peers)
    print(f"{opened / (time.monotonic() - begun):.0f} a second", flush=True)
    while peers:  # not all at once: what thousands that end together cost is not asked here
        for _ in range(min(100, len(peers))):
            peers.pop().close()
        select.select([], [], [], 0.01)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
