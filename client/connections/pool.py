"""
The bookies as a client talks to them: every request of the protocol, by bookie id, with a code for an answer.

Knows: which generation carries which request (protocol-rules.md 6.3): adds, plain reads and batch reads go over V2,
everything else over V3, and with `options.protocol` "v3" all of it; a request whose key is taken on the V2 connection
goes over V3 too.
Does not know: ledgers' metadata, quorums, digests.

Nothing here fails a Deferred: an answer carries a code (`answers`).

Safety: a fencing read and a recovery add never travel over V2, whose answers can't distinguish them from plain ones;
except for a batch read, whose answer has a number of its own, and for a recovery add of an entry that filled a V2 frame
and fits no V3 one, and then only while no other handle sends adds of its ledger there.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredList

from quire.client import counters as c
from quire.client.connections.add_channel import AddChannel, AddSink, Incarnations, Parting
from quire.client.connections.answers import Answer, BatchAnswer, InfoAnswer, LacAnswer, ListAnswer
from quire.client.connections.link import LOST, TIMED_OUT, Down, Link, Up
from quire.client.connections.link_v2 import LinkV2
from quire.client.connections.link_v3 import (
    INFO,
    LAC,
    LIST,
    POLL,
    READ,
    SET_LAC,
    SYNC,
    LinkV3,
    Numbered,
    Packing,
    RequestKind,
)
from quire.client.connections.network import TcpReactor
from quire.client.connections.on_demand_link import OnDemandLink
from quire.client.counters import ClientCounters, Requests, Traffic
from quire.conf.client import ClientOptions
from quire.metadata.tree_store import MetadataStore
from quire.protocol.batch import AddBatch
from quire.protocol.errors import OK
from quire.protocol.messages import (
    EVIDENCE_BYTES_MAX,
    LAST_ENTRY,
    BatchRead,
    BookieInfo,
    Force,
    ListEntries,
    Read,
    ReadLac,
    WriteLac,
)
from quire.security.authentication import of_client
from quire.security.opening import credentials

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "AddChannel",
    "AddSink",
    "Answer",
    "BatchAnswer",
    "BookiePool",
    "Incarnations",
    "InfoAnswer",
    "LacAnswer",
    "ListAnswer",
]

CLOSE_WAIT_SECONDS = 3.0  # a client's close waits so long for copies above the ack quorum that are on their way
PARTED_SECONDS = 30.0  # so long a repair waits for those of one ledger; a silent bookie fails before that
SILENCE_SECONDS = 600.0  # so long no list is asked for of a bookie of Apache's that did not answer
TOTAL_AND_FREE = 3  # both bits of a bookie-info request

A = TypeVar("A")


class BookiePool:
    """
    One client's connections: at most one per bookie and generation, opened on demand.  `counters` are those of the
    client, of all its handles.
    """

    def __init__(self, reactor: TcpReactor, store: MetadataStore, options: ClientOptions) -> None:
        self._reactor = reactor
        self._store = store
        self._options = options
        self._credentials = credentials(options, reactor.seconds)
        self._provider = of_client(options)
        self._links: dict[tuple[str, int], OnDemandLink] = {}
        self._serials = count(1)
        self._packing = Packing()
        self._closed = False
        self._parting = Parting(reactor)
        self._silent_since: dict[str, float] = {}  # bookies that gave no list in time, and not their ids
        self.counters = ClientCounters(reactor.seconds)
        self._requests: dict[tuple[str, str], Requests] = {}  # by bookie and kind
        self.under_way = 0  # of all of them, but for adds

    def add_channel(
        self,
        bookie: str,
        ledger: int,
        sink: AddSink,
        secure: bool = False,
        incarnations: Incarnations | None = None,
    ) -> AddChannel:
        """
        A way to send adds of one ledger to one bookie; the connection is opened if need be.  `secure`: over V3, which
        recovery adds and deferred sync need.  `incarnations`: those that the ledger's writer counts on (D19).
        """
        channel = AddChannel(self._reactor, bookie, ledger, sink, incarnations, self._requests_to(bookie, c.ADD))
        if secure or self._options.protocol == "v3":
            self._link_to(bookie, 3).use(channel.attach, channel.fail, patient=True)
            return channel

        def attach(link: Link) -> None:
            if isinstance(link, LinkV2) and not link.admits_adds(ledger):
                self._link_to(bookie, 3).use(channel.attach, channel.fail, patient=True)
            else:
                channel.attach(link)

        self._link_to(bookie, 2).use(attach, channel.fail, patient=True)
        return channel

    def part(self, channel: AddChannel) -> None:
        """The channel's owner needs it no more; what is queued or unanswered there goes on without it."""
        self._parting.take(channel)

    def parted(self, ledger: int) -> Deferred[None]:
        """Once all of the ledger that has no owner is answered or failed, or half a minute is over."""
        return self._parting.wait(PARTED_SECONDS, ledger)

    def _send_large(self, channel: AddChannel, batch: AddBatch, entry: int) -> None:
        """Sends an add that is too large for a V3 frame over V2, whose frame is as large as the one it came by."""

        def send(link: Link) -> None:
            if not channel.is_open:
                return
            if isinstance(link, LinkV2) and link.admits_adds(channel.ledger, channel):
                channel.send_beside(link, batch, entry)
            else:
                reason = (
                    f"entry {entry} is too large for V3, and other adds of ledger {channel.ledger} are under way "
                    "over V2"
                )
                self._reactor.callLater(0, channel.fail, LOST, reason)

        channel.await_beside(batch, entry)
        self._link_to(channel.bookie, 2).use(send, channel.fail, patient=True)

    def read(
        self, bookie: str, ledger: int, entry: int, fence_key: bytes | None = None, priority: int = 0
    ) -> Deferred[Answer]:
        """
        One entry body, not verified; `entry` -1 is the highest one stored there.  With `fence_key` (the master key) the
        ledger is fenced first, and only V3 carries it.
        """
        fence = fence_key is not None
        answer: Deferred[Answer] = self._counted(bookie, c.FENCE if fence else c.READ)

        def over_v3() -> Deferred[Answer]:
            request = Read(ledger, entry, fence, fence_key, priority, version=3)
            return self._ask(bookie, READ, request, answer, patient=fence)

        if fence or self._options.protocol == "v3":
            return over_v3()

        def over(link: Link) -> None:
            if isinstance(link, LinkV2) and link.admits_read(ledger, entry):
                link.read(Read(ledger, entry, priority=priority), answer)
            else:
                over_v3()

        return self._use(bookie, 2, over, answer, Answer, patient=False)

    def batch_read(
        self,
        bookie: str,
        ledger: int,
        first: int,
        count_max: int,
        bytes_max: int,
        fence_key: bytes | None = None,
        priority: int = 0,
    ) -> Deferred[BatchAnswer]:
        """
        Bodies of consecutive entries from `first` on, not verified: at most `count_max` (<= 0: no limit) and about
        `bytes_max` bytes, at least one.  Over V2, or as pipelined single reads when all goes over V3.  With `fence_key`
        the ledger is fenced first.
        """
        fence = fence_key is not None
        answer: Deferred[BatchAnswer] = self._counted(bookie, c.FENCE if fence else c.BATCH_READ)

        def over(link: Link) -> None:
            if isinstance(link, LinkV2):  # one frame, and a larger one than is taken here would end the connection
                most = min(bytes_max, self._options.frame_bytes_max)
                link.batch_read(BatchRead(ledger, first, 0, count_max, most, fence, fence_key, priority), answer)
            elif isinstance(link, LinkV3):
                link.read_run(ledger, first, count_max, bytes_max, answer, fence_key, priority)

        return self._use(
            bookie,
            3 if self._options.protocol == "v3" else 2,
            over,
            answer,
            BatchAnswer,
            patient=fence,
        )

    def read_run(self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int) -> Deferred[BatchAnswer]:
        """Reads a run, always by pipelined single reads over V3: for a bookie that knows no batch read."""
        answer: Deferred[BatchAnswer] = self._counted(bookie, c.READ)

        def over(link: Link) -> None:
            if isinstance(link, LinkV3):
                link.read_run(ledger, first, count_max, bytes_max, answer)

        return self._use(bookie, 3, over, answer, BatchAnswer, patient=False)

    def long_poll(self, bookie: str, ledger: int, previous_lac: int, timeout_ms: int) -> Deferred[Answer]:
        """
        Waits at the bookie, at most `timeout_ms`, until its LAC is above `previous_lac`; the answer holds its LAC and,
        when it stores that entry, entry `previous_lac` + 1 (`entry` is -1 without one).  One of quire's says more,
        where its answer, of a size that it chooses, fits into a frame.
        """
        request = Read(
            *(ledger, LAST_ENTRY), version=3, previous_lac=previous_lac, timeout_ms=timeout_ms, piggyback=True,
            evidence=self._options.frame_bytes_max >= 2 * EVIDENCE_BYTES_MAX,
        )  # fmt: skip
        return self._ask(bookie, POLL, request, self._counted(bookie, c.POLL), patient=False, more_ms=timeout_ms)

    def read_lac(self, bookie: str, ledger: int) -> Deferred[LacAnswer]:
        return self._ask(bookie, LAC, ReadLac(ledger), self._counted(bookie, c.READ_LAC), patient=False)

    def write_lac(self, bookie: str, ledger: int, master_key: bytes, body: bytes, lac: int) -> Deferred[int]:
        """Stores an explicit LAC (`body` is `Digest.lac_body`); the code."""
        answer = self._counted(bookie, c.WRITE_LAC)
        return self._ask(bookie, SET_LAC, WriteLac(ledger, lac, master_key, body), answer, patient=False)

    def hint_lac(self, bookie: str, ledger: int, master_key: bytes, body: bytes, lac: int) -> Deferred[int]:
        """Tells readers that wait there of an explicit LAC, which is not stored for them; the code."""
        answer = self._counted(bookie, c.WRITE_LAC)
        return self._ask(bookie, SET_LAC, WriteLac(ledger, lac, master_key, body, hint=True), answer, patient=False)

    def force(self, bookie: str, ledger: int) -> Deferred[int]:
        """Makes every acknowledged add of the ledger durable on that bookie; the code."""
        return self._ask(bookie, SYNC, Force(ledger), self._counted(bookie, c.FORCE), patient=False)

    def list_entries(self, bookie: str, ledger: int) -> Deferred[ListAnswer]:
        """Asks which entries the bookie stores.  Apache's may not answer (wire.md 8): not asked again for a while."""
        answer: Deferred[ListAnswer] = self._counted(bookie, c.LIST)
        since = self._silent_since.get(bookie)
        if since is not None and 0 <= self._reactor.seconds() - since < SILENCE_SECONDS:
            answer.callback(LIST.blank(TIMED_OUT))
            return answer

        def over(link: Link) -> None:
            def heard(listed: ListAnswer) -> ListAnswer:
                if listed.code == TIMED_OUT and link.bookie is None:
                    self._silent_since[bookie] = self._reactor.seconds()
                return listed

            if isinstance(link, LinkV3):
                asked: Deferred[ListAnswer] = Deferred()
                asked.addCallback(heard).chainDeferred(answer)
                link.request(LIST, ListEntries(ledger), asked, 0)

        return self._use(bookie, 3, over, answer, LIST.blank, patient=False)

    def info(self, bookie: str) -> Deferred[InfoAnswer]:
        return self._ask(bookie, INFO, BookieInfo(TOTAL_AND_FREE), self._counted(bookie, c.INFO), patient=False)

    def says_its_id(self, bookie: str) -> Deferred[bool]:
        """True if the bookie says its id at a connection's begin, as Apache's do not; also if none answers."""
        answer: Deferred[bool] = Deferred()

        def over(link: Link) -> None:
            answer.callback(link.bookie is not None)

        return self._use(bookie, 3, over, answer, lambda _code: True, patient=False)

    def pending(self, bookie: str) -> int:
        """Reads and batch reads that wait for this bookie's answer."""
        requests = self._requests
        reads, batches = requests.get((bookie, c.READ)), requests.get((bookie, c.BATCH_READ))
        return (reads.waiting if reads else 0) + (batches.waiting if batches else 0)

    def requests(self) -> dict[tuple[str, str], Requests]:
        """The requests of each kind to each bookie."""
        return self._requests.copy()

    def traffic(self) -> dict[str, Traffic]:
        """Returns what the connections with each bookie carried, and how they came and went."""
        found: dict[str, Traffic] = {}
        for (bookie, _generation), on_demand in self._links.copy().items():
            on_demand.add_to(found.setdefault(bookie, Traffic()))
        return found

    def _requests_to(self, bookie: str, kind: str) -> Requests:
        found = self._requests.get((bookie, kind))
        if found is None:
            found = self._requests[bookie, kind] = Requests()
        return found

    def _counted(self, bookie: str, kind: str) -> "Deferred[Any]":
        """For the answer to a request, which waits until then."""
        requests = self._requests_to(bookie, kind)
        requests.waiting += 1
        self.under_way += 1
        began = None
        if requests.untimed:
            requests.untimed -= 1
        else:
            requests.untimed = c.TIMED_EVERY - 1
            began = self._reactor.seconds()

        def answered(given: Any) -> Any:
            requests.waiting -= 1
            self.under_way -= 1
            code = given if type(given) is int else getattr(given, "code", None)
            if code == OK:
                requests.done += 1
                if began is not None:
                    requests.times.observe(self._reactor.seconds() - began)
            elif code is None:
                requests.fail(c.CANCELLED)
            else:
                requests.fail(c.name_of(code))
            return given

        return Deferred().addBoth(answered)

    def connection_of(self, bookie: str) -> int | None:
        """
        A token of the V3 connection that is up now (None: there is none).  Adds that it carried before and a force
        that it carries later are in order if the token is the same (D15).
        """
        on_demand = self._links.get((bookie, 3))
        return on_demand.link.serial if on_demand is not None and on_demand.link is not None else None

    def close(self) -> Deferred[None]:
        """
        Ends every connection, once what writers have left behind is with its bookies (or three seconds are over); what
        waits fails with -19, and so does every later request.
        """
        return self._parting.wait(CLOSE_WAIT_SECONDS).addCallback(lambda _over: self._end())

    def _end(self) -> Deferred[None]:
        self._parting.close()
        self._closed = True
        return DeferredList([on_demand.close() for on_demand in list(self._links.values())]).addCallback(
            lambda _ended: None
        )

    def _link_to(self, bookie: str, generation: int) -> OnDemandLink:
        on_demand = self._links.get((bookie, generation))
        if on_demand is None:

            def make(name: str, host: str, up: Up, down: Down) -> Link:
                secure = self._credentials and partial(self._credentials.connect, host=host)
                serial, name = next(self._serials), f"{name}, V{generation}"
                arguments = (self._reactor, self._options, name, serial, up, down, secure, self._provider)
                return LinkV2(*arguments) if generation == 2 else LinkV3(self._packing, self._send_large, *arguments)

            on_demand = self._links[bookie, generation] = OnDemandLink(
                self._reactor, self._store, self._options, bookie, make
            )
            if self._closed:
                on_demand.close()
        return on_demand

    def _use(
        self,
        bookie: str,
        generation: int,
        over: Callable[[Link], None],
        answer: Deferred[A],
        blank: Callable[[int], A],
        patient: bool,
    ) -> Deferred[A]:
        self._link_to(bookie, generation).use(over, lambda code, _reason: answer.callback(blank(code)), patient)
        return answer

    def _ask(
        self, bookie: str, kind: RequestKind[A], request: Numbered, answer: Deferred[A], patient: bool, more_ms: int = 0
    ) -> Deferred[A]:
        def over(link: Link) -> None:
            if isinstance(link, LinkV3):
                link.request(kind, request, answer, more_ms)

        return self._use(bookie, 3, over, answer, kind.blank, patient)
