"""
The cookie: text that ties a bookie's id to its directories, their incarnation (D19) and its cluster.

The first line is the layout version (metadata-rules.md 6.1), then for version 4 and up one field a line,
`name: "value"`, for version 3 three bare lines.  The same text is in `current/VERSION` of every journal, ledger and
index directory, and in the metadata store under the bookie's id.

    5
    bookieHost: "10.0.0.5:3181"
    journalDir: "/journal"
    ledgerDirs: "1\t/ledgers"
    instanceId: "48a562a9-60b0-4d14-a6c2-f598c2df360b"
    # incarnation: 91c20a3fd04e5b77
    # before: 0d51f3c4a7b2e698                 in the store only, while a restore is under way

Lines that begin with # are comments of protobuf's text format, which Apache's readers pass over.

Cookies are the same in all directories, so they don't show that two directories were exchanged.  Their roles do:
`quire.place` in the `current/` of every directory, text, has a line for each use, with the place in the configuration:
`journal 0`, `ledgers 1`, `index 1`.  An Apache bookie's directories have none.

Knows: these texts, and how two cookies differ.  Does not know: where cookies are kept, what follows from a difference.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from quire.bookie.layout import ROLE, current, directories
from quire.bookie.lifecycle.ids import IdentityError
from quire.conf.bookie import BookieOptions
from quire.metadata.formats.java_text import quote, unquote
from quire.protocol.errors import MetadataSerialization
from quire.rows.files import Files, error_at

# SPDX-License-Identifier: Apache-2.0

OTHER_STORE = "correct metadataServiceUri, or put the backup of the metadata store back"  # for data of no cluster there
LAYOUT_VERSION = 5
LAYOUT_VERSION_MIN = 3
VERSION_DIGITS_MAX = 9
FIELD = re.compile(r'\s*(\w+)\s*:\s*("(?:[^"\\]|\\.)*")\s*')
COMMENT = re.compile(r"\s*#([^\n]*)")
NUMBER = re.compile(r" (incarnation|before): ([0-9a-f]{16})\s*")  # in a comment
FIELD_NAMES = {
    "bookieHost": "bookie",
    "journalDir": "journals",
    "ledgerDirs": "ledgers",
    "instanceId": "instance_id",
    "indexDirs": "indexes",
}


@dataclass(frozen=True, slots=True)
class Cookie:
    """
    `journals` is comma-joined; `ledgers` and `indexes` are count, then TAB and directory for each, in the order of the
    configuration.  `incarnation`: 16 hexadecimal digits; None: Apache's bookie wrote it, or quire before D19.
    `before`: the one that the directories which were not lost still have, while a restore is under way.
    """

    bookie: str
    journals: str
    ledgers: str
    instance_id: str | None = None
    indexes: str | None = None
    incarnation: str | None = None
    before: str | None = None

    @classmethod
    def expected(cls, options: BookieOptions, bookie: str, instance_id: str | None) -> "Cookie":
        """Returns the cookie that a configuration means in a cluster."""
        indexes = counted(options.index_directories) if options.index_directories else None
        return cls(
            bookie, ",".join(options.journal_directories), counted(options.ledger_directories), instance_id, indexes
        )

    def of(self, incarnation: str, before: str | None = None) -> "Cookie":
        """Returns the cookie of these directories in another incarnation."""
        return replace(self, incarnation=incarnation, before=before)

    def encode(self) -> bytes:
        """Layout version 5."""
        lines = [
            str(LAYOUT_VERSION),
            f"bookieHost: {quote(self.bookie)}",
            f"journalDir: {quote(self.journals)}",
            f"ledgerDirs: {quote(self.ledgers)}",
        ]
        if self.instance_id is not None:
            lines.append(f"instanceId: {quote(self.instance_id)}")
        if self.indexes is not None:
            lines.append(f"indexDirs: {quote(self.indexes)}")
        lines += [f"# {name}: {value}" for name in ("incarnation", "before") if (value := getattr(self, name))]
        return "".join(line + "\n" for line in lines).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> "Cookie":
        """Layout 3 and up; `IdentityError` names `where`."""
        text = data.decode("utf-8", "replace")
        first, _, rest = text.partition("\n")
        first = first.strip()
        if not (first.isascii() and first.isdecimal() and len(first) <= VERSION_DIGITS_MAX):
            raise IdentityError(
                f"{where} is not a cookie: its first line is {first[:40]!r} instead of a layout version"
            )
        version = int(first)
        if version < LAYOUT_VERSION_MIN:
            raise IdentityError(
                f"{where} has layout version {version}, which is too old; upgrade it with Apache BookKeeper first"
            )
        if version == LAYOUT_VERSION_MIN:
            lines = rest.splitlines()
            if len(lines) < 3:
                raise IdentityError(f"{where} has layout version 3 and {len(lines)} of its 3 lines")
            return cls(*lines[:3])
        values: dict[str, str] = {}
        offset = 0
        while offset < len(rest.rstrip()):
            if (comment := COMMENT.match(rest, offset)) is not None:
                if (number := NUMBER.fullmatch(comment[1])) is not None:
                    values[number[1]] = number[2]
                offset = comment.end()
                continue
            match = FIELD.match(rest, offset)
            if match is None:
                raise IdentityError(f"{where} can't be read near {rest[offset : offset + 40]!r}")
            if match[1] in FIELD_NAMES:
                try:
                    values[FIELD_NAMES[match[1]]] = unquote(match[2]).decode("utf-8", "replace")
                except MetadataSerialization as error:
                    raise IdentityError(f"{where} can't be read: {error}") from None
            offset = match.end()
        missing = [
            name
            for name, field in FIELD_NAMES.items()
            if field in ("bookie", "journals", "ledgers") and field not in values
        ]
        if missing:
            raise IdentityError(f"{where} lacks {', '.join(missing)}")
        return cls(**values)

    def differences(self, found: "Cookie", expansion: bool) -> list[str]:
        """How a found cookie differs, but for the incarnation; with `expansion` it may lack new directories."""
        out = []
        if found.bookie != self.bookie:
            out.append(f"its bookie is {found.bookie}, this one is {self.bookie}")
        if found.instance_id != self.instance_id:
            out.append(
                f"its cluster is {found.instance_id or 'without an id'}, this one is "
                f"{self.instance_id or 'without an id'}"
            )
        if found.journals != self.journals:
            out.append(f"its journals are {found.journals}, the configuration says {self.journals}")
        pairs = (
            ("ledger directories", found.ledgers, self.ledgers),
            ("index directories", found.indexes or found.ledgers, self.indexes or self.ledgers),
        )
        for name, old, new in pairs:
            if old != new and not (expansion and set(listed(old)) <= set(listed(new))):
                out.append(f"its {name} are {','.join(listed(old))}, the configuration says {','.join(listed(new))}")
        return out if len(out) < 2 or out[-1].replace("index", "ledger") != out[-2] else out[:-1]


def counted(directories: tuple[str, ...]) -> str:
    """Directories as one value of the cookie."""
    return "\t".join([str(len(directories)), *directories])


def listed(text: str) -> list[str]:
    """The directories in one value of the cookie."""
    return text.split("\t")[1:]


def advice(found: Cookie, expected: Cookie) -> str:
    """The next step for the most frequent differences."""
    if found.instance_id != expected.instance_id:
        return f"The data is of another cluster: {OTHER_STORE}"
    if found.bookie != expected.bookie:
        return f"If only the address changed, set bookieId={found.bookie}"
    return (
        "Name the same directories in the same order as before (allowStorageExpansion=true only adds new, empty ones); "
        "where they were moved, make each old path a mount or a symbolic link that leads there"
    )


def summary(cookie: Cookie) -> Mapping[str, object]:
    """The fields as people read them."""
    return {
        "bookie": cookie.bookie,
        "journal_directories": cookie.journals.split(","),
        "ledger_directories": listed(cookie.ledgers),
        "index_directories": listed(cookie.indexes) if cookie.indexes else None,
        "instance_id": cookie.instance_id,
        "incarnation": cookie.incarnation,
    }


WRITTEN = re.compile(r"((journal|ledgers|index) \d+\n)+")


def role_path(directory: str) -> str:
    return current(directory, ROLE)


def role_of(options: BookieOptions, directory: str) -> str:
    """The text of the file: what a directory is to its bookie."""
    uses = (
        ("journal", options.journal_directories),
        ("ledgers", options.ledger_directories),
        ("index", options.index_directories),
    )
    return "".join(f"{use} {number}\n" for use, paths in uses for number, path in enumerate(paths) if path == directory)


def check_roles(files: Files, options: BookieOptions, without: Collection[str] = ()) -> list[str]:
    """The directories without this file; `IdentityError` where it is damaged, or directories were exchanged."""
    bare = []
    for directory in directories(options):
        if directory in without:
            continue
        try:
            data = files.read_file(role_path(directory))
        except OSError as failure:
            raise IdentityError(error_at(role_path(directory), directory, failure)) from failure
        if data is None:
            bare.append(directory)
            continue
        role, wanted = data.decode("utf-8", "replace"), role_of(options, directory)
        if WRITTEN.fullmatch(role) is None:
            raise IdentityError(
                f"{role_path(directory)} is damaged ({len(data)} bytes; it does not say which of the bookie's "
                f"directories this is, as `{wanted.splitlines()[0]}`).  If no disks were exchanged, `rm "
                f"{role_path(directory)}`: the start writes it again"
            )
        if role != wanted:
            right = next((other for other in directories(options) if role_of(options, other) == role), None)
            step = "Name" if right is None else f"Mount the disk at {right}, as before, or name"
            raise IdentityError(
                f"{directory} was {named(role)} of this bookie and is configured as {named(wanted)}: directories were "
                f"exchanged.  {step} the directories in the configuration in their old order"
            )
    return bare


def named(role: str) -> str:
    """A role as people read it."""
    return " and ".join(role.split("\n")).removesuffix(" and ") or "nothing"


def note_roles(files: Files, options: BookieOptions, bare: Iterable[str]) -> None:
    """Writes the file in the directories without it."""
    for directory in bare:
        try:
            files.replace(role_path(directory), role_of(options, directory).encode())
        except OSError as failure:
            raise IdentityError(error_at(role_path(directory), directory, failure)) from failure
