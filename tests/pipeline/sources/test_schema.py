"""The columns that a query wants."""

import pytest

from quire.pipeline.reading.ledgers import SCHEMA
from quire.pipeline.sources.schema import ddl, wanted
from quire.pipeline.spark import StructType

# SPDX-License-Identifier: Apache-2.0


def structure(**fields: str) -> StructType:
    found = StructType()
    for name, type_ in fields.items():
        found = found.add(name, {"bigint": "long"}.get(type_, type_))  # by its other name, which needs no Java
    return found


def test_a_users_schema_is_the_projection() -> None:
    """In its order."""
    assert wanted(structure(payload="binary", entry_id="bigint"), SCHEMA) == ["payload", "entry_id"]
    assert ddl(SCHEMA).startswith("`ledger_id` bigint, ")


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
