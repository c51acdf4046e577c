"""
One round of a run: some ledgers copied, written down, verified, marked.

Knows: the order of these steps.  Does not know: how one is done, which ledgers.

Safety: a ledger is marked only after its copy was read back, through the manifest as it is stored, in other tasks than
those that wrote.  Nothing takes the place of what is written down of another ledger, or by another run meanwhile.  A
round that ends anywhere leaves files that no manifest names, or a copy that is not marked; the next run goes on from
there.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from quire.metadata.formats import ledger_codec
from quire.pipeline.copies.manifest import File, Manifest
from quire.pipeline.core.ranges import Extent, grouped
from quire.pipeline.offload import marks
from quire.pipeline.offload.copying import CopyTask, copy
from quire.pipeline.offload.runs import Run, Taken
from quire.pipeline.offload.verifying import problems_of
from quire.pipeline.offload.wishes import Problem

# SPDX-License-Identifier: Apache-2.0

TASKS_MAX = 10_000


def round_of(run: Run, subjects: Sequence[marks.Subject]) -> None:
    """What an earlier run has copied is only verified, and copied again if it is not good."""
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


def written(run: Run, subjects: Sequence[marks.Subject]) -> dict[int, Manifest | None]:
    """What there is of each, by ledger; those whose place another ledger has are problems."""
    found = {}
    for subject in subjects:
        try:
            found[subject.ledger] = run.written(subject)
        except Taken as error:
            run.done.problems.append(Problem(subject.ledger, str(error)))
    return found


def copied(run: Run, subjects: Sequence[marks.Subject], before: Mapping[int, Manifest | None]) -> dict[int, Manifest]:
    """By ledger, written down; those that could not be copied are problems.  `before`: what there was of each."""
    wish = run.wish
    extents = [Extent(each.ledger, 0, each.metadata.last_entry, each.metadata.length) for each in subjects]
    groups = grouped(extents, wish.split_bytes, TASKS_MAX)
    tasks = [CopyTask(wish.metadata, wish.to, tuple(group)) for group in groups]
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
            found = manifest_of(run, subject, files.get(subject.ledger, []))
            run.write_down(found)
        manifests[subject.ledger] = found
    return manifests


def manifest_of(run: Run, subject: marks.Subject, files: Sequence[File]) -> Manifest:
    """Of a ledger that is copied."""
    ordered = tuple(sorted(files, key=lambda file: file.first))
    return Manifest(run.cluster, subject.ledger, run.id, run.now_ms, ledger_codec.encode(subject.metadata), ordered)


def mark(run: Run, subject: marks.Subject, manifest: Manifest) -> None:
    """It is offloaded from now on."""
    value = marks.complete(run.id, run.uri_of(subject.ledger), manifest.sum, run.now_ms)
    try:
        run.ours.wait(lambda: marks.put(run.ours, run.wish.log, subject, value))
    except marks.MarkMoved as error:
        run.done.leave(f"not marked: {error}")
        return
    run.reached("marked")
    run.sweep(subject.ledger)
    run.count(subject)
    run.done.waiting.append(subject.ledger)
