"""
Messages into a recovery's machine and out of it, besides the adds' own messages.

Knows: inputs from the metadata store and the network, effects for the driver.
Does not know: what the machine decides.
"""

from collections.abc import Sequence

from quire.client.core.append.messages import ChangeRefused, EnsembleChanged, Reported, Shutdown
from quire.client.core.append.messages import Effect as AddEffect
from quire.client.core.machine import Message

# SPDX-License-Identifier: Apache-2.0


class Begin(Message):
    pass


# Inputs from the metadata store.


class Marked(Message):
    """The store says IN_RECOVERY, and this is the last fragment: its first entry and its bookies."""

    first: int
    bookies: tuple[str, ...]


class FoundClosed(Message):
    """Another client closed the ledger; its end is valid."""


class EndStored(Message):
    pass


class StoreFailed(Message):
    """`again`: another try may come to more."""

    code: int
    reason: str
    again: bool = True


# Inputs from the network.


class FenceAnswer(Message):
    index: int
    code: int
    body: bytes | None


class RunAnswer(Message):
    """To a `RecoveryRun`: bodies of consecutive entries from its first one on, as many as came."""

    first: int
    code: int
    bodies: Sequence[bytes]


class ReadAnswer(Message):
    entry: int
    index: int
    code: int
    body: bytes | None


class LengthAnswer(Message):
    """The length field of the entry that was asked for; None when it could not be read."""

    length: int | None
    reason: str = ""


# Effects, besides those of the adds: OpenChannel, CloseChannel, SendAdds, StoreEnsemble (here: pick, store nothing),
# alarms.


class MarkInRecovery(Message):
    """Compare-and-set OPEN to IN_RECOVERY; IN_RECOVERY already: no write (D2)."""


class Fence(Message):
    """A fencing read of the last entry."""

    index: int
    bookie: str


class RecoveryRead(Message):
    """A fencing read of one entry, with high priority."""

    entry: int
    index: int
    bookie: str


class RecoveryRun(Message):
    """A fencing read, with high priority, of `count` entries from `first` on, within `bytes_max`."""

    first: int
    count: int
    bytes_max: int
    index: int
    bookie: str


class FindLength(Message):
    """An ordinary read of a confirmed entry, for its length field."""

    entry: int


class StoreEnd(Message):
    """Compare-and-set to CLOSED with these ensembles, (first entry, bookies), each at or after the last one stored."""

    last: int
    length: int
    ensembles: tuple[tuple[int, tuple[str, ...]], ...]


class Recovered(Message):
    """The ledger is CLOSED; `adopted`: by another client."""

    adopted: bool


class Failed(Message):
    """Not recovered; the fences and IN_RECOVERY stay, trying again is always allowed."""

    code: int
    reason: str


AddInput = Reported | EnsembleChanged | ChangeRefused  # to the adds, by the recovery
Input = (
    Begin
    | Marked
    | FoundClosed
    | EndStored
    | StoreFailed
    | FenceAnswer
    | RunAnswer
    | ReadAnswer
    | LengthAnswer
    | AddInput
    | Shutdown
)
Effect = MarkInRecovery | Fence | RecoveryRead | RecoveryRun | FindLength | StoreEnd | Recovered | Failed | AddEffect
