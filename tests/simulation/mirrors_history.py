"""
A history of one log in two clusters: an owner appends in the one, mirrors copy it to the other; it goes over and back,
is promoted by hand and failed back to, while bookies, stores, owners and mirrors of both sides fail and are killed.

While the plan runs anything may fail, and each record that both sides have stored is the same, at the same index, but
behind a promotion by hand; only after one may both take appends.  Then every fault ends: what was begun is ended, the
one log is a copy of the other, to the last record, and nothing that was acknowledged is missing; or the logs have
parted, and that is refused, with the indexes.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogFenced, MirrorDiverged
from tests.simulation.history import QUIET_SECONDS
from tests.simulation.log_history import NAME, LogHistory
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.log_records import Change
from tests.simulation.log_truth import LogTruth
from tests.simulation.nodes import World
from tests.simulation.plan import Plan
from tests.simulation.timeline import Timeline
from tests.simulation.truth import Violation

FAR = 500_000_000  # between the seeds of both sides
MIRRORS_MAX = 3
EVER = 1 << 60
FOLLOW_S = 0.6
OF_OWNERS = {"append", "append_large", "own", "force", "roll", "crash_owner", "expire", "read"}


class RegionProcess(LogProcess):
    """A process's part in one cluster; `partner`: its part in the other one, which dies with it."""

    partner: "RegionProcess | None" = None

    def crash(self) -> None:
        super().crash()
        if self.partner is not None and self.partner.alive:
            self.partner.crash()


class RegionTruth(LogTruth):
    """What really happened to the log of one side."""

    def __init__(self, world: World, region: "Region") -> None:
        self.region = region
        super().__init__(world)

    @property
    def origin(self) -> Any:
        """The log that it is a copy of; None: of none."""
        origins = [] if self.manifest is None else self.manifest.get("origins") or []
        return origins[-1] if origins and origins[-1].get("end") is None else None

    @property
    def is_home(self) -> bool:
        """True if it takes appends."""
        return self.manifest is not None and self.origin is None

    def changed(self, changes: list[Change]) -> None:
        was_home, was = self.is_home, self.manifest
        super().changed(changes)
        if self.manifest is not was:
            self.region.turned(was_home)


class Region(LogHistory):
    """One of the two clusters; `other` is the other one."""

    process_class = RegionProcess
    other: "Region"
    both: "MirrorHistory"

    def _made_truth(self) -> LogTruth:
        self.region_truth = RegionTruth(self.world, self)
        return self.region_truth

    def turned(self, was_home: bool) -> None:
        """Its manifest has changed."""
        truth, theirs = self.region_truth, self.other.region_truth
        if truth.is_home and not was_home and (theirs.is_home or self._is_behind(theirs)):
            self.both.parted(self)
        elif was_home and not truth.is_home:
            self.both.turned(self)

    def _is_behind(self, theirs: RegionTruth) -> bool:
        """True if it was promoted by hand while the log was going over to it, and had not come with all its records."""
        manifest = self.region_truth.manifest
        end = manifest["origins"][-1]["end"] if manifest is not None and manifest.get("origins") else EVER
        return self.both.by_hand and any(index >= end for index in theirs.archive)

    def step(self, kind: str, rng: Random) -> None:
        self._drawn = rng
        self._do(kind)

    def begin_cluster(self) -> None:
        self._begin_cluster()

    def calm(self) -> None:
        self.doom, self.trap, self.is_quiet = None, None, True
        self._calm()

    def check(self) -> None:
        super()._check()

    def _do_own(self, rng: Random) -> None:
        if self.region_truth.manifest is not None:
            super()._do_own(rng)

    def _do_force(self, rng: Random) -> None:
        if self.region_truth.manifest is not None:
            super()._do_force(rng)

    def _do_read(self, rng: Random) -> None:
        if self.region_truth.manifest is not None:
            super()._do_read(rng)

    def leave_all(self) -> None:
        """All handles are closed."""
        for handle in self.handles:
            if handle.process.alive and not handle.over and not handle.closing:
                self.close(handle, self.leave(handle))

    def owned(self, count: int) -> None:
        """Its log is owned, so many records are appended, and what an owner left open is closed."""
        handle = self.take_over(self.new_process(), force=False)
        if count:
            self.append(handle, handle.values(Random(self.plan.seed), count, 20))
            self.until("an append hangs, and nothing fails", lambda: handle.appends[-1][1].over)
        self.close(handle, self.leave(handle))
        self.until("a close hangs", lambda: handle.closing[-1].over)

    @property
    def has_left(self) -> bool:
        return all(job.over for each in self.handles for job in each.closing)

    def values(self) -> Sequence[bytes]:
        """What a fresh reader is given of it."""
        reading = self.read(self.new_process(), "begin", follow=False)
        self.until("the last reader hangs", lambda: reading.over)
        assert reading.job is not None
        if reading.job.error is not None:
            raise Violation("ends", f"the log can't be read to its end: {reading.job.error!r}")
        return reading.values


class East(Region):
    """Where the log is copied to at first."""

    prefix, first = "e-", 1000


class MirrorHistory(Region):
    """The cluster in which the log is made, and with it the whole history."""

    prefix = "w-"

    def __init__(self, plan: Plan, trace: bool = False, timeline: Timeline | None = None) -> None:
        super().__init__(plan, trace, timeline)
        self.both, self.common = self, EVER  # below which index both sides have the same
        self.by_hand = False  # a copy was promoted, or somebody tried to
        self.promoted: Region = self  # the side that was last, while they have parted
        self.fenced: Region = self  # the side that became a copy last
        self.mirrors: list[Job] = []
        self.pairs: list[tuple[RegionProcess, RegionProcess]] = []
        self.compared = (0, 0)
        self.other = East(replace(plan, seed=plan.seed + FAR), trace, self.world.timeline)
        self.other.other = self.other.both = self
        self.other.world.trace = self.world.trace
        self.other.log_truth.given = self.log_truth.given
        self.other.log_truth.denied = self.log_truth.denied

    @property
    def sides(self) -> tuple[Region, Region]:
        return self, self.other

    def parted(self, side: Region) -> None:
        """Both sides take appends, this one since now; or it does, and the other one has records that it lacks."""
        if not self.by_hand:
            self.truth.break_("one log", f"both sides take appends, and nobody promoted a copy: {side.prefix}")
        assert side.region_truth.manifest is not None
        self.common = min(self.common, side.region_truth.manifest["origins"][-1]["end"])
        self.promoted = side
        self.seen["both logs take appends"] += 1

    def turned(self, was_home: bool | Region) -> None:
        if isinstance(was_home, bool):
            super().turned(was_home)
            return
        self.fenced = was_home
        self.seen["log became a copy"] += 1
        if not any(index >= self.common for index in was_home.log_truth.archive):  # nor has it more than the other one
            self.common = EVER

    def _check(self) -> None:
        super()._check()
        self.other.check()
        self._compare()

    def _compare(self) -> None:
        one, other = self.log_truth.archive, self.other.log_truth.archive
        if self.compared != (len(one), len(other)):
            self.compared = len(one), len(other)
            for index in one.keys() & other.keys():
                if index < self.common and one[index] != other[index]:
                    text = f"index {index} is {one[index][:40]!r} in the west, {other[index][:40]!r} in the east"
                    raise Violation("same", text)

    def _begin(self) -> None:
        self.other.begin_cluster()
        super()._begin()

    def _do(self, kind: str) -> None:
        rng = self._drawn
        if kind.startswith("mirror"):
            getattr(self, f"_do_{kind}")(rng)
            return
        home = next((side for side in self.sides if side.region_truth.is_home), self)
        side = home if kind in OF_OWNERS and rng.random() < 0.85 else rng.choice(self.sides)
        if side is self:
            super()._do(kind)
        else:
            side.step(kind, rng)

    # Mirrors

    def pair(self) -> dict[Region, RegionProcess]:
        """One process that has both clusters."""
        west, east = self.new_process(), self.other.new_process()
        assert isinstance(west, RegionProcess)
        assert isinstance(east, RegionProcess)
        west.partner, east.partner = east, west
        self.pairs.append((west, east))
        return {self: west, self.other: east}

    def _ask(self, work: str, rng: Random, fail_back: bool = False) -> None:
        """A mirror of the log that takes appends, or of the one that was fenced last."""
        if sum(not job.over for job in self.mirrors) >= MIRRORS_MAX:
            return
        homes = [side for side in self.sides if side.region_truth.is_home]
        source = rng.choice(homes) if homes else self.fenced
        pair = self.pair()
        for side in self.sides:
            side.let_fail(pair[side])
        copy, story = source.other, self._worked(work, pair, source, fail_back)

        def told(job: Job) -> None:
            self.world.tell(f"{work} from {source.prefix} to {copy.prefix}: {job.value} {job.error!r}")
            self.seen[f"{work}: {type(job.error).__name__ if job.error else 'done'}"] += 1
            if isinstance(job.error, MirrorDiverged) and not self.by_hand:
                self.truth.break_("same", f"nobody promoted a copy: {job.error!r}")
            if not isinstance(job.error, ValueError):
                self.check_error(job, work)

        self.mirrors.append(pair[copy].ask(story, told))

    async def _worked(
        self, work: str, pair: dict[Region, RegionProcess], source: Region, fail_back: bool
    ) -> int | None:
        mirror = Mirror(pair[source].logs, NAME, pair[source.other].logs, NAME, fail_back=fail_back)
        if work == "switch" and (index := await mirror.switched()) is not None:
            return index
        try:
            if work == "mirror":
                await mirror.follow(FOLLOW_S)
                return None
            await mirror.begin(wait_s=5.0)
            end = await mirror.copy_until()
            return await mirror.switch() if work == "switch" else end
        finally:
            await mirror.close()

    def _do_mirror(self, rng: Random) -> None:
        self._ask("mirror", rng)

    def _do_mirror_back(self, rng: Random) -> None:
        self._ask("mirror", rng, fail_back=True)

    def _do_mirror_switch(self, rng: Random) -> None:
        self._ask("switch", rng)

    def _do_mirror_crash(self, rng: Random) -> None:
        living = [west for west, _east in self.pairs if west.alive]
        if living:
            rng.choice(living).crash()
            self.seen["mirror crashed"] += 1

    def _do_mirror_crash_at(self, rng: Random) -> None:
        side = rng.choice(self.sides)
        side.doom = rng.choice(self.plan.profile.points), rng.randint(1, 3)

    def _do_mirror_promote(self, rng: Random) -> None:
        copies = [side for side in self.sides if side.region_truth.origin is not None]
        if copies and rng.random() < 0.5:
            side, self.by_hand = rng.choice(copies), True
            process = side.new_process()
            side.let_fail(process)
            self.mirrors.append(process.ask(promote(process.logs, NAME), lambda job: self.check_error(job, "promote")))

    # Quiet, and the reckoning

    def _end(self) -> None:
        for side in self.sides:
            side.calm()
        self.until(
            "a mirror or an append hangs",
            lambda: (
                all(job.over for job in self.mirrors)
                and all(job.over for side in self.sides for each in side.handles for _values, job in each.appends)
            ),
        )
        for side in self.sides:
            side.leave_all()
        self.until("a close hangs", lambda: all(side.has_left for side in self.sides))
        if not any(side.region_truth.is_home for side in self.sides):  # a way over was begun, and is ended
            self._mirrored(self.fenced, "switch")
        for side in self.sides:
            if side.region_truth.is_home:
                side.owned(0)
        if self.common < EVER:
            self._refused(self.promoted)
        else:
            self._over_and_back(next(side for side in self.sides if side.region_truth.is_home))

    def _mirrored(self, source: Region, work: str, fail_back: bool = False) -> Any:
        pair = self.pair()
        job = pair[source.other].ask(self._worked(work, pair, source, fail_back))
        self.until(f"the last {work} hangs", lambda: job.over)
        if job.error is not None and not fail_back:
            raise Violation("ends", f"faults are over, and a {work} fails: {job.error!r}")
        return job.value if job.error is None else job.error

    def _over_and_back(self, home: Region) -> None:
        """The log is copied, goes over, takes appends there, and is copied back."""
        self._mirrored(home, "copy")
        self._same()
        self._mirrored(home, "switch")
        if home.region_truth.is_home or not home.other.region_truth.is_home:
            raise Violation("ends", "the log went over, and does not take appends where it is")
        home.other.owned(3)
        self._mirrored(home.other, "copy")
        self.let_pass(QUIET_SECONDS)
        self._same()
        self.seen["went over and back"] += 1

    def _same(self) -> None:
        """Both sides have the same records, among them all that was acknowledged on either."""
        values = [side.values() for side in self.sides]
        if values[0] != values[1]:
            at = next((n for n, (a, b) in enumerate(zip(*values, strict=False)) if a != b), min(map(len, values)))
            raise Violation(
                "same", f"the sides have {len(values[0])} and {len(values[1])} records, not the same at {at}"
            )
        self._hold(self.sides, values[0], EVER)
        for side, found in zip(self.sides, values, strict=True):
            side.log_truth.reckon(found)

    def _hold(self, sides: Sequence[Region], values: Sequence[bytes], below: int) -> None:
        for side in sides:
            for index, value in side.log_truth.acked.items():
                if index < below and (index >= len(values) or values[index] != value):
                    raise Violation("acknowledged", f"{value!r} was acknowledged at {index}, and is not there")

    def _refused(self, source: Region) -> None:
        """A log that has records of its own can't become a copy, and the error names them; one that has none can."""
        copy, begin = source.other, self.common
        end = len(copy.values())
        found = self._mirrored(source, "copy", fail_back=True)
        self._hold([source], source.values(), EVER)
        self._hold([copy], source.values(), begin)
        if isinstance(found, MirrorDiverged):
            if (found.first, found.end) != (begin, end):
                raise Violation("refused", f"{found!r} names {found.first} to {found.end}, it is {begin} to {end}")
            self._hold([copy], copy.values(), EVER)
            self.seen["divergence refused"] += 1
        elif isinstance(found, LogFenced):  # it was promoted at that very index: a mirror does not undo that
            self._hold([copy], copy.values(), EVER)
            self.seen["promoted, and no copy again"] += 1
        elif end > begin:
            raise Violation("refused", f"records {begin} to {end - 1} are in one log alone, and it became {found!r}")
        elif isinstance(found, LedgerError | ValueError):
            raise Violation("ends", f"a log without records of its own can't become a copy: {found!r}")
        else:
            self.seen["failed back"] += 1
            self._same()
