"""
The inputs of a replica's machine, and its effects.

Knows: inputs from the log, its snapshots and the user, effects for the replica's shell.
Does not know: what the machine decides, what a record is.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from quire.log.core.values import Snapshot
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class Role(Enum):
    """LEADING: the replica owns the log and has applied what was there before.  FOLLOWING: any other."""

    FOLLOWING = "following"
    LEADING = "leading"


class Given(NamedTuple):
    """Consecutive records of the log: index of the first, how many, the bytes of their values."""

    first: int
    count: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    bytes: int
    content: object

    @property
    def end(self) -> int:
        """The index after the last."""
        return self.first + self.count


# Inputs.


@dataclass(slots=True)
class Begin:
    """The first input."""


@dataclass(slots=True)
class Listed:
    """The manifest of now: its snapshots, and the index at which the log begins."""

    snapshots: tuple[Snapshot, ...]
    begin: int


@dataclass(slots=True)
class Loaded:
    """A fresh machine holds what was to be loaded: all below that index."""

    index: int


@dataclass(slots=True)
class LoadFailed:
    """A snapshot can't be loaded.  `damaged`: nor can it be later; else its bookies can't be asked now."""

    ledger: int
    reason: str
    damaged: bool


@dataclass(slots=True)
class Ends:
    """Where the log ended when reading began."""

    end: int


@dataclass(slots=True)
class Read:
    """Records that the reader gave, where it stands."""

    given: Given


@dataclass(slots=True)
class Own:
    """Records of this process's owner that were acknowledged."""

    given: Given


@dataclass(slots=True)
class Applied:
    """All records below that index are applied."""

    index: int


@dataclass(slots=True)
class ApplyRaised:
    """The user's machine raised at that record."""

    index: int
    error: LedgerError


@dataclass(slots=True)
class Trimmed:
    """The log begins above the next record."""


@dataclass(slots=True)
class ReadFailed:
    """The reader ended.  `final`: reading again does not help."""

    error: LedgerError
    final: bool


@dataclass(slots=True)
class Grown:
    """The manifest says that closed segments reach up to that index."""

    end: int


@dataclass(slots=True)
class Leads:
    """The log is this process's; `first` is the index at which its epoch begins, `newest` that of a snapshot."""

    epoch: int
    first: int
    newest: int


@dataclass(slots=True)
class Follows:
    """The log is not this process's any more."""


@dataclass(slots=True)
class SaveAsked:
    """The user wants a snapshot."""


@dataclass(slots=True)
class Saved:
    """The newest snapshot that the manifest names has that index."""

    index: int


@dataclass(slots=True)
class SaveFailed:
    """No snapshot was made."""


@dataclass(slots=True)
class Again:
    """The time that was waited for is over."""


@dataclass(slots=True)
class Close:
    """The user has done."""


Input = (
    Begin
    | Listed
    | Loaded
    | LoadFailed
    | Ends
    | Read
    | Own
    | Applied
    | ApplyRaised
    | Trimmed
    | ReadFailed
    | Grown
    | Leads
    | Follows
    | SaveAsked
    | Saved
    | SaveFailed
    | Again
    | Close
)

# Effects.


@dataclass(slots=True)
class Look:
    """Forget what waits to be applied, stop reading, and say what the manifest lists: `Listed`."""


@dataclass(slots=True)
class Load:
    """A fresh machine, from a snapshot or from nothing: `Loaded`, `LoadFailed`."""

    snapshot: Snapshot | None


@dataclass(slots=True)
class ReadFrom:
    """Say where the log ends, and give what is there and what comes: `Ends`, `Read`, `Trimmed`, `ReadFailed`."""

    index: int


@dataclass(slots=True)
class Rest:
    """Read no more, for the owner gives what it appends; say when the manifest has more: `Grown`."""


@dataclass(slots=True)
class Apply:
    """Apply all but the first `skip` of these, behind what waits: `Applied`, `ApplyRaised`."""

    given: Given
    skip: int


@dataclass(slots=True)
class Save:
    """Write a snapshot of what is applied now: `Saved`, `SaveFailed`."""


@dataclass(slots=True)
class Play:
    """The replica has another role."""

    role: Role
    epoch: int


@dataclass(slots=True)
class Wait:
    """Some time: `Again`."""

    reason: str


@dataclass(slots=True)
class Complain:
    """Tell the operator."""

    text: str


@dataclass(slots=True)
class Stop:
    """Ends applying, and owning the log: with that error, or None, as it was asked to."""

    error: LedgerError | None


Effect = Look | Load | ReadFrom | Rest | Apply | Save | Play | Wait | Complain | Stop
