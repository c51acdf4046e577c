"""
Work of a Spark session, with how far it is.

Knows: Spark's own count of tasks.  Does not know: what is done.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from quire.pipeline.offload.requests import Spread
from quire.pipeline.spark import SparkSession

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 0.25
GROUP = "quire"
T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


def watched(spark: SparkSession, work: Callable[[], T], told: Callable[[int, int], object]) -> T:
    """Returns what `work` gives; `told(done, known)` hears of its tasks meanwhile, on a thread, and at the end."""
    spark.sparkContext.setJobGroup(GROUP, GROUP, interruptOnCancel=True)
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            told(*tasks(spark))

    looking = threading.Thread(target=look, name="quire-progress", daemon=True)
    looking.start()
    try:
        found = work()  # in this thread: Spark looks for data sources in the session of the thread that asks
    except BaseException:
        spark.sparkContext.cancelJobGroup(GROUP)
        raise
    finally:
        over.set()
        looking.join()
    told(*tasks(spark))
    return found


def in_tasks(
    spark: SparkSession, told: Callable[[int, int], object]
) -> Callable[[Callable[[Any], list[Any]], Sequence[Any]], list[Any]]:
    """Makes a function that runs another one, which executors can import, for each of some values: a task for each."""

    def each(work: Callable[[Any], list[Any]], values: Sequence[Any]) -> list[Any]:
        if not values:
            return []
        made = spark.sparkContext.parallelize(values, len(values)).flatMap(work)
        return watched(spark, made.collect, told)

    return each


def spread(spark: SparkSession, told: Callable[[int, int], object]) -> Spread:
    """Makes a function that does each item's work in a task of its own; `told` hears how many are done."""

    def over(work: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
        return in_tasks(spark, told)(lambda item: [work(item)], items)

    return over


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
