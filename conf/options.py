"""
How one option is declared: as a pydantic field that also carries its key in files, its unit and the scale between the
two.

Knows: the shape that `properties` and the samples read back.  Does not know: any option.
"""

from collections.abc import Mapping
from typing import Any, TypedDict, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

# SPDX-License-Identifier: Apache-2.0


T = TypeVar("T")
SCALES = {"MiB": 1 << 20}


class Part(BaseModel):
    """Options of one concern: never changed, and with no others beside them."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def chosen(kind: type[T], given: T | None) -> T:
    """The options that a caller gave, or the defaults where it gave none; `TypeError` for what is none of that kind."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise TypeError(f"options are a {kind.__name__}, or None for the defaults, not {type(given).__name__}")
    return given


class Key(TypedDict):
    """How a field is written in a file: by its first name preferably; `scale` makes the file's number the field's."""

    names: list[str]
    unit: str
    scale: int
    example: str


def option(
    key: str | tuple[str, ...],
    default: Any,
    description: str,
    *,
    unit: str = "",
    scale: int = 0,
    example: str = "",
    **limits: Any,
) -> Any:
    """
    A field of an options model.  `default` (`...` of a required key) and `limits` (ge, le, gt, lt, min_length) are in
    the field's own unit, which its name ends in; `unit` and `scale` are the file's: a key in MiB has scale 2^20 unless
    it has another one.  `example` is the sample's value of a required key.
    """
    names = [key] if isinstance(key, str) else list(key)
    extra: Key = {"names": names, "unit": unit, "scale": scale or SCALES.get(unit, 1), "example": example}
    return Field(default, description=description, json_schema_extra=cast(dict[str, Any], extra), **limits)


def optional(key: str | tuple[str, ...], description: str) -> Any:
    """An option of text, a file's name mostly, that is unset where nobody sets it, and never empty."""
    return option(key, None, description, min_length=1)


def listed(value: object) -> object:
    """Names as in a file, which is what a program gives, too, if it gives text."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


def key_of(field: FieldInfo) -> Key:
    """The file side of a field that `option` declared."""
    extra = field.json_schema_extra
    assert isinstance(extra, Mapping), "the field was not declared by option()"
    return cast(Key, extra)


def range_text(field: FieldInfo) -> str:
    """The allowed values, in the file's unit, in words: "1 to 65535", "at least 1", "true or false"."""
    scale, unit = key_of(field)["scale"], key_of(field)["unit"]
    if field.annotation is bool:
        return "true or false"
    low = high = None
    inclusive = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    parts = []
    for limit in field.metadata:
        for name, word in inclusive.items():
            value = getattr(limit, name, None)
            if value is None:
                continue
            value = value // scale if isinstance(value, int) else value
            parts.append(f"{word} {value}")
            low = value if name == "ge" else low
            high = value if name == "le" else high
    if low is not None and high is not None and len(parts) == 2:
        return f"{low} to {high}" + (f" {unit}" if unit else "")
    return " and ".join(parts) + (f" {unit}" if unit and parts else "")


def file_value(field: FieldInfo, value: Any) -> str:
    """A field's value as it is written in a file; an unset one is the empty string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    if isinstance(value, int):
        return str(value // key_of(field)["scale"])
    return str(value)
