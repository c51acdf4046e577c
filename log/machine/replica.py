"""
A replica as Twisted programs see it: what is proposed to it and read from it.

Knows: who may propose, and that a read waits until all is applied that its proof asks for.
Does not know: how the log is applied (`driver`), what the user's machine computes, ledgers, claims.

Safety: a reader's function is called between two applies, when all below the index of its proof is applied.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from math import ceil
from typing import Any, Literal, cast

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from quire.log.core import edits
from quire.log.core.machine.applying_messages import Role, SaveAsked
from quire.log.machine.driver import ReplicaDriver
from quire.log.machine.machines import Answer, Proof
from quire.log.machine.proofs import Proofs, Prove
from quire.log.upkeep.keeping import KeptOwner
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import StaleRead

# SPDX-License-Identifier: Apache-2.0

OWNER_S = 1.0  # that a failed read asks for at most whether somebody owns the log


class Replica:
    """
    Applies the log to what `make()` gives, from the newest snapshot on.  `begin` starts it, `close` ends it.  `proofs`:
    by the mode of a read, what tells up to which index all must be applied.
    """

    def __init__(self, driver: ReplicaDriver, on_close: Callable[["Replica"], None] = lambda _replica: None) -> None:
        context = driver.context
        self.name = driver.name
        self._driver = driver
        self._records = context.log
        self._clock = context.client.reactor
        self._reactor = cast(IReactorTime, context.client.reactor)  # by the name that Deferreds know
        self._on_close = on_close
        self._read_s = context.options.read_ms / 1000
        self._closed = False
        self._ownerless_ms = 0  # when a read found first that nobody has the claim on the log; 0: somebody has
        self._boottime = context.ages.boottime
        self._proofs = Proofs(context, lambda: self.owner)
        self._prove: dict[str, Prove] = {
            "index": self._proofs.index,
            "lease": self._proofs.lease,
            "barrier": self._barrier,
            "unsafe": self._no_proof,
        }

    # -- what a user does ------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """
        Loads and replays; over when all is applied that the log had when reading began.  `SnapshotDamaged`,
        `ApplyFailed`, `NoSuchLog`, `SegmentLost`, `LogDamaged`.
        """
        await self._driver.live()

    @property
    def applied(self) -> int:
        """The first index that is not applied."""
        return self._driver.applier.applied

    @property
    def role(self) -> Role:
        """`Role.LEADING` once this replica owns the log and has applied what was there before."""
        return self._driver.machine.role

    @property
    def owner(self) -> KeptOwner | None:
        """The owner of the log, while it is this replica."""
        return None if self._driver.standing is None else self._driver.standing.owner

    @property
    def error(self) -> LedgerError | None:
        """Why it applies no more."""
        return self._driver.machine.error

    async def leads(self, wait_s: float = 0.0) -> bool:
        """True once it leads; False when so many seconds are over."""
        until = self._clock.seconds() + wait_s
        while self.role is not Role.LEADING and self._driver.machine.error is None and not self._closed:
            left = until - self._clock.seconds()
            if left <= 0:
                break
            try:
                await self._driver.changed().addTimeout(left, self._reactor)
            except TimeoutError:
                continue
        return self.role is Role.LEADING

    async def propose(self, value: bytes, wait: Literal["ack", "apply"] = "apply") -> Any:
        """
        Appends a record: what the machine gives for it once it is applied here, or with "ack" its `Position` once it is
        durable.  `NotOwner` with the owner's address where another replica leads, or none does; `LogFenced`,
        `AppendUnknown`; `ApplyFailed`.
        """
        if wait not in {"ack", "apply"}:
            raise ValueError(f"a proposal waits for its 'ack' or until 'apply', not for {wait!r}")
        self._check_runs()
        owner = self.owner
        if owner is None:
            raise edits.not_owned(self.name, (await self._records.read()).value)
        if wait == "ack":
            return await self._append(owner, value)

        async def index() -> int:
            return int((await self._append(owner, value)).index)

        return await self._driver.applier.answer(Deferred.fromCoroutine(index()))

    async def _append(self, owner: KeptOwner, value: bytes) -> Any:
        await owner.ready(1, len(value))
        return await owner.append(value)

    async def read(self, fn: Callable[[Any], Any], mode: str = "index", bound_ms: float | None = None) -> Answer:
        """
        Gives what a function of the machine gives, called between two applies on the reactor's thread, perhaps more
        than once.  What was acknowledged before is in it, with "index" by asking the store and, elsewhere than at the
        owner, bookies; with "lease" at the owner without a message; with "barrier", at the owner only, by an append.
        "bounded": what was acknowledged `bound_ms` before.  "unsafe": whatever is applied.  `StaleRead` when there is
        no proof in `read_ms`; the errors of the store and of bookies; `NotOwner`, `ValueError`.
        """
        prove = self._prove.get(mode) if mode != "bounded" or bound_ms is None else self._proofs.bounded(bound_ms)
        if prove is None or (bound_ms is not None and mode != "bounded"):
            raise ValueError(
                f"a read is {', '.join(self._prove)}, or bounded with bound_ms, not {mode!r} with bound_ms={bound_ms}"
            )
        self._check_runs()
        applier = self._driver.applier

        async def answer() -> Answer:
            while True:
                proof = await prove()
                await applier.reached(proof.index)
                index, value = applier.applied, fn(applier.machine)
                age_ms = -1 if mode == "unsafe" else ceil((self._boottime() - proof.since) * 1000)
                if proof.holds():  # after the age was taken, so that it is not above a bound
                    return Answer(value, index, age_ms)

        counters = self._records.counters
        try:
            found = await Deferred.fromCoroutine(answer()).addTimeout(self._read_s, self._reactor)
        except (TimeoutError, StaleRead):
            counters.read(mode, "stale")
            raise StaleRead(
                f"the replica of the log {self.name!r} could not be proved new enough in {self._read_s} s: "
                f"{await self._next_step()}"
            ) from None
        except LedgerError:
            counters.read(mode, "failed")
            raise
        counters.read(mode, "answered")
        return found

    async def _next_step(self) -> str:
        """After a read without a proof: what is to be done, by whether a living process has the claim on the log."""
        try:
            asked = Deferred.fromCoroutine(self._records.is_claimed())
            is_owned = await asked.addTimeout(OWNER_S, self._reactor)
        except (TimeoutError, LedgerError):
            is_owned = True  # as far as is known
        if not is_owned:
            self._ownerless_ms = self._ownerless_ms or self._records.now_ms()
            since = datetime.fromtimestamp(self._ownerless_ms / 1000, UTC).isoformat(" ", "seconds")
            return (
                f"nobody owns it, since {since} or before, and only who takes it over learns where it ends: a replica "
                f"with stand=True does, or `quire log own {self.name}`"
            )
        self._ownerless_ms = 0
        return "ask again, or raise read_ms"

    async def snapshot(self) -> int:
        """
        Writes a snapshot of what is applied: its index, the first that is not in it; that of a newer one, where there
        is one.  The errors of writing a ledger.
        """
        self._check_runs()
        asked: Deferred[int] = Deferred()
        self._driver.asked.append(asked)
        self._driver.feed(SaveAsked())
        return await asked

    async def close(self) -> None:
        """Applies no more; where it leads, what was proposed is stored, and the log given back.  Never fails."""
        if not self._closed:
            self._closed = True
            await self._driver.close()
            self._proofs.close()
            self._on_close(self)

    def _check_runs(self) -> None:
        if self._closed:
            raise self._driver.closed()
        if self._driver.machine.error is not None:
            raise self._driver.machine.error

    # -- proofs ----------------------------------------------------------------------------------------------------

    async def _no_proof(self) -> Proof:
        return Proof(0, self._boottime())

    async def _barrier(self) -> Proof:
        since, owner = self._boottime(), self.owner
        if owner is None:
            raise edits.not_owned(self.name, (await self._records.read()).value)
        return Proof((await owner.barrier()).index, since)
