"""
The inputs of an owner's machine, and its effects.

Knows: inputs from the metadata store, the ledger's writer and the user, effects for the owner's driver.
Does not know: what the machine decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.log.core.values import Counts
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

UNSENT = 1 << 64  # above the id of any entry


@dataclass(eq=False, slots=True)
class Item:
    """
    A batch of records that is acknowledged as a whole (`owner.appending.appends`).  `deadline`: when it fails, by the
    driver's clock.  `last`: the id of its last entry in the present ledger, which the driver sets when it hands it to
    that ledger's writer.
    """

    deadline: float
    last: int = UNSENT


# Inputs from the metadata store.


@dataclass(slots=True)
class ClaimFree:
    """Nobody has the claim, and it is this candidate's turn."""


@dataclass(slots=True)
class ClaimMine:
    """The claim has this handle's token."""


@dataclass(slots=True)
class ClaimGone:
    """The claim that was this handle's is there no more, as after the session was lost."""


@dataclass(slots=True)
class ClaimTaken:
    """Another one has the claim."""

    token: str


@dataclass(slots=True)
class Claimed:
    """The manifest names this handle; `open_segment` is what the owner before left open: number and ledger."""

    epoch: int
    open_segment: tuple[int, int] | None


@dataclass(slots=True)
class SegmentClosed:
    """The manifest says that segment `n` is closed, as it was asked to, or by a publisher."""

    n: int


@dataclass(slots=True)
class Opened:
    """The manifest names the ledger as the open segment `n`."""

    n: int


@dataclass(slots=True)
class Announced:
    """The manifest says to whom the log goes."""


@dataclass(slots=True)
class Resigned:
    """The manifest names no owner."""


@dataclass(slots=True)
class Refused:
    """An edit was refused for good."""

    error: LedgerError


@dataclass(slots=True)
class Deposed:
    """
    The manifest names another owner, or the log is terminated or being deleted, or this handle is not to wait any more
    for the claim of another: `error` says so.
    """

    error: LedgerError


@dataclass(slots=True)
class SegmentEnded:
    """The manifest says that segment `n` is over, and not by this handle: with so many entries, 0 when doomed."""

    n: int
    entries: int


# Inputs from ledgers; `n` is the number of the segment that the ledger is, or was to be.


@dataclass(slots=True)
class LedgerCreated:
    ledger: int


@dataclass(slots=True)
class CreateFailed:
    error: LedgerError


@dataclass(slots=True)
class Acked:
    """Everything up to this entry is acknowledged."""

    n: int
    entry: int


@dataclass(slots=True)
class WriterEnded:
    """The ledger's writer has lost it, or can't go on."""

    n: int


@dataclass(slots=True)
class LedgerNotOpen:
    """The ledger's metadata says that it is being recovered, or was closed, by another one."""

    n: int


@dataclass(slots=True)
class LedgerClosed:
    """By this owner's writer; what it holds."""

    n: int
    counts: Counts


@dataclass(slots=True)
class Recovered:
    """A ledger was brought to its end: the id of its last entry (-1: none), and what it holds."""

    n: int
    last: int
    counts: Counts


@dataclass(slots=True)
class RecoverFailed:
    n: int
    error: LedgerError


@dataclass(slots=True)
class LedgerVanished:
    """The ledger is gone, and its content unknown.  `error`: the manifest still names it; None: it does not."""

    n: int
    error: LedgerError | None


@dataclass(slots=True)
class NewLedgerVanished:
    """A ledger that was created is gone before it was named."""


@dataclass(slots=True)
class Settled:
    """A ledger that this handle lost is closed: the id of its last entry."""

    n: int
    last: int


# Inputs from the user and from timers.


@dataclass(slots=True)
class Append:
    items: Sequence[Item]


@dataclass(slots=True)
class RollDue:
    """The segment is to end."""


@dataclass(slots=True)
class Transfer:
    """The log is to go to the candidate with that token; empty: to nobody, as at a close."""

    to: str


@dataclass(slots=True)
class GiveUp:
    """The metadata store failed to answer, and this handle has tried to leave for as long as it may."""

    error: LedgerError


@dataclass(slots=True)
class Again:
    """The time is over after which something that failed, or was waited for, is looked at again."""


@dataclass(slots=True)
class Expired:
    """Items whose deadline is not after `now` fail; `patience`: a takeover has lasted as long as it may."""

    now: float
    patience: bool = False


Input = (
    ClaimFree
    | ClaimMine
    | ClaimGone
    | ClaimTaken
    | Claimed
    | SegmentClosed
    | Opened
    | Announced
    | Resigned
    | Refused
    | Deposed
    | SegmentEnded
    | LedgerCreated
    | CreateFailed
    | Acked
    | WriterEnded
    | LedgerNotOpen
    | LedgerClosed
    | Recovered
    | RecoverFailed
    | LedgerVanished
    | NewLedgerVanished
    | Settled
    | Append
    | RollDue
    | Transfer
    | GiveUp
    | Again
    | Expired
)


# Effects.


@dataclass(slots=True)
class MakeClaim:
    pass


@dataclass(slots=True)
class ReleaseClaim:
    """Leaves the candidates, and removes the claim if it has this handle's token."""


@dataclass(slots=True)
class EditClaim:
    """Syncs, ends another's lease, and has the manifest name this handle.  Answer: `Claimed`, `Refused`."""


@dataclass(slots=True)
class EditOpen:
    """Names the ledger; `ends`: the segment before.  Answer: `Opened`, `NewLedgerVanished`, `Refused`."""

    ledger: int
    ends: tuple[int, Counts] | None


@dataclass(slots=True)
class EditClose:
    """Closes the segment.  Answer: `SegmentClosed`, `Refused`."""

    n: int
    counts: Counts


@dataclass(slots=True)
class EditAnnounce:
    """Answer: `Announced`, `Refused`."""

    to: str


@dataclass(slots=True)
class EditResign:
    """Closes the segment, if one is named, and leaves.  Answer: `Resigned`, `Refused`."""

    ends: tuple[int, Counts] | None


@dataclass(slots=True)
class BecomeOwner:
    """The log is this handle's; appends are taken."""


@dataclass(slots=True)
class CreateLedger:
    """Answer: `LedgerCreated`, `CreateFailed`."""


@dataclass(slots=True)
class Discard:
    """Fences and deletes a ledger that was never named."""

    ledger: int


@dataclass(slots=True)
class Send:
    """Encodes and appends the items in order, as the ledger's writer has room, and sets `last` of each then."""

    items: Sequence[Item]


@dataclass(slots=True)
class CloseLedger:
    """Ends the watch of the open segment's ledger and closes it.  Answer: `LedgerClosed`, `WriterEnded`."""

    n: int


@dataclass(slots=True)
class Recover:
    """Brings a ledger to its end.  Answer: `Recovered`, `RecoverFailed`, `LedgerVanished`."""

    n: int
    ledger: int


@dataclass(slots=True)
class Settle:
    """Waits until a ledger is closed.  Answer: `Settled`, `LedgerVanished`."""

    n: int
    ledger: int


@dataclass(slots=True)
class Release:
    """Items that are acknowledged."""

    items: Sequence[Item]


@dataclass(slots=True)
class Fail:
    """Items that are not in the log, or, with `AppendUnknown`, may be."""

    items: Sequence[Item]
    error: LedgerError


@dataclass(slots=True)
class Wait:
    """Feeds `Again` after `why` has its time: "create", "recover", or "fence" for a publisher to go first."""

    why: str


@dataclass(slots=True)
class End:
    """
    The handle is over; `error`: why, None when it was asked to.  `left`: why it left without closing its segment or
    without resigning, which the next owner makes good.
    """

    error: LedgerError | None
    left: LedgerError | None = None


Effect = (
    MakeClaim
    | ReleaseClaim
    | EditClaim
    | EditOpen
    | EditClose
    | EditAnnounce
    | EditResign
    | BecomeOwner
    | CreateLedger
    | Discard
    | Send
    | CloseLedger
    | Recover
    | Settle
    | Release
    | Fail
    | Wait
    | End
)
