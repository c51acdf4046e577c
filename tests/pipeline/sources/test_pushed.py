"""Spark's filters as conditions."""

from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThanOrEqual, In, IsNotNull, LessThan

from quire.pipeline.sources.table import Conditions, bounds_of

# SPDX-License-Identifier: Apache-2.0


def test_spark_takes_a_reader_whose_conditions_are_on_though_its_setting_is_off() -> None:
    """By this look of Spark's at a reader: a method of its own was refused."""
    assert Conditions(("index",)).__func__ is DataSourceReader.pushFilters


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
