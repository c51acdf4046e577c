"""
What really happened, seen from outside, and the promises that are held against it.

The promises of docs/simulation.md, among them the invariants I1 to I8 (protocol-rules.md 4.5).  They look at four
places: what bookies made durable and said, what the metadata store was told, what writers were told, what readers and
recoverers saw.  None of the code under test is asked whether it is right.

The same checkers judge simulated histories and the real processes of `tests/processes/test_chaos.py`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.metadata.tree import SessionId
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun

PAYLOAD_AT = 36  # header and CRC32C
# of one reader that follows: ten rounds of polls, each with all that it may lead to; one that spins sends thousands
REQUESTS_PER_SECOND_MAX = 1_200
REPAIRER = "x"  # what names of repairing clients begin with


class Violation(Exception):
    """A broken promise: `invariant` is its name, the text says how."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class LedgerTruth:
    """One ledger."""

    def __init__(self, ledger: int, shape: tuple[int, int, int], writer_name: str, deferred: bool) -> None:
        self.id = ledger
        _ensemble, self.write, self.ack = shape
        self.writer_name = writer_name
        self.deferred = deferred
        self.early = False  # ids are given out of order
        self.first = 0  # the first id in use
        self.kept: dict[int, set[str]] = {}  # entry -> bookies that answered for it
        self.payloads: dict[int, bytes] = {}  # entry -> what was first stored under it
        self.carried: dict[int, int] = {}  # entry -> the LAC that it was first sent with
        self.confirmed = -1  # the writer's last add confirmed
        self.acked: dict[int, bytes] = {}  # what was acknowledged to a caller
        self.seen = -1  # the highest end that any reader saw
        self.ends: set[int] = set()  # the ends that recoveries returned
        self.found: set[tuple[int, str]] = set()  # after a start: what it has all the same
        self.lost: dict[tuple[int, str], float] = {}  # of both: what went with a disk, and when
        self.lost_before: set[tuple[int, str]] = set()  # what had gone when the ledger came to be recovered
        # what a bookie had lost when a repair named it for that entry: the repair's name
        self.short: dict[tuple[int, str], str] = {}
        self.unproven: set[tuple[int, str]] = set()  # the same, if a worker did, which may have died since
        self.fenced: set[str] = set()  # bookies that said so
        self.deleted = False

    def holders(self, entry: int, metadata: LedgerMetadata) -> set[str]:
        return self.write_set(entry, metadata) & self.kept.get(entry, set())

    def told_at_least(self, known: LedgerMetadata, now: LedgerMetadata | None) -> int:
        """
        What a reader that knows this metadata must hear when it asks its last ensemble for the last add confirmed: all
        before that fragment was confirmed, and the LAC in the last entry of it that is confirmed, for somebody whom it
        hears has that entry (1.4).  A fragment after it, or the same one given to others, may be news to the reader.
        Where ids are out of order the highest entries carry an old LAC, and a tail reads on (D14).
        """
        fragment = known.last_fragment
        if now is None or fragment not in now.fragments or self.early:
            return fragment.first - 1
        end = min((later.first - 1 for later in now.fragments if later.first > fragment.first), default=self.confirmed)
        return max(fragment.first - 1, self.carried.get(min(end, self.confirmed), -1))

    def write_set(self, entry: int, metadata: LedgerMetadata) -> set[str]:
        """The schedule of protocol-rules.md 1.2, by itself: what is judged must not be the judge."""
        ensemble = metadata.ensemble_at(entry)
        return {ensemble[(entry + step) % len(ensemble)] for step in range(self.write)}


class Truth:
    """
    All ledgers.  Whatever breaks a promise is kept as `violation`, the first one only, for it may be noticed deep
    inside the code under test.
    """

    def __init__(self) -> None:
        self.ledgers: dict[int, LedgerTruth] = {}
        self.seen: Counter[str] = Counter()
        self.violation: Violation | None = None
        self.healing: Any = None  # judges what AutoRecovery does, where that is part of the history
        self.draining: Any = None  # the same of operators who empty bookies

    def break_(self, invariant: str, text: str) -> None:
        if self.violation is None:
            self.violation = Violation(invariant, text)

    # Bookies

    def living(self, ledger: int) -> LedgerTruth | None:
        """A ledger that is watched and was not deleted."""
        truth = self.ledgers.get(ledger)
        return None if truth is None or truth.deleted else truth

    def stored(self, bookie: str, run: AddRun) -> None:
        """The bookie answers EOK for the run: durable from now on."""
        truth = self.living(run.ledger)
        if truth is not None:
            for entry in range(run.first, run.first + len(run.bodies)):
                truth.kept.setdefault(entry, set()).add(bookie)
                truth.lost.pop((entry, bookie), None)

    def taken(self, bookie: str, run: AddRun) -> None:
        """The bookie takes the run."""
        truth = self.living(run.ledger)
        if truth is None:
            return
        if bookie in truth.fenced and not run.recovery:
            self.break_(
                "fence", f"{bookie} said that ledger {run.ledger} is fenced, and takes plain add {run.first} after it"
            )
        payloads = truth.payloads
        for entry, body in enumerate(run.bodies, run.first):
            payload = bytes(body[PAYLOAD_AT:])
            truth.carried.setdefault(entry, int.from_bytes(body[16:24], "big", signed=True))
            if payloads.setdefault(entry, payload) != payload:
                self.break_(
                    "I4",
                    (
                        f"{bookie} got {payload[:20]!r} as entry {entry} of ledger {run.ledger}, which is "
                        f"{payloads[entry][:20]!r}"
                    ),
                )

    def fence_said(self, bookie: str, ledger: int) -> None:
        truth = self.ledgers.get(ledger)
        if truth is not None:
            truth.fenced.add(bookie)

    def answered(
        self, bookie: str, ledger: int, entry: int, found: Any, had: bool, limbo: bool, metadata: LedgerMetadata | None
    ) -> None:
        """
        What storage says to a read; `had`: when it was asked it had answered for that entry; `limbo`: it doubts what it
        has of the ledger.  A bookie that lost its disk and was replaced by a repair is asked only by who has old
        metadata, and may say no unless it doubts itself: a client that would close the ledger upon that meets the
        repair's version.
        """
        replaced = not limbo and self._replaced(bookie, ledger, entry, metadata)
        if found in (Status.ENOENTRY, Status.ENOLEDGER) and had and self.has(bookie, ledger, entry) and not replaced:
            self.break_(
                "no false negative",
                f"{bookie} said {found.name} for entry {entry} of ledger {ledger}, which it acknowledged before",
            )
        if found is Status.EUNKNOWNLEDGERSTATE:
            self.seen["limbo answer"] += 1

    def _replaced(self, bookie: str, ledger: int, entry: int, metadata: LedgerMetadata | None) -> bool:
        """
        Whether all that it could deny was lost with its disk, and belongs to others by now, or the repair that names it
        again has yet to see to it.  What it lost while the ledger is being recovered it may not deny: the recovery that
        wrote it there may still name it.
        """
        truth = self.ledgers[ledger]
        asked = [entry] if entry >= 0 else [each for each, kept in truth.kept.items() if bookie in kept]
        recovering = metadata is not None and metadata.state is LedgerState.IN_RECOVERY
        return metadata is not None and all(
            (each, bookie) in truth.lost
            and (
                (each, bookie) in truth.short
                or (each, bookie) in truth.unproven
                or bookie not in truth.write_set(each, metadata)
            )
            and not (recovering and (each, bookie) not in truth.lost_before)
            for each in asked
        )

    def has(self, bookie: str, ledger: int, entry: int) -> bool:
        truth = self.living(ledger)
        if truth is None:
            return False
        if entry == -1:
            return any(bookie in kept for kept in truth.kept.values())
        return bookie in truth.kept.get(entry, ())

    def came_back(
        self,
        bookie: str,
        ledger: int,
        lost: set[int],
        more: set[int],
        fence_lost: bool,
        synced: bool,
        given_up: LedgerMetadata | None = None,
        now: float = 0.0,
    ) -> None:
        """
        After a restart the bookie lacks entries that it had acknowledged, or the fence that it had told of; it may have
        `more` than it could tell. `given_up`: their directory had failed, so it may lack what this metadata gives to
        others.
        """
        truth = self.ledgers[ledger]
        if truth.deleted:
            return
        lost &= {entry for entry, kept in truth.kept.items() if bookie in kept}
        truth.found.update((entry, bookie) for entry in more)
        if given_up is not None:
            others = {entry for entry in lost if bookie not in truth.write_set(entry, given_up)}
            self.lacks(bookie, ledger, others, now)
            lost -= others
        for entry in lost:
            truth.kept[entry].discard(bookie)
        if synced and lost:
            self.break_(
                "durable",
                f"{bookie} restarted without entries {sorted(lost)[:5]} of ledger {ledger}, which it had acknowledged",
            )
        if lost:
            self.seen["unsynced entries lost"] += 1
        if fence_lost:
            self.break_("fence", f"{bookie} restarted without the fence of ledger {ledger} that it had told of")

    def lacks(self, bookie: str, ledger: int, entries: set[int], now: float) -> None:
        """The bookie may lack these, in limbo or because others have them; but they may not be counted on."""
        self.ledgers[ledger].lost.update(((entry, bookie), now) for entry in entries)

    def has_again(self, bookie: str, ledger: int, entries: set[int]) -> None:
        """After a restart the bookie has these: what a directory lost, the journal may have kept."""
        for entry in entries:
            self.ledgers[ledger].lost.pop((entry, bookie), None)

    # What bookies throw away, and lose

    def disk_lost(self, bookie: str, now: float, of: Callable[[int], bool] = lambda ledger: True) -> None:
        """All that the bookie held of these ledgers."""
        for truth in [truth for ledger, truth in self.ledgers.items() if of(ledger)]:
            truth.lost.update(((entry, bookie), now) for entry, kept in truth.kept.items() if bookie in kept)
            truth.found = {(entry, each) for entry, each in truth.found if each != bookie}

    def forgotten(self, bookie: str, ledger: int, metadata: LedgerMetadata | None) -> None:
        """The bookie deletes a ledger."""
        truth = self.ledgers.get(ledger)
        if truth is None:
            return
        self.seen["deleted ledger collected"] += 1
        if metadata is not None:
            self.break_("garbage", f"{bookie} deletes ledger {ledger}, which exists")
        truth.fenced.discard(bookie)

    def dropped(self, bookie: str, ledger: int, metadata: LedgerMetadata | None, since: float) -> None:
        """
        The bookie drops a superfluous copy: the ledger must be closed, do without the bookie and have had all other
        copies since it began to look.
        """
        truth = self.ledgers.get(ledger)
        if truth is None:
            return
        self.seen["superfluous copy dropped"] += 1
        if metadata is None or not metadata.is_closed or bookie in metadata.bookies():
            self.break_("surplus", f"{bookie} drops its copy of ledger {ledger}, of which the metadata says {metadata}")
            return
        for kept in truth.kept.values():
            kept.discard(bookie)
        for entry in range(truth.first, metadata.last_entry + 1):
            have = truth.kept.get(entry, set()) | {each for found, each in truth.found if found == entry}
            lacking = {
                each
                for each in truth.write_set(entry, metadata)
                if each not in have or truth.lost.get((entry, each), since) < since
            }
            if lacking:
                self.break_(
                    "surplus", f"{bookie} drops its copy of ledger {ledger}, while {sorted(lacking)} lack entry {entry}"
                )
                return

    def limbo_ended(self, bookie: str, ledger: int, held: set[int], metadata: LedgerMetadata | None) -> None:
        """The bookie does not doubt any more that it has all of the ledger that belongs to it."""
        truth = self.living(ledger)
        if truth is None or metadata is None:
            return
        self.seen["limbo ended"] += 1
        end = metadata.last_entry if metadata.is_closed else metadata.last_fragment.first - 1
        for entry in range(truth.first, end + 1):
            if bookie in truth.write_set(entry, metadata) and entry not in held:
                self.break_("limbo", f"{bookie} ends the limbo of ledger {ledger} without entry {entry}")
                return
        for entry, kept in truth.kept.items():
            if entry not in held:
                kept.discard(bookie)  # it was lost with a disk, and is not needed here

    # Metadata

    def went(self, what: str, key: object, owner: int, by: int) -> None:
        """A registration or lock was removed by a call in session `by`; with its own session it may go without one."""
        if owner != by:
            self.break_("owner", f"the {what} of {key}, made in session {owner}, was removed in session {by}")

    def metadata_deleted(self, ledger: int) -> None:
        truth = self.ledgers.get(ledger)
        if truth is not None:
            self.seen["ledger deleted"] += 1
            truth.deleted = True

    def metadata_written(
        self,
        ledger: int,
        before: Versioned[LedgerMetadata] | None,
        after: Versioned[LedgerMetadata],
        author: str = "",
        session: SessionId | None = None,
    ) -> None:
        truth = self.ledgers.get(ledger)
        if truth is not None and truth.deleted:
            self.break_("deleted", f"{author} brings back ledger {ledger}, which was deleted")
        if truth is None or before is None:
            return
        old, new = before.value, after.value
        if self.healing is not None:
            self.healing.changed(author, session, ledger, old, new)
        if self.draining is not None:
            self.draining.changed(author, ledger, old, new)
        if author.startswith(REPAIRER) and old.state is new.state:
            self._repaired(truth, author, old, new)
            return
        if author == truth.writer_name and old.state is not LedgerState.OPEN:
            self.break_("D1", f"the writer wrote {new.state.name} over {old.state.name} of ledger {ledger}")
        if old.is_closed and (
            not new.is_closed
            or (new.last_entry, new.length, new.fragments) != (old.last_entry, old.length, old.fragments)
        ):
            self.break_(
                "closed is final",
                (
                    f"ledger {ledger} was closed at {old.last_entry} with length {old.length}, now {new.state.name} at "
                    f"{new.last_entry}"
                ),
            )
        if old.state is LedgerState.IN_RECOVERY and new.state is LedgerState.OPEN:
            self.break_("states", f"ledger {ledger} went from IN_RECOVERY to OPEN")
        if old.state is LedgerState.IN_RECOVERY is new.state and new.fragments != old.fragments:
            self.break_("S6", f"ledger {ledger}: ensembles were stored before the recovery came to its end")
        keys = [fragment.first for fragment in new.fragments]
        if keys != sorted(set(keys)) or old.fragments[:-1] != new.fragments[: len(old.fragments) - 1]:
            self.break_("I5", f"ledger {ledger}: fragments {old.fragments} became {new.fragments}")
        if old.state is not new.state is LedgerState.IN_RECOVERY:
            truth.lost_before = set(truth.lost)
        if author == truth.writer_name and new.state is LedgerState.OPEN:
            self._forget_lost(truth, old, new)
        self._count(truth, author, old, new)
        self.check_confirmed(truth, new)
        if new.is_closed and not old.is_closed:
            self._closed(truth, new)

    def _forget_lost(self, truth: LedgerTruth, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """
        The writer takes a bookie for a fresh one: what that answered for in an earlier life, and lost, counts for
        nobody any more.
        """
        for entry, bookie in list(truth.lost):
            if (
                entry >= new.last_fragment.first
                and bookie in truth.write_set(entry, new)
                and bookie not in truth.write_set(entry, old)
            ):
                del truth.lost[entry, bookie]
                truth.kept.get(entry, set()).discard(bookie)

    def _repaired(self, truth: LedgerTruth, author: str, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """
        A repair wrote: bookies are replaced where no entry is to come any more, each by one that has its share.  One
        may lose that, with its disk, until the last moment; then the repair has to see to it before it ends
        (`repair_ended`).
        """
        self.seen["fragment repaired"] += 1
        self.seen["repair of a ledger that is being written"] += new.state is LedgerState.OPEN
        firsts = [[each.first for each in metadata.fragments] for metadata in (old, new)]
        cut = old.is_closed and new.is_closed and len(firsts[1]) <= len(firsts[0]) + 1
        self.seen["part of a fragment repaired"] += firsts[0] != firsts[1]
        if (firsts[0] != firsts[1] and not cut) or (old.last_entry, old.length) != (new.last_entry, new.length):
            self.break_(
                "I5",
                (
                    f"ledger {truth.id}: a repair made {new.fragments} with end {new.last_entry} out of "
                    f"{old.fragments} "
                    f"with end {old.last_entry}"
                ),
            )
            return
        for first, last, bookies in new.fragment_ranges():
            if firsts[0] == firsts[1] and old.ensemble_at(first) == bookies:
                continue
            if last is None:
                self.break_(
                    "repair", f"ledger {truth.id}: a repair changes the fragment at {first}, which is still written"
                )
                return
            for entry in range(max(first, truth.first), last + 1):
                named = truth.write_set(entry, new) - truth.write_set(entry, old)
                lacking = named - truth.kept.get(entry, set())
                short = [(entry, each) for each in named if (entry, each) in truth.lost]
                truth.short.update(dict.fromkeys(short, author))
                if self.healing is not None and self.healing.is_worker(author):
                    truth.unproven.update(short)
                if lacking:
                    self.break_(
                        "repair",
                        (
                            f"ledger {truth.id}: the metadata names {sorted(lacking)} for entry {entry}, which they do "
                            "not have"
                        ),
                    )
                    return
        self.check_confirmed(truth, new)

    def repair_ended(
        self, author: str, truth: LedgerTruth, metadata: LedgerMetadata | None, doubting: Collection[str] = ()
    ) -> None:
        """
        A repair says that it is done with the ledger; `metadata` None: it did not come to its end.  `doubting`: bookies
        that are down or in limbo, and so look after themselves.
        """
        named = [each for each, named_by in truth.short.items() if named_by == author]
        for entry, bookie in named:
            del truth.short[entry, bookie]
            if (
                metadata is not None
                and (entry, bookie) in truth.lost
                and bookie in truth.write_set(entry, metadata)
                and bookie not in doubting
            ):
                self.break_(
                    "repair",
                    f"{author} named {bookie} for entry {entry} of ledger {truth.id}, which it had lost, "
                    "and left it so",
                )

    def _count(self, truth: LedgerTruth, author: str, old: LedgerMetadata, new: LedgerMetadata) -> None:
        seen = self.seen
        changed = sum(a != b for a, b in zip(old.last_fragment.bookies, new.last_fragment.bookies, strict=True))
        if author == truth.writer_name:
            seen["ensemble change"] += bool(changed)
            seen["several replaced in one change"] += changed > 1
            seen["change replaces an empty fragment"] += (
                bool(changed) and len(new.fragments) == len(old.fragments) and len(old.fragments) > 1
            )
        elif new.is_closed and not old.is_closed and new.fragments != old.fragments:
            seen["change during recovery"] += 1
        if new.is_closed:
            seen["closed by the writer" if author == truth.writer_name else "closed by a recovery"] += 1
            seen["tail recovered beyond what was confirmed"] += new.last_entry > truth.confirmed
            seen["unacknowledged tail dropped"] += any(entry > new.last_entry for entry in truth.kept)
            seen["empty last fragment at close"] += new.last_fragment.first > new.last_entry >= 0
        if (
            old.state is LedgerState.OPEN
            and new.state is LedgerState.IN_RECOVERY
            and len(truth.payloads) > truth.confirmed + 1
        ):
            seen["recoverer against writer"] += 1

    def check_confirmed(self, truth: LedgerTruth, metadata: LedgerMetadata) -> None:
        """I2: what is confirmed is on an ack quorum of the write set that the metadata names."""
        if truth.deferred:
            return
        for entry in range(truth.first, truth.confirmed + 1):
            holders = truth.holders(entry, metadata)
            if len(holders) < truth.ack:
                self.break_(
                    "I2",
                    (
                        f"entry {entry} of ledger {truth.id} is confirmed, yet of its ensemble "
                        f"{metadata.ensemble_at(entry)} only {sorted(holders)} have it"
                    ),
                )
                return

    def _closed(self, truth: LedgerTruth, metadata: LedgerMetadata) -> None:
        end = metadata.last_entry
        highest = max(truth.acked, default=-1)
        if end < highest:
            self.break_("I1", f"ledger {truth.id} was closed at {end}, but entry {highest} is acknowledged")
        if end < truth.seen:
            self.break_("I8", f"ledger {truth.id} was closed at {end}, but a reader saw its end at {truth.seen}")
        if truth.deferred:
            return
        for entry in range(truth.first, end + 1):
            if len(truth.holders(entry, metadata)) < truth.ack:
                self.break_(
                    "I3",
                    (
                        f"ledger {truth.id} was closed at {end} with entry {entry} on fewer than {truth.ack} of "
                        f"{metadata.ensemble_at(entry)}"
                    ),
                )
                return

    # Writers

    def confirm(self, truth: LedgerTruth, lac: int, metadata: LedgerMetadata | None) -> None:
        """The writer's last add confirmed."""
        if lac < truth.confirmed:
            self.break_("LAC", f"the LAC of ledger {truth.id} went back from {truth.confirmed} to {lac}")
        before, truth.confirmed = truth.confirmed, lac
        if metadata is None or truth.deferred:
            return
        for entry in range(max(before + 1, truth.first), lac + 1):
            if len(truth.holders(entry, metadata)) < truth.ack and not metadata.is_closed:
                self.break_(
                    "LAC",
                    (
                        f"entry {entry} of ledger {truth.id} is confirmed without an ack quorum: "
                        f"{sorted(truth.holders(entry, metadata))}"
                    ),
                )

    def acknowledged(
        self, truth: LedgerTruth, ids: range, payloads: list[bytes], metadata: LedgerMetadata | None
    ) -> None:
        for entry, payload in zip(ids, payloads, strict=True):
            if entry in truth.acked:
                self.break_("once", f"entry {entry} of ledger {truth.id} was acknowledged twice")
            truth.acked[entry] = payload
        if ids and metadata is not None and metadata.is_closed and ids[-1] > metadata.last_entry:
            self.break_(
                "I1",
                (
                    f"entry {ids[-1]} of ledger {truth.id} was acknowledged after the ledger was closed at "
                    f"{metadata.last_entry}"
                ),
            )

    def forced(self, truth: LedgerTruth, last: int, metadata: LedgerMetadata) -> None:
        """A force succeeded: everything up to `last` is durable on every bookie of its write set."""
        for entry in range(truth.first, last + 1):
            missing = truth.write_set(entry, metadata) - truth.kept.get(entry, set())
            if missing:
                self.break_(
                    "D15",
                    (
                        f"a force of ledger {truth.id} up to {last} succeeded, but {sorted(missing)} do not have entry "
                        f"{entry}"
                    ),
                )
                return

    # Readers

    def read_lac(self, truth: LedgerTruth, least: int, lac: int) -> None:
        """A reader asked the ensemble that it knew; `least`: `told_at_least` when it asked."""
        if lac < least:
            self.break_(
                "LAC read",
                f"a reader of ledger {truth.id} was told {lac}, but the bookies that it asked had to "
                f"tell it of {least}",
            )

    def saw_end(self, truth: LedgerTruth, before: int, end: int, metadata: LedgerMetadata | None) -> None:
        """A reader shows this end of a ledger."""
        if end < before:
            self.break_("I8", f"a reader's end of ledger {truth.id} shrank from {before} to {end}")
        truth.seen = max(truth.seen, end)
        if metadata is None:
            return
        if metadata.is_closed:
            if end > metadata.last_entry:
                self.break_(
                    "I8",
                    (
                        f"a reader saw entry {end} as the end of ledger {truth.id}, which is closed at "
                        f"{metadata.last_entry}"
                    ),
                )
        elif end > truth.confirmed:
            self.break_(
                "I6", f"a reader saw the LAC {end} of ledger {truth.id}, where only {truth.confirmed} is confirmed"
            )

    def asked(self, reader: str, second: int, requests: int) -> None:
        """So many requests a reader that follows sent in one second."""
        if requests > REQUESTS_PER_SECOND_MAX:
            self.break_("few questions", f"{reader} sent {requests} requests in second {second}")

    # Recoverers, and the reckoning

    def opened(self, truth: LedgerTruth, who: str, end: int, metadata: LedgerMetadata | None) -> None:
        """A client opened the ledger to its end."""
        truth.ends.add(end)
        if metadata is not None and metadata.is_closed and metadata.last_entry != end:
            self.break_(
                "one end", f"{who} opened ledger {truth.id} to its end {end}, but it is closed at {metadata.last_entry}"
            )
        if len(truth.ends) > 1:
            self.break_("one end", f"ledger {truth.id} has the ends {sorted(truth.ends)}")

    def reckon(
        self,
        truth: LedgerTruth,
        metadata: LedgerMetadata,
        entries: Mapping[int, bytes],
        given: Collection[bytes],
        ordered: bool,
    ) -> None:
        """
        The closed ledger, read whole; `given`: all that was ever appended; `ordered`: numbered payloads `N.…`, in ids
        of the writer's.
        """
        for entry, payload in truth.acked.items():
            if entries.get(entry) != payload:
                self.break_(
                    "acknowledged",
                    (
                        f"entry {entry} of ledger {truth.id} was acknowledged as {payload[:20]!r}, and is "
                        f"{entries.get(entry)!r:.40}"
                    ),
                )
        size = sum(map(len, entries.values()))
        # out of order, entries that are dropped may be counted
        if truth.first == 0 and not truth.early and metadata.length != size:
            self.break_(
                "D7", f"ledger {truth.id} says that its length is {metadata.length}; its entries have {size} bytes"
            )
        if not set(entries.values()) <= set(given):
            self.break_("I4", f"ledger {truth.id} holds what nobody appended")
        if ordered:
            numbers = [int(payload.split(b".")[0]) for payload in entries.values() if b"." in payload]
            if numbers != sorted(set(numbers)):
                self.break_(
                    "order", f"entries of ledger {truth.id} are not in the order in which they were appended: {numbers}"
                )

    def followed(self, truth: LedgerTruth, got: Sequence[bytes], entries: Mapping[int, bytes], error: object) -> None:
        """
        A reader followed the closed ledger from its first entry; `error`: what ended it before the close, or None.
        """
        if list(got) != list(entries.values())[: len(got)] or (error is None and len(got) != len(entries)):
            self.break_("tail", f"a tail of ledger {truth.id} got {len(got)} entries of {len(entries)}: {error!r}")
