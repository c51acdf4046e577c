"""
Messages into a writer's machine and out of it: inputs grouped by sender, then effects.

Knows: the values; one object per batch or run, never one per entry.  Does not know: what any of them leads to
(`append`).

Channels are numbers that the machine gives out and never uses twice, so that an answer names the connection it came on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from quire.client.core.machine import MachineState, Message
from quire.client.core.quorum import Domains
from quire.protocol.batch import AddBatch
from quire.protocol.errors import IllegalOp, LedgerFenced, UnauthorizedAccess

# SPDX-License-Identifier: Apache-2.0


class State(MachineState):
    OPEN = auto()
    CHANGING = auto()  # one ensemble change is under way; adds are sent, acknowledgements wait
    CLOSING = auto()  # every pending add has failed; the end is being written to the metadata
    CLOSED = auto()  # the end is stored
    DEAD = auto()  # the ledger is lost to this writer, or its end could not be written


# Refusals that concern the ledger; the bookie that sent one works.
LEDGER_CODES = frozenset((LedgerFenced.code, UnauthorizedAccess.code, IllegalOp.code))


@dataclass(frozen=True, slots=True)
class Limits:
    """A writer's bounds: entries, bytes and milliseconds as in `ClientOptions`."""

    window_entries_max: int = 10_000
    window_bytes_max: int = 64 << 20
    replica_backlog_bytes_max: int = 64 << 20
    batch_entries_max: int = 1_000
    batch_bytes_max: int = 1 << 20
    stall_ms_max: int = 5_000  # a lagging bookie may hold up the writer so long before it is replaced
    retry_ms_max: int = 60_000  # most time between two attempts at a bookie that is out
    quorum_ms_max: int = 0  # an entry that is not acknowledged for so long ends the writer (-21); 0: never
    changes_max: int = -1  # ensemble changes before the writer ends with -12; below 0: any number
    delay_change: bool = False  # a bookie is replaced only when the ack quorum is out of reach without it
    keep_ensemble: bool = False  # a bookie is never replaced, only tried again


@dataclass(frozen=True, slots=True)
class AppendMode:
    """
    How a writer appends.  `last`, `length`: the entry behind which it goes on, and the ledger's payload bytes up to
    there.  `domains`: fault domains that the copies of an entry have to be in.
    """

    last: int = -1
    length: int = 0
    recovery: bool = False
    deferred_sync: bool = False
    advanced: bool = False
    domains: Domains | None = None


class Input(Message):
    """The inputs of a writer's machine."""


# Inputs from the caller.


class Append(Input):
    """Payloads as one batch.  `first`: their first id, in advanced mode only.  `token` comes back in a `Refuse`."""

    payloads: list[bytes]
    first: int | None = None
    token: object = None
    length: int | None = (
        None  # recovery only: the ledger's length before the first payload, as the original writer counted it
    )


class Close(Input):
    """Close the ledger at the last add confirmed."""


class Shutdown(Input):
    """The client is closed: fail what is pending, write nothing."""


class KeepEnsemble(Input):
    """From now on bookies that fail keep their places, or (`on` False) are replaced again."""

    on: bool


class Forced(Input):
    """Every bookie synced all that was acknowledged up to `last`, where the ledger's length was `length`."""

    last: int
    length: int


# Inputs from the network: legal in every state.


class Acked(Input):
    channel: int
    first: int
    count: int


class AddRefused(Input):
    channel: int
    first: int
    count: int
    code: int


class ChannelLost(Input):
    """The channel can't be used any more; what it has not answered never will be."""

    channel: int
    code: int
    reason: str


class Fatal(Input):
    """Something outside found that the handle can't go on (a failed force, say)."""

    code: int
    reason: str


# Inputs from the metadata store.


class EnsembleChanged(Input):
    """
    The ensemble is now `bookies`.  Those without a spare are unchanged, and `shortage` says why; `seen`: registered
    bookies.  `begun_again`: unchanged ones that the writer counts on in a new incarnation from now on, as on
    replacements.
    """

    bookies: tuple[str, ...]
    shortage: str = ""
    seen: frozenset[str] = frozenset()
    begun_again: frozenset[str] = frozenset()


class ChangeRefused(Input):
    """No change: the ledger is closed (-11), being recovered (-101), deleted (-25), or the store failed."""

    code: int
    reason: str


class BookiesSeen(Input):
    """The writable bookies that are registered."""

    writable: frozenset[str]


class CloseStored(Input):
    pass


class CloseRefused(Input):
    code: int
    reason: str


# Inputs from the clock.


class Alarm(Enum):
    STALL = auto()  # a lagging bookie holds up the writer
    RETRY = auto()  # try a bookie that is out again
    QUORUM = auto()  # look whether an entry waits for its ack quorum for too long


class AlarmFired(Input):
    alarm: Alarm


Reported = Acked | AddRefused | ChannelLost | AlarmFired  # by channels and alarms, to whatever machine sends adds


# Effects.


class Effect(Message):
    """The effects of a writer's machine."""


class OpenChannel(Effect):
    channel: int
    index: int
    bookie: str


class CloseChannel(Effect):
    """`finish`: what is queued there is still sent, and its answers are not waited for."""

    channel: int
    finish: bool = False


class SendAdds(Effect):
    """Send the batch, or those ids of it, on each of the channels."""

    batch: AddBatch
    channels: tuple[int, ...]
    entries: Sequence[int] | None = None


class ReleaseAcks(Effect):
    """Everything up to `last` is acknowledged."""

    last: int


class Refuse(Effect):
    """The append with this token is not taken; it used no ids."""

    token: object
    code: int
    reason: str


class FailPending(Effect):
    """Every append not yet released fails, in order, with this code."""

    code: int
    reason: str


class StoreEnsemble(Effect):
    """
    Pick a replacement for each (index, bookie) of `failed`, and store the new ensemble from `first` on, in one write.
    `must`: without it the ledger can't be written, so even bookies that failed lately may be picked.
    """

    first: int
    failed: tuple[tuple[int, str], ...]
    bookies: tuple[str, ...]
    must: bool


class StoreClose(Effect):
    last: int
    length: int


class WatchBookies(Effect):
    """Report registered bookies by `BookiesSeen` from now on, or no more."""

    on: bool


class SetAlarm(Effect):
    """Ring once after so long; replaces an earlier one of the same kind."""

    alarm: Alarm
    wait_ms: int


class StopAlarm(Effect):
    alarm: Alarm


class Ended(Effect):
    """The last effect of a writer: code 0 when the end is stored."""

    code: int
    reason: str
