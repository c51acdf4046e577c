"""
Offload and restore as jobs of a Spark session: each task of theirs is one of Spark's.

Knows: how work is spread over a session.  Does not know: the work.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from quire.metadata.clock import time_of_day
from quire.pipeline.clients import cluster
from quire.pipeline.jobs.running import watched
from quire.pipeline.offload import restoring, running
from quire.pipeline.offload.wishes import Done, Spread, Wish
from quire.pipeline.spark import SparkSession

# SPDX-License-Identifier: Apache-2.0

Told = Callable[[int, int], object]
Item = TypeVar("Item")
Result = TypeVar("Result")


def over(spark: SparkSession, told: Told) -> Spread:
    """One task for each item; `told` hears how many are done."""

    def spread(work: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
        if not items:
            return []
        rows = spark.sparkContext.parallelize(items, len(items)).map(work)
        return watched(spark, rows.collect, told)

    return spread


def offload(spark: SparkSession, wish: Wish, told: Told) -> Done:
    """See `running.offload`."""
    return running.offload(cluster(wish.metadata), wish, over(spark, told), time_of_day)


def restore(spark: SparkSession, metadata: str, source: str, ledgers: str, told: Told) -> Done:
    """See `restoring.restore`."""
    return restoring.restore(metadata, source, ledgers, over(spark, told))
