"""
The requests and answers that travel between client and bookie, as values.

Knows: the fields of every operation, the same for V2 and V3.  A hot operation (add) is a *run*: all that arrived
together for one ledger with consecutive entry ids, one object for hundreds of entries.
Does not know: bytes; `v2`, `v3` and `wire` turn these values into frames and back.

`txn` is V3's transaction id; None marks a V2 message, which has none (wire.md 2.6, 3.4). `version` is the header's
protocol version as sent (V2: 0 to 2, V3: 1 to 3); a bookie answers EBADVERSION to the wrong one. `priority` above 0 is
high priority (V2: flag 0x4; V3: the header's field).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from quire.protocol.errors import Status

# SPDX-License-Identifier: Apache-2.0

LAST_ENTRY = -1  # as an entry id in a read: "your highest stored entry"
HIGH_PRIORITY = 100  # what Apache clients send in V3; V2 has one bit for it
TOTAL_DISK, FREE_DISK = 1, 2  # what a `BookieInfo` may ask for
BOOKIE_ID = 1 << 20  # the id and the incarnation, quire's own: Apache's bookies ignore the bit
EVIDENCE_BYTES_MAX = 512 << 10  # of entries in a poll's answer that proves its LAC, quire's own
AUTH_DISABLED = "AuthDisabledPlugin"  # in the place of a plugin's name: this side asks nobody who he is


@dataclass(slots=True)
class AddRun:
    """
    `len(bodies)` adds of one ledger, ids first, first + 1, …, with the same key and flags, as they arrived together.
    """

    ledger: int
    first: int
    bodies: list[bytes] = field(repr=False)  # entry bodies: 32-byte header, digest, payload (wire.md 5.1)
    master_key: bytes = field(repr=False)
    recovery: bool = False
    priority: int = 0
    deferred_sync: bool = False
    frames: bytes | None = field(
        default=None, repr=False
    )  # V2 only: the frames as they came, length prefixes included, for the journal
    txns: list[int] | None = None  # V3 only: one transaction id per entry, in the order of `bodies`
    version: int = 2
    malformed: bool = False  # one add whose body can't be stored (under 24 bytes; V3: no sub-message): answer EBADREQ
    # V3 only: one add whose fields name another (ledger, entry) than its body does
    answered_as: tuple[int, int] | None = None
    reader_waits: bool = False  # what its answers say: a reader waits at this bookie for what comes next


@dataclass(slots=True)
class Read:
    """
    A read of one entry.  `fence` fences the ledger first and needs `master_key`; `previous_lac` makes it a long poll.
    """

    ledger: int
    entry: int
    fence: bool = False
    master_key: bytes | None = field(default=None, repr=False)
    priority: int = 0
    txn: int | None = None
    version: int = 2
    previous_lac: int | None = None
    timeout_ms: int | None = None
    piggyback: bool = False
    evidence: bool = False  # quire's own, of a long poll with piggyback: what proves the LAC comes along


@dataclass(slots=True)
class BatchRead:
    """V2 only: up to `count_max` (<= 0: no limit) entries from `first` on, within `bytes_max` (wire.md 2.4)."""

    ledger: int
    first: int
    request_id: int
    count_max: int
    bytes_max: int
    fence: bool = False
    master_key: bytes | None = field(default=None, repr=False)
    priority: int = 0
    version: int = 2


@dataclass(slots=True)
class WriteLac:
    ledger: int
    lac: int
    master_key: bytes = field(repr=False)
    body: bytes
    txn: int = 0
    priority: int = 0
    version: int = 3
    hint: bool = False  # quire's own: for readers that wait, so it is answered without a sync


@dataclass(slots=True)
class ReadLac:
    ledger: int
    txn: int = 0
    priority: int = 0
    version: int = 3


@dataclass(slots=True)
class ListEntries:
    ledger: int
    txn: int = 0
    priority: int = 0
    version: int = 3


@dataclass(slots=True)
class Force:
    ledger: int
    txn: int = 0
    priority: int = 0
    version: int = 3


@dataclass(slots=True)
class BookieInfo:
    """`requested`: any of `TOTAL_DISK`, `FREE_DISK` and `BOOKIE_ID` (a bit mask)."""

    requested: int
    txn: int = 0
    priority: int = 0
    version: int = 3


@dataclass(slots=True)
class Auth:
    plugin: str
    payload: bytes
    txn: int | None = None
    priority: int = 0
    version: int = 2


@dataclass(slots=True)
class StartTls:
    txn: int = 0
    priority: int = 0
    version: int = 3


@dataclass(slots=True)
class Unserved:
    """
    A V3 request that parses but is not served (operations 3, 4 and 12): answered EBADREQ with its header copied.
    """

    operation: int
    txn: int
    priority: int = 0
    version: int = 3


Request = AddRun | Read | BatchRead | WriteLac | ReadLac | ListEntries | Force | BookieInfo | Auth | StartTls | Unserved


@dataclass(slots=True)
class AddAcks:
    """
    `count` answers to adds that came together with one status.  V2: ids first, first + 1, … of `ledger`.
    V3: transactions txn, txn + 1, …; `ledger` and `first` are what the first answer said (0 in a bare one).
    """

    ledger: int
    first: int
    count: int
    status: Status
    txn: int | None = None
    reader_waits: bool = False


@dataclass(slots=True)
class ReadReply:
    status: Status
    ledger: int
    entry: int
    body: bytes | None = None
    lac: int | None = None  # V3: maxLAC, a hint that no digest covers
    lac_time_ms: int | None = None
    txn: int | None = None
    # quire's own, to a long poll that asked for evidence: entries behind `body`, and as in a `LacReply`
    following: tuple[bytes, ...] = ()
    lac_body: bytes | None = None
    last_body: bytes | None = None


@dataclass(slots=True)
class BatchReply:
    status: Status
    ledger: int
    first: int
    request_id: int
    bodies: Sequence[bytes] = field(default_factory=list)


@dataclass(slots=True)
class StatusReply:
    """The answer to WriteLac, Force, StartTls: a status, and a ledger but for StartTls.  `operation`: V3's number."""

    operation: int
    status: Status
    txn: int
    ledger: int = 0


@dataclass(slots=True)
class LacReply:
    status: Status
    ledger: int
    txn: int
    lac_body: bytes | None = None  # the explicit LAC as it was written
    last_body: bytes | None = None  # the highest stored entry


@dataclass(slots=True)
class InfoReply:
    status: Status
    txn: int
    total_bytes: int | None = None
    free_bytes: int | None = None
    # the id of the answering bookie; None: it was not asked for, or the bookie is not quire's
    bookie: str | None = None
    incarnation: str | None = None  # of its directories (D19), told with the id


@dataclass(slots=True)
class ListReply:
    status: Status
    ledger: int
    txn: int
    availability: bytes | None = None  # see `availability.py`


@dataclass(slots=True)
class AuthReply:
    plugin: str
    payload: bytes
    status: Status = Status.EOK
    txn: int | None = None


Reply = AddAcks | ReadReply | BatchReply | StatusReply | LacReply | InfoReply | ListReply | AuthReply
