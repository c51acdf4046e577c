"""
Ledgers, named logs and topics of Pulsar as Spark tables, through PySpark: `format("ledger")`, `format("log")`,
`format("pulsar")`.

    from quire.pipeline import session

    spark = session()
    rows = spark.read.format("log").option("metadata", "zk://127.0.0.1:2181/ledgers").option("log", "orders").load()

`each_batch` makes the function for `foreachBatch` that writes each batch once, in any output mode.

Importing this package imports neither PySpark nor PyArrow.
"""

from quire.pipeline.each_batch import each_batch
from quire.pipeline.session import session

# SPDX-License-Identifier: Apache-2.0

__all__ = ["each_batch", "session"]
