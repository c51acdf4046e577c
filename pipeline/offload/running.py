"""
A run of an offload: plan, delete what may go, then round by round copy, write down, verify, mark.

Knows: which ledgers it is time for, the order of steps.  Does not know: how a task copies or verifies.

Safety: a ledger is marked only after its copy was read back, through the manifest as it is stored, in other tasks than
those that wrote.  Nothing takes the place of what is written down of another ledger, or by another run meanwhile.
What this run marks it does not delete, nor anything that was marked less than the lag ago.  Before a deletion the copy
is verified again, through the very manifest that was marked; one that is not good loses its mark, so that the ledger is
copied again.  A round that ends anywhere leaves files that no manifest names, or a copy that is not marked; the next
run goes on from there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from quire.metadata.formats import ledger_codec
from quire.pipeline.clients import Cluster
from quire.pipeline.copies.manifest import CopyDamaged, File, Manifest, UnknownFormat, place_of
from quire.pipeline.copies.places import COMING, Place
from quire.pipeline.copies.reading import manifest_of
from quire.pipeline.core.ranges import Extent, grouped
from quire.pipeline.offload import marks
from quire.pipeline.offload.copying import CopyTask, VerifyTask, copy, verify
from quire.pipeline.offload.marks import Subject, check_length, of_ledger, of_ledgers, of_log
from quire.pipeline.offload.requests import OffloadRequest, OffloadResult, Problem, Reached, Spread, nothing

# SPDX-License-Identifier: Apache-2.0


class Taken(Exception):
    """The place of a ledger's copy has another one, or one of an unknown format: nothing may replace it."""


@dataclass(frozen=True)
class OffloadRun:
    """`id`: of this run, random; `cluster`: the instance id of the ledgers' cluster."""

    ours: Cluster
    request: OffloadRequest
    spread: Spread
    now: Callable[[], float]
    reached: Reached
    id: str
    place: Place
    cluster: str
    done: OffloadResult = field(default_factory=OffloadResult)

    @property
    def now_ms(self) -> int:
        """Returns the time in ms since 1970."""
        return int(self.now() * 1000)

    def uri_of(self, ledger: int) -> str:
        """Returns the URI of a ledger's manifest."""
        return self.place.uri_of(place_of(ledger))

    def count(self, subject: Subject) -> None:
        """Counts a ledger as offloaded, or as one that would be."""
        self.done.offloaded.append(subject.ledger)
        self.done.entries += subject.metadata.last_entry + 1
        self.done.bytes += subject.metadata.length

    def written(self, subject: Subject) -> Manifest | None:
        """
        Returns the manifest of this very ledger's copy.  `Taken` when its place is another one's.  What is damaged
        is moved aside, for it may be all there is of another ledger.
        """
        try:
            found = manifest_of(self.place, subject.ledger)
        except UnknownFormat as error:
            raise Taken(
                f"{self.uri_of(subject.ledger)} is {error}: offload by a newer version, or to another place"
            ) from None
        except CopyDamaged:
            self.place.move(place_of(subject.ledger), f"{subject.ledger}/manifest-{self.id}.damaged")
            return None
        if found is not None and not found.is_of(self.cluster, subject.metadata):
            raise Taken(
                f"{self.uri_of(subject.ledger)} is the copy of another ledger that had the number {subject.ledger}: "
                "offload to another place, or move that copy away"
            )
        return found

    def write_down(self, manifest: Manifest) -> None:
        """Stores the manifest of a ledger's copy."""
        self.place.put(place_of(manifest.ledger), manifest.encode(), self.reached)
        self.reached("manifest.named")

    def sweep(self, ledger: int) -> None:
        """Removes what a killed task left half-written.  Whole files stay: another run may be about to name them."""
        for file in self.place.files(str(ledger)):
            if file.name.startswith(COMING) and self.now() - file.at_s >= self.request.deletion_lag_s:
                self.place.remove(f"{ledger}/{file.name}")


def problems_of(run: OffloadRun, manifests: Iterable[Manifest]) -> list[Problem]:
    """Lists what is wrong with these copies; tasks in another order, so that most run in another process than wrote."""
    tasks = list(tasks_of(run, manifests))
    return [problem for problems in run.spread(verify, [*tasks[1:], *tasks[:1]]) for problem in problems]


def tasks_of(run: OffloadRun, manifests: Iterable[Manifest]) -> Iterator[VerifyTask]:
    """Divides verification into tasks of about as many bytes as a task copies."""
    files: list[tuple[int, str | None]] = []
    room = run.request.split_bytes
    for manifest in manifests:
        for file in manifest.files or (None,):
            files.append((manifest.ledger, None if file is None else file.name))
            room -= 4096 + (0 if file is None else file.bytes)
            if room <= 0:
                yield VerifyTask(run.request.to, tuple(files))
                files, room = [], run.request.split_bytes
    if files:
        yield VerifyTask(run.request.to, tuple(files))


def delete(run: OffloadRun, subjects: Sequence[marks.Subject]) -> None:
    """Deletes those marked ledgers whose copies are good."""
    good: dict[int, Manifest] = {}
    for subject in subjects:
        try:
            good[subject.ledger] = marked(run, subject)
        except CopyDamaged as error:
            run.done.problems.append(Problem(subject.ledger, str(error)))
    wrong = problems_of(run, good.values())
    run.done.problems += wrong
    for problem in wrong:
        good.pop(problem.ledger, None)
    run.reached("verified again")
    for subject in subjects:
        if subject.ledger in good:
            delete_one(run, subject)
        else:
            unmark(run, subject)
    log = run.request.log
    if log is not None and run.done.deleted:
        run.ours.wait(lambda: run.ours.logs.tidy(log))
        run.reached("tidied")


def marked(run: OffloadRun, subject: marks.Subject) -> Manifest:
    """The manifest that the mark means.  `CopyDamaged` when it is another one by now."""
    assert subject.mark is not None, "only what is offloaded is deleted"
    found = manifest_of(run.place, subject.ledger)
    if found is None or found.sum != subject.mark.get("sum"):
        raise CopyDamaged(f"{run.uri_of(subject.ledger)} is not the manifest that was marked")
    if not found.is_of(run.cluster, subject.metadata):
        raise CopyDamaged(f"{run.uri_of(subject.ledger)} is of another ledger with the number {subject.ledger}")
    return found


def delete_one(run: OffloadRun, subject: marks.Subject) -> None:
    """Deletes one ledger if mark and manifest are unchanged, for verifying the others took time."""
    try:
        marked(run, subject)
        run.ours.wait(lambda: marks.delete(run.ours, run.request.log, subject, of_ledger, run.reached))
    except marks.MarkMoved as error:
        run.done.leave(f"not deleted: {error}")
        return
    except CopyDamaged as error:
        run.done.problems.append(Problem(subject.ledger, str(error)))
        return
    run.done.deleted.append(subject.ledger)


def unmark(run: OffloadRun, subject: marks.Subject) -> None:
    """Takes the mark off, unless it says that bookies have lost the ledger already."""
    assert subject.mark is not None, "it is marked"
    if subject.mark.get("bookies") == "kept":
        try:
            run.ours.wait(lambda: marks.put(run.ours, run.request.log, subject, None))
        except marks.MarkMoved as error:
            run.done.leave(f"still marked: {error}")


TASKS_MAX = 10_000


def round_of(run: OffloadRun, subjects: Sequence[marks.Subject]) -> None:
    """Offloads some ledgers; what an earlier run copied is only verified, and copied again if it is not good."""
    before = written(run, subjects)
    there = {ledger: found for ledger, found in before.items() if found is not None}
    for problem in problems_of(run, there.values()):
        there.pop(problem.ledger, None)
    made = copied(run, [each for each in subjects if each.ledger in before and each.ledger not in there], before)
    wrong = problems_of(run, made.values())
    for problem in wrong:
        made.pop(problem.ledger, None)
    run.done.problems += wrong
    run.reached("verified")
    for subject in subjects:
        manifest = there.get(subject.ledger) or made.get(subject.ledger)
        if manifest is not None:
            mark(run, subject, manifest)


def written(run: OffloadRun, subjects: Sequence[marks.Subject]) -> dict[int, Manifest | None]:
    """Reads each ledger's manifest; those whose place another ledger has are problems."""
    found = {}
    for subject in subjects:
        try:
            found[subject.ledger] = run.written(subject)
        except Taken as error:
            run.done.problems.append(Problem(subject.ledger, str(error)))
    return found


def copied(
    run: OffloadRun, subjects: Sequence[marks.Subject], before: Mapping[int, Manifest | None]
) -> dict[int, Manifest]:
    """Copies ledgers and writes each one's manifest; failures are problems.  `before`: what there was of each."""
    request = run.request
    extents = [Extent(each.ledger, 0, each.metadata.last_entry, each.metadata.length) for each in subjects]
    groups = grouped(extents, request.split_bytes, TASKS_MAX)
    tasks = [CopyTask(request.metadata, request.to, tuple(group)) for group in groups]
    files: dict[int, list[File]] = {}
    failed: set[int] = set()
    for each in run.spread(partial(copy, reached=run.reached), tasks):
        for wanted, made in each:
            if isinstance(made, Problem):
                failed.add(wanted.ledger)
                run.done.problems.append(made)
            else:
                files.setdefault(wanted.ledger, []).append(made)
    run.reached("copied")
    manifests = {}
    for subject in (each for each in subjects if each.ledger not in failed):
        now = written(run, [subject])
        if subject.ledger not in now:
            continue
        found = now[subject.ledger]
        if found is None or found == before[subject.ledger]:
            found = manifest_for(run, subject, files.get(subject.ledger, []))
            run.write_down(found)
        manifests[subject.ledger] = found
    return manifests


def manifest_for(run: OffloadRun, subject: marks.Subject, files: Sequence[File]) -> Manifest:
    """Makes the manifest of a ledger that is copied."""
    ordered = tuple(sorted(files, key=lambda file: file.first))
    return Manifest(run.cluster, subject.ledger, run.id, run.now_ms, ledger_codec.encode(subject.metadata), ordered)


def mark(run: OffloadRun, subject: marks.Subject, manifest: Manifest) -> None:
    """Marks a ledger: it is offloaded from now on."""
    value = marks.complete(run.id, run.uri_of(subject.ledger), manifest.sum, run.now_ms)
    try:
        run.ours.wait(lambda: marks.put(run.ours, run.request.log, subject, value))
    except marks.MarkMoved as error:
        run.done.leave(f"not marked: {error}")
        return
    run.reached("marked")
    run.sweep(subject.ledger)
    run.count(subject)
    run.done.waiting.append(subject.ledger)


CLUSTER = "cluster"  # the file that says whose copies these are
LEDGERS_MAX = 1_000  # of a round


class WrongPlace(ValueError):
    """The place has copies of another cluster."""


class Plan(NamedTuple):
    """`copy`: not offloaded yet; `delete`: offloaded long enough ago."""

    copy: list[Subject]
    delete: list[Subject]


def offload(
    ours: Cluster, request: OffloadRequest, spread: Spread, now: Callable[[], float], reached: Reached = nothing
) -> OffloadResult:
    """
    Runs an offload.  `reached(step)` is called right after each step that a test may want to end the process at.
    `NoSuchLog`, `MetaStore`, `OSError`, `ValueError`; what is wrong with single ledgers is in `problems`.
    """
    place = Place(request.to)
    cluster = ours.wait(ours.client.store.cluster).instance_id
    claim(place, cluster, request)
    run = OffloadRun(ours, request, spread, now, reached, ours.new_id(), place, cluster)
    plan = ours.wait(lambda: planned(run))
    if request.log is not None and plan.copy:
        check_length(run.id, run.uri_of(max(subject.ledger for subject in plan.copy)), run.now_ms)
    if request.dry_run:
        for subject in plan.copy:
            run.count(subject)
    if request.delete and not request.dry_run:
        delete(run, plan.delete)
    else:
        into = run.done.deleted if request.delete else run.done.waiting
        into += [subject.ledger for subject in plan.delete]
    for some in () if request.dry_run else rounds(plan.copy, request.round_bytes):
        round_of(run, some)
    return run.done


def claim(place: Place, cluster: str, request: OffloadRequest) -> None:
    """Claims the place for this cluster; an empty file is of a run that was killed.  `WrongPlace`."""
    found = place.read(CLUSTER)
    if not found and not request.dry_run:
        place.put(CLUSTER, cluster.encode(), nothing)
    if found and found != cluster.encode():
        raise WrongPlace(f"{request.to} has copies of another cluster: give each cluster a place of its own")


async def planned(run: OffloadRun) -> Plan:
    """Plans the run; what is left alone is counted.  `NoSuchLog`."""
    plan, request = Plan([], []), run.request
    found = of_ledgers(run.ours, request, run.done) if request.log is None else of_log(run.ours, request.log, run.done)
    async for subject in found:
        sort(run, subject, plan)
    return plan


def sort(run: OffloadRun, subject: Subject, plan: Plan) -> None:
    """Puts a ledger into the plan, or aside."""
    mark, request, now_ms = subject.mark, run.request, run.now_ms
    if mark is None or mark.get("state") != "complete":
        if now_ms - subject.at_ms < request.older_than_s * 1000:
            run.done.leave("too young")
        elif subject.metadata.digest is None:
            run.done.leave("metadata without a digest (format 1)")
        else:
            plan.copy.append(subject)
    elif mark.get("uri") != run.uri_of(subject.ledger):
        run.done.leave("offloaded to another place")
    elif type(at := mark.get("at")) is not int:  # any client may have written it
        run.done.leave("marked in a way that is not understood")
    elif mark.get("id") != run.id and now_ms - at >= request.deletion_lag_s * 1000:
        plan.delete.append(subject)
    else:
        run.done.waiting.append(subject.ledger)


def rounds(subjects: Iterable[Subject], bytes_max: int) -> Iterator[list[Subject]]:
    """Divides ledgers into lists of about so many bytes."""
    some: list[Subject] = []
    room = bytes_max
    for subject in subjects:
        some.append(subject)
        room -= subject.metadata.length
        if room <= 0 or len(some) == LEDGERS_MAX:
            yield some
            some, room = [], bytes_max
    if some:
        yield some
