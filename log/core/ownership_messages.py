"""
The inputs of an owner's machine, and its effects.

Knows: inputs from the metadata store, the ledger's writer and the user, effects for the owner's driver.
Does not know: what the machine decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.client.core.machine import Message
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


class Input(Message):
    """The inputs of an owner's machine."""


# Inputs from the metadata store.


class ClaimFree(Input):
    """Nobody has the claim, and it is this candidate's turn."""


class ClaimMine(Input):
    """The claim has this handle's token."""


class ClaimGone(Input):
    """The claim that was this handle's is there no more, as after the session was lost."""


class ClaimTaken(Input):
    """Another one has the claim."""

    token: str


class Claimed(Input):
    """The manifest names this handle; `open_segment` is what the owner before left open: number and ledger."""

    epoch: int
    open_segment: tuple[int, int] | None


class SegmentClosed(Input):
    """The manifest says that segment `n` is closed, as it was asked to, or by a publisher."""

    n: int


class Opened(Input):
    """The manifest names the ledger as the open segment `n`."""

    n: int


class Announced(Input):
    """The manifest says to whom the log goes."""


class Resigned(Input):
    """The manifest names no owner."""


class Refused(Input):
    """An edit was refused for good."""

    error: LedgerError


class Deposed(Input):
    """The manifest names another owner, the log ended, or this handle waits no more for a claim: `error` says which."""

    error: LedgerError


class SegmentEnded(Input):
    """The manifest says that segment `n` is over, and not by this handle: with so many entries, 0 when doomed."""

    n: int
    entries: int


# Inputs from ledgers; `n` is the number of the segment that the ledger is, or was to be.


class LedgerCreated(Input):
    ledger: int


class CreateFailed(Input):
    error: LedgerError


class Acked(Input):
    """Everything up to this entry is acknowledged."""

    n: int
    entry: int


class WriterEnded(Input):
    """The ledger's writer has lost it, or can't go on."""

    n: int


class LedgerNotOpen(Input):
    """The ledger's metadata says that it is being recovered, or was closed, by another one."""

    n: int


class LedgerClosed(Input):
    """By this owner's writer; what it holds."""

    n: int
    counts: Counts


class Recovered(Input):
    """A ledger was brought to its end: the id of its last entry (-1: none), and what it holds."""

    n: int
    last: int
    counts: Counts


class RecoverFailed(Input):
    n: int
    error: LedgerError


class LedgerVanished(Input):
    """The ledger is gone, and its content unknown.  `error`: the manifest still names it; None: it does not."""

    n: int
    error: LedgerError | None


class NewLedgerVanished(Input):
    """A ledger that was created is gone before it was named."""


class Settled(Input):
    """A ledger that this handle lost is closed: the id of its last entry."""

    n: int
    last: int


# Inputs from the user and from timers.


class Append(Input):
    items: Sequence[Item]


class RollDue(Input):
    """The segment is to end."""


class Transfer(Input):
    """The log is to go to the candidate with that token; empty: to nobody, as at a close."""

    to: str


class GiveUp(Input):
    """The metadata store failed to answer, and this handle has tried to leave for as long as it may."""

    error: LedgerError


class Again(Input):
    """The time is over after which something that failed, or was waited for, is looked at again."""


class Expired(Input):
    """Items whose deadline is not after `now` fail; `patience`: a takeover has lasted as long as it may."""

    now: float
    patience: bool = False


class Effect(Message):
    """The effects of that machine."""


# Effects.


class MakeClaim(Effect):
    pass


class ReleaseClaim(Effect):
    """Leaves the candidates, and removes the claim if it has this handle's token."""


class EditClaim(Effect):
    """Syncs, ends another's lease, and has the manifest name this handle.  Answer: `Claimed`, `Refused`."""


class EditOpen(Effect):
    """Names the ledger; `ends`: the segment before.  Answer: `Opened`, `NewLedgerVanished`, `Refused`."""

    ledger: int
    ends: tuple[int, Counts] | None


class EditClose(Effect):
    """Closes the segment.  Answer: `SegmentClosed`, `Refused`."""

    n: int
    counts: Counts


class EditAnnounce(Effect):
    """Answer: `Announced`, `Refused`."""

    to: str


class EditResign(Effect):
    """Closes the segment, if one is named, and leaves.  Answer: `Resigned`, `Refused`."""

    ends: tuple[int, Counts] | None


class BecomeOwner(Effect):
    """The log is this handle's; appends are taken."""


class CreateLedger(Effect):
    """Answer: `LedgerCreated`, `CreateFailed`."""


class Discard(Effect):
    """Fences and deletes a ledger that was never named."""

    ledger: int


class Send(Effect):
    """Encodes and appends the items in order, as the ledger's writer has room, and sets `last` of each then."""

    items: Sequence[Item]


class CloseLedger(Effect):
    """Ends the watch of the open segment's ledger and closes it.  Answer: `LedgerClosed`, `WriterEnded`."""

    n: int


class Recover(Effect):
    """Brings a ledger to its end.  Answer: `Recovered`, `RecoverFailed`, `LedgerVanished`."""

    n: int
    ledger: int


class Settle(Effect):
    """Waits until a ledger is closed.  Answer: `Settled`, `LedgerVanished`."""

    n: int
    ledger: int


class Release(Effect):
    """Items that are acknowledged."""

    items: Sequence[Item]


class Fail(Effect):
    """Items that are not in the log, or, with `AppendUnknown`, may be."""

    items: Sequence[Item]
    error: LedgerError


class Wait(Effect):
    """Feeds `Again` after `why` has its time: "create", "recover", or "fence" for a publisher to go first."""

    why: str


class End(Effect):
    """
    The handle is over; `error`: why, None when it was asked to.  `left`: why it left without closing its segment or
    without resigning, which the next owner makes good.
    """

    error: LedgerError | None
    left: LedgerError | None = None
