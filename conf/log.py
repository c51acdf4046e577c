"""
The settings of a named log, which its manifest keeps, and the options of a process that uses logs.

Knows: each one's unit, default, range and meaning, and which settings contradict each other.
Does not know: files; a setting is given to `create` and `update`, an option to `connect`.

Settings are written out at creation, all of them, so that a later default changes no log.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from quire.conf.extras import installs
from quire.conf.options import chosen
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0

KIB, MIB = 1 << 10, 1 << 20
PARTITIONS_MAX = 4096
PARTITIONED = "partitions"  # the use of a log whose records are in its partitions


class Copy(Protocol):
    """An offloaded copy of a ledger: the bytes of its entries, as they were appended."""

    def read(self, first: int, last: int) -> Awaitable[Sequence[bytes]]:
        """The entries from `first` to `last`, both ends included."""

    def close(self) -> Awaitable[object]:
        """Ends what is under way."""


Opener = Callable[[Mapping[str, Any]], Awaitable[Copy]]  # a segment's mark -> the copy at its `uri`


class LogSettings(BaseModel):
    """
    The settings of one log.  Storage settings (ensemble, quorums, digest) count from the next segment on.  Members that
    this version does not know are kept.
    """

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    ensemble: int = Field(default=3, ge=1, description="bookies that a segment is spread over")
    write: int = Field(default=3, ge=1, description="copies of each entry")
    ack: int = Field(default=2, ge=1, description="copies on disk before an append is acknowledged")
    digest: Literal["CRC32C", "CRC32", "MAC"] = Field(default="CRC32C", description="the sum of each entry")
    roll_records: int = Field(default=1 << 24, ge=1, description="records after which a segment ends")
    roll_bytes: int = Field(default=256 * MIB, ge=1, description="bytes of values after which a segment ends")
    roll_age_ms: int = Field(default=4 * 3600_000, ge=100, description="age at which a segment ends, plus or minus 5 %")
    retention_ms: int = Field(default=-1, ge=-1, description="age at which closed segments go; -1: never")
    retention_bytes: int = Field(default=-1, ge=-1, description="size above which the oldest segments go; -1: never")
    quota_bytes: int = Field(default=-1, ge=-1, description="backlog in bytes of the slowest cursor; -1: any")
    quota_ms: int = Field(default=-1, ge=-1, description="backlog in time of the slowest cursor; -1: any")
    quota: Literal["refuse", "hold", "drop"] = Field(default="refuse", description="what happens above a quota")
    ttl_ms: int = Field(default=-1, ge=-1, description="age at which records count as acknowledged; -1: never")
    dedup: bool = Field(default=False, description="whether resends of a producer are recognised by their sequence")
    compaction: bool = Field(default=False, description="whether the newest record of each key is kept apart")
    compaction_keyless: Literal["keep", "drop"] = Field(
        default="keep", description="what compaction does without a key"
    )
    merge_bytes: int = Field(
        default=-1, ge=-1, description="size up to which upkeep merges runs of small segments; -1: only when asked"
    )
    lease_ms: int = Field(default=0, ge=0, description="lease of the owner for reads without a message; 0: none")
    publish: bool = Field(default=True, description="whether closed ledgers of others can be published")
    needs_snapshot: bool = Field(default=False, description="whether nothing is trimmed above the oldest kept snapshot")
    compression: Literal["none", "zlib", "zstd"] = Field(default="none", description="of each batch")
    rate_records: int = Field(default=-1, ge=-1, description="records a second that the owner takes; -1: any")
    rate_bytes: int = Field(default=-1, ge=-1, description="bytes a second that the owner takes; -1: any")
    use: str = Field(
        default="",
        pattern=r"^[a-z0-9-]{0,40}$",
        description="whose commands alone own, fill, rename and end the log, as `messages`; given at creation",
    )
    partitions: int = Field(
        default=0,
        ge=0,
        le=PARTITIONS_MAX,
        description="logs, NAME/0 and so on, among which its records are spread by key; may grow; 0: its records are "
        "in itself",
    )
    partition_of: str = Field(
        default="", pattern=r"^([0-9a-f]{32})?$", description="the id of the log that this is a partition of"
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if not self.ack <= self.write <= self.ensemble:
            raise ValueError(f"quorums must be ack ({self.ack}) <= write ({self.write}) <= ensemble ({self.ensemble})")
        if self.lease_ms and self.publish:
            raise ValueError("a log with leases (lease_ms) takes no published ledgers: set publish to false with it")
        if self.merge_bytes > 0 and self.use not in ("", PARTITIONED):
            raise ValueError(f"what `quire {self.use}` keeps of a log names its segments: they can't be merged")
        return self

    @classmethod
    def of(cls, stored: Any) -> "LogSettings":
        """Reads the settings in a manifest; `LogDamaged`."""
        try:
            return cls.model_validate(stored)
        except ValueError as error:
            raise LogDamaged(
                f"the settings of the log can't be understood: {reason_of(error)}; `quire log set` gives it others"
            ) from None

    @classmethod
    def check(cls, stored: Mapping[str, Any]) -> None:
        """`ValueError` names what of a manifest's settings can't be, or contradicts each other."""
        try:
            cls.model_validate(stored)
        except ValueError as error:
            raise ValueError(reason_of(error)) from None

    @classmethod
    def made(cls, **settings: Any) -> "LogSettings":
        """New ones; `ValueError` that names one that is unknown, impossible, or needs what is not installed here."""
        if settings.get("compression") == "zstd":
            check_zstd()
        made = cls._merged(**settings)
        if bool(made.partitions) != (made.use == PARTITIONED):
            raise ValueError(f"a log with partitions has the use {PARTITIONED!r}, and no other log has")
        return made

    @classmethod
    def _merged(cls, **settings: Any) -> "LogSettings":
        unknown = sorted(set(settings) - set(cls.model_fields))
        if unknown:
            raise ValueError(f"a log has no setting {', '.join(unknown)}: it has {', '.join(cls.model_fields)}")
        try:
            return cls(**settings)
        except ValueError as error:
            raise ValueError(reason_of(error)) from None

    @classmethod
    def changed(cls, stored: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
        """
        The members that a change gives other values than a manifest has; what that has can be wrong, if the change
        mends it.  `ValueError` as `made`.
        """
        known = {name: value for name, value in stored.items() if name in cls.model_fields}
        use = known.get("use", "")
        if settings.get("use", use) != use:
            raise ValueError(f"the use of a log, here {use!r}, is given when it is created and stays as it is")
        if settings.get("partition_of", known.get("partition_of", "")) != known.get("partition_of", ""):
            raise ValueError("what a log is a partition of, its setting partition_of, stays as it is")
        merged = cls._merged(**known | settings)
        before = known.get("partitions", 0)
        if merged.partitions < before or (merged.partitions and not before):
            raise ValueError(
                f"a log of {before} partitions can't have {merged.partitions}: a partitioned log only grows, and one "
                "with records of its own is never split; create another log"
            )
        if settings.get("compression") == "zstd":
            check_zstd()
        return {name: getattr(merged, name) for name in settings if getattr(merged, name) != known.get(name)}


def check_zstd() -> None:
    """`ValueError` names the command that installs zstd where it is missing."""
    if find_spec("zstandard") is None:
        raise ValueError(f"compression=zstd, and zstd is not installed here: {installs('zstd')}")


def reason_of(error: ValueError) -> str:
    """Puts what pydantic says into one line."""
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    parts = []
    for each in details(include_url=False, include_context=False):
        place = ".".join(map(str, each["loc"]))
        parts.append(f"{place}: {each['msg']}" if place else each["msg"].removeprefix("Value error, "))
    return "; ".join(parts)


class LogOptions(BaseModel):
    """The options of a process that uses logs."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def given(cls, options: "LogOptions | None") -> "LogOptions":
        """Returns the options that a caller gave, or the defaults; `TypeError` for anything else."""
        return chosen(cls, options)

    password: bytes = Field(default=b"", repr=False, description="of the ledgers that are made and read")
    batch_bytes: int = Field(default=256 * KIB, ge=1, description="most bytes of an entry, with keys and headers")
    part_bytes: int = Field(default=MIB, ge=64, description="a batch above this is cut into parts of this size")
    append_ms: int = Field(default=30_000, ge=1, description="how long an append may take")
    takeover_ms: int = Field(default=30_000, ge=1, description="how long a takeover tries to recover the last segment")
    read_ms: int = Field(default=5_000, ge=1, description="how long a read that needs a proof waits for it")
    window_records: int = Field(default=100_000, ge=1, description="records under way in one log")
    window_bytes: int = Field(default=64 * MIB, ge=1, description="bytes under way in one log, with keys and headers")
    process_bytes: int = Field(default=256 * MIB, ge=1, description="bytes under way in all logs")
    rate_records: int = Field(default=-1, ge=-1, description="records a second that its owners take in all; -1: any")
    rate_bytes: int = Field(default=-1, ge=-1, description="bytes a second that its owners take in all; -1: any")
    cache_bytes: int = Field(
        default=64 * MIB, ge=0, description="of the newest entries for all readers; 0: each asks for itself"
    )
    read_ahead_bytes: int = Field(default=4 * MIB, ge=1, description="that a reader asks for before they are wanted")
    poll_ms: int = Field(default=1_000, ge=1, description="how often what is awaited is looked for, beside a watch")
    lac_ms: int = Field(default=10, ge=1, description="after which an idle owner says what is confirmed")
    compaction_keys: int = Field(
        default=5_000_000, ge=2, description="that a compaction looks at in one pass, about 200 bytes each"
    )
    cursor_ms: int = Field(default=1_000, ge=1, description="how often a cursor stores what was acknowledged")
    cursor_pages_max: int = Field(
        default=1 << 20, ge=1, description="pages of 256 records in which a cursor has acknowledgements out of order"
    )
    tidy_ms: int = Field(default=60_000, ge=100, description="how often an owner, or else the publishers, tidy a log")
    snapshot_records: int = Field(default=100_000, ge=1, description="records between two snapshots of a replica")
    openers: Mapping[str, Opener] = Field(
        default={}, description="of the copies of offloaded segments, by the scheme of their URI"
    )
