"""
The columns that a query wants of a source.

Knows: that a user's schema is the projection, and that Spark compares it with the batches exactly.
Does not know: how a column is made.
"""

from collections.abc import Mapping

from quire.pipeline.spark import StructType

# SPDX-License-Identifier: Apache-2.0


def ddl(columns: Mapping[str, str]) -> str:
    """All of a source's columns, as Spark reads them."""
    return ", ".join(f"`{name}` {type_}" for name, type_ in columns.items())


def wanted(schema: StructType, columns: Mapping[str, str]) -> list[str]:
    """
    Its names.  `ValueError` names a column that the source does not have, that has another type there, that is there
    twice, or that is to be `not null`, which a source can't say of its columns.
    """
    for number, field in enumerate(schema.fields):
        type_ = columns.get(field.name)
        if type_ is None:
            raise ValueError(f"there is no column {field.name!r}: there are {', '.join(columns)}")
        if field.dataType.simpleString() != type_:
            raise ValueError(
                f"column {field.name!r} is {type_}, not {field.dataType.simpleString()}: cast it in the query"
            )
        if field.name in schema.names[:number]:
            raise ValueError(f"column {field.name!r} is in the schema twice: name it once, and select it twice")
        if not field.nullable:
            raise ValueError(f"column {field.name!r} can't be `not null`: leave that out of the schema")
    return list(schema.names)
