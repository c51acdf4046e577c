"""
A batch of adds on its way from a writer to its bookies.

Knows: ids, ledger lengths and digests of consecutive entries, and the V2 frames made of them, which are packed once and
shared by all bookies of the write set.
Does not know: who sends it, which bookies, acknowledgements.  V3 frames are made by `v3.adds`.

Safety: entry ids, ledger length and last add confirmed are fixed when the batch is made, so every bookie gets equal
bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from quire.protocol import packets
from quire.protocol.digest import Digest
from quire.protocol.errors import IllegalOp

# SPDX-License-Identifier: Apache-2.0


Octets = bytes  # inside AddBatch the name `bytes` is a field


class Heads(dict[int, bytes]):
    """Frame length -> the frame's first 28 bytes; entries of one size share one object."""

    __slots__ = ("overhead", "tail")

    def __init__(self, overhead: int, tail: bytes) -> None:
        super().__init__()
        self.overhead = overhead
        self.tail = tail

    def __missing__(self, payload_bytes: int) -> bytes:
        made = self[payload_bytes] = (self.overhead + payload_bytes).to_bytes(4, "big") + self.tail
        return made


ADD_WORDS = [
    packets.header_word(packets.VERSION, packets.ADD, recovery | priority).to_bytes(4, "big")
    for recovery in (0, packets.RECOVERY_ADD)
    for priority in (0, packets.HIGH_PRIORITY)
]


@dataclass(slots=True)
class AddBatch:
    """
    Entries first, first + 1, … of one ledger.  `length` is the ledger's length in payload bytes before the first one.
    """

    digest: Digest
    ledger: int
    first: int
    lac: int
    length: int
    payloads: list[Octets]
    recovery: bool = False
    priority: int = 0
    deferred_sync: bool = False
    count: int = field(init=False)
    last: int = field(init=False)  # the last entry's id
    bytes: int = field(init=False)  # payload bytes
    packed: Octets | None = field(init=False, default=None, repr=False, compare=False)  # what `frames` made
    _each: list[Octets] | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.count = len(self.payloads)
        self.last = self.first + self.count - 1
        self.bytes = sum(map(len, self.payloads))

    def bodies(self) -> list[Octets]:
        """The entry bodies: header, digest, payload."""
        parts, _ = self.digest.parts([b""] * self.count, self.ledger, self.first, self.lac, self.length, self.payloads)
        return [b"".join(parts[at : at + 4]) for at in range(0, len(parts), 4)]

    def frames(self) -> Octets:
        """The V2 frames of all entries, packed at the first call.  Raises `IllegalOp`: V2 has no deferred sync."""
        if self.packed is None:
            self.packed = b"".join(self._parts())
        return self.packed

    def frames_of(self, entries: Sequence[int]) -> Octets:
        """The V2 frames of those ids, in that order.  `IllegalOp`; `IndexError`: an id outside the batch."""
        if self._each is None:
            parts = self._parts()
            self._each = [b"".join(parts[at : at + 4]) for at in range(0, len(parts), 4)]
        check_within(self, entries)
        each, first = self._each, self.first
        return b"".join([each[entry - first] for entry in entries])

    def release(self) -> None:
        """Drops the packed frames."""
        self.packed = self._each = None

    def _parts(self) -> list[Octets]:
        if self.deferred_sync:
            raise IllegalOp("deferred sync needs the V3 protocol")
        digest = self.digest
        overhead = packets.ADD_BODY_AT - 4 + digest.overhead
        tail = ADD_WORDS[2 * self.recovery + bool(self.priority)] + digest.master_key
        if self.count == 1:
            prefix = [(overhead + self.bytes).to_bytes(4, "big") + tail]
        else:
            prefix = list(map(Heads(overhead, tail).__getitem__, map(len, self.payloads)))
        parts, _ = digest.parts(prefix, self.ledger, self.first, self.lac, self.length, self.payloads)
        return parts


def check_within(batch: AddBatch, entries: Sequence[int]) -> None:
    """Raises `IndexError` unless all of these ids belong to the batch."""
    if entries and not (batch.first <= min(entries) and max(entries) <= batch.last):
        raise IndexError(
            f"entries {min(entries)} to {max(entries)} of a batch that holds {batch.first} to {batch.last}"
        )
