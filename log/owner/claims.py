"""
A handle's claim on a log, and its place among the candidates.

Knows: the records `owner` and `candidates/<token>`, that who holds the claim is decided by the token in it, and that a
create whose answer was lost may still take effect.
Does not know: what an owner may do: nothing is safe because of a claim.
"""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from random import Random
from typing import NamedTuple

from twisted.internet.defer import Deferred

from quire.log.core import ownership_messages as m
from quire.log.owner.timers import Patience
from quire.log.store.editing import LogRecords
from quire.metadata.clock import Clock, Timer, pause
from quire.metadata.formats.json_text import int64, parse_json
from quire.metadata.records import (
    NoRecord,
    RecordError,
    RecordExists,
    Records,
)
from quire.metadata.store import SESSION_TIMEOUT_MS, StoreClosed, Versioned, Watch
from quire.metadata.tree import Create, Delete
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

IDLE_LOOK_S = 30.0  # plus or minus half
TURN_S = 0.5  # that a candidate leaves the claim to each of higher priority
BETTER_MAX = 3
FORCES_MAX = 10  # tries to take a claim that changes meanwhile
LEFT_S = 0.25  # that is waited until the claim is given back
LEAVING_S = 2 * SESSION_TIMEOUT_MS / 1000  # in which a create that was never answered may still take effect


class Candidate(NamedTuple):
    """One that waits for a log, or has it (`owns`)."""

    token: str
    address: str
    host: str
    priority: int
    owns: bool


class Candidacy(NamedTuple):
    """
    The address, host and priority that a handle which wants a log shows to others; `mirrors`: it wants it as a copy of
    another log.
    """

    address: str
    host: str
    priority: int
    mirrors: bool = False


class Claims:
    """
    The claim of one handle.  `feed` is given what is seen of it: nobody's; this handle's; no longer this handle's, and
    nobody's; another's, which `patience` hears, too, and also when the store failed and is asked again.
    """

    def __init__(
        self,
        log: LogRecords,
        clock: Clock,
        random: Random,
        poll_s: float,
        token: str,
        candidacy: Candidacy,
        feed: Callable[[m.Input], object],
        patience: Patience,
    ) -> None:
        self._records = log.records
        self._clock = clock
        self._random = random
        self._path = log.path
        self._token = token
        self._owner = f"{log.path}/owner"
        self._candidate = f"{log.path}/candidates/{token}"
        self._candidacy = candidacy
        self._since = log.now_ms()
        self._poll_s = poll_s
        self._feed = feed
        self._failed = patience.unanswered
        self._waits = patience.taken
        self._held = False
        self._timer: Timer | None = None
        self._watches: list[Watch] = []
        self._ended = False
        self._making = False
        self._unanswered = False  # whether something that was asked may still take effect

    @property
    def held(self) -> bool:
        """True if the claim was this handle's when it was seen last."""
        return self._held

    async def register(self) -> None:
        """Joins the candidates and begins to look at the claim, unless the handle has left meanwhile."""
        if not self._ended:
            await self._create(self._candidate)
        self._begin()

    def _begin(self) -> None:
        if not self._ended:
            self._watches.append(self._records.watch(self._owner, self._seen))
            self._watches.append(self._records.watch(self._candidate, self._listed))
            self._look_later()

    def _listed(self, found: Versioned[bytes] | None) -> None:
        """Makes its record among the candidates again; that goes with its session."""
        if found is None and not self._ended:
            Deferred.fromCoroutine(self._list_again())

    async def _list_again(self) -> None:
        """Makes its record where that is gone: else nobody hands the log over to it, nor minds its priority."""
        try:
            try:
                await self._records.read(self._candidate)
            except NoRecord:
                await self._create(self._candidate)
            if self._ended:  # it may have come after its handle left
                await self._remove(self._candidate)
        except RecordError:  # the log is gone, which its manifest says
            return
        except MetaStore as error:  # until the next look
            self._failed(error)

    async def _create(self, path: str) -> None:
        try:
            await self._records.create(path, self._value(), claim=True)
        except RecordExists:
            return
        except RecordError:
            raise
        except MetaStore:
            self._unanswered = True
            raise

    def _value(self) -> bytes:
        address, host, priority, _mirrors = self._candidacy
        said = {"token": self._token, "priority": priority, "address": address, "host": host, "since": self._since}
        return json.dumps(said, separators=(",", ":")).encode()

    def _seen(self, found: Versioned[bytes] | None) -> None:
        if self._ended:
            return
        token = token_of(found)
        if token == self._token:
            self._held = True
            self._feed(m.ClaimMine())
        elif token is not None:
            self._held = False
            self._feed(m.ClaimTaken(token))
            self._waits()
        elif self._held:
            self._held = False
            self._feed(m.ClaimGone())
        else:
            self._feed(m.ClaimFree())

    async def make(self, first_for: str = "", wait_s: float = 0.0) -> None:
        """Takes the claim once it has no owner, after candidates of higher priority and the one it is handed to."""
        if self._making:
            return
        self._making = True
        try:
            turn = await self._turn(first_for, wait_s)
            if turn:
                await pause(self._clock, turn)
            while not self._ended:
                found: Versioned[bytes] | None = None
                try:
                    with suppress(NoRecord):  # the log is gone, which its manifest says
                        await self._create(self._owner)
                        found = await self._look()
                except MetaStore as error:
                    self._failed(error)
                    await pause(self._clock, self._poll_s)
                    continue
                if found is not None:
                    self._seen(found)
                self._look_later(self._poll_s)
                return
        finally:
            self._making = False
            if self._ended:  # it may have come after its handle left
                with suppress(MetaStore):
                    await self._remove(self._owner)

    def _look_later(self, seconds: float = 0.0) -> None:
        """Looks besides the watch, which may not be called for a change that another one undid."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        wait = seconds or self._random.uniform(0.5, 1.5) * IDLE_LOOK_S
        self._timer = self._clock.callLater(wait, self.look)

    def look(self) -> None:
        """Looks now, and now and then from then on."""
        Deferred.fromCoroutine(self._look_again())

    async def _look_again(self) -> None:
        try:
            self._seen(await self._look())
        except MetaStore as error:
            self._failed(error)
        await self._list_again()
        if not self._ended:
            self._look_later()

    async def _look(self) -> Versioned[bytes] | None:
        try:
            return await self._records.read(self._owner)
        except NoRecord:
            return None

    async def _turn(self, first_for: str, wait_s: float) -> float:
        """Seconds left to candidates of higher priority, and to the one that it is handed to, if that is there."""
        better, handed_to = 0, False
        try:
            async for each in candidates_of(self._records, self._path):
                if each.token != self._token:
                    better += each.priority > self._candidacy.priority
                    handed_to |= each.token == first_for
        except MetaStore as error:
            self._failed(error)
            return 0.0
        return TURN_S * min(better, BETTER_MAX) + wait_s * handed_to

    async def force(self) -> None:
        """Takes the claim, another's in one step: its holder would make one that went with its session again."""
        for _ in range(FORCES_MAX):
            found = await self._look()
            if self._ended or token_of(found) == self._token:
                return
            former = [] if found is None else [Delete(self._owner, found.version)]
            try:
                await self._records.multi([*former, Create(self._owner, self._value(), claim=True)])
            except RecordError:  # somebody was faster
                continue
            except MetaStore:
                self._unanswered = True
                raise
            return

    async def release(self) -> None:
        """
        Leaves the candidates, and removes the claim if it has this handle's token.  What can't be removed at once, and
        a create that was never answered and may still land, are looked for afterwards.
        """
        self._ended = True
        for watch in self._watches:
            watch.cancel()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        gone: Deferred[None] = Deferred()
        late = self._clock.callLater(LEFT_S, gone.callback, None)

        def tried() -> None:
            if late.active():
                late.cancel()
                gone.callback(None)

        Deferred.fromCoroutine(self._leave(tried))
        await gone

    async def _leave(self, tried: Callable[[], object]) -> None:
        until = self._clock.seconds() + LEAVING_S
        while not await self._has_left() and self._clock.seconds() < until:
            tried()
            await pause(self._clock, self._poll_s)
        tried()

    async def _has_left(self) -> bool:
        """True if nothing of this handle's is there, and nothing may come."""
        try:
            await self._remove(self._owner)
            await self._remove(self._candidate)
        except StoreClosed:  # the session is over, and the claim with it
            return True
        except MetaStore:
            return False
        return not self._unanswered

    async def _remove(self, path: str) -> None:
        """A record, if it is this handle's."""
        with suppress(NoRecord):
            found = await self._records.read(path)
            if token_of(found) == self._token:
                await self._records.delete(path, found.version)


def token_of(found: Versioned[bytes] | None) -> str | None:
    """The token in a claim; None where there is none."""
    if found is None:
        return None
    try:
        return str(parse_json(found.value)["token"])
    except (ValueError, KeyError, TypeError):
        return ""  # another's, whatever it is


async def candidates_of(records: Records, path: str) -> AsyncGenerator[Candidate, None]:
    """Gives the candidates of the log whose records are at `path`, its owner among them."""
    try:
        holder = token_of(await records.read(f"{path}/owner"))
    except NoRecord:
        holder = None
    for token in await records.children(f"{path}/candidates"):
        with suppress(NoRecord):  # it left
            said = decode_candidate((await records.read(f"{path}/candidates/{token}")).value)
            if said is not None:
                yield Candidate(token, *said, token == holder)


def check_candidate(address: str, priority: int) -> None:
    """`TypeError`, `ValueError` for what the other candidates could not read in its record."""
    if not isinstance(address, str):
        raise TypeError(f"an address is a str, not {type(address).__name__}")
    if not isinstance(priority, int):
        raise TypeError(f"a priority is an int, not {type(priority).__name__}")
    if not -(1 << 63) <= priority < 1 << 63:
        raise ValueError(f"a priority of {priority} has more than 64 bits")


def decode_candidate(data: bytes) -> tuple[str, str, int] | None:
    """Address, host and priority of its record; None where it is another's, whatever it is."""
    try:
        said = parse_json(data)
        return str(said.get("address", "")), str(said.get("host", "")), int64(said.get("priority", 0))
    except (ValueError, TypeError, AttributeError):
        return None
