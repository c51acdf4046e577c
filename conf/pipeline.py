"""
The options of each Spark source and sink, as `.option(name, value)` gives them: text, names in any case.

Knows: names, defaults, limits and meanings.  Does not know: Spark, where a value came from.
"""

import difflib
import os
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretBytes, ValidationError
from pydantic.alias_generators import to_camel

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
# What Spark itself takes from the same options.
SPARKS = {"path", "checkpointlocation", "queryname", "outputmode", "mergeschema", "truncate"}

NONE_CAME = (
    "; Spark keeps no options of a Python source with CREATE TABLE: "
    "CREATE TEMPORARY VIEW … USING … OPTIONS (…) keeps them"
)
# As Kafka's source and sink have them -> ours, where there are such.
KAFKAS = {
    "subscribe": "log",
    "assign": "log",
    "topic": "log",
    "startingoffsets": "start",
    "startingtimestamp": "start",
    "startingoffsetsbytimestamp": "start",
    "endingoffsets": "end",
    "endingtimestamp": "end",
    "endingoffsetsbytimestamp": "end",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "kafka.bootstrap.servers": "metadata",
}


class Options(BaseModel):
    """How all of them are read."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)

    @classmethod
    def of(cls, given: Mapping[str, str], default_metadata: str | None = None) -> Self:
        """`ValueError` names the option, what is wrong with it, and for an unknown one the nearest."""
        names = {(field.alias or name).lower(): field.alias or name for name, field in cls.model_fields.items()}
        found: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in names:
                found[names[name.lower()]] = value
            elif name.lower() not in SPARKS:
                near = difflib.get_close_matches(name.lower(), names, 1)
                nearest = KAFKAS.get(name.lower(), names[near[0]] if near else "")
                known = nearest in names.values()
                hint = f"did you mean {nearest!r}?" if known else f"there are {', '.join(sorted(names.values()))}"
                raise ValueError(f"option {name!r} is unknown: {hint}")
        if default_metadata and "metadata" in cls.model_fields:
            found.setdefault("metadata", default_metadata)
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            option = ".".join(map(str, first["loc"])) or "options"
            if first["type"] == "missing":
                lost = "" if found.keys() - {"metadata"} else NONE_CAME
                raise ValueError(f"option {option!r} is missing: {cls._about(option)}{lost}") from None
            raise ValueError(f"option {option!r}: {first['msg']}") from None

    @classmethod
    def _about(cls, alias: str) -> str:
        return next((field.description or "" for field in cls.model_fields.values() if field.alias == alias), "")


class InCluster(Options):
    """Where the ledgers are."""

    metadata: str = Field(description="URI of the metadata store, as zk://host:2181/ledgers")


class Tasks(Options):
    """How a source divides its work."""

    split_bytes: int = Field(default=64 * MIB, ge=1, description="payload bytes that one task reads, about")
    max_partitions: int = Field(default=10_000, ge=1, description="tasks of one plan at most")
    batch_bytes: int = Field(default=2 * MIB, ge=1, le=1 << 30, description="payload bytes of one Arrow batch")


class Reading(InCluster, Tasks):
    """The options of sources."""

    min_partitions: int | None = Field(
        default=None,
        ge=1,
        description="tasks of one plan at least, about, where each has 8 MiB or more; by default the driver's cores",
    )
    pushdown: bool = Field(
        default=True,
        description="whether conditions of the query reach the source, where the setting "
        "spark.sql.python.filterPushdown.enabled is on, as `quire.pipeline.session` makes it",
    )
    fail_on_data_loss: bool = Field(
        default=True, description="whether rows that are gone (deleted, trimmed) fail the query"
    )

    @property
    def tasks_min(self) -> int:
        """The option, or as many as the driver's machine has cores for this process."""
        return self.min_partitions or len(os.sched_getaffinity(0))


class Secret(BaseModel):
    """How a ledger's password is given; it is in no message and no repr."""

    password: SecretBytes | None = Field(default=None, description="the ledgers' password")
    password_file: str | None = Field(
        default=None, alias="passwordFile", description="a file on each machine that holds it"
    )


class LedgerReading(Reading, Secret):
    """`format("ledger")` as a source."""

    ledgers: str = Field(description="ledger ids and ranges of ids, as `7,9-20`, or `all`")
    start_entry: int = Field(default=0, ge=0, description="the first entry of each ledger that is read")
    end_entry: int | None = Field(default=None, ge=0, description="the last one")
    open_ledgers: Literal["skip", "lac", "recover"] = Field(
        default="lac",
        description="ledgers that are still written: left out; read up to the last add confirmed; or fenced, recovered "
        "and closed first, by which their writer loses them",
    )
    max_entries_per_trigger: int | None = Field(default=None, ge=1, description="entries of one batch of a stream")
    offload: str | None = Field(
        default=None,
        description="where copies of ledgers are that bookies no longer have, as `quire pipeline offload` made them",
    )


class LogReading(Reading):
    """`format("log")` as a source."""

    log: str = Field(description="the log's name")
    start: str = Field(
        default="begin", description="`begin`, `end`, an index, or a time with its zone as 2026-01-31T08:00:00+00:00"
    )
    end: str = Field(default="end", description="of a batch query: `end`, an index, or a time; that record is left out")
    max_records_per_trigger: int | None = Field(default=None, ge=1, description="records of one batch of a stream")
    max_bytes_per_trigger: int | None = Field(
        default=None, ge=1, description="bytes of values of one batch of a stream, about"
    )


class LogWriting(InCluster):
    """`format("log")` as a sink."""

    log: str = Field(description="the log's name")
    create: bool = Field(default=False, description="whether a log that is not there is created, with its defaults")
    first_batch: int | None = Field(
        default=None,
        ge=0,
        description="the batch with which a stream's checkpoint begins to write to this log; by default 0",
    )
    txn_app_id: str | None = Field(
        default=None,
        description="of a batch write, as in `foreachBatch`: the writer's name; with `txnVersion` a write that is "
        "repeated is not done again",
    )
    txn_version: int | None = Field(
        default=None,
        ge=0,
        description="the number of the write, as the id of the batch: one that is not above the last is done already",
    )


class LedgerWriting(InCluster, Secret):
    """`format("ledger")` as a sink."""

    ledger_id: int | None = Field(default=None, ge=0, description="the new ledger's id; by default the next free one")
    ensemble: int = Field(default=3, ge=1, description="bookies that the ledger is spread over")
    write_quorum: int = Field(default=3, ge=1, description="copies of each entry")
    ack_quorum: int = Field(default=2, ge=1, description="copies on disk before an append is acknowledged")
    digest: Literal["CRC32C", "CRC32", "MAC", "DUMMY"] = Field(default="CRC32C", description="the sum of each entry")


class FileReading(Tasks, Secret):
    """`format("bookiefiles")` as a source."""

    path: str = Field(description="a directory of a stopped bookie, or one of its files; several with commas between")
    kinds: str = Field(default="entrylog,journal,index", description="which files: `entrylog`, `journal`, `index`")
    digest: Literal["auto", "CRC32C", "CRC32", "MAC", "DUMMY"] = Field(
        default="auto", description="the sum that entries are checked by; `auto` finds it out, MAC with a password only"
    )


def describe(model: type[Options]) -> list[tuple[str, str, Any, str]]:
    """(name, type, default, meaning) of each option, for the manual."""
    rows = []
    for name, field in model.model_fields.items():
        default = "" if field.is_required() else field.default
        rows.append((field.alias or name, str(field.annotation), default, field.description or ""))
    return rows
