"""The columns that a query wants."""

from typing import Any

import pytest
from pyspark.sql.types import MapType, StringType

from quire.pipeline.reading.ledgers import SCHEMA
from quire.pipeline.sources.table import ddl, wanted
from quire.pipeline.spark import StructType

# SPDX-License-Identifier: Apache-2.0
OTHER_NAMES: dict[str, Any] = {
    "bigint": "long",
    "int": "integer",
    "map<string,string>": MapType(StringType(), StringType()),
}


def structure(**fields: str) -> StructType:
    found = StructType()
    for name, type_ in fields.items():
        found = found.add(name, OTHER_NAMES.get(type_, type_))  # by its other name, which needs no Java
    return found


def test_a_users_schema_is_the_projection() -> None:
    """In its order."""
    assert wanted(structure(payload="binary", entry_id="bigint"), SCHEMA) == ["payload", "entry_id"]
    assert ddl(SCHEMA).startswith("`ledger_id` bigint, ")


def test_schemas_that_no_rows_can_have() -> None:
    """A column twice; one that is never null, which the batches do not say: a task failed there, far from the cause."""
    twice = structure(entry_id="bigint").add("entry_id", "long")
    with pytest.raises(ValueError, match="column 'entry_id' is in the schema twice: name it once"):
        wanted(twice, SCHEMA)
    with pytest.raises(ValueError, match="column 'entry_id' can't be `not null`: leave that out"):
        wanted(StructType().add("entry_id", "long", nullable=False), SCHEMA)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"colour": "bigint"}, "no column 'colour': there are ledger_id, entry_id, length, payload"),
        ({"payload": "string"}, "column 'payload' is binary, not string: cast it"),
    ],
)
def test_what_the_source_does_not_have(fields: dict[str, str], said: str) -> None:
    """Is named."""
    with pytest.raises(ValueError, match=said):
        wanted(structure(**fields), SCHEMA)
