"""Spark's filters as conditions."""

from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, IsNotNull, LessThan

from quire.pipeline.sources.pushed import bounds_of

# SPDX-License-Identifier: Apache-2.0


def test_those_that_can_be_used() -> None:
    """Others, and those of other columns, spare nothing."""
    filters: list[Filter] = [
        IsNotNull(("index",)),
        GreaterThanOrEqual(("index",), 5),
        LessThan(("index",), 9),
        In(("ledger_id",), (3, 4)),
        EqualTo(("payload",), b"x"),
        EqualTo(("headers", "key"), "x"),
    ]
    found = bounds_of(filters, ("index", "ledger_id"))
    assert found["index"].span == (5, 8)
    assert found["ledger_id"].span == (3, 4)
