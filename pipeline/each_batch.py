"""
Each batch of a stream into logs, once, by a function for Spark's `foreachBatch`; also in the output mode `update`,
which Spark refuses to sinks in Python.

Knows: that Spark tells the function the batch's number, and its thread the query's id, which is its checkpoint's.
Does not know: how a batch comes to be published once (`writing`).
"""

from collections.abc import Callable
from typing import Any

# SPDX-License-Identifier: Apache-2.0

QUERY = "sql.streaming.queryId"


def each_batch(**options: Any) -> Callable[[Any, int], None]:
    """
    Returns a function for `foreachBatch` that appends the batch's rows to `format("log")` with these options.  A batch
    that is given again, for its query went on from its checkpoint, is not written again.  `txnAppId`: the writer's
    name, by default the query's id; two of these functions in one query that write to the same log need one each.
    """

    def write(frame: Any, batch: int) -> None:
        named = {name.lower(): value for name, value in options.items()}
        writer = named.pop("txnappid", None) or query_of(frame)
        given = {name: as_text(value) for name, value in named.items()}
        made = frame.write.format("log").options(**given, txnAppId=writer, txnVersion=str(batch))
        made.mode("append").save()

    return write


def query_of(frame: Any) -> str:
    """The id of the query whose batch this is.  `ValueError` where Spark does not say it."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    found = None if context is None else context.getLocalProperty(QUERY)
    if not found:
        raise ValueError(
            "the id of the query is not known here: each_batch is for foreachBatch; with Spark Connect give txnAppId, "
            "a name for each checkpoint"
        )
    return str(found)


def as_text(value: Any) -> str:
    """The text of an option, as Spark makes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
