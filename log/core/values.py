"""
JSON objects of a log as frozen values, which keep the members that this version does not know; and the parts of a
manifest.

Knows: how a value is parsed and written, what the parts of a manifest are.
Does not know: what must hold among them (`manifest`).
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any, ClassVar, NamedTuple, TypeVar

from quire.metadata.formats.json_text import parse_json
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

FORMAT = 1

T = TypeVar("T", bound="Value")
Extra = Mapping[str, Any]
NOTHING: Extra = {}


@dataclass(frozen=True, slots=True)
class Value:
    """
    A JSON object as a frozen dataclass: each field is a member, `extra` holds those that are not known.  A field with a
    default is left out of the JSON where it has that.
    """

    what: ClassVar[str] = "value"
    tag: ClassVar[str] = ""  # what its record says that it is, beside the format; without one it says neither
    inner: ClassVar[Mapping[str, type[Value]]] = {}  # members that are objects, or lists of them
    extra: Extra = field(default_factory=dict, hash=False, kw_only=True)

    @classmethod
    def decode(cls: type[T], data: bytes) -> T:
        """Reads one from its record.  `LogDamaged`, `UnknownFormat`."""
        if not cls.tag:
            return cls.parse(any_json(data, f"a {cls.what}"))
        found = from_json(data, cls.tag)
        del found["quire"]
        if "format" not in _kinds(cls):
            del found["format"]
        return cls.parse(found)

    def encode(self) -> bytes:
        """Encodes it as its record."""
        head = {"quire": self.tag, "format": FORMAT} if self.tag else {}
        return to_json({**head, **self.members()}).encode()

    @classmethod
    def parse(cls: type[T], data: object) -> T:
        """`LogDamaged` when members are missing or of another kind."""
        if not isinstance(data, dict):
            raise LogDamaged(f"a {cls.what} is to be an object, not {str(data)[:80]!r}")
        kinds, known, extra = _kinds(cls), {}, {}
        try:
            for name, value in data.items():
                kind = kinds.get(name)
                if kind is None:
                    extra[name] = value
                elif type(value) in kind.plain:
                    known[name] = value
                else:
                    known[name] = kind.parse(name, value)
            made: Callable[..., T] = cls
            return made(**known, extra=extra) if extra else made(**known)
        except (TypeError, ValueError) as error:
            raise LogDamaged(f"a {cls.what} can't be understood: {error}") from None

    def members(self) -> dict[str, Any]:
        """Gives the members of its JSON; inner objects as they are."""
        found = {}
        for name, default in defaults_of(type(self)):
            value = getattr(self, name)
            if value != default:
                found[name] = value
        if self.extra:
            found.update(self.extra)
        return found


class Kind:
    """The types that a member may have: `plain` ones as they are in JSON, or what `parse` makes of it."""

    __slots__ = ("inner", "plain", "text")

    def __init__(self, text: str, inner: type[Value] | None) -> None:
        self.text = text.removesuffix(" | None")
        self.inner = inner
        named = {"int": int, "str": str, "bool": bool, "Mapping[str, Any]": dict}.get(self.text)
        self.plain = {kind for kind in (named, NoneType if text.endswith("| None") else None) if kind is not None}

    def parse(self, name: str, value: object) -> object:
        """`ValueError`."""
        if self.inner is not None and not self.text.startswith("tuple"):
            return self.inner.parse(value)
        if self.text.startswith("tuple") and isinstance(value, list):
            if self.inner is not None:
                return tuple([self.inner.parse(each) for each in value])
            wanted = str if self.text == "tuple[str, ...]" else int
            if all(type(each) is wanted for each in value) and (self.text.endswith("...]") or len(value) == 2):
                return tuple(value)
        raise ValueError(f"{name} is {str(value)[:80]!r}, not {self.text}")


KINDS: dict[type, dict[str, Kind]] = {}
DEFAULTS: dict[type, list[tuple[str, object]]] = {}
ENCODER = json.JSONEncoder(default=lambda value: value.members(), separators=(",", ":"), ensure_ascii=False)


def _kinds(cls: type[Value]) -> dict[str, Kind]:
    found = KINDS.get(cls)
    if found is None:
        found = KINDS[cls] = {each.name: Kind(str(each.type), cls.inner.get(each.name)) for each in _fields(cls)}
    return found


def defaults_of(cls: type[Value]) -> list[tuple[str, object]]:
    found = DEFAULTS.get(cls)
    if found is None:
        found = DEFAULTS[cls] = [(each.name, each.default) for each in _fields(cls)]
    return found


def _fields(cls: Any) -> list[Any]:
    return [each for each in fields(cls) if each.name != "extra"]


def to_json(value: object) -> str:
    """Compact JSON of a value, a list of values, or what JSON has itself."""
    return ENCODER.encode(value)


def any_json(data: bytes, what: str) -> Any:
    """Parses JSON `data`; `LogDamaged` when it is none."""
    try:
        return parse_json(data)
    except ValueError as error:
        raise LogDamaged(f"{what} can't be decoded: {error}") from None


def from_json(data: bytes, what: str) -> dict[str, Any]:
    """The object that `data` is; `LogDamaged` when it is none, `UnknownFormat` when a newer version wrote it."""
    found = any_json(data, f"a {what}")
    if not isinstance(found, dict) or found.get("quire") != what:
        raise LogDamaged(f"it is no {what}: it begins with {data[:40]!r}")
    number = found.get("format")
    if not isinstance(number, int) or number < 1:
        raise LogDamaged(f"a {what} has the format {number!r}")
    if number > FORMAT:
        raise UnknownFormat(f"a {what} has format {number}, this quire knows {FORMAT}: a newer one reads it")
    return found


# -- members ---------------------------------------------------------------------------------------------------------


class Counts(NamedTuple):
    """The content of a closed segment: records, bytes of values and skips, entries, and the last record's stamp."""

    records: int
    bytes: int
    entries: int
    stamp: int


@dataclass(frozen=True, slots=True)
class Segment(Value):
    """
    A ledger's place in a log.  Open (no counts yet) while its owner writes it.  `t`: no stamp is below the first, and
    the second is that of the last record.  `raw`: entries without our frame, one record each.  `leased`: opened while
    leases were on.  `lost`: its ledger is gone and was given up.  `offload`: where a copy is.  `merged`: it was made of
    those from that number on to its own, and places of its entries count from there, so that none is one of before.
    """

    what = "segment"
    n: int
    ledger: int
    epoch: int
    first: int
    at: int
    records: int | None = None
    bytes: int | None = None
    entries: int | None = None
    t: tuple[int, int] | None = None
    txn: str | None = None
    batch: int | None = None
    part: int | None = None
    raw: bool = False
    leased: bool = False
    lost: bool = False
    offload: Mapping[str, Any] | None = None
    merged: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """True while its counts are not known."""
        return self.records is None

    @property
    def last(self) -> int:
        """The number of the segment, as a chunk's line has the last one."""
        return self.n

    @property
    def lowest(self) -> int:
        """The lowest of the numbers of which it was made, or its own."""
        return self.n if self.merged is None else self.merged[0]

    @property
    def place(self) -> int:
        """The place of its first entry."""
        return 0 if self.merged is None else self.merged[1]

    @property
    def stamp(self) -> int | None:
        """The one of all its records, where it was published or taken in."""
        return self.t[0] if self.t is not None and (self.raw or self.txn is not None) else None

    @property
    def end(self) -> int:
        """The index after its last record; of an open one its first."""
        return self.first + (self.records or 0)

    @property
    def end_at(self) -> int:
        """The byte position after its last record."""
        return self.at + (self.bytes or 0)

    @property
    def is_moved(self) -> bool:
        """True if only its offloaded copy is left, for the bookies' copies are deleted, or are to be."""
        return self.offload is not None and self.offload.get("bookies") == "deleted"

    def closed(self, counts: Counts, floor: int) -> Segment:
        """With what its ledger holds; no stamp of it is below `floor`."""
        return replace(
            self,
            records=counts.records,
            bytes=counts.bytes,
            entries=counts.entries,
            t=(min(floor, counts.stamp), counts.stamp),
        )


@dataclass(frozen=True, slots=True)
class Line(Value):
    """
    A chunk's line: `c` its name, `n` the numbers from its first to its last segment, `lost` the bytes of segments that
    were given up, `count` how many segments there are where these are fewer than the numbers.
    """

    what = "line of a chunk"
    is_open: ClassVar[bool] = False
    c: str
    n: tuple[int, int]
    first: int
    at: int
    records: int
    bytes: int
    t: tuple[int, int]
    lost: int = 0
    count: int = 0

    @property
    def last(self) -> int:
        """The number of its last segment."""
        return self.n[1]

    @property
    def end(self) -> int:
        """The index after its last record."""
        return self.first + self.records

    @property
    def end_at(self) -> int:
        """The byte position after its last record."""
        return self.at + self.bytes


@dataclass(frozen=True, slots=True)
class Owner(Value):
    """The handle that may append: its random token, its epoch, and where it is."""

    what = "owner"
    token: str
    epoch: int
    address: str = ""
    host: str = ""
    since: int = 0


@dataclass(frozen=True, slots=True)
class Transfer(Value):
    """To whose token the owner hands over, and how long others leave the claim to it."""

    what = "transfer"
    to: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Moved(Value):
    """
    A move to another cluster: its random id, the name and the metadata URI of that cluster, the URI of the directory
    that says so, and whether it is done.  `kept`: the other cluster had a copy of the log before.  `fenced`: it can't
    be given up any more; that goes without saying where the log was made a copy.  `aborted`: it was given up, and the
    copy may be there still.
    """

    what = "move"
    id: str
    cluster: str
    uri: str
    directory: str
    kept: bool = False
    done: bool = False
    fenced: bool = False
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class Begin(Value):
    """The first record that may be read: segment, index, position.  `stamp`: of the last trimmed record, or lower."""

    what = "begin"
    n: int
    index: int
    at: int
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class Origin(Value):
    """
    Another log, of which the records from `start` to before `end` are, at the same indexes; None: all from there on,
    for the log is its copy.  `cluster` is the id of its cluster, `uri` where that is.  The records before `start` are
    in that log, too.  `held`: the log is to move to its copy, of which nothing is trimmed before.
    """

    what = "origin"
    cluster: str
    log: str
    name: str = ""
    uri: str = ""
    start: int = 0
    end: int | None = None
    held: bool = False


@dataclass(frozen=True, slots=True)
class Doomed(Value):
    """A ledger that was taken out and is being deleted.  `raw`: a plain one that the log had taken in."""

    what = "doomed ledger"
    ledger: int
    why: str
    since: int
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot(Value):
    """A state machine's snapshot; `index` is the first record that it does not hold."""

    what = "snapshot"
    index: int
    ledger: int
    bytes: int
    entries: int
    crc: int
    machine: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CompactedLedger(Value):
    """A ledger of records that a compaction left: the indexes of its first and last one, and what it holds."""

    what = "compacted ledger"
    ledger: int
    first: int
    last: int
    records: int
    bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class LostRecords(Value):
    """Records that a compaction could not read: those from `first` to `end` - 1, of segment `n`, which was given up."""

    what = "lost part of a compaction"
    n: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Compacted(Value):
    """
    The records that are left up to index `horizon`, behind which is byte position `at`, by key.  `lost`: those among
    them that were gone, so that newer values of keys may be missing.
    """

    what = "compaction"
    inner: ClassVar[Mapping[str, type[Value]]] = {"ledgers": CompactedLedger, "lost": LostRecords}
    horizon: int
    at: int
    ledgers: tuple[CompactedLedger, ...]
    lost: tuple[LostRecords, ...] = ()
