"""How an option is declared and shown: keys, ranges in the unit of the file, values as files write them."""

import pytest
from pydantic import BaseModel

from quire.conf.options import file_value, key_of, option, range_text

# SPDX-License-Identifier: Apache-2.0


class Sample(BaseModel):
    needed: str = option("needed", ..., "d", example="e")
    size_bytes: int = option(("sizeMB", "oldSizeMB"), 2 << 20, "d", unit="MiB", ge=1 << 20, le=8 << 20)
    wait_ms: int = option("wait", 5, "d", unit="ms", ge=0)
    part: float = option("part", 0.5, "d", gt=0, lt=1)
    flag: bool = option("flag", True, "d")
    names: tuple[str, ...] = option("names", ("a", "b"), "d")
    free: str | None = option("free", None, "d")


FIELDS = Sample.model_fields


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("size_bytes", "1 to 8 MiB"),
        ("wait_ms", "at least 0 ms"),
        ("part", "above 0 and below 1"),
        ("flag", "true or false"),
        ("names", ""),
        ("free", ""),
    ],
)
def test_ranges_are_in_the_unit_of_the_file(name: str, text: str) -> None:
    """A range is written in the unit that the file's key has."""
    assert range_text(FIELDS[name]) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [("size_bytes", "2"), ("wait_ms", "5"), ("part", "0.5"), ("flag", "true"), ("names", "a,b"), ("free", "")],
)
def test_defaults_as_a_file_writes_them(name: str, text: str) -> None:
    """A default is written in the unit and form of the file."""
    assert file_value(FIELDS[name], FIELDS[name].default) == text


def test_a_field_knows_its_keys() -> None:
    """A field has its current and former keys and its example."""
    assert key_of(FIELDS["size_bytes"])["names"] == ["sizeMB", "oldSizeMB"]
    assert key_of(FIELDS["needed"])["example"] == "e"


def test_a_field_that_was_not_declared_so_has_none() -> None:
    """Asking an ordinary field for its keys is a programming error."""

    class Other(BaseModel):
        plain: int = 1

    with pytest.raises(AssertionError):
        key_of(Other.model_fields["plain"])
