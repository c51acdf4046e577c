"""
The descriptor of a message store: a child record of its log, named `store`.

JSON in UTF-8; members that this version does not know are kept.  `regions` ascend from the log's first offset on, each
up to the next; the last is plain, has no end, and takes new records.  `next`, `shifts` and `doubles` say what the
records themselves do not (`core.queues`).

Knows: the members and what must hold among them.  Does not know: where it is kept, who changes it.
Safety: what contradicts this page is `LogDamaged`, what a newer version wrote `UnknownFormat`.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from quire.conf.messages import StoreSettings
from quire.log.core.values import Value
from quire.messages.core.layout import Rule
from quire.messages.core.queues import Placing
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

CHILD = "store"
USE = "messages"  # the setting `use` of a log that has a message store
IMPORTING, READY = "importing", "ready"
MEMBERS_MAX = 10_000  # of `next`, `shifts` and `doubles` together


@dataclass(frozen=True, slots=True)
class Region(Value):
    """From an offset on, one layout: rule `plain` or `dledger`; `group`: the DLedger directory's name."""

    what = "region"
    begin: int
    rule: str
    group: str = ""

    @property
    def layout(self) -> Rule:
        return "dledger" if self.rule == "dledger" else "plain"


@dataclass(frozen=True, slots=True)
class Import(Value):
    """
    The import that a store comes from: transaction of the sink, fingerprint of the source, files, records, the offset
    behind the last record, and when it began, ms since 1970.
    """

    what = "import"
    txn: str
    source: str
    files: int
    records: int
    end: int
    at: int


@dataclass(frozen=True, slots=True)
class Next(Value):
    """A queue that has no record and begins at a position above 0: all its messages had expired at the import."""

    what = "next position"
    topic: str
    queue: int
    position: int


@dataclass(frozen=True, slots=True)
class Shift(Value):
    """Records of a queue from a physical offset on are `by` positions below what they say."""

    what = "shift"
    topic: str
    queue: int
    offset: int
    by: int


@dataclass(frozen=True, slots=True)
class Descriptor(Value):
    """
    One version of a store's descriptor.  `edit`: of the import step that wrote it, so that a step that is repeated
    finds what it did.  `doubles`: physical offsets of records that have no position, for an earlier one has theirs.
    """

    what = "descriptor of a message store"
    tag: ClassVar[str] = "messages"
    inner: ClassVar[Mapping[str, type[Value]]] = {
        "regions": Region,
        "imported": Import,
        "next": Next,
        "shifts": Shift,
    }
    needs: tuple[str, ...]
    state: str
    settings: Mapping[str, Any]
    regions: tuple[Region, ...]
    imported: Import | None = None
    edit: str = ""
    next: tuple[Next, ...] = ()
    shifts: tuple[Shift, ...] = ()
    doubles: tuple[int, ...] = ()

    @classmethod
    def read(cls, data: bytes) -> Descriptor:
        """The descriptor in a record; `LogDamaged`, `UnknownFormat`."""
        found = cls.decode(data)
        if found.needs:
            raise UnknownFormat(f"the message store needs {', '.join(found.needs)}, which a newer quire knows")
        if found.state not in (IMPORTING, READY):
            raise LogDamaged(f"the message store has the state {found.state!r}, not {IMPORTING} or {READY}")
        begins = [region.begin for region in found.regions]
        if not begins or begins != sorted(set(begins)) or begins[0] < 0:
            raise LogDamaged(f"the regions of the message store begin at {begins}: they have to ascend")
        for region in found.regions:
            if region.rule not in ("plain", "dledger"):
                raise UnknownFormat(
                    f"a region of the message store has the rule {region.rule!r}: a newer quire reads it"
                )
        if found.regions[-1].rule != "plain":
            raise LogDamaged("the last region of the message store is not plain")
        return found

    @property
    def store_settings(self) -> StoreSettings:
        """`LogDamaged`."""
        return StoreSettings.of(self.settings)

    @property
    def placing(self) -> Placing:
        """The positions of records, by what this says."""
        return Placing(
            [(each.topic, each.queue, each.position) for each in self.next],
            [(each.topic, each.queue, each.offset, each.by) for each in self.shifts],
            self.doubles,
            self.imported.end if self.imported else 0,
        )

    def region_at(self, offset: int) -> Region:
        """The region that holds an offset of the log; the first one, below it."""
        return next((region for region in reversed(self.regions) if region.begin <= offset), self.regions[0])
