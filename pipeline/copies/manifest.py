"""
The manifest of a ledger's copy: `<ledger>/manifest.json` beside its files (docs/formats.md).

Knows: the JSON, and what has to hold of it.  Does not know: where it is kept, what is in the files.

Safety: a manifest that is damaged, or whose files do not hold each entry once, can't be made or read.
"""

import binascii
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from crc32c import crc32c

from quire.metadata.formats import ledger_codec
from quire.metadata.formats.json_text import parse_json
from quire.metadata.ledger import Fragment, LedgerMetadata
from quire.protocol.errors import LedgerError, Read

# SPDX-License-Identifier: Apache-2.0

NAME = "manifest.json"
KIND, FORMAT = "offloaded ledger", 1
NO_FILE = "none"  # in the place of a bookie, of a ledger without entries
FILE_NAME = re.compile("[0-9A-Za-z_-][0-9A-Za-z._-]{0,254}")  # beside the manifest, and nowhere else


class CopyDamaged(Read):
    """A copy, or what is written down of it, is not what it was."""


class UnknownFormat(CopyDamaged):
    """A manifest is in a format that this version does not read."""


@dataclass(frozen=True, slots=True)
class File:
    """Entries `first` to `last`.  `bytes`: of payloads; `size`: of the file; sums are CRC32C."""

    name: str
    first: int
    last: int
    bytes: int
    size: int
    payload_sum: int
    file_sum: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a ledger's copy, by `run` in the cluster of that id.  `metadata`: as the store kept it."""

    cluster: str
    ledger: int
    run: str
    at_ms: int
    metadata: bytes
    files: tuple[File, ...]

    def __post_init__(self) -> None:
        following = 0
        for file in self.files:
            if file.first != following or file.last < file.first:
                raise CopyDamaged(f"the copy of ledger {self.ledger} has no entry {following} where it should be")
            following = file.last + 1
        if following != self.closed.last_entry + 1:
            raise CopyDamaged(
                f"the copy of ledger {self.ledger} has {following} entries, the ledger {self.closed.last_entry + 1}"
            )

    @property
    def closed(self) -> LedgerMetadata:
        """The ledger's metadata, as a value.  `CopyDamaged` when it is no closed ledger's."""
        try:
            found = ledger_codec.decode(self.metadata)
        except LedgerError as error:
            raise CopyDamaged(f"the copy of ledger {self.ledger}: its metadata can't be read: {error}") from None
        if not found.is_closed:
            raise CopyDamaged(f"the copy of ledger {self.ledger} was made before the ledger was closed")
        return found

    @property
    def by_files(self) -> LedgerMetadata:
        """The metadata with files as bookies, each entry in one of them."""
        fragments = tuple(Fragment(file.first, (file.name,)) for file in self.files) or (Fragment(0, (NO_FILE,)),)
        return replace(self.closed, ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=fragments)

    def is_of(self, cluster: str, metadata: LedgerMetadata) -> bool:
        """True if it is of this very ledger."""
        return self.cluster == cluster and self.closed.identity == metadata.identity

    @property
    def sum(self) -> int:
        """CRC32C of it, by which a mark knows it."""
        return int(crc32c(self.encode()))

    def encode(self) -> bytes:
        """JSON, with its own sum."""
        members: dict[str, Any] = {
            "quire": KIND,
            "format": FORMAT,
            "cluster": self.cluster,
            "ledger": self.ledger,
            "run": self.run,
            "at": self.at_ms,
            "metadata": binascii.b2a_base64(self.metadata, newline=False).decode(),
            "digest": None if self.closed.digest is None else self.closed.digest.name,
            "entries": self.closed.last_entry + 1,
            "files": [asdict(file) for file in self.files],
        }
        return json.dumps({**members, "sum": sum_of(members)}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Manifest":
        """`CopyDamaged`, of another format `UnknownFormat`."""
        try:
            members = parse_json(data)
            if (members["quire"], members["format"]) != (KIND, FORMAT):
                raise UnknownFormat(f"a manifest of format {members['format']}: this version reads format {FORMAT}")
            found = members.pop("sum")
            if found != sum_of(members):
                raise CopyDamaged(f"the manifest of ledger {members['ledger']} does not have the sum that it names")
            texts, numbers = (members["cluster"], members["run"]), (members["ledger"], members["at"])
            if {*map(type, texts)} != {str} or {*map(type, numbers)} != {int} or min(numbers) < 0:
                raise TypeError(f"a copy of {str((texts, numbers))[:200]}")
            return cls(
                members["cluster"],
                members["ledger"],
                members["run"],
                members["at"],
                binascii.a2b_base64(members["metadata"]),
                tuple(map(_file, members["files"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CopyDamaged(f"a manifest can't be read: {error!r}") from None


def _file(members: dict[str, Any]) -> File:
    """`TypeError` when a member is missing, is too many, or is of another type."""
    found = File(**members)
    name, *numbers = asdict(found).values()
    is_name = isinstance(name, str) and FILE_NAME.fullmatch(name)
    if not is_name or not all(type(number) is int and number >= 0 for number in numbers):
        raise TypeError(f"a file is {str(members)[:200]}")
    return found


def sum_of(members: dict[str, Any]) -> int:
    """Computes the sum of a manifest that has none yet."""
    return int(crc32c(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()))


def place_of(ledger: int) -> str:
    """Returns where a ledger's manifest is below the place of all."""
    return f"{ledger}/{NAME}"
