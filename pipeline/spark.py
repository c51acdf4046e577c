"""
The only importer of pyspark, so that a missing extra is one line, and an error of this package's own.

Knows: which of pyspark's names the pipeline uses.  Does not know: what for.
"""

from quire.conf.extras import installs

# SPDX-License-Identifier: Apache-2.0

try:
    from pyspark import TaskContext
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        InputPartition,
        LessThan,
        LessThanOrEqual,
        WriterCommitMessage,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType
except ImportError as error:
    raise ImportError(f"the pipeline needs PySpark 4.3 or newer: {installs('pipeline')} ({error})") from error

__all__ = [
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "InputPartition",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SparkSession",
    "StructType",
    "SupportsTriggerAvailableNow",
    "TaskContext",
    "WriterCommitMessage",
]
