"""Options of sources and sinks, as Spark gives them."""

import pytest

from quire.conf.pipeline import LedgerReading, LogReading, describe

# SPDX-License-Identifier: Apache-2.0

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


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [("startingOffsets", "start"), ("maxOffsetsPerTrigger", "maxRecordsPerTrigger"), ("subscribe", "log")],
)
def test_kafkas_names_are_known(kafkas: str, ours: str) -> None:
    """The nearest by its letters misled; a source without such an option names those that it has."""
    with pytest.raises(ValueError, match=f"option '{kafkas}' is unknown: did you mean '{ours}'"):
        LogReading.of({"metadata": "x", kafkas: "7"})
    with pytest.raises(ValueError, match=f"option '{kafkas}' is unknown: there are "):
        LedgerReading.of({**GIVEN, kafkas: "7"})


def test_a_table_without_options() -> None:
    """Spark loses them with CREATE TABLE: the error says what keeps them, where none at all came."""
    with pytest.raises(ValueError, match=r"'log' is missing: the log's name; .*CREATE TEMPORARY VIEW"):
        LogReading.of({}, "zk://x/ledgers")
    with pytest.raises(ValueError, match=r"'log' is missing: the log's name$"):
        LogReading.of({"start": "7"}, "zk://x/ledgers")


def test_a_password_is_not_shown() -> None:
    """Not in the repr, and not in the error of another option."""
    found = LedgerReading.of({**GIVEN, "password": "secret"})
    assert "secret" not in repr(found)
    with pytest.raises(ValueError, match="splitBytes") as error:
        LedgerReading.of({**GIVEN, "password": "secret", "splitBytes": "-1"})
    assert "secret" not in str(error.value)


def test_metadata_of_the_environment() -> None:
    """Where the option is not given."""
    assert LogReading.of({"log": "a"}, "zk://x/ledgers").metadata == "zk://x/ledgers"
    assert LogReading.of({"log": "a", "metadata": "sqlite:///y"}, "zk://x/ledgers").metadata == "sqlite:///y"


def test_each_option_has_its_meaning() -> None:
    """For the manual."""
    for model in (LedgerReading, LogReading):
        assert all(meaning for _name, _type, _default, meaning in describe(model))
