"""What targets have in common: how one is registered, and what it lets through."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

# SPDX-License-Identifier: Apache-2.0

FRAME_BYTES_MAX = 1 << 16
Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}
# The decoders, as `module.function` or `module.Class.function`, that a target stands for.
COVERED: dict[str, str] = {}


def target(*decoders: str) -> Callable[[Target], Target]:
    """Registers one by its name, for those decoders."""

    def add(function: Target) -> Target:
        TARGETS[function.__name__] = function
        COVERED.update(dict.fromkeys(decoders, function.__name__))
        return function

    return add


def registered() -> dict[str, Target]:
    """All of them, by name."""
    from tests.fuzz import file_targets, message_targets, pulsar_targets, targets, whole  # noqa: F401

    return TARGETS


@contextmanager
def refused_as(*kinds: type[BaseException]) -> Iterator[None]:
    """What a decoder may raise."""
    with suppress(*kinds):
        yield


def cut(data: bytes) -> list[bytes]:
    """The rest after the first byte, in pieces of that size; 0: in one."""
    size, rest = (data[0], data[1:]) if data else (0, b"")
    return [rest[at : at + size] for at in range(0, len(rest), size)] if size else [rest]


def lengths(data: bytes) -> list[bytes]:
    """What stands behind its length of two bytes, one after the other; the last may be shorter."""
    found, at = [], 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def fed(receiver: Any, data: bytes) -> None:
    """A receiver raises nothing; once it has failed it gives nothing more."""
    for piece in cut(data):
        found = receiver.feed(piece)
        assert not (found and receiver.failure and receiver.feed(piece))
