"""
The inputs of a replica's machine, and its effects.

Knows: inputs from the log, its snapshots and the user, effects for the replica's shell.
Does not know: what the machine decides, what a record is.
"""

from enum import Enum
from typing import NamedTuple

from quire.client.core.machine import Message
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


class Input(Message):
    """The inputs of a replica's machine."""


# Inputs.


class Begin(Input):
    """The first input."""


class Listed(Input):
    """The manifest of now: its snapshots, and the index at which the log begins."""

    snapshots: tuple[Snapshot, ...]
    begin: int


class Loaded(Input):
    """A fresh machine holds what was to be loaded: all below that index."""

    index: int


class LoadFailed(Input):
    """A snapshot can't be loaded.  `damaged`: nor can it be later; else its bookies can't be asked now."""

    ledger: int
    reason: str
    damaged: bool


class Ends(Input):
    """Where the log ended when reading began."""

    end: int


class Read(Input):
    """Records that the reader gave, where it stands."""

    given: Given


class Own(Input):
    """Records of this process's owner that were acknowledged."""

    given: Given


class Applied(Input):
    """All records below that index are applied."""

    index: int


class ApplyRaised(Input):
    """The user's machine raised at that record."""

    index: int
    error: LedgerError


class Trimmed(Input):
    """The log begins above the next record."""


class ReadFailed(Input):
    """The reader ended.  `final`: reading again does not help."""

    error: LedgerError
    final: bool


class Grown(Input):
    """The manifest says that closed segments reach up to that index."""

    end: int


class Leads(Input):
    """The log is this process's; `first` is the index at which its epoch begins, `newest` that of a snapshot."""

    epoch: int
    first: int
    newest: int


class Follows(Input):
    """The log is not this process's any more."""


class SaveAsked(Input):
    """The user wants a snapshot."""


class Saved(Input):
    """The newest snapshot that the manifest names has that index."""

    index: int


class SaveFailed(Input):
    """No snapshot was made."""


class Again(Input):
    """The time that was waited for is over."""


class Close(Input):
    """The user has done."""


class Effect(Message):
    """The effects of that machine."""


# Effects.


class Look(Effect):
    """Forget what waits to be applied, stop reading, and say what the manifest lists: `Listed`."""


class Load(Effect):
    """A fresh machine, from a snapshot or from nothing: `Loaded`, `LoadFailed`."""

    snapshot: Snapshot | None


class ReadFrom(Effect):
    """Say where the log ends, and give what is there and what comes: `Ends`, `Read`, `Trimmed`, `ReadFailed`."""

    index: int


class Rest(Effect):
    """Read no more, for the owner gives what it appends; say when the manifest has more: `Grown`."""


class Apply(Effect):
    """Apply all but the first `skip` of these, behind what waits: `Applied`, `ApplyRaised`."""

    given: Given
    skip: int


class Save(Effect):
    """Write a snapshot of what is applied now: `Saved`, `SaveFailed`."""


class Play(Effect):
    """The replica has another role."""

    role: Role
    epoch: int


class GiveBack(Effect):
    """Give the log back and own it again, in another epoch: `Follows`, then `Leads`."""


class Wait(Effect):
    """Some time: `Again`."""

    reason: str


class Complain(Effect):
    """Tell the operator."""

    text: str


class Stop(Effect):
    """Ends applying, and owning the log: with that error, or None, as it was asked to."""

    error: LedgerError | None
