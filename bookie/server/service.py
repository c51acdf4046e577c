"""
The way of each request through a bookie: checks in the protocol's order, the storage's answer, the reply.

Knows: every operation (wire.md 3.5, 6, 7, 9) and the order of checks (7.3).
Does not know: sockets (`listener`), bytes of messages (`protocol.wire`), disks (`storage`), when a bookie is read-only
(`bookie` decides it), how reads and polls wait (`reads`, `long_poll`, `parking`).

Safety:
- an add, a fence, an explicit LAC and a force are answered when the storage hands their token back, never before;
- a fencing read reads after its fence is on disk, and is answered after that, negatives included (D6);
- adds of one connection reach the storage in the order they came, except that recovery and priority adds overtake
  parked ones, and that copies (recovery adds without priority) wait while there are others (`parking`).
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.bookie.server.budget import Budget
from quire.bookie.server.complaints import Complaints
from quire.bookie.server.contract import Own, Peer, ServiceCounters, WriteRequest
from quire.bookie.server.long_poll import LongPolls
from quire.bookie.server.parking import REQUEST_BYTES, GivingWay, Parking
from quire.bookie.server.reads import Reads
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock
from quire.protocol import wire
from quire.protocol.errors import OK, Status
from quire.protocol.messages import (
    AUTH_DISABLED,
    BOOKIE_ID,
    FREE_DISK,
    TOTAL_DISK,
    AddRun,
    Auth,
    AuthReply,
    BatchRead,
    BookieInfo,
    Force,
    InfoReply,
    ListEntries,
    Read,
    ReadLac,
    Request,
    StartTls,
    Unserved,
    WriteLac,
)
from quire.rows.files import StorageError, status_of

if TYPE_CHECKING:
    from quire.bookie.storage.storage import Storage

# SPDX-License-Identifier: Apache-2.0

V2_VERSION_MAX = 2
V3_VERSION = 3
LEDGER_ID_END = (1 << 63) - 1  # this id is refused everywhere (metadata-rules.md 3.1)
KEY_BYTES_MAX = 64  # of a master key; every known client's has 20
LAC_BODY_BYTES_MIN, LAC_BODY_BYTES_MAX = 16, 64  # known clients': 16 and a digest of 20 at most

Token = tuple[Peer, AddRun | Read | BatchRead | WriteLac | Force | Own]  # what the storage is handed and hands back


def spoken(version: int, is_v2: bool) -> bool:
    """True if a request's protocol version is served; otherwise its answer is EBADVERSION."""
    return 0 <= version <= V2_VERSION_MAX if is_v2 else version == V3_VERSION


class Service:
    """All operations of one bookie."""

    log = Logger()

    def __init__(
        self,
        clock: Clock,
        options: BookieOptions,
        storage: "Storage",
        bookie: str | None = None,
        incarnation: str | None = None,
    ) -> None:
        """`bookie`, `incarnation`: its id and that of its life, for clients that ask which bookie answers."""
        self.storage = storage
        self._seconds = clock.seconds
        self._identity = bookie, incarnation
        self.tally = ServiceCounters()
        self.read_only = False
        self.high_priority_writes = True  # whether a read-only bookie has room for what ledger recovery writes
        self.complaints = Complaints(clock, self.log)
        self.reads = Reads(clock, options, storage, self.tally, self.complaints)
        self.long_polls = LongPolls(clock, options, self.reads)
        pending = Budget(options.pending_bytes_max, connection_limit=options.connection_pending_bytes_max)
        self.parking = Parking(clock, self._admit, pending)
        self.giving_way = GivingWay(clock, self._take_add, self.parking.pend)
        self._operations: dict[type, Callable[[Any, Any], None]] = {
            AddRun: self._add,
            Read: self._read,
            BatchRead: self._batch_read,
            WriteLac: self._write_lac,
            ReadLac: self._read_lac,
            ListEntries: self._list,
            Force: self._force,
            BookieInfo: self._info,
            Auth: self._auth,
            StartTls: self._refuse_as_bad,
            Unserved: self._refuse_as_bad,
        }

    def serve(self, peer: Peer, requests: Iterable[Request]) -> None:
        """Serves the requests of one arrival in order.  One for a ledger whose row can't be read gets EIO."""
        operations, began = self._operations, self._seconds()
        for request in requests:
            try:
                operations[type(request)](peer, request)
            except (StorageError, OSError) as error:
                self.complaints.failed(type(request).__name__, getattr(request, "ledger", None), Failure())  # type: ignore[no-untyped-call]
                self.refuse(peer, request, status_of(error))
        self.reads.observe(began)

    def lost(self, peer: Peer) -> None:
        """Drops what waits for a connection that has ended; what the storage has taken stays."""
        self.parking.lost(peer)
        self.giving_way.lost(peer)
        self.reads.lost(peer)
        self.long_polls.lost(peer)

    def refuse(self, peer: Peer, request: Request, status: Status) -> None:
        self.tally.refusals += 1
        peer.send(wire.refusal(request, status))

    # -- what waits for the journal

    def _add(self, peer: Peer, run: AddRun) -> None:
        tally = self.tally
        tally.add_runs += 1
        tally.add_entries += len(run.bodies)
        if not run.recovery:
            self.giving_way.appended = True
        elif not run.priority:
            self.giving_way.take(peer, run)
            return
        if peer.parked and not (run.recovery or run.priority):
            self.parking.park(peer, run)  # behind those that came before it
        else:
            self._take_add(peer, run)

    def _take_add(self, peer: Peer, run: AddRun) -> None:
        if not self._admit_add(peer, run):
            self.parking.park(peer, run)

    def _admit(self, peer: Peer, request: WriteRequest) -> bool:
        """Hands what was parked to the storage, or answers it; False: there is no room now, and nothing was done."""
        return (
            self._admit_add(peer, request)
            if type(request) is AddRun
            else self._admit_lac(peer, cast(WriteLac, request))
        )

    def _admit_add(self, peer: Peer, run: AddRun) -> bool:
        status: Status | None
        if not spoken(run.version, run.txns is None):
            status = Status.EBADVERSION
        elif self.read_only and not (run.priority and self.high_priority_writes):
            status = Status.EREADONLY
        elif run.malformed or not 0 <= run.ledger < LEDGER_ID_END or run.first < 0:
            status = Status.EBADREQ
        elif len(run.master_key) > KEY_BYTES_MAX:
            status = Status.EUA
        else:
            try:
                status = self.storage.add(run, (peer, run))
            except (StorageError, OSError) as error:
                self.complaints.failed("add", run.ledger, Failure())  # type: ignore[no-untyped-call]
                status = status_of(error)
            if status is Status.EOK:
                return True
            if status is None:
                return False
        self.tally.adds_refused += len(run.bodies)
        self.giving_way.over(run)
        peer.send(wire.add_acks(run, status))
        return True

    def durable(self, tokens: list[object]) -> None:
        """Answers what one synced group has made durable, each connection in one write."""
        answers: dict[Peer, list[bytes]] = {}
        fenced: list[tuple[Peer, Read | BatchRead]] = []
        owned: list[Own] = []
        add_acks, done, awaited = wire.add_acks, Status.EOK, self.long_polls.awaited
        for peer, request in cast(list[Token], tokens):
            if type(request) is AddRun:
                if request.ledger in awaited and peer.is_ours:
                    request.reader_waits = True
                data = add_acks(request, done)
                if not peer.settled:
                    peer.settle()
                if request.recovery:
                    self.giving_way.over(request)
            elif isinstance(request, (Read, BatchRead)):
                fenced.append((peer, request))
                continue
            elif type(request) is Own:
                owned.append(request)
                continue
            else:
                data = wire.refusal(request, done)
                if type(request) is Force:
                    self.parking.pend(peer, -REQUEST_BYTES)
            if peer in answers:
                answers[peer].append(data)
            else:
                answers[peer] = [data]
        for peer, parts in answers.items():
            peer.send_at_once(parts[0] if len(parts) == 1 else b"".join(parts))
        for peer, request in fenced:
            self.parking.pend(peer, -REQUEST_BYTES)
            self.reads.in_turn(peer, request)
        for own in owned:
            own.done.callback(OK)

    def refused(self, token: object, error: object) -> None:
        """Answers a force that was taken and failed."""
        peer, request = cast(tuple[Peer, Force], token)
        self.parking.pend(peer, -REQUEST_BYTES)
        self.refuse(peer, request, status_of(error))

    def relieved(self) -> None:
        """Admits what is parked: the storage has room again, or refuses from now on."""
        self.parking.relieved()

    def _write_lac(self, peer: Peer, request: WriteLac) -> None:
        self.tally.lac_writes += 1
        if peer.parked or not self._admit_lac(peer, request):
            self.parking.park(peer, request)

    def _admit_lac(self, peer: Peer, request: WriteLac) -> bool:
        body = request.body
        status: Status | None
        if not spoken(request.version, is_v2=False):
            status = Status.EBADVERSION
        elif self.read_only:
            status = Status.EREADONLY
        elif (
            not LAC_BODY_BYTES_MIN <= len(body) <= LAC_BODY_BYTES_MAX
            or not 0 <= (ledger := int.from_bytes(body[:8], "big", signed=True)) < LEDGER_ID_END
        ):
            status = Status.EBADREQ
        elif len(request.master_key) > KEY_BYTES_MAX:
            status = Status.EUA
        else:
            try:
                if request.hint:
                    status = self.storage.hint_lac(ledger, request.master_key, body)
                else:
                    status = self.storage.write_lac(ledger, request.master_key, body, (peer, request))
            except (StorageError, OSError) as error:
                self.complaints.failed("explicit LAC", ledger, Failure())  # type: ignore[no-untyped-call]
                status = status_of(error)
            if status is Status.EOK:
                if request.hint:
                    peer.send(wire.refusal(request, status))
                return True
            if status is None:
                return False
        self.refuse(peer, request, status)
        return True

    def _force(self, peer: Peer, request: Force) -> None:
        self.tally.forces += 1
        if self._current(peer, request):
            self._take(peer, request, lambda token: self.storage.force(request.ledger, token))

    def _take(self, peer: Peer, request: Read | BatchRead | Force, take: Callable[[Token], Status]) -> None:
        """Hands the storage what always finds room, or refuses it; pending from here until its token comes back."""
        self.parking.pend(peer, REQUEST_BYTES)
        status = Status.EIO
        try:
            status = take((peer, request))
        finally:
            if status is not Status.EOK:
                self.parking.pend(peer, -REQUEST_BYTES)
        if status is not Status.EOK:
            self.refuse(peer, request, status)

    # -- reads

    def _read(self, peer: Peer, request: Read) -> None:
        if not spoken(request.version, request.txn is None):
            self.refuse(peer, request, Status.EBADVERSION)
        elif request.master_key and len(request.master_key) > KEY_BYTES_MAX:
            self.refuse(peer, request, Status.EUA)
        elif request.fence:
            self._fence(peer, request)
        elif request.previous_lac is not None:
            self.tally.long_polls += 1
            self.long_polls.add(peer, request)
        else:
            self.reads.in_turn(peer, request)

    def _batch_read(self, peer: Peer, request: BatchRead) -> None:
        if not spoken(request.version, is_v2=True):
            self.refuse(peer, request, Status.EBADVERSION)
        elif request.master_key and len(request.master_key) > KEY_BYTES_MAX:
            self.refuse(peer, request, Status.EUA)
        elif request.fence:
            self._fence(peer, request)
        else:
            self.reads.in_turn(peer, request)

    def _fence(self, peer: Peer, request: Read | BatchRead) -> None:
        """Fences; the read follows when that is on disk, so that it sees every add accepted before."""
        self.tally.fences += 1
        key = request.master_key
        if not key:
            self.refuse(peer, request, Status.EUA)
        elif not 0 <= request.ledger < LEDGER_ID_END:
            self.refuse(peer, request, Status.EBADREQ)
        else:
            self._take(peer, request, lambda token: self.storage.fence(request.ledger, key, token))

    def _read_lac(self, peer: Peer, request: ReadLac) -> None:
        self.tally.lac_reads += 1
        if self._current(peer, request):
            self.reads.in_turn(peer, request)

    def _list(self, peer: Peer, request: ListEntries) -> None:
        self.tally.lists += 1
        if self._current(peer, request):
            self.reads.in_turn(peer, request)

    # -- the rest

    def _info(self, peer: Peer, request: BookieInfo) -> None:
        if not self._current(peer, request):
            return
        wanted = request.requested
        total, free = self.storage.disk_usage() if wanted & (TOTAL_DISK | FREE_DISK) else (0, 0)
        total_told, free_told = total if wanted & TOTAL_DISK else None, free if wanted & FREE_DISK else None
        bookie, incarnation = self._identity if wanted & BOOKIE_ID else (None, None)
        peer.is_ours |= wanted & BOOKIE_ID != 0
        reply = InfoReply(Status.EOK, request.txn, total_told, free_told, bookie, incarnation)
        peer.send(wire.answer(request, reply))

    def _auth(self, peer: Peer, request: Auth) -> None:
        """Answers that a connection which is served need not authenticate (wire.md 9.2)."""
        peer.send(wire.answer(request, AuthReply(AUTH_DISABLED, b"", Status.EOK, request.txn)))

    def _refuse_as_bad(self, peer: Peer, request: StartTls | Unserved) -> None:
        self.refuse(peer, request, Status.EBADREQ)

    def _current(self, peer: Peer, request: ReadLac | ListEntries | Force | BookieInfo) -> bool:
        """True if a V3 request says that it is V3; otherwise it has been refused."""
        if spoken(request.version, is_v2=False):
            return True
        self.refuse(peer, request, Status.EBADVERSION)
        return False
