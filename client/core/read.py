"""
Reading a range of entries that are known to exist: from whom, in pieces of which size, and what to do when a piece
fails.

Knows: protocol-rules.md 3.2 to 3.4: order of replicas, error precedence, digests, batch reads, stripes; pieces
are asked for ahead of the consumer and delivered in order.
Does not know: connections, LAC or ledger state (the caller trims the range, D8), timers.

Safety: a payload is delivered only if its digest and its ids are right.  A replica that fails, answers wrongly or has
nothing costs a further request to the next one, never a missing entry: what can't be had from any replica fails the
read.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import auto
from functools import reduce

from quire.client.core.coverage import describe
from quire.client.core.machine import Machine, MachineState, Message, Table
from quire.client.core.quorum import Quorums, merge
from quire.protocol.digest import Digest, last_add_confirmed
from quire.protocol.errors import OK, BookieHandleNotAvailable, DigestMatch, Security, Timeout

# SPDX-License-Identifier: Apache-2.0

ENTRY_BYTES_GUESS = 1024  # before anything was read
SMALL_PIECES_MAX = 64  # pieces under way when a piece is an entry or a stripe
SMALL_PIECES_FIRST = 8  # of them before anything was read: a single entry may fill a frame

Ranks = Mapping[str, tuple[float, ...]]  # by bookie


class ReadState(MachineState):
    READING = auto()
    FINISHED = auto()  # everything was delivered
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bytes and entries of one batch read, and how many are under way; so many entries where each is read alone."""

    bytes_max: int = 4 << 20
    entries_max: int = 10_000
    pieces: int = 2
    batch: bool = True
    sticky: bool = True  # begin with the same replica every time, where all hold everything


# Inputs


class Begin(Message):
    pass


class Answered(Message):
    """The answer to an `Ask`: a code, and bodies of consecutive entries from the first one asked for."""

    ask: int
    code: int
    bodies: Sequence[bytes]


class Taken(Message):
    """The consumer took a delivery."""


class Slow(Message):
    """The next delivery is late: ask another replica too."""


class Stop(Message):
    """The consumer wants no more."""


Input = Begin | Answered | Taken | Slow | Stop

# Effects


class Ask(Message):
    """Read `count` entries from `first` on (single: exactly one, by a plain read) from a bookie, within `bytes_max`."""

    ask: int
    bookie: str
    first: int
    count: int
    bytes_max: int
    single: bool


class Deliver(Message):
    first: int
    payloads: list[bytes]


class Damaged(Message):
    """A bookie answered with bytes that are not the entry: its copy has to be mended."""

    bookie: str
    entry: int


class Late(Message):
    """A bookie was too slow: another one is asked."""

    bookie: str


class Finished(Message):
    pass


class Failed(Message):
    code: int
    reason: str


Effect = Ask | Deliver | Damaged | Late | Finished | Failed


def unreadable(what: str, ledger: int, replicas: int, who: str, code: int) -> str:
    """Why entries can't be read, and what to do."""
    if code in (BookieHandleNotAvailable.code, Timeout.code):
        advice = "start one of these bookies, then read again"
    elif code == Security.code:
        advice = "docs/security.md says how TLS is turned on, and what each refusal means"
    else:
        advice = f"`quire ledger check {ledger}` shows which copies are left"
    return (
        f"{what} of ledger {ledger} can't be read, for which one of its {replicas} replicas would do: {who}; {advice}"
    )


def replicas_of(quorums: Quorums, first: int, last: int, start: int) -> list[int]:
    """The indexes that hold all of first..last; where all hold everything, from index `start` on."""
    if quorums.striped:
        return [index for index in quorums.write_set(last) if quorums.has(first, index)]
    size = quorums.ensemble
    start %= size
    return [*range(start, size), *range(start)]


def best_first(order: list[int], bookies: Sequence[str], suspects: set[str], ranks: Ranks) -> list[int]:
    """The order in which to ask indexes: `suspects` last, the others by rank, the lowest or none first."""
    if not suspects and not ranks:
        return order
    return sorted(order, key=lambda index: (bookies[index] in suspects, ranks.get(bookies[index], ())))


@dataclass(slots=True)
class AskOrder:
    """The replicas that a read asks first: index `prefer` where all hold everything; `suspects`, which failed, last."""

    prefer: int = 0
    suspects: set[str] = field(default_factory=set)
    ranks: Ranks = field(default_factory=dict)


class ReadPiece:
    """Consecutive entries of one fragment that one replica can be asked for."""

    __slots__ = ("asked", "bookies", "code", "failures", "first", "last", "order", "outstanding", "payloads")

    def __init__(self, first: int, last: int, bookies: tuple[str, ...], order: list[int]) -> None:
        self.first = first
        self.last = last
        self.bookies = bookies
        self.order = order  # indexes to ask, the next one first
        self.asked: list[int] = []
        self.outstanding = 0
        self.code = OK  # merged over the failures
        self.failures: list[tuple[int, int]] = []
        self.payloads: list[bytes] | None = None


TABLE = Table(ReadState, Input)


class RangeRead(Machine[ReadState, Input, Effect]):
    """Entries first..last.  `fragments`: (first, last or None, bookies) ascending, as in the metadata."""

    table = TABLE
    ruined = ReadState.FAILED

    def __init__(
        self,
        ledger: int,
        quorums: Quorums,
        digest: Digest,
        fragments: Sequence[tuple[int, int | None, tuple[str, ...]]],
        first: int,
        last: int,
        limits: ReadLimits,
        order: AskOrder | None = None,
    ) -> None:
        assert 0 <= first <= last
        super().__init__(ReadState.READING)
        self.ledger = ledger
        self.quorums = quorums
        self.digest = digest
        self.limits = limits
        self.batch = limits.batch  # off from then on when all drop batch reads (protocol-rules.md 3.4)
        order = order or AskOrder()
        self.prefer, self.suspects, self._ranks = order.prefer, order.suspects, order.ranks
        self.last = last
        self._fragments = fragments
        self._fragment = 0
        self._next = first
        self._pieces: deque[ReadPiece] = deque()
        self._asks: dict[int, tuple[ReadPiece, int]] = {}
        self._ask_number = 0
        self._untaken = 0
        self._entry_bytes = float(ENTRY_BYTES_GUESS)
        self._body: bytes | None = None  # of the highest entry that is the last of a good answer
        self._body_of = -1

    @property
    def lac(self) -> int:
        """The last add confirmed that the highest last entry of a good answer carries; -1: none."""
        return -1 if self._body is None else last_add_confirmed(self._body)

    def _taken(self, given: Taken) -> None:
        self._untaken -= 1
        self._ask_on()

    def _stop(self, given: Stop) -> None:
        self._end(ReadState.FINISHED)

    def poison(self) -> None:
        """A step, or an effect, has failed: nothing more is asked for."""
        self._end(self.ruined)

    def _end(self, state: ReadState) -> None:
        self.state = state
        self._pieces.clear()
        self._asks.clear()

    # What to ask for.

    def _ask_on(self, given: Begin = Begin()) -> None:
        ahead = self.limits.pieces
        if self.quorums.striped or not self.batch:
            most = SMALL_PIECES_FIRST if self._body is None else SMALL_PIECES_MAX
            ahead = max(ahead, min(most, self.limits.entries_max, int(self.limits.bytes_max // self._entry_bytes)))
        while self.state is ReadState.READING and self._next <= self.last and len(self._pieces) + self._untaken < ahead:
            piece = self._cut()
            self._pieces.append(piece)
            self._ask(piece)

    def _cut(self) -> ReadPiece:
        """The next piece: within one fragment, and as much as one bookie holds and one answer should carry."""
        first, fragments = self._next, self._fragments
        while self._fragment + 1 < len(fragments) and fragments[self._fragment + 1][0] <= first:
            self._fragment += 1
        last = self.last
        if self._fragment + 1 < len(fragments):
            last = min(last, fragments[self._fragment + 1][0] - 1)
        if not self.batch:
            last = first
        elif self.quorums.striped:
            last = min(last, first + self.quorums.write - 1)
        else:
            count = int(self.limits.bytes_max // max(1.0, self._entry_bytes))
            last = min(last, first + max(1, min(self.limits.entries_max, count)) - 1)
        self._next = last + 1
        bookies = fragments[self._fragment][2]
        return ReadPiece(first, last, bookies, self._order(first, last, bookies))

    def _order(self, first: int, last: int, bookies: tuple[str, ...]) -> list[int]:
        """The bookies that hold all of first..last, in the order to ask them."""
        order = replicas_of(self.quorums, first, last, self.prefer if self.limits.sticky else first)
        return best_first(order, bookies, self.suspects, self._ranks)

    def _ask(self, piece: ReadPiece) -> None:
        index = piece.order.pop(0)
        piece.asked.append(index)
        piece.outstanding += 1
        self._ask_number += 1
        self._asks[self._ask_number] = (piece, index)
        count = piece.last - piece.first + 1
        self.effects.append(
            Ask(self._ask_number, piece.bookies[index], piece.first, count, self.limits.bytes_max, count == 1)
        )

    # What comes back.

    def _answered(self, given: Answered) -> None:
        found = self._asks.pop(given.ask, None)
        if found is None:
            return
        piece, index = found
        piece.outstanding -= 1
        if piece.payloads is not None:  # another replica was faster
            return
        code = given.code
        if code == OK:
            count = piece.last - piece.first + 1
            bodies = given.bodies if len(given.bodies) <= count else given.bodies[:count]
            payloads = self.digest.open_run(self.ledger, piece.first, bodies)
            if payloads:
                last = piece.first + len(payloads) - 1
                if last > self._body_of:
                    self._body_of, self._body = last, bodies[len(payloads) - 1]
                self._accept(piece, index, payloads, len(payloads) < len(bodies))
                self._ask_on()
                return
            code = DigestMatch.code
            self.effects.append(Damaged(piece.bookies[index], piece.first))
        self._suspect(piece, index)
        piece.code = merge(piece.code, code)
        piece.failures.append((index, code))
        if self.quorums.striped and piece.last > piece.first:
            self._split(piece)
        elif piece.order:
            self._ask(piece)
        elif not piece.outstanding:
            self._give_up(piece)
        self._ask_on()

    def _accept(self, piece: ReadPiece, index: int, payloads: list[bytes], damaged: bool) -> None:
        piece.payloads = payloads
        taken = sum(map(len, payloads)) / len(payloads) + self.digest.overhead
        self._entry_bytes = max(taken, (3 * self._entry_bytes + taken) / 4)
        rest = piece.first + len(payloads)
        if damaged:
            self.effects.append(Damaged(piece.bookies[index], rest))
        if rest <= piece.last:  # the answer was full, or an entry is missing or damaged there
            order = self._order(rest, piece.last, piece.bookies)
            if damaged or not self.quorums.striped:
                order.remove(index)
                order.insert(len(order) if damaged else 0, index)
            follower = ReadPiece(rest, piece.last, piece.bookies, order)
            piece.last = rest - 1
            self._pieces.insert(self._pieces.index(piece) + 1, follower)
            self._ask(follower)
        self._deliver()

    def _deliver(self) -> None:
        while self._pieces and (payloads := self._pieces[0].payloads) is not None:
            piece = self._pieces.popleft()
            self._untaken += 1
            self.effects.append(Deliver(piece.first, payloads))
            if piece.last == self.last:
                self._end(ReadState.FINISHED)
                self.effects.append(Finished())

    def _split(self, piece: ReadPiece) -> None:
        """
        A stripe's common replica failed: each entry goes on with its own write set; only the first one is known to have
        failed there, and not even that one where the connection was dropped: perhaps that replica knows no batch reads.
        """
        place = self._pieces.index(piece)
        self._pieces.remove(piece)
        piece.payloads = []  # late answers to it count no more
        failed = {index for index, _code in piece.failures}
        answers = {index: code for index, code in piece.failures if code != BookieHandleNotAvailable.code}
        for entry in range(piece.last, piece.first - 1, -1):
            order = sorted(self.quorums.write_set(entry), key=failed.__contains__)
            single = ReadPiece(entry, entry, piece.bookies, order)
            if entry == piece.first:
                single.order = [index for index in order if index not in answers]
                single.failures, single.code = list(answers.items()), reduce(merge, answers.values(), OK)
            self._pieces.insert(place, single)
        for single in list(self._pieces)[place : place + piece.last - piece.first + 1]:
            if self.state is not ReadState.READING:
                break
            if single.order:
                self._ask(single)
            else:
                self._give_up(single)

    def _give_up(self, piece: ReadPiece) -> None:
        if piece.code == BookieHandleNotAvailable.code and piece.last > piece.first:
            self._read_singly(piece)
            return
        who = "; ".join(describe(piece.bookies[index], code) for index, code in piece.failures)
        what = f"entry {piece.first}" if piece.first == piece.last else f"entries {piece.first} to {piece.last}"
        self._end(ReadState.FAILED)
        self.effects.append(Failed(piece.code, unreadable(what, self.ledger, self.quorums.write, who, piece.code)))

    def _read_singly(self, piece: ReadPiece) -> None:
        """All replicas dropped the connection: perhaps none knows batch reads, so plain reads have a say."""
        self.batch = False
        while (other := self._pieces.pop()) is not piece:
            other.payloads = []  # late answers to it count no more
        self._next = piece.first
        self._fragment = 0

    def _suspect(self, piece: ReadPiece, index: int) -> None:
        self.suspects.add(piece.bookies[index])
        if self.prefer == index:
            self.prefer = (index + 1) % self.quorums.ensemble

    def _slow(self, given: Slow) -> None:
        """The bookie of the next delivery is slow: all that waits for it alone is asked of another one too."""
        if not self._pieces or self._pieces[0].payloads is not None:
            return
        front = self._pieces[0]
        slow = {front.bookies[index] for index in front.asked}
        for index in front.asked:
            self._suspect(front, index)
            self.effects.append(Late(front.bookies[index]))
        for piece in list(self._pieces):
            if (
                piece.payloads is None
                and piece.order
                and slow.issuperset(piece.bookies[index] for index in piece.asked)
            ):
                self._ask(piece)


S, M = ReadState, RangeRead

TABLE.on(S.READING, Begin, M._ask_on)
TABLE.on(S.READING, Answered, M._answered, *S)
TABLE.on(S.READING, Taken, M._taken)
TABLE.on(S.READING, Slow, M._slow)
TABLE.on(S.READING, Stop, M._stop, S.FINISHED)
TABLE.ignore((S.FINISHED, S.FAILED), *TABLE.inputs)
