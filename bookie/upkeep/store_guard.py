"""
How far the metadata store had come when this bookie saw it last, and what follows when it is behind that: an old backup
was put back.  It does not know what came after it was made, and such ledgers are no garbage.

What was seen is on disk, in every ledger directory; that a store is behind is in a note in the store, too
(`store_notes`).  The first bookie that finds the store behind writes the note, and every other one that reads it
deletes nothing either, whatever its own numbers say: ids that were raised meanwhile, or a ZooKeeper that began a new
epoch, hide from it that the store went back.  Each adds what it saw itself, so that the operator's command knows the
ids above which it has to go on, and which bookies were not heard.

Three things show that a store went back: a number is lower than it was seen; the note is older than the one that was
accepted; a ledger is on two bookies that the store does not know, with an id that it has not given yet, lower than
those that callers are known to choose, and not too far for one that was given.

Such a ledger on one bookie alone is a doubt: any client of another cluster that reaches a bookie makes one by an add.
That bookie deletes nothing, and says so in the store, where a second one that has the same ledger finds it; all others
go on.

The cluster is the one that the bookie belongs to, or nothing is seen and nothing believed.

Long: a look moves a handful of numbers in one order of steps, and what a doubt and a store that is behind do with them
has to be read together.

Knows: all that.  Does not know: what is deleted, and why else.
Safety: what was found is on disk, and in the note, before anything is raised that would hide it.  Deleters ask after
they have their evidence, and delete in the turn of the answer.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from quire.bookie.upkeep.store_notes import Seen, bytes_of, note_of, plain, position_of, read_seen, write_seen
from quire.metadata.clock import Clock, Timer
from quire.metadata.position import END, NOTHING, Position
from quire.metadata.store import Progress, SetBack, WrongCluster
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import LedgerError, MetadataSerialization, MetaStore
from quire.rows.files import Files

if TYPE_CHECKING:
    from quire.bookie.storage.storage import Storage

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 10.0  # between two looks
ARRIVED_S = 1.0  # after a ledger came that is new here there is a look, too
# ids that a store may have given since a backup of it was made, with the directories of long ids that were passed over
GIVEN_MAX = 1 << 40
RAISED_MAX = 100_000  # ids that a bookie makes the store pass over by itself; for more there is the command
DOUBTED_RAISED_MAX = 10_000  # the same for a doubt; as many as may be given between two looks
DOUBTS_MAX = 20  # ledgers of one bookie that the note names
OWN_DOUBTS_MAX = 1000  # that a bookie keeps in mind
PASSED_MAX = 20  # ranges of ids in the note, and one for each further counter; of more, the nearest become one
STRANGE_MAX = 100  # ledgers that are read by themselves in one look
CHOSEN_MAX = 10_000  # ledgers that a first start lists to learn whether ids are chosen
SWAPS_MAX = 20  # tries to write the note while others do
COMMAND = "quire metadata set-back"


class StoreGuard:
    """One bookie's.  All of it belongs to the reactor thread."""

    log = Logger()

    def __init__(
        self,
        clock: Clock,
        files: Files,
        directories: Callable[[], Sequence[str]],
        storage: "Storage",
        store: MetadataStore,
        bookie: str,
        cluster: str,
        noticed: Callable[[], object] = lambda: None,
    ) -> None:
        """`directories`: the living ones.  `noticed` is called when the store is found behind, until `counted`."""
        self._noticed = noticed
        # ledgers here that the store does not know, as garbage collection counted them while it is behind
        self.unknown: array[int] | None = None
        self._clock = clock
        self._files = files
        self._directories = directories
        self._storage = storage
        self._arrived: set[int] = set()  # ledgers that came since the last look
        self._looked_at = self._answered_at = clock.seconds()
        self._silent = False  # it is logged that the store does not answer
        self._store = store
        self._bookie = bookie
        self._cluster = cluster
        self._lock = DeferredLock()
        self._timer: Timer | None = None
        self._stopped = False
        self._seen = Seen(cluster)
        self._saved: Seen | None = None  # what the files say
        self._saved_at = clock.seconds()
        self._new = True  # nothing was ever seen
        self._given = NOTHING  # as it was seen last
        self._own_doubts: set[int] = set()  # ledgers here that the store should know, if it was not set back
        self._doubted: set[int] = set()  # the same of other bookies, as the note had it last
        self._told_of_bound = False
        self._passed = NOTHING  # ids that are passed over for a doubt
        self._skipped: list[list[int]] = []  # ranges that were passed over for doubts, as the note had them last
        # the numbers of the looks that `trust_store` shares: of the last that began, and of the last that ended well
        self._begun = self._trusted = 0

    # -- what is known

    @property
    def behind(self) -> str | None:
        """Tells an operator that the store is behind what was seen of it; None while it is not."""
        seen = self._seen
        if seen.behind is None:
            return self._doubt
        found, uri = seen.found, self._store.uri
        return (
            f"the metadata store {uri} was set back, as by an old backup: it was found at change {found.changes}, to "
            f"give ledger id {found.next_ledger} next, and {self._bookie} has seen change {seen.changes}, id "
            f"{max(seen.ledgers)} as the next, and {found.position.lacks(seen.ledgers)} ids given that it did not give "
            "then, or another bookie says so, or two have a ledger that it never gave (a client of another cluster "
            "leaves such).  Nothing is deleted here until that is accepted: put a newer backup in place, or see "
            f"`{COMMAND} --metadata '{uri}'`"
        )

    @property
    def _doubt(self) -> str | None:
        if self._seen.doubt is None:
            return None
        low, high, _ = self._seen.doubt
        which = f"ledger {low} is" if high == low + 1 else f"ledgers from {low} to {high - 1} are"
        return (
            f"{which} on {self._bookie} that the metadata store {self._store.uri} does not know, with an id that it "
            "has not given: a client of another cluster wrote here, or the store was set back by a moment. Nothing is "
            f"deleted on this bookie until that is settled: see `{COMMAND} --metadata '{self._store.uri}'`"
        )

    @property
    def is_behind(self) -> bool:
        """True if this bookie believes nothing that the store denies, for what all saw or for a doubt of its own."""
        return self._seen.behind is not None or self._seen.doubt is not None

    @property
    def silent_seconds(self) -> float:
        """Since the store answered a look; up to `LOOK_S` and what a look takes while all is well."""
        return max(0.0, self._clock.seconds() - self._answered_at)

    def status(self) -> dict[str, Any]:
        seen = self._seen
        return {
            "behind": self.is_behind,
            "reason": self.behind,
            "metadata": self._store.uri,
            "seconds_since_answer": round(self.silent_seconds),
            "changes_seen": seen.changes,
            "ledgers_seen": max(seen.ledgers),
            "unknown_ledgers": None if self.unknown is None else len(self.unknown),
        }

    # -- looking

    async def start(self) -> None:
        """Looks before the bookie is listed.  Fails as the store does; `StorageError`, `OSError` of its files."""
        self._saved = read_seen(self._files, self._directories(), self._cluster)
        if self._saved is not None:
            self._seen, self._new = self._saved, False
        else:
            await self._look_for_chosen()
        await self.look()
        await self._save()
        self._later()

    async def _look_for_chosen(self) -> None:
        """
        Nothing was ever seen: where a ledger exists whose id was not given, others like it that are here may have been
        deleted, and show nothing.
        """
        before = (await self._store.progress()).position
        most = CHOSEN_MAX // len(before)
        listed = [await self._store.ledger_ids(first - 1, most) for first in before]
        given = (await self._store.progress()).position  # what was given before the listing is below
        for first, ledgers in zip(given, listed, strict=True):
            own = given.range_of(first)
            if any(ledger >= first and given.range_of(ledger) == own for ledger in ledgers):
                self._choose([first], given)

    def _later(self) -> None:
        if not self._stopped:
            self._timer = self._clock.callLater(ARRIVED_S, self._on_timer)

    def _on_timer(self) -> None:
        self._arrived |= self._storage.take_arrived()
        if not self._arrived and 0 <= self._clock.seconds() - self._looked_at < LOOK_S:
            self._later()
            return
        Deferred.fromCoroutine(self._look_in_time()).addErrback(
            lambda failure: self.log.failure("looking at the metadata store failed", failure)
        )

    async def _look_in_time(self) -> None:
        try:
            await self.look()
            if self.is_behind and self.unknown is None:
                self._noticed()  # what failed of it is tried again
        except LedgerError as failure:
            if not self._silent:
                self._silent = True
                self.log.warn(
                    "{bookie}: the metadata store can't be asked: {reason}; entries are written and read all the same",
                    bookie=self._bookie,
                    reason=str(failure),
                )
        finally:
            self._later()

    async def stop(self) -> None:
        """No more looks; what was seen is written down."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if not self._new and not self._lock.locked:  # else a look is under way, and nothing waits for it
            await self._save()

    async def look(self) -> None:
        """Sees how far the store is now.  `WrongCluster`; `LedgerError` when it can't be asked."""
        await self._lock.run(lambda: Deferred.fromCoroutine(self._look_and_compare()))

    async def _look_and_compare(self) -> None:
        """Looks, and says if the store knows the ledgers that came since, or gave their ids at least."""
        self._arrived |= self._storage.take_arrived()
        arrived = set(self._arrived)
        progress = await self._look()
        strange = self._never_given(arrived, progress.position)[:STRANGE_MAX]
        try:
            absent = await self._store.absent_ledgers(strange) if strange else []
        except MetadataSerialization:
            absent = []  # one that can't be read exists, so it was chosen
        self._choose(set(strange) - set(absent), progress.position)
        await self._suspect(self._never_given(absent, progress.position))
        self._arrived -= arrived
        self._looked_at = self._clock.seconds()

    async def trust_store(self, deleted: Sequence[int] = ()) -> None:
        """`SetBack` unless the store may be believed: what it says, and that these ledgers were deleted."""
        asked = self._begun
        await self._lock.run(lambda: Deferred.fromCoroutine(self._trust(deleted, asked)))
        if (reason := self.behind) is not None:
            raise SetBack(reason)

    async def _trust(self, deleted: Sequence[int], asked: int) -> None:
        """Callers that wait at the same time share a look that begins after all of them have asked."""
        if deleted or self._trusted <= asked:
            self._begun += 1
            progress = await self._look()
            await self._suspect(self._never_given(deleted, progress.position))
            self._trusted = self._begun

    def _never_given(self, ledgers: Iterable[int], position: Position) -> list[int]:
        """Ledgers not given by the store and, as far as known, not chosen: no store gives ids below a far one."""
        chosen = self._chosen(position)

        def strange(ledger: int) -> bool:
            first, end = position.next_to(ledger), chosen[position.range_of(ledger)]
            return (
                first <= ledger < min(first + GIVEN_MAX, end)
                or ledger in self._doubted
                # what was passed over for a doubt is below the next id, and was not given for that
                or (ledger < end and any(low <= ledger < high for low, high in self._skipped))
            )

        return sorted(ledger for ledger in ledgers if ledger not in self._seen.strangers and strange(ledger))

    def _chosen(self, position: Position) -> list[int]:
        """For each range, from where on ids may have been chosen."""
        found = [END] * len(position)
        for ledger in self._seen.chosen:
            found[position.range_of(ledger)] = ledger
        return found

    def given(self, ledgers: Iterable[int]) -> "array[int]":
        """Ledgers whose ids the store had given when it was seen last, none known to be a caller's; ascending."""
        given = self._seen.ledgers
        ends = list(map(min, given, self._chosen(given)))
        return array("q", sorted(ledger for ledger in ledgers if ledger < ends[given.range_of(ledger)]))

    async def _suspect(self, absent: Sequence[int]) -> None:
        """Ledgers that are here and that the store neither has nor has given yet."""
        seen = self._seen
        if not absent:
            return
        if seen.behind is not None:
            self._tell_of_bound(absent)
            ledgers = seen.ledgers.behind(ledger for ledger in absent if seen.bound.gave(ledger))
            if ledgers != seen.ledgers:
                self._seen = replace(seen, ledgers=ledgers)
                await self._look()
            return
        self._own_doubts |= set(absent[: OWN_DOUBTS_MAX - len(self._own_doubts)])
        low, high, cleared = seen.doubt or (absent[0], absent[-1] + 1, -1)
        if seen.doubt is None:
            self._seen = replace(seen, bound=self._given.joined(seen.ledgers).plus(DOUBTED_RAISED_MAX))
        known = self._passed.over(len(self._given))
        self._passed = known.behind(ledger for ledger in absent if self._seen.bound.gave(ledger))
        doubt = min(low, absent[0]), max(high, absent[-1] + 1), cleared
        if seen.doubt is None or doubt != seen.doubt:
            self._seen = replace(self._seen, doubt=(*doubt[:2], -1))
            await self._save()
            if seen.doubt is None:
                self.log.critical("{reason}", reason=self.behind)
            self._tell_of_bound(absent)
            self._noticed()
        await self._look()

    def _tell_of_bound(self, ledgers: Sequence[int]) -> None:
        far = [ledger for ledger in ledgers if not self._seen.bound.gave(ledger)]
        if far and not self._told_of_bound:
            self._told_of_bound = True
            self.log.warn(
                "{bookie}: the store is not made to pass over id {ledger}, for that is further than {bound}: if it was "
                "set back, raise its ids by `{command}`",
                bookie=self._bookie,
                ledger=far[-1],
                bound=self._seen.bound.next_to(far[-1]),
                command=COMMAND,
            )

    def _choose(self, ledgers: Iterable[int], position: Position) -> None:
        """Notes ledgers that exist and that the store has not given: their creators chose the ids."""
        known = self._chosen(position)
        for ledger in ledgers:
            own = position.range_of(ledger)
            known[own] = min(known[own], ledger)
        chosen = tuple(ledger for ledger in known if ledger < END)
        if chosen != self._seen.chosen:
            self._seen = replace(self._seen, chosen=chosen)

    async def saw(self, listed: Sequence[int]) -> None:
        """Notes ledgers that exist, ascending.  Ids that the store has not given yet were chosen."""
        if self._seen.ledgers.beyond(listed) and not self.is_behind:
            await self.look()  # after the listing, so that whatever was given is below
            if not self.is_behind:
                self._choose(self._seen.ledgers.beyond(listed), self._seen.ledgers)

    async def counted(self, unknown: "array[int]") -> None:
        """While the store is behind: these ledgers are here, and it does not know them.  Their ids were seen, too."""
        self.unknown = unknown
        await self._lock.run(lambda: Deferred.fromCoroutine(self._trust(unknown, self._begun)))

    async def _look(self) -> Progress:
        cluster = (await self._store.cluster()).instance_id
        if cluster != self._cluster:
            raise WrongCluster(f"{self._store.uri} holds cluster {cluster}, but this bookie belongs to {self._cluster}")
        note = note_of(await self._store.read_set_back())
        progress = await self._store.progress()
        # After the next id: who passes over ids notes that before.
        self._skipped = note_of(await self._store.read_set_back())["passed"]
        if self._silent:
            self._silent = False
            self.log.info(
                "{bookie}: the metadata store answers again, after {seconds:.0f} s",
                bookie=self._bookie,
                seconds=self.silent_seconds,
            )
        self._answered_at = self._clock.seconds()
        self._given = position = progress.position
        if len(self._seen.ledgers) != len(position):  # an earlier version wrote one number for all counters
            bound = self._seen.bound.over(len(position)) if any(self._seen.bound) else NOTHING
            self._seen = replace(self._seen, ledgers=self._seen.ledgers.over(len(position)), bound=bound)
        self._doubted = {
            ledger for bookie, ledgers in note["doubts"].items() if bookie != self._bookie for ledger in ledgers
        }
        if self._seen.doubt is not None:
            await self._settle(note, progress)
        seen = self._seen
        if self._new:
            self._new = False
            if note["accepted"]:
                self._seen = seen = replace(seen, note=note["number"])
        if seen.behind is None:
            went_back = (
                progress.changes < seen.changes or not position.covers(seen.ledgers) or note["number"] < seen.note
            )
            if note["number"] > seen.note:
                # an operator who accepted without this bookie spoke for it, too
                went_back = not self._accepts(note, progress)
            if not went_back:
                self._seen = replace(seen, changes=progress.changes, ledgers=position, note=note["number"])
                if not 0 <= self._clock.seconds() - self._saved_at < LOOK_S:
                    await self._save()
                return progress
            await self._fall_behind(note, progress)
        elif note["number"] >= seen.behind > 0 and self._accepts(note, progress):
            self._seen = replace(
                seen,
                changes=progress.changes,
                ledgers=position,
                accepted=seen.accepted + 1,
                note=note["number"],
                behind=None,
                bound=NOTHING,
            )
            self._told_of_bound = False
            await self._save()
            self.unknown = None
            self.log.warn(
                "{bookie}: an operator has accepted that {store} was set back; what it lacks may go",
                bookie=self._bookie,
                store=self._store.uri,
            )
        else:
            self._seen = replace(seen, ledgers=seen.ledgers.joined(position))
            await self._join(note)
        return progress

    def _accepts(self, note: dict[str, Any], progress: Progress) -> bool:
        """True if an operator has accepted the store as it is, and it goes on above every id that was seen here."""
        return bool(note["accepted"]) and progress.position.covers(self._seen.ledgers)

    # -- a doubt

    async def _settle(self, note: dict[str, Any], progress: Progress) -> None:
        """Ends the doubt where an operator or another bookie has decided; else says it, and passes over its ids."""
        assert self._seen.doubt is not None
        cleared = self._seen.doubt[2]
        if 0 <= cleared < note["cleared"]:
            strangers = tuple(sorted({*self._seen.strangers, *self._own_doubts}))
            self._seen = replace(self._seen, doubt=None, bound=NOTHING, strangers=strangers)
            await self._save()
            self.unknown, self._own_doubts, self._passed, self._told_of_bound = None, set(), NOTHING, False
            self.log.warn(
                "{bookie}: an operator has said that ledgers which {store} never gave are strangers'; they may go",
                bookie=self._bookie,
                store=self._store.uri,
            )
            return
        if cleared < 0 or self._bookie not in note["doubts"]:
            note = await self._say_doubt()
        if self._seen.behind is None and self._own_doubts & self._doubted:
            await self._fall_behind(note, progress)
            return
        if passed := self._given.lacking(self._passed):
            await self._say_doubt(passed)
            await self._store.raise_ledger_ids(self._passed)

    async def _say_doubt(self, passed: Sequence[tuple[int, int]] = ()) -> dict[str, Any]:
        """
        Writes the doubt into the note, and which ids are about to be `passed` over for it; returns the note.  A bookie
        that has a ledger among these, which the store forgot, would take it for deleted.  `MetaStore`.
        """
        assert self._seen.doubt is not None
        for _ in range(SWAPS_MAX):
            old = await self._store.read_set_back()
            note = note_of(old)
            named = sorted(self._own_doubts | set(note["doubts"].get(self._bookie, ())))[:DOUBTS_MAX]
            note["doubts"][self._bookie] = named or [self._seen.doubt[0]]
            if passed:
                note["passed"] = joined([*note["passed"], *passed], PASSED_MAX + len(self._given) - 1)
            new = bytes_of(note)
            if new == old or await self._store.swap_set_back(old, new):
                self._seen = replace(self._seen, doubt=(*self._seen.doubt[:2], note["cleared"]))
                await self._save()
                return note
        raise MetaStore(f"the note of {self._store.uri} was changed {SWAPS_MAX} times meanwhile")

    # -- being behind

    async def _fall_behind(self, note: dict[str, Any], progress: Progress) -> None:
        """The store went back; a doubt that there was is no doubt any more."""
        seen = self._seen
        bound = seen.ledgers.joined(progress.position).plus(RAISED_MAX)
        doubted = set() if seen.doubt is None else {*self._own_doubts, seen.doubt[1] - 1}
        ledgers = seen.ledgers.behind(min(each, bound.next_to(each) - 1) for each in doubted)
        self._seen = replace(seen, behind=0, found=progress, bound=bound, ledgers=ledgers, doubt=None)
        await self._save()
        self.log.critical("{reason}", reason=self.behind)
        await self._join(note)
        self._noticed()

    async def _join(self, note: dict[str, Any]) -> None:
        """Adds this bookie to the note, or begins one.  One accepted by now stays, unless more was seen here."""
        seen = self._seen
        for _ in range(SWAPS_MAX):
            old = await self._store.read_set_back()
            note = note_of(old)
            newer = note["accepted"] and note["number"] >= (seen.behind or seen.note + 1)
            if newer and self._accepts(note, await self._store.progress()):
                break  # an operator did that since the look; the next one takes it up
            if note["accepted"] or note["number"] < max(seen.note, seen.behind or 0):
                number = max(note["number"], seen.note, seen.behind or 0) + 1
                note |= {"number": number, "accepted": False, "ledgers": 0, "bookies": {}}
            note["ledgers"] = plain(position_of(note["ledgers"]).joined(seen.ledgers))
            note["doubts"] = {}  # now all delete nothing
            unknown = None if self.unknown is None else len(self.unknown)
            note["bookies"][self._bookie] = {
                "changes": seen.changes,
                "ledgers": plain(seen.ledgers),
                "unknown": unknown,
            }
            new = bytes_of(note)
            if new == old or await self._store.swap_set_back(old, new):
                break
        else:
            return  # the next look tries again
        if seen.behind != note["number"]:
            self._seen = replace(seen, behind=note["number"])
            await self._save()
        lacking = (await self._store.progress()).position.lacks(seen.ledgers)
        if lacking <= RAISED_MAX:  # also when none are lacking: clients may have some in hand that were drawn before
            await self._store.raise_ledger_ids(seen.ledgers)

    async def _save(self) -> None:
        """Writes down what was seen, if it is not on disk; where the disk is full the next look tries again."""
        seen = self._seen
        self._saved_at = self._clock.seconds()
        if seen != self._saved:
            try:
                await self._storage.aside(write_seen, self._files, list(self._directories()), seen)
            except OSError as failure:
                self.log.error(
                    "how far {store} had come can't be written down: {reason}",
                    store=self._store.uri,
                    reason=str(failure),
                )
            else:
                self._saved = seen


def joined(ranges: Iterable[Sequence[int]], most: int = PASSED_MAX) -> list[list[int]]:
    """Joins ranges of ids that touch, ascending; at most `most` are left, so perhaps with ids between."""
    found: list[list[int]] = []
    for low, high in sorted((each[0], each[1]) for each in ranges):
        if found and low <= found[-1][1]:
            found[-1][1] = max(found[-1][1], high)
        else:
            found.append([low, high])
    while len(found) > most:
        at = min(range(1, len(found)), key=lambda number: found[number][0] - found[number - 1][1])
        found[at - 1][1] = found.pop(at)[1]
    return found
