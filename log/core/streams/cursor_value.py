"""
The value of a durable cursor: where it is, and which ledgers it names.

Knows: its members; those of a later version are kept.  Does not know: what acknowledgements mean, who holds the cursor.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from quire.log.core.values import Doomed, Extra, Value, from_json, to_json

# SPDX-License-Identifier: Apache-2.0

DELETING = "deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorValue(Value):
    """
    `mark`: no record from it on is done, so that the log is not trimmed above it.  `checkpoint`: the entry of `ledger`
    from which on acknowledgements are read; without a ledger they are in `acks`, base64.
    """

    what = "cursor"
    inner: ClassVar[Mapping[str, type[Value]]] = {"doomed": Doomed}
    format: int
    name: str
    edit: str
    holder: str | None = None  # its token
    ledger: int | None
    checkpoint: int | None = None
    mark: int
    acks: str | None = None
    doomed: tuple[Doomed, ...]
    state: str
    properties: Mapping[str, Any] | None = None
    touched: int | None = None
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
