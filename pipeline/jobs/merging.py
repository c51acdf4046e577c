"""
Small segments of a log merged by the tasks of a Spark job: each run of them in a task, which swaps it in by itself.

Knows: that the driver plans, and keeps others from merging the log meanwhile; what a task says of its run.
Does not know: which segments make a run, how one is merged (`log.upkeep.merging`).

Safety: nothing depends on which tasks run, how often and where: a run that was merged before, or whose segments changed
meanwhile, is left as it is.
"""

from dataclasses import dataclass
from functools import partial

from quire.log.api import Merged, Merging, Run
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.offload.requests import Spread

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class MergeTask:
    """One run of a log's segments, and how fast it may be written: bytes a second, -1 for any."""

    metadata: str
    log: str
    run: Run
    rate: int


def merge(
    ours: Cluster,
    log: str,
    spread: Spread,
    *,
    to_bytes: int | None = None,
    run_min: int,
    rate: int = -1,
    dry_run: bool = False,
) -> Merging:
    """
    As `Logs.merge`, with each run in a task, to which `rate` is given.  Errors as that, and of the tasks.
    """
    done = Merging()
    for each in ours.wait(partial(ours.logs.partitions, log)):
        merges, limits = ours.wait(partial(ours.logs.merging, each, to_bytes, run_min, rate))
        if dry_run:
            ours.wait(partial(merges.plan, limits, done))
            continue
        ours.wait(merges.begin)
        try:
            runs = ours.wait(partial(merges.plan, limits, done))
            for made in spread(merged, [MergeTask(ours.uri, each, run, rate) for run in runs]):
                if isinstance(made, Merged):
                    done.merged.append(made)
                else:
                    done.left.append(made)
        finally:
            ours.wait(merges.end)
    return done


def merged(task: MergeTask) -> Merged | str:
    """Merges one run; or why not."""
    ours = cluster(task.metadata)
    merges, _limits = ours.wait(partial(ours.logs.merging, task.log, rate=task.rate))
    return ours.wait(partial(merges.merge, task.run))
