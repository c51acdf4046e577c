"""
The settings of a message store, which its descriptor keeps, and the options of a process that uses message stores.

Knows: each one's unit, default, range and meaning.  Does not know: files, logs.
"""

import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from quire.conf.log import reason_of
from quire.conf.options import chosen
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0

FILE_BYTES_MIN, FILE_BYTES_MAX, FILE_BYTES_UNIT = 16_384, (1 << 31) - 4096, 4096
BODY_BYTES_MAX = 4 << 20


class StoreSettings(BaseModel):
    """The settings of one message store.  Members that this version does not know are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    file_bytes: int = Field(default=1 << 30, ge=1, le=(1 << 31) - 1, description="bytes of a file of the commit log")
    address: str = Field(description="HOST:PORT, the store host of new records, part of their message ids")
    max_body: int = Field(default=BODY_BYTES_MAX, ge=0, le=60 << 20, description="most bytes of a body that is put")
    record_crc: bool = Field(default=False, description="whether new records have the CRC property")
    progress: str = Field(min_length=1, description="the log that keeps consumer offsets and documents")

    @classmethod
    def made(cls, **settings: Any) -> Self:
        """Checks those of a new store; `ValueError` names one that is unknown or impossible."""
        unknown = sorted(set(settings) - set(cls.model_fields))
        if unknown:
            raise ValueError(
                f"a message store has no setting {', '.join(unknown)}: it has {', '.join(cls.model_fields)}"
            )
        size = settings.get("file_bytes", 1 << 30)
        if isinstance(size, int) and not (FILE_BYTES_MIN <= size <= FILE_BYTES_MAX and size % FILE_BYTES_UNIT == 0):
            raise ValueError(
                f"file_bytes is {size}: a multiple of {FILE_BYTES_UNIT} from {FILE_BYTES_MIN} to {FILE_BYTES_MAX}"
            )
        return cls._parsed(settings)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Reads the settings in a descriptor; `LogDamaged`."""
        try:
            return cls._parsed(stored)
        except ValueError as error:
            raise LogDamaged(f"the settings of the message store can't be understood: {error}") from None

    @classmethod
    def _parsed(cls, given: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(given)
        except ValueError as error:
            raise ValueError(reason_of(error)) from None

    @field_validator("address")
    @classmethod
    def _has_port(cls, address: str) -> str:
        parsed_address(address)
        return address


def parsed_address(text: str) -> tuple[bytes, int]:
    """
    The bytes of an IP address, and the port, of HOST:PORT, where an IPv6 address stands in brackets.  `ValueError`: a
    name is none, for a message id has room for an address only.
    """
    host, _, port = text.rpartition(":")
    try:
        packed = ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host).packed
    except ValueError:
        packed = b""
    if not packed or not (port.isascii() and port.isdigit()) or int(port) > 0xFFFF:
        raise ValueError(f"{text!r} is not an IP address and a port, as 10.0.0.5:10911 or [::1]:10911")
    return packed, int(port)


def address_text(packed: bytes, port: int) -> str:
    """The text of which `parsed_address` gives these."""
    address = ip_address(packed)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def state_directory() -> Path:
    """Where a user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


class MessageOptions(BaseModel):
    """The options of a process that uses message stores."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    derived_dir: Path = Field(
        default_factory=lambda: state_directory() / "quire" / "messages",
        description="directory of the rows of each store: default `quire/messages` below the user's state directory",
    )
    progress_ms: int = Field(default=1_000, ge=1, description="how often consumer offsets are stored")

    @classmethod
    def given(cls, options: "MessageOptions | None") -> "MessageOptions":
        """Returns the options that a caller gave, or the defaults; `TypeError` for anything else."""
        return chosen(cls, options)
