"""
What passes in the clear before a connection is encrypted and its client known: START_TLS and AUTH, taken out of what
was recorded of both directions, and compared without what is new in each session.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from quire.protocol import v2, v3
from quire.protocol.errors import Status
from quire.protocol.messages import Auth, AuthReply, Reply, Request, StartTls, StatusReply
from quire.protocol.wire import Requests

# SPDX-License-Identifier: Apache-2.0

USER, PASSWORD = "hd", 'secret "\\ é'  # with what has to be escaped, and what is in Latin-1
HANDSHAKE = b"\x16\x03"  # TLS's first record; as a length it would be one of 369 MB
FRESH = re.compile(rb'((?:c?nonce|response|rspauth)=)"?[^",]*"?')


class Frame(NamedTuple):
    """With its length."""

    direction: str  # request or response
    data: bytes


class Recorded(Protocol):
    """One connection through a proxy: what came of the client, and at `other` of the bookie."""

    seen: bytes
    other: "Recorded | None"


def spoken(connection: Recorded) -> list[Frame]:
    """The frames of START_TLS and AUTH, requests first."""
    frames = [Frame("request", data) for data in _clear(connection.seen)]
    if connection.other is not None:
        frames += [Frame("response", data) for data in _clear(connection.other.seen)]
    return [frame for frame in frames if _shape(frame) is not None]


def shapes(frames: Iterable[Frame]) -> list[tuple[object, ...] | None]:
    """What they say, without transaction ids, and without nonces and what is made of them."""
    return [_shape(frame) for frame in frames]


def statuses(connections: Iterable[Recorded]) -> set[str]:
    """Of all answers in the clear that say no."""
    found = set()
    for connection in connections:
        for data in [] if connection.other is None else _clear(connection.other.seen):
            status = getattr(answer(data), "status", Status.EOK)
            found.add(status.name)
    return found - {Status.EOK.name}


def rows_of(frames: Iterable[Frame]) -> list[dict[str, str]]:
    """As a vector file has them."""
    return [{"direction": frame.direction, "frame": frame.data.hex()} for frame in frames]


def request(data: bytes) -> Request:
    (found,) = Requests().feed(data)
    return found


def answer(data: bytes) -> Reply:
    replies = v3.Replies() if data[4:5] == b"\n" else v2.Replies()
    (found,) = replies.feed(data)
    return found


def _shape(frame: Frame) -> tuple[object, ...] | None:
    """None: it is neither START_TLS nor AUTH."""
    said: Request | Reply = request(frame.data) if frame.direction == "request" else answer(frame.data)
    match said:
        case StartTls():
            return ("START_TLS",)
        case StatusReply() if said.operation == v3.START_TLS:
            return ("START_TLS", said.status.name)
        case Auth():
            return ("AUTH", said.version, said.plugin, FRESH.sub(rb"\1?", said.payload))
        case AuthReply():
            return ("AUTH", said.plugin, FRESH.sub(rb"\1?", said.payload), said.status.name)
        case _:
            return None


def _clear(data: bytes) -> Iterator[bytes]:
    """The whole frames before the handshake, or all."""
    at = 0
    while len(data) - at >= 4 and data[at : at + 2] != HANDSHAKE:
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            return
        yield data[at:end]
        at = end
