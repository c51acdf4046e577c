"""
The value of a durable cursor, as far as upkeep needs it: where it is, and which ledgers it names.

Knows: these members; all others are kept.  Does not know: acknowledgements, who holds the cursor.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from quire.log.core.values import Doomed, Extra, Value, from_json, to_json

# SPDX-License-Identifier: Apache-2.0

DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class CursorValue(Value):
    """`mark`: no record from it on is done, so that the log is not trimmed above it."""

    what = "cursor"
    inner: ClassVar[Mapping[str, type[Value]]] = {"doomed": Doomed}
    format: int
    name: str
    edit: str
    ledger: int | None
    mark: int
    doomed: tuple[Doomed, ...]
    state: str
    extra: Extra = field(default_factory=dict, hash=False)

    @property
    def ledgers(self) -> list[int]:
        """All that it names."""
        return [*([] if self.ledger is None else [self.ledger]), *(each.ledger for each in self.doomed)]

    @classmethod
    def decode(cls, data: bytes) -> CursorValue:
        """`LogDamaged`, `UnknownFormat`."""
        found = from_json(data, "cursor")
        del found["quire"]
        return cls.parse(found)

    def encode(self) -> bytes:
        """Its record."""
        return to_json({"quire": "cursor", **self.members()}).encode()
