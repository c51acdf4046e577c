"""
Who a bookie is: its id, and the cookie that ties the id to its directories and its cluster.

A cookie is text (metadata-rules.md 6.1): the first line is the layout version, then for version 4 and up one field a
line, `name: "value"`, for version 3 three bare lines.  The same text lies in `current/VERSION` of every journal, ledger
and index directory, and in the metadata store under the bookie's id.

Knows: ids, cookies, and the table that says whether a bookie may start (metadata-rules.md 6.2).
Does not know: what else lies in the directories.

Safety: a bookie whose directories are not those that it wrote before, all of them and in that order, does not start: it
would say "no such entry" of entries that it acknowledged.  New cookies go to empty directories only.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from quire.bookie.directory import notes
from quire.bookie.files import Files, is_dead
from quire.bookie.layout import COOKIE, ROLE, current, pairs
from quire.conf.addresses import interface_address, own_address, own_name
from quire.conf.bookie import BookieOptions
from quire.metadata.formats.java_text import quote, unquote
from quire.metadata.store import NEW, CookieNotFound, MetadataStore, Versioned
from quire.protocol.errors import MetadataSerialization

# SPDX-License-Identifier: Apache-2.0

LAYOUT_VERSION = 5
LAYOUT_VERSION_MIN = 3
ID_GRAMMAR = re.compile(r"[a-zA-Z0-9:-_.\-]+")  # metadata-rules.md 5.3; ":-_" is a range there, as it is here
RESERVED_IDS = ("readonly", ".", "..")
FIELD = re.compile(r'\s*(\w+)\s*:\s*("(?:[^"\\]|\\.)*")\s*')
FIELD_NAMES = {
    "bookieHost": "bookie",
    "journalDir": "journals",
    "ledgerDirs": "ledgers",
    "instanceId": "instance_id",
    "indexDirs": "indexes",
}
ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.", "::1", "localhost")


class IdentityError(Exception):
    """The bookie may not start under this identity.  The text says what differs and what to do."""


# --- ids


def check_id(bookie: str) -> str:
    """The id itself, or `IdentityError`: it becomes part of paths and keys."""
    if not ID_GRAMMAR.fullmatch(bookie):
        raise IdentityError(
            f"{bookie!r} can't be a bookie's id: use letters, digits and : - _ . (bookieId, advertisedAddress)"
        )
    if bookie.lower() in RESERVED_IDS:
        raise IdentityError(f"{bookie!r} can't be a bookie's id: as the last part of a path it means something else")
    return bookie


def listening_address(options: BookieOptions, interface: Callable[[str], str | None] = interface_address) -> str:
    """The address to bind: `listen` itself, or that of the interface that it names."""
    return interface(options.listen) or options.listen


def own_host(options: BookieOptions, interface: Callable[[str], str | None] = interface_address) -> str:
    """The host that clients are told to connect to; `IdentityError` for a loopback one that nobody asked for."""
    if options.advertised_address is not None:
        return options.advertised_address
    address = listening_address(options, interface)
    if options.use_host_name:
        host = own_name(options.use_short_host_name)
    elif address in ANY_ADDRESS:
        try:
            host = own_address()
        except OSError as failure:
            raise IdentityError(f"this machine's name has no address ({failure}): set advertisedAddress") from failure
    else:
        host = address
    if host.startswith(LOOPBACK) and not options.allow_loopback:
        raise IdentityError(
            f"the bookie would be known as {host}, which only this machine can reach: set advertisedAddress or "
            "listeningInterface, or allowLoopback=true"
        )
    return host


def derive_id(options: BookieOptions, host: str, port: int) -> str:
    """`bookieId` verbatim, else host:port."""
    return check_id(options.bookie_id if options.bookie_id is not None else f"{host}:{port}")


# --- cookies


@dataclass(frozen=True, slots=True)
class Cookie:
    """
    `journals` is comma-joined; `ledgers` and `indexes` are count, then TAB and directory for each, in the order of the
    configuration.
    """

    bookie: str
    journals: str
    ledgers: str
    instance_id: str | None = None
    indexes: str | None = None

    @classmethod
    def expected(cls, options: BookieOptions, bookie: str, instance_id: str | None) -> "Cookie":
        """What this configuration in this cluster means."""
        indexes = counted(options.index_directories) if options.index_directories else None
        return cls(
            bookie, ",".join(options.journal_directories), counted(options.ledger_directories), instance_id, indexes
        )

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
        return "".join(line + "\n" for line in lines).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> "Cookie":
        """Layout 3 and up; `IdentityError` names `where`."""
        text = data.decode("utf-8", "replace")
        first, _, rest = text.partition("\n")
        if not first.strip().isdecimal():
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
        at = 0
        while at < len(rest.rstrip()):
            match = FIELD.match(rest, at)
            if match is None:
                raise IdentityError(f"{where} can't be read near {rest[at : at + 40]!r}")
            if match[1] in FIELD_NAMES:
                try:
                    values[FIELD_NAMES[match[1]]] = unquote(match[2]).decode("utf-8", "replace")
                except MetadataSerialization as error:
                    raise IdentityError(f"{where} can't be read: {error}") from None
            at = match.end()
        missing = [
            name
            for name, field in FIELD_NAMES.items()
            if field in ("bookie", "journals", "ledgers") and field not in values
        ]
        if missing:
            raise IdentityError(f"{where} lacks {', '.join(missing)}")
        return cls(**values)

    def differences(self, found: "Cookie", expansion: bool) -> list[str]:
        """
        What a found cookie says otherwise than this, the expected one; with `expansion` it may lack directories that
        were added.
        """
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
    return "\t".join([str(len(directories)), *directories])


def listed(text: str) -> list[str]:
    return text.split("\t")[1:]


# --- the check at start


def directories(options: BookieOptions) -> list[str]:
    """All directories that have a cookie, each once."""
    return list(dict.fromkeys((*options.journal_directories, *options.ledger_directories, *options.index_directories)))


def version_path(directory: str) -> str:
    return current(directory, COOKIE)


def dead_directories(files: Files, options: BookieOptions) -> dict[str, str]:
    """
    The ledger directories whose disk, or their index's, has failed, and how; a bookie that has others may start without
    them.  None when none is left, or a journal lies there.
    """
    found: dict[str, str] = {}
    for ledgers, index in pairs(options):
        try:
            for directory in (ledgers, index):
                files.read_file(version_path(directory))
                files.names(current(directory))
        except OSError as failure:
            if is_dead(failure):
                found[ledgers] = str(failure)
    return (
        {}
        if len(found) == len(options.ledger_directories) or any(path in options.journal_directories for path in found)
        else found
    )


def indexes_of(options: BookieOptions, dead: Collection[str]) -> set[str]:
    """These ledger directories and their index directories."""
    return {path for pair in pairs(options) if pair.ledger_directory in dead for path in pair}


def read_cookies(files: Files, options: BookieOptions, without: Collection[str] = ()) -> dict[str, Cookie | None]:
    """The cookie of each directory, save those `without`; None where there is none."""
    found: dict[str, Cookie | None] = {}
    for directory in directories(options):
        if directory in without:
            continue
        path = version_path(directory)
        try:
            data = files.read_file(path)
        except OSError as failure:
            raise IdentityError(
                f"{path}: {failure.strerror or failure}.  If its disk is lost, put an empty directory in its place "
                "and start with --restore: "
                "what it held is copied from other bookies"
            ) from failure
        found[directory] = None if data is None else Cookie.decode(data, path)
    return found


def is_empty(files: Files, directory: str) -> bool:
    """Whether nothing but a cookie lies in the directory's `current`; `IdentityError` when it can't be read."""
    path = current(directory)
    try:
        return not set(files.names(path)) - {name + end for name in (COOKIE, ROLE) for end in ("", ".tmp")}
    except OSError as failure:
        raise IdentityError(f"{path}: {failure.strerror or failure}") from failure


def place_path(directory: str) -> str:
    return current(directory, ROLE)


def place_of(options: BookieOptions, directory: str) -> str:
    """
    What a directory is to its bookie, a line for each use: the cookie is the same in all of them, so it can't tell two
    that were exchanged.
    """
    uses = (
        ("journal", options.journal_directories),
        ("ledgers", options.ledger_directories),
        ("index", options.index_directories),
    )
    return "".join(f"{use} {number}\n" for use, paths in uses for number, path in enumerate(paths) if path == directory)


def check_places(files: Files, options: BookieOptions, without: Collection[str] = ()) -> list[str]:
    """
    The directories that have no note of their place, as an Apache bookie's have none.  `IdentityError` when directories
    were exchanged.
    """
    bare = []
    for directory in directories(options):
        if directory in without:
            continue
        try:
            data = files.read_file(place_path(directory))
        except OSError as failure:
            raise IdentityError(f"{place_path(directory)}: {failure.strerror or failure}") from failure
        if data is None:
            bare.append(directory)
            continue
        found, wanted = data.decode("utf-8", "replace"), place_of(options, directory)
        if found != wanted:
            right = next((other for other in directories(options) if place_of(options, other) == found), None)
            raise IdentityError(
                (
                    f"{directory} was {said(found)} of this bookie and is configured as {said(wanted)}: directories "
                    "were "
                    "exchanged.  "
                )
                + (f"Mount the disk at {right}, as before, or name" if right is not None else "Name")
                + " the directories in the configuration in their old order"
            )
    return bare


def said(place: str) -> str:
    return " and ".join(place.split("\n")).removesuffix(" and ") or "nothing"


def note_places(files: Files, options: BookieOptions, bare: Iterable[str]) -> None:
    for directory in bare:
        try:
            files.replace(place_path(directory), place_of(options, directory).encode())
        except OSError as failure:
            raise IdentityError(f"{place_path(directory)}: {failure.strerror or failure}") from failure


async def stored_cookie(store: MetadataStore, bookie: str) -> Versioned[bytes] | None:
    try:
        return await store.read_cookie(bookie)
    except CookieNotFound:
        return None


def stamp(files: Files, options: BookieOptions, cookie: Cookie, without: Collection[str] = ()) -> None:
    """
    Writes the cookie to every directory, durably, save those `without`; `IdentityError` names the directory that can't
    be written.  No directory has it before all were written to: a cookie binds them to each other, so that a wrong name
    among them could not be corrected.
    """
    wanted = [directory for directory in directories(options) if directory not in without]
    for directory in wanted:
        try:
            files.make_directories(current(directory))
        except OSError as failure:
            raise IdentityError(f"{directory} can't be made: {failure.strerror or failure}") from failure
    note_places(files, options, wanted)
    for directory in wanted:
        try:
            files.replace(version_path(directory), cookie.encode())
        except OSError as failure:
            raise IdentityError(f"{version_path(directory)}: {failure.strerror or failure}") from failure


async def lost_directories(
    store: MetadataStore, options: BookieOptions, bookie: str, instance_id: str | None, files: Files
) -> list[str]:
    """
    The directories that a bookie known to the cluster had and that are empty now, for a restore; none when it has them
    all.  `IdentityError` where more is wrong than that: then `check` would say no to what was restored.
    """
    expected = Cookie.expected(options, bookie, instance_id)
    stored = await stored_cookie(store, bookie)
    if stored is None:
        raise IdentityError(
            f"the cluster does not know {bookie}, so nothing can be restored: check bookieId and "
            "metadataServiceUri, "
            "or start without --restore"
        )
    known = Cookie.decode(stored.value, f"the cookie of {bookie} in {store.uri}")
    if different := expected.differences(known, expansion=False):
        raise IdentityError(
            f"the cookie of {bookie} in the metadata store is another one: {'; '.join(different)}.  "
            f"{advice(known, expected)}"
        )
    in_directories = read_cookies(files, options)
    for directory, cookie in in_directories.items():
        if cookie is not None and (different := expected.differences(cookie, expansion=False)):
            raise IdentityError(
                f"{version_path(directory)} belongs to another bookie or configuration: {'; '.join(different)}.  "
                f"{advice(cookie, expected)}"
            )
    check_places(files, options)
    lost = [directory for directory, cookie in in_directories.items() if cookie is None]
    for directory in lost:
        if not is_empty(files, directory) and not notes.is_restoring(files, directory):
            raise IdentityError(
                f"{directory} has files but no cookie: empty it (its entries are copied from other bookies), or "
                "bring the right disk back"
            )
    for pair in pairs(options) if options.index_directories else ():
        if sum(directory in lost for directory in pair) == 1:
            other = next(directory for directory in pair if directory not in lost)
            raise IdentityError(
                f"{other} belongs to a directory that is lost and is of no use without it: empty it too, cookie "
                "included, and start again"
            )
    return lost


async def check(
    store: MetadataStore,
    options: BookieOptions,
    bookie: str,
    instance_id: str | None,
    files: Files,
    write: bool = True,
    dead: Mapping[str, str] | None = None,
) -> bool:
    """
    Decides whether the bookie may start, and gives a new one its cookies; True when it is new.  Raises `IdentityError`.
    Nothing is written unless the answer is yes, and nothing at all without `write`.
    `dead`: ledger directories that it must do without, and why; that is for a bookie whose other directories all have
    their cookies.
    """
    expected = Cookie.expected(options, bookie, instance_id)
    without = indexes_of(options, dead or ())
    in_directories = read_cookies(files, options, without)
    stored = await stored_cookie(store, bookie)
    expansion = options.allow_storage_expansion
    for directory, cookie in in_directories.items():
        if cookie is not None and (different := expected.differences(cookie, expansion)):
            raise IdentityError(
                f"{version_path(directory)} belongs to another bookie or configuration: {'; '.join(different)}.  "
                f"{advice(cookie, expected)}"
            )
    placeless = check_places(files, options, without)
    bare = [directory for directory, cookie in in_directories.items() if cookie is None]
    full = [directory for directory in in_directories if not is_empty(files, directory)]
    if dead and (stored is None or bare):
        named = "; ".join(f"{directory}: {reason}" for directory, reason in dead.items())
        raise IdentityError(
            f"{named}.  Only a bookie that the cluster knows, and whose other directories have their cookies, "
            "starts "
            "without such a directory"
        )
    if stored is None:
        # Cookies in directories that are otherwise empty are those of a first start that ended before the store had its
        # copy.
        if full:
            named = ", ".join(full)
            if set(full) & set(bare):
                raise IdentityError(
                    f"{named} has files but no cookie, and {bookie} is not known to the cluster: empty it, or name "
                    "other directories"
                )
            raise IdentityError(
                f"the cluster does not know {bookie}, but {named} holds its data: if its cookie was lost, `quire "
                f"cookie create {bookie} --conf FILE` "
                f"makes it again; to throw the data away, `quire bookie format --conf FILE --yes`"
            )
        if write:
            stamp(files, options, expected)
            await store.write_cookie(bookie, expected.encode(), NEW)
        return True
    known = Cookie.decode(stored.value, f"the cookie of {bookie} in {store.uri}")
    if different := expected.differences(known, expansion):
        raise IdentityError(
            f"the cookie of {bookie} in the metadata store is another one: {'; '.join(different)}.  "
            f"{advice(known, expected)}"
        )
    if bare or expected.differences(known, expansion=False):
        check_expansion(options, expected, known, bare, full)
        if write:
            stamp(files, options, expected)
            await store.write_cookie(bookie, expected.encode(), stored.version)
    elif write:
        note_places(files, options, placeless)
    return False


def check_expansion(options: BookieOptions, expected: Cookie, known: Cookie, bare: list[str], full: list[str]) -> None:
    """
    Whether new, empty directories may join an old bookie; a directory that lost its cookie lost its data too, so it is
    no new one.
    """
    before = {*known.journals.split(","), *listed(known.ledgers), *listed(known.indexes or known.ledgers)}
    lost = [directory for directory in bare if directory in before]
    if lost:
        raise IdentityError(
            f"{', '.join(lost)} has lost its cookie, so perhaps its entries too: bring the disk back; or empty the "
            "directory and copy its entries from "
            "other bookies with `quire bookie start --conf FILE --restore`; or give the bookie up with `quire "
            f"recover {expected.bookie}`, "
            "then `quire bookie format --conf FILE --yes`"
        )
    if not options.allow_storage_expansion:
        raise IdentityError(f"{', '.join(bare)} is new to this bookie: set allowStorageExpansion=true to add it")
    holding = [directory for directory in full if directory in listed(known.ledgers)]
    if holding and len(options.ledger_directories) != len(listed(known.ledgers)):
        raise IdentityError(
            f"{', '.join(holding)} holds ledgers, and a ledger's directory follows from its id and how many there "
            "are: with one more they would not be "
            f"found.  To add it, `quire decommission {expected.bookie}`, then begin with all of them, empty, under "
            "another bookieId"
        )
    filled = [directory for directory in bare if directory in full]
    if filled:
        raise IdentityError(f"{', '.join(filled)} is to be added but is not empty: empty it, or name another directory")


def advice(found: Cookie, expected: Cookie) -> str:
    """The next step for the commonest differences."""
    if found.instance_id != expected.instance_id:
        return (
            "The data is of another cluster: check metadataServiceUri; to throw the data away, `quire bookie "
            "format --conf FILE --yes`"
        )
    if found.bookie != expected.bookie:
        return f"If only the address changed, set bookieId={found.bookie}"
    return (
        "Name the same directories in the same order as before (allowStorageExpansion=true only adds new, empty ones)"
    )


def summary(cookie: Cookie) -> Mapping[str, object]:
    """The fields as people read them."""
    return {
        "bookie": cookie.bookie,
        "journal_directories": cookie.journals.split(","),
        "ledger_directories": listed(cookie.ledgers),
        "index_directories": listed(cookie.indexes) if cookie.indexes else None,
        "instance_id": cookie.instance_id,
    }
