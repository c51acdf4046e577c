"""
The value of a durable cursor: where it is, and which ledgers it names.

Knows: its members; those of a later version are kept.  Does not know: what acknowledgements mean, who holds the cursor.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from quire.log.core.values import FORMAT, Doomed, Extra, Value, any_json, from_json, to_json
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0

OPEN, DELETING = "open", "deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorValue(Value):
    """
    `mark`: all records below it are done; more may be, but the log is needed from here on.  `holder`: the token of the
    one handle that may change the rest.  `checkpoint`: the entry of `ledger` from which on acknowledgements are read;
    without a ledger they are in `acks`, base64.
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

    @classmethod
    def new(cls, name: str, edit: str, mark: int, now_ms: int) -> CursorValue:
        """Of a cursor that nobody holds yet."""
        return cls(
            format=FORMAT,
            name=name,
            edit=edit,
            ledger=None,
            mark=mark,
            doomed=(),
            state=OPEN,
            properties={},
            touched=now_ms,
        )

    @property
    def ledgers(self) -> list[int]:
        """All that it names."""
        return [*([] if self.ledger is None else [self.ledger]), *(each.ledger for each in self.doomed)]

    def named(self, ledger: int, checkpoint: int, mark: int, now_ms: int) -> CursorValue:
        """With the ledger that holds what is acknowledged; the one before is doomed."""
        before = self if self.ledger == ledger else self.left(now_ms)
        return replace(
            before, ledger=ledger, checkpoint=checkpoint, mark=max(mark, self.mark), acks=None, touched=now_ms
        )

    def left(self, now_ms: int) -> CursorValue:
        """Without its ledger, which is doomed."""
        doomed = self.doomed if self.ledger is None else (*self.doomed, Doomed(self.ledger, "cursor", now_ms))
        return replace(self, ledger=None, checkpoint=None, doomed=doomed, touched=now_ms)

    @classmethod
    def decode(cls, data: bytes) -> CursorValue:
        """`LogDamaged`, `UnknownFormat`."""
        found = from_json(data, "cursor")
        del found["quire"]
        return cls.parse(found)

    def encode(self) -> bytes:
        """Its record."""
        return to_json({"quire": "cursor", **self.members()}).encode()


def decode_pointer(data: bytes) -> str:
    """The id in the record of a name.  `LogDamaged`."""
    said = any_json(data, "the name of a cursor")
    found = said.get("cursor") if isinstance(said, dict) else None
    if not isinstance(found, str) or not found.isalnum() or not found.isascii():
        raise LogDamaged(f"the name of a cursor points at {str(found)[:80]!r}")
    return found
