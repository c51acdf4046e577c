"""
Work of a Spark session, with how far it is.

Knows: Spark's own count of tasks.  Does not know: what is done.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from typing import TypeVar

from quire.pipeline.spark import SparkSession

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 0.25
GROUP = "quire"
T = TypeVar("T")


def watched(spark: SparkSession, work: Callable[[], T], told: Callable[[int, int], object]) -> T:
    """What `work` gives; `told(done, total)` hears of its tasks meanwhile, and once at the end."""

    def begin() -> T:
        spark.sparkContext.setJobGroup(GROUP, GROUP, interruptOnCancel=True)
        return work()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(begin)
        try:
            while True:
                try:
                    found = future.result(LOOK_S)
                except TimeoutError:
                    told(*tasks(spark))
                else:
                    told(*tasks(spark))
                    return found
        except BaseException:
            spark.sparkContext.cancelJobGroup(GROUP)
            raise


def tasks(spark: SparkSession) -> tuple[int, int]:
    """(done, known) of all that this session was asked for by `watched`."""
    tracker = spark.sparkContext.statusTracker()
    done = known = 0
    for job in tracker.getJobIdsForGroup(GROUP):
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            found = tracker.getStageInfo(stage)
            if found is not None:
                done += found.numCompletedTasks
                known += found.numTasks
    return done, known
