"""
Bookies lose what an earlier run has offloaded.

Knows: what has to hold before.  Does not know: which ledgers it is time for.

Safety: the copy is verified again, through the very manifest that was marked; one that is not good loses its mark, so
that the ledger is copied anew.
"""

from collections.abc import Sequence

from quire.pipeline.copies.manifest import CopyDamaged, Manifest
from quire.pipeline.copies.reading import manifest_of
from quire.pipeline.offload import marks
from quire.pipeline.offload.looking import of_ledger
from quire.pipeline.offload.runs import Run
from quire.pipeline.offload.verifying import problems_of
from quire.pipeline.offload.wishes import Problem

# SPDX-License-Identifier: Apache-2.0


def delete(run: Run, subjects: Sequence[marks.Subject]) -> None:
    """Of marked ledgers those whose copies are good."""
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
    log = run.wish.log
    if log is not None and run.done.deleted:
        run.ours.wait(lambda: run.ours.logs.tidy(log))
        run.reached("tidied")


def marked(run: Run, subject: marks.Subject) -> Manifest:
    """The manifest that the mark means.  `CopyDamaged` when it is another one by now."""
    assert subject.mark is not None, "only what is offloaded is deleted"
    found = manifest_of(run.place, subject.ledger)
    if found is None or found.sum != subject.mark.get("sum"):
        raise CopyDamaged(f"{run.uri_of(subject.ledger)} is not the manifest that was marked")
    if not found.is_of(run.cluster, subject.metadata):
        raise CopyDamaged(f"{run.uri_of(subject.ledger)} is of another ledger with the number {subject.ledger}")
    return found


def delete_one(run: Run, subject: marks.Subject) -> None:
    """Unless its mark or what is written down has changed meanwhile: others took their time to be verified."""
    try:
        marked(run, subject)
        run.ours.wait(lambda: marks.delete(run.ours, run.wish.log, subject, of_ledger, run.reached))
    except marks.MarkMoved as error:
        run.done.leave(f"not deleted: {error}")
        return
    except CopyDamaged as error:
        run.done.problems.append(Problem(subject.ledger, str(error)))
        return
    run.done.deleted.append(subject.ledger)


def unmark(run: Run, subject: marks.Subject) -> None:
    """Unless bookies have lost it already, as far as its mark says."""
    assert subject.mark is not None, "it is marked"
    if subject.mark.get("bookies") == "kept":
        try:
            run.ours.wait(lambda: marks.put(run.ours, run.wish.log, subject, None))
        except marks.MarkMoved as error:
            run.done.leave(f"still marked: {error}")
