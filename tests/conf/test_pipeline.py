"""Options of sources and sinks, as Spark gives them."""

from pathlib import Path

import pytest

from quire.conf.pipeline import (
    KAFKAS,
    KAFKAS_ALONE,
    LedgerReading,
    LogsReading,
    LogWriting,
    Options,
    PulsarReading,
    describe,
    has_kafkas_columns,
)
from quire.conf.pulsar import PulsarOptions

# SPDX-License-Identifier: Apache-2.0

DOCS = Path(__file__).parents[2] / "docs"
GIVEN = {"metadata": "sqlite:///x", "ledgers": "7"}


def test_names_in_any_case_and_text_as_values() -> None:
    """Spark's own options are left to it."""
    found = LedgerReading.of({**GIVEN, "SPLITBYTES": "10", "pushdown": "TRUE", "checkpointLocation": "/c", "path": "p"})
    assert (found.split_bytes, found.pushdown, found.open_ledgers) == (10, True, "lac")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ledgers": "7"}, r"'metadata' is missing: URI of"),
        ({"metadata": "x"}, r"'ledgers' is missing: ledger ids"),
        ({**GIVEN, "ledgres": "7"}, r"'ledgres' is unknown: did you mean 'ledgers'"),
        ({**GIVEN, "qqqqqq": "7"}, r"'qqqqqq' is unknown: there are .*batchBytes"),
        ({**GIVEN, "splitBytes": "none"}, r"'splitBytes': .*integer"),
        ({**GIVEN, "splitBytes": "0"}, r"'splitBytes': .*greater than or equal to 1"),
        ({**GIVEN, "openLedgers": "all"}, r"'openLedgers': .*'skip', 'lac' or 'recover'"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], said: str) -> None:
    """The option, what is wrong, and for an unknown one the nearest."""
    with pytest.raises(ValueError, match=said):
        LedgerReading.of(given)


def test_kafkas_names_are_taken() -> None:
    """By sources and sinks of logs, in any case; those that are for Kafka's clients mean nothing."""
    given = {"kafka.bootstrap.servers": "zk://x/ledgers", "SUBSCRIBE": "a,b", "maxOffsetsPerTrigger": "7"}
    found = LogsReading.of({**given, "kafka.security.protocol": "SASL_SSL", "fetchOffset.numRetries": "3"})
    assert (found.metadata, found.subscribe, found.max_records_per_trigger) == ("zk://x/ledgers", "a,b", 7)
    sink = LogWriting.of({"kafka.bootstrap.servers": "zk://x/ledgers", "topic": "a", "includeHeaders": "true"})
    assert (sink.metadata, sink.log) == ("zk://x/ledgers", "a")


def test_an_option_by_both_of_its_names() -> None:
    """Is an error where they differ, and names both."""
    both = {"metadata": "x", "log": "a", "maxRecordsPerTrigger": "7"}
    assert LogsReading.of({**both, "maxOffsetsPerTrigger": "7"}).max_records_per_trigger == 7
    with pytest.raises(ValueError, match="'maxOffsetsPerTrigger' is 'maxRecordsPerTrigger' by another name"):
        LogsReading.of({**both, "maxOffsetsPerTrigger": "8"})


def test_kafkas_names_elsewhere() -> None:
    """A source that does not take them tells ours, if it has such an option."""
    with pytest.raises(ValueError, match=r"'kafka\.bootstrap\.servers' is unknown: did you mean 'metadata'"):
        LedgerReading.of({**GIVEN, "kafka.bootstrap.servers": "7"})
    with pytest.raises(ValueError, match="'startingOffsets' is unknown: there are "):
        LedgerReading.of({**GIVEN, "startingOffsets": "7"})
    with pytest.raises(ValueError, match="'startingOfsets' is unknown: did you mean 'startingOffsets'"):
        LogsReading.of({"metadata": "x", "log": "a", "startingOfsets": "7"})


def is_known(model: type[Options], name: str) -> bool:
    """True if it is an option of that name, whatever is wrong with its value."""
    try:
        model.of({name: "1"}, "x")
    except ValueError as error:
        return "is unknown" not in str(error)
    return True


def test_all_that_the_connector_documents() -> None:
    """Each option of Spark's source and sink of Kafka is taken by one of ours."""
    documented = {
        *("assign", "subscribe", "subscribePattern", "kafka.bootstrap.servers"),
        *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", "endingTimestamp"),
        *("endingOffsetsByTimestamp", "endingOffsets", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs"),
        *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger"),
        *("maxTriggerDelay", "minPartitions", "groupIdPrefix", "kafka.group.id", "includeHeaders"),
        *("startingOffsetsByTimestampStrategy", "topic", "maxRecordsPerPartition"),
    }
    assert all(is_known(LogsReading, name) or is_known(LogWriting, name) for name in documented)
    assert set(KAFKAS) <= documented
    assert not is_known(LogsReading, "topics")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"log": "a", "subscribe": "b"}, "'log' and 'subscribe' both name logs"),
        ({}, "'log' is missing: the log's name; or give one of subscribe, subscribePattern, assign"),
        ({"log": "a", "maxTriggerDelay": "5 weeks"}, "'maxTriggerDelay': .*pattern"),
        ({"log": "a", "columns": "pulsar"}, "'columns': .*'log' or 'kafka'"),
    ],
)
def test_logs_are_named_once(given: dict[str, str], said: str) -> None:
    """By one option of the four; other errors are those of any option."""
    with pytest.raises(ValueError, match=said):
        LogsReading.of({"metadata": "x", **given})


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("500ms", 0.5), ("250", 0.25), ("2h", 7200), ("1d", 86400), ("3min", 180)]
)
def test_delays(text: str, seconds: float) -> None:
    """As Spark reads them."""
    assert LogsReading.of({"metadata": "x", "log": "a", "maxTriggerDelay": text}).delay_s == seconds


def test_whose_columns() -> None:
    """Kafka's where one of its options names the logs, unless the query says."""
    assert not has_kafkas_columns({"log": "a", "startingOffsets": "earliest"})
    assert has_kafkas_columns({"SubscribePattern": "a.*"})
    assert not has_kafkas_columns({"subscribe": "a", "columns": "log"})
    assert has_kafkas_columns({"log": "a", "Columns": "Kafka"})


def test_the_options_for_one_of_several_logs() -> None:
    """Have the tasks that are its share."""
    every = LogsReading.of({"metadata": "x", "subscribe": "a,b", "minPartitions": "8", "maxPartitions": "100"})
    one = every.one("a", 0.25)
    assert (one.log, one.min_partitions, one.max_partitions) == ("a", 2, 25)
    assert every.one("a", 0.0001).max_partitions == 1


def test_a_table_without_options() -> None:
    """Spark loses them with CREATE TABLE: the error says what keeps them, where none at all came."""
    with pytest.raises(ValueError, match=r"'log' is missing: the log's name; .*leave the columns out"):
        LogsReading.of({}, "zk://x/ledgers")
    with pytest.raises(ValueError, match=r"'log' is missing: the log's name; or .* assign$"):
        LogsReading.of({"start": "7"}, "zk://x/ledgers")


def test_a_password_is_not_shown() -> None:
    """Not in the repr, and not in the error of another option."""
    found = LedgerReading.of({**GIVEN, "password": "secret"})
    assert "secret" not in repr(found)
    with pytest.raises(ValueError, match="splitBytes") as error:
        LedgerReading.of({**GIVEN, "password": "secret", "splitBytes": "-1"})
    assert "secret" not in str(error.value)


def test_metadata_of_the_environment() -> None:
    """Where the option is not given."""
    assert LogsReading.of({"log": "a"}, "zk://x/ledgers").metadata == "zk://x/ledgers"
    assert LogsReading.of({"log": "a", "metadata": "sqlite:///y"}, "zk://x/ledgers").metadata == "sqlite:///y"


def test_each_option_has_its_meaning() -> None:
    """For the manual."""
    for model in (LedgerReading, LogsReading, LogWriting, PulsarReading):
        assert all(meaning for _name, _type, _default, meaning in describe(model))


OF_TOPIC = {"metadata": "zk://x/ledgers", "topic": "t"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"metadata": "x"}, r"one of the options topic, topics, topicsPattern says it, not none"),
        ({**OF_TOPIC, "topics": "t,u"}, r"topicsPattern says it, not topic and topics"),
        ({**OF_TOPIC, "startingOffsets": "latest", "startingTime": "5"}, r"not startingOffsets and startingTimestamp"),
        ({**OF_TOPIC, "startingTimestamp": "2026-01-31T08:00:00"}, r"'startingTimestamp': .* is no number of ms"),
        ({"metadata": "x", "topicsPattern": "(a"}, r"'topicsPattern': .*'\(a' is no regular expression: missing \)"),
        ({**OF_TOPIC, "service.url": "pulsar://x"}, r"'service.url' is of a broker, and none is asked: 'metadata'"),
    ],
)
def test_topics_and_where_they_are_begun(given: dict[str, str], said: str) -> None:
    """Each is said by one option; what Pulsar's own source needs of a broker is not passed over in silence."""
    with pytest.raises(ValueError, match=said):
        PulsarReading.of(given)


def test_a_time_in_both_forms() -> None:
    """Under Kafka's name and Pulsar's."""
    for name, value in (("startingTime", "1769846400000"), ("startingTimestamp", "2026-01-31T08:00:00+00:00")):
        assert PulsarReading.of({**OF_TOPIC, name: value}).starting_ms == 1_769_846_400_000
    assert PulsarReading.of(OF_TOPIC).starting_ms is None


def test_bounds_are_those_of_other_readers() -> None:
    """Messages in chunks are whole or not, whoever reads a topic."""
    ours, theirs = PulsarReading.of(OF_TOPIC), PulsarOptions()
    assert (ours.chunk_bytes_max, ours.look_back_max) == (theirs.chunk_bytes_max, theirs.look_back_max)
    given = PulsarReading.of({**OF_TOPIC, "chunkBytesMax": "5", "lookBackMax": "0"})
    assert (given.chunk_bytes_max, given.look_back_max) == (5, 0)


@pytest.mark.parametrize("model", [LogsReading, LogWriting])
def test_each_option_is_in_the_manual(model: type[Options]) -> None:
    """Under its name, with Kafka's beside; each of Kafka's on the page for those who come from there."""
    page = (DOCS / "pipeline.md").read_text()
    missing = [name for name, *_rest in describe(model) if f"`{name}`" not in page]
    assert missing == []
    page = (DOCS / "from-spark-kafka.md").read_text()
    assert [name for name in (*KAFKAS, *KAFKAS_ALONE) if f"`{name}`" not in page] == []
