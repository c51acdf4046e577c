"""
The options of each Spark source and sink, as `.option(name, value)` gives them: text, names in any case.

Knows: names, defaults, limits and meanings.  Does not know: Spark, where a value came from.
"""

import difflib
import os
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretBytes, ValidationError, field_validator
from pydantic.alias_generators import to_camel, to_snake

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
# What Spark itself takes from the same options.
SPARKS = {"path", "checkpointlocation", "queryname", "outputmode", "mergeschema", "truncate"}

NONE_CAME = "; Spark loses the options of a CREATE TABLE with columns or a query: leave the columns out, and INSERT"
# As Spark's source and sink of Kafka have them -> ours.  Sources and sinks of logs take both; the others tell ours.
KAFKAS = {
    "kafka.bootstrap.servers": "metadata",
    "topic": "log",
    "subscribe": "subscribe",
    "subscribePattern": "subscribePattern",
    "assign": "assign",
    "startingOffsets": "startingOffsets",
    "startingTimestamp": "startingTimestamp",
    "startingOffsetsByTimestamp": "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy": "startingOffsetsByTimestampStrategy",
    "endingOffsets": "endingOffsets",
    "endingTimestamp": "endingTimestamp",
    "endingOffsetsByTimestamp": "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger": "maxRecordsPerTrigger",
    "minOffsetsPerTrigger": "minRecordsPerTrigger",
    "maxTriggerDelay": "maxTriggerDelay",
    "minPartitions": "minPartitions",
    "failOnDataLoss": "failOnDataLoss",
    "includeHeaders": "includeHeaders",
}
# Those of Kafka's that mean nothing where ours has no such option; and so each of its clients'.
KAFKAS_ALONE = (
    *("groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("maxRecordsPerPartition", "includeHeaders"),
)
KAFKAS_CLIENTS = "kafka."
NAMING = ("log", "subscribe", "subscribePattern", "assign")  # which logs, of which one is given
DELAY = r"^\d+(us|ms|s|m|min|h|d)?$"
DELAY_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Options(BaseModel):
    """How all of them are read."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)

    takes_kafkas: ClassVar[bool] = False  # names, too

    @classmethod
    def takes(cls, name: str) -> bool:
        """True if there is an option of that name, or one of Kafka's that is taken."""
        try:
            cls.of({name: ""})
        except ValueError as error:
            return not str(error).startswith(f"option {name!r} is unknown")
        return True

    @classmethod
    def of(cls, given: Mapping[str, str], default_metadata: str | None = None) -> Self:
        """`ValueError` names the option, what is wrong with it, and for an unknown one the nearest."""
        names = {(field.alias or name).lower(): field.alias or name for name, field in cls.model_fields.items()}
        kafkas = {name.lower(): ours for name, ours in KAFKAS.items() if ours in names.values()}
        alone = {name.lower() for name in KAFKAS_ALONE}
        found: dict[str, str] = {}
        for name, value in given.items():
            low = name.lower()
            ours = names.get(low) or (kafkas.get(low) if cls.takes_kafkas else None)
            if ours is not None:
                if found.get(ours, value) != value:
                    raise ValueError(f"option {name!r} is {ours!r} by another name, and both are given: leave one out")
                found[ours] = value
            elif low not in SPARKS and not (cls.takes_kafkas and (low in alone or low.startswith(KAFKAS_CLIENTS))):
                near = difflib.get_close_matches(low, {**names, **(kafkas if cls.takes_kafkas else {})}, 1)
                nearest = kafkas.get(low, names.get(near[0], kafkas.get(near[0], "")) if near else "")
                hint = f"did you mean {nearest!r}?" if nearest else f"there are {', '.join(sorted(names.values()))}"
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
    """The records of one log."""

    log: str = Field(description="the log's name")
    start: str = Field(
        default="begin", description="`begin`, `end`, an index, or a time with its zone as 2026-01-31T08:00:00+00:00"
    )
    end: str = Field(default="end", description="of a batch query: `end`, an index, or a time; that record is left out")
    max_records_per_trigger: int | None = Field(default=None, ge=1, description="records of one batch of a stream")
    max_bytes_per_trigger: int | None = Field(
        default=None, ge=1, description="bytes of values of one batch of a stream, about"
    )


class LogsReading(LogReading):
    """`format("log")` as a source: one log or several, by our names or Kafka's."""

    takes_kafkas = True

    log: str = Field(default="", description="the log's name")
    subscribe: str | None = Field(default=None, description="logs' names, with commas between")
    subscribe_pattern: str | None = Field(
        default=None, description="a regular expression of Python's, which a log's whole name has to match"
    )
    assign: str | None = Field(default=None, description='partitions of logs, as `{"orders":[0,1]}`')
    start: str = Field(
        default="",
        description="`begin`, `end`, a time with its zone as 2026-01-31T08:00:00+00:00, or of one log an index; by "
        "default `begin`, or what is default of startingOffsets where one of Kafka's options names the logs",
    )
    starting_offsets: str | None = Field(
        default=None,
        description='`earliest`, `latest`, or an index for each partition as `{"orders":{"0":23,"1":-2}}`, of which '
        "-2 is the begin and -1 the end; by default `latest` in a stream, `earliest` in a batch query",
    )
    starting_timestamp: str | None = Field(default=None, description="a time in ms since 1970, of all logs")
    starting_offsets_by_timestamp: str | None = Field(
        default=None, description='times in ms since 1970, as `{"orders":{"0":1769846400000}}`'
    )
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = Field(
        default="error", description="what a time behind all records is that one of the last two options gives"
    )
    ending_offsets: str | None = Field(
        default=None, description="of a batch query: `latest`, or an index for each partition"
    )
    ending_timestamp: str | None = Field(default=None, description="of a batch query: a time in ms since 1970")
    ending_offsets_by_timestamp: str | None = Field(
        default=None, description="of a batch query: times in ms since 1970"
    )
    columns: Literal["log", "kafka"] | None = Field(
        default=None, description="whose names columns have; by default Kafka's where one of its options names the logs"
    )
    include_headers: bool = Field(default=False, description="whether Kafka's columns have `headers`")
    min_records_per_trigger: int | None = Field(
        default=None, ge=1, description="records of one batch of a stream at least, while it may wait for them"
    )
    max_trigger_delay: str = Field(default="15m", pattern=DELAY, description="how long it may, as `30s`, `15m`")
    cursor: str | None = Field(
        default=None, description="of a stream: the name of a cursor of each log that is where the stream is"
    )

    @classmethod
    def of(cls, given: Mapping[str, str], default_metadata: str | None = None) -> Self:
        """As `Options.of`; besides, the logs are named by one option."""
        found = super().of(given, default_metadata)
        named = [name for name in NAMING if getattr(found, to_snake(name))]
        if not named:
            lost = "" if given.keys() - {"metadata"} else NONE_CAME
            raise ValueError(f"option 'log' is missing: the log's name; or give one of {', '.join(NAMING[1:])}{lost}")
        if len(named) > 1:
            raise ValueError(f"options {named[0]!r} and {named[1]!r} both name logs: give one of them")
        return found

    @property
    def delay_s(self) -> float:
        """`max_trigger_delay` in seconds; a number alone is of milliseconds, as in Spark's settings."""
        number = self.max_trigger_delay.rstrip("".join(DELAY_S))
        return int(number) * DELAY_S[self.max_trigger_delay[len(number) :] or "ms"]

    def one(self, name: str, share: float = 1.0) -> "LogsReading":
        """Returns the same options for one log, which has about that share of the tasks."""
        update = {"log": name, "min_partitions": max(1, round(self.tasks_min * share))}
        return self.model_copy(update={**update, "max_partitions": max(1, int(self.max_partitions * share))})


def has_kafkas_columns(given: Mapping[str, str]) -> bool:
    """True if a source of logs with these options has the columns that Kafka's has."""
    low = {name.lower(): value for name, value in given.items()}
    return low.get("columns", "kafka" if any(name.lower() in low for name in NAMING[1:]) else "log").lower() == "kafka"


class LogWriting(InCluster):
    """`format("log")` as a sink."""

    takes_kafkas = True

    log: str = Field(
        default="", description="the log's name; without one each row's column `topic` names the log that it goes to"
    )
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


class PulsarReading(Reading):
    """`format("pulsar")` as a source."""

    topic: str | None = Field(
        default=None, description="a topic, as `persistent://TENANT/NAMESPACE/TOPIC`, with all of its partitions"
    )
    topics: str | None = Field(default=None, description="several, with commas between")
    topics_pattern: str | None = Field(
        default=None,
        description="a regular expression of Python's, which the whole name of a topic has to match, without that of "
        "its partition: `persistent://public/default/orders-.*`",
    )
    starting_offsets: str | None = Field(
        default=None,
        description="`earliest`, `latest`, or a position for each topic or partition as "
        '`{"persistent://public/default/t":"12:0"}`, from which on messages are read, also `earliest` or `latest`; by '
        "default `latest` in a stream, `earliest` in a batch query",
    )
    starting_timestamp: str | None = Field(
        default=None,
        description="a publish time from which on messages are read: in ms since 1970, or with its zone as "
        "2026-01-31T08:00:00+00:00; Pulsar's name `startingTime` is taken, too",
    )
    subscription: str | None = Field(
        default=None,
        description="the name of a subscription that each topic has: what it has not acknowledged is read, and no "
        "cursor is moved",
    )
    ending_offsets: str | None = Field(
        default=None,
        description="of a batch query: `latest`, or a position for each topic or partition, before which the query "
        "ends; by default `latest`, what the broker has confirmed",
    )
    max_entries_per_trigger: int | None = Field(
        default=None, ge=1, description="entries of one batch of a stream, of which each has a message or a batch"
    )
    read_compacted: bool = Field(
        default=False,
        description="of a batch query: of each key only the newest message, as far as Pulsar has compacted the topic",
    )
    chunk_bytes_max: int = Field(
        default=256 * MIB,
        ge=1,
        description="bytes of messages in chunks that wait in one task for their last chunk; above it the query fails",
    )
    look_back_max: int = Field(
        default=20_000,
        ge=0,
        description="entries before those of a task in which the first chunks of a message are looked for; where they "
        "may be further back the query fails",
    )
    root: str | None = Field(
        default=None,
        pattern=r"^(/[^/]+)*$",
        description="the node below which Pulsar's are; by default the one that the ledgers' node is in",
    )
    unconfirmed: bool = Field(
        default=False,
        description="of a batch query: whether the last entries of an open ledger are read, too, that no later one "
        "confirms yet",
    )

    @classmethod
    def of(cls, given: Mapping[str, str], default_metadata: str | None = None) -> Self:
        """As `Options.of`; besides, the topics are named by one option, and so is the start."""
        names = {"startingtime": "startingTimestamp", "pulsar.service.url": "", "service.url": "", "admin.url": ""}
        for name in given:
            if names.get(name.lower()) == "":
                raise ValueError(
                    f"option {name!r} is of a broker, and none is asked: 'metadata' names the metadata store of its "
                    "bookies, as zk://host:2181/ledgers"
                )
        found = super().of({names.get(name.lower(), name): value for name, value in given.items()}, default_metadata)
        for names_of_one, least in ((NAMES, 1), (STARTS, 0)):
            chosen = [to_camel(name) for name in names_of_one if getattr(found, name) is not None]
            if not least <= len(chosen) <= 1:
                raise ValueError(
                    f"one of the options {', '.join(map(to_camel, names_of_one))} says it, "
                    f"not {' and '.join(chosen) or 'none'}"
                )
        return found

    @field_validator("topics_pattern")
    @classmethod
    def _pattern(cls, given: str | None) -> str | None:
        try:
            re.compile(given or "")
        except re.error as error:
            raise ValueError(f"{given!r} is no regular expression: {error}") from None
        return given

    @field_validator("starting_timestamp")
    @classmethod
    def _time(cls, given: str | None) -> str | None:
        if given is not None and milliseconds(given) is None:
            raise ValueError(f"{given!r} is no number of ms since 1970, and no time as 2026-01-31T08:00:00+00:00")
        return given

    @property
    def starting_ms(self) -> int | None:
        """`starting_timestamp` in ms since 1970."""
        return None if self.starting_timestamp is None else milliseconds(self.starting_timestamp)


def milliseconds(text: str) -> int | None:
    """A time as ms since 1970, given so or with its zone; None if it is neither."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if time.tzinfo is None else int(time.timestamp() * 1000)


NAMES = ("topic", "topics", "topics_pattern")
STARTS = ("starting_offsets", "starting_timestamp", "subscription")


def describe(model: type[Options]) -> list[tuple[str, str, Any, str]]:
    """(name, type, default, meaning) of each option, for the manual."""
    rows = []
    for name, field in model.model_fields.items():
        default = "" if field.is_required() else field.default
        rows.append((field.alias or name, str(field.annotation), default, field.description or ""))
    return rows
