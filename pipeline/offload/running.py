"""
A run of an offload: plan, delete what may go, then round by round what is to be copied.

Knows: which ledgers it is time for.  Does not know: how a step is done.

Safety: what this run marks it does not delete, nor anything that was marked less than the lag ago.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from quire.pipeline.clients import Cluster
from quire.pipeline.copies.places import Place
from quire.pipeline.offload.deleting import delete
from quire.pipeline.offload.looking import of_ledgers, of_log
from quire.pipeline.offload.marks import Subject, check_length
from quire.pipeline.offload.rounds import round_of
from quire.pipeline.offload.runs import Run
from quire.pipeline.offload.wishes import Done, Reached, Spread, Wish, nothing

# SPDX-License-Identifier: Apache-2.0

CLUSTER = "cluster"  # the file that says whose copies these are
LEDGERS_MAX = 1_000  # of a round


class WrongPlace(ValueError):
    """The place has copies of another cluster."""


class Plan(NamedTuple):
    """`copy`: not offloaded yet; `delete`: offloaded long enough ago."""

    copy: list[Subject]
    delete: list[Subject]


def offload(ours: Cluster, wish: Wish, spread: Spread, now: Callable[[], float], reached: Reached = nothing) -> Done:
    """
    One run.  `reached(step)` is called right after each step that a test may want to end the process at.  `NoSuchLog`,
    `MetaStore`, `OSError`, `ValueError`; what is wrong with single ledgers is in `problems`.
    """
    place = Place(wish.to)
    cluster = ours.wait(ours.client.store.cluster).instance_id
    claim(place, cluster, wish)
    run = Run(ours, wish, spread, now, reached, ours.new_id(), place, cluster)
    plan = ours.wait(lambda: planned(run))
    if wish.log is not None and plan.copy:
        check_length(run.id, run.uri_of(max(subject.ledger for subject in plan.copy)), run.now_ms)
    if wish.dry_run:
        for subject in plan.copy:
            run.count(subject)
    if wish.delete and not wish.dry_run:
        delete(run, plan.delete)
    else:
        into = run.done.deleted if wish.delete else run.done.waiting
        into += [subject.ledger for subject in plan.delete]
    for some in () if wish.dry_run else rounds(plan.copy, wish.round_bytes):
        round_of(run, some)
    return run.done


def claim(place: Place, cluster: str, wish: Wish) -> None:
    """
    The place is this cluster's from now on; an empty file is of a run that was killed, where files show before they are
    whole.  `WrongPlace`.
    """
    found = place.read(CLUSTER)
    if not found and not wish.dry_run:
        place.put(CLUSTER, cluster.encode(), nothing)
    if found and found != cluster.encode():
        raise WrongPlace(f"{wish.to} has copies of another cluster: give each cluster a place of its own")


async def planned(run: Run) -> Plan:
    """What is left alone is counted.  `NoSuchLog`."""
    plan, wish = Plan([], []), run.wish
    found = of_ledgers(run.ours, wish, run.done) if wish.log is None else of_log(run.ours, wish.log, run.done)
    async for subject in found:
        sort(run, subject, plan)
    return plan


def sort(run: Run, subject: Subject, plan: Plan) -> None:
    """Into the plan, or aside."""
    mark, wish, now_ms = subject.mark, run.wish, run.now_ms
    if mark is None or mark.get("state") != "complete":
        if now_ms - subject.at_ms < wish.older_than_s * 1000:
            run.done.leave("too young")
        elif subject.metadata.digest is None:
            run.done.leave("metadata without a digest (format 1)")
        else:
            plan.copy.append(subject)
    elif mark.get("uri") != run.uri_of(subject.ledger):
        run.done.leave("offloaded to another place")
    elif type(at := mark.get("at")) is not int:  # any client may have written it
        run.done.leave("marked in a way that is not understood")
    elif mark.get("id") != run.id and now_ms - at >= wish.deletion_lag_s * 1000:
        plan.delete.append(subject)
    else:
        run.done.waiting.append(subject.ledger)


def rounds(subjects: Iterable[Subject], bytes_max: int) -> Iterator[list[Subject]]:
    """In lists of about so many bytes."""
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
