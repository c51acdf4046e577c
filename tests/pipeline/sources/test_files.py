"""`format("bookiefiles")` as Spark calls it, without Spark."""

import pickle
from pathlib import Path

from quire.pipeline.sources.files import FileSource
from quire.pipeline.sources.table import Task
from quire.pipeline.spark import InputPartition
from tests.bookie.fakes.apache_files import unpack
from tests.pipeline.sources.test_schema import structure

# SPDX-License-Identifier: Apache-2.0

SOME = structure(kind="string", ledger_id="bigint", entry_id="bigint", digest_ok="boolean")


def test_a_query(tmp_path: Path) -> None:
    """What is planned and read goes between processes; the path is what `load` is given."""
    source = FileSource({"path": str(unpack("rocksdb_bookie0_stopped", tmp_path)), "splitBytes": "2000"})
    assert FileSource.name() == "bookiefiles"
    assert source.schema().startswith("`file` string, `pos` bigint, `kind` string")
    reader = source.reader(SOME)
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    assert len(tasks) > 2
    reader = pickle.loads(pickle.dumps(reader))
    found = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert list(found[0]) == SOME.names
    assert {row["kind"] for row in found} >= {"entry", "ledger", "location"}
    assert list(reader.read(InputPartition(None))) == list(reader.read(Task([]))) == []
