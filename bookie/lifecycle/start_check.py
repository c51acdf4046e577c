"""
The check before a start: the cookies and roles of the directories, beside the cookie that the metadata store has; and
their incarnation (D19).

Knows: the table of metadata-rules.md 6.2, and which directories a start does without, or a restore finds lost.
Does not know: what else is in the directories.

Safety: a bookie whose directories are not those that it wrote before, all of them and in that order, does not start: it
would say "no such entry" of entries that it acknowledged.  New cookies go to empty directories only, and under an id
that no ledger names and that nobody took out of the cluster.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from quire.bookie.directory import notes
from quire.bookie.layout import COOKIE, LOCK, RESTORING, ROLE, current, directories, pairs, with_indexes
from quire.bookie.lifecycle.cookie import OTHER_STORE, Cookie, advice, check_roles, listed, note_roles
from quire.bookie.lifecycle.ids import IdentityError
from quire.bookie.lifecycle.suspects import ledger_naming
from quire.conf.bookie import BookieOptions
from quire.metadata.retired_ids import retired
from quire.metadata.store import NEW, CookieExists, CookieNotFound, NoCluster, Versioned
from quire.metadata.tree_store import MetadataStore
from quire.rows.files import Files, error_at, is_dead, is_full, is_refused, owner_advice

# SPDX-License-Identifier: Apache-2.0


RESTORE = "`quire bookie start --conf FILE --restore`"


class Admitted(NamedTuple):
    """A bookie that may start: whether the cluster did not know it before, and its cookie."""

    is_new: bool
    cookie: Cookie


def new_incarnation(files: Files) -> str:
    """16 random hexadecimal digits."""
    return f"{files.salt():016x}"


def version_path(directory: str) -> str:
    return current(directory, COOKIE)


def failed_directories(files: Files, options: BookieOptions) -> dict[str, str]:
    """
    The ledger directories whose disk, or their index's, has failed, and how; a bookie that has others may start without
    them.  Empty when no other is left, or where a journal is on one of them.
    """
    failed: dict[str, str] = {}
    for ledgers, index in pairs(options):
        try:
            for directory in (ledgers, index):
                files.read_file(version_path(directory))
                files.names(current(directory))
        except OSError as failure:
            if is_dead(failure):
                failed[ledgers] = str(failure)
    if len(failed) == len(options.ledger_directories) or any(path in options.journal_directories for path in failed):
        return {}
    return failed


def read_cookies(files: Files, options: BookieOptions, without: Collection[str] = ()) -> dict[str, Cookie | None]:
    """The cookie of each directory, except those `without`; None where there is none."""
    cookies: dict[str, Cookie | None] = {}
    for directory in directories(options):
        if directory in without:
            continue
        path = version_path(directory)
        try:
            data = files.read_file(path)
        except OSError as failure:
            lost = (
                ".  If its disk is lost, put an empty directory in its place and start with --restore: what it held is "
                "copied from other bookies"
            )
            raise IdentityError(error_at(path, directory, failure) + ("" if is_refused(failure) else lost)) from failure
        try:
            cookies[directory] = None if data is None else Cookie.decode(data, path)
        except IdentityError as failure:
            raise IdentityError(f"{failure}.  {cookie_back(options, path)}") from None
    return cookies


def cookie_back(options: BookieOptions, path: str) -> str:
    """The next step for a cookie that can't be read: its text is in every directory, and in the metadata store."""
    other = next((found for each in directories(options) if (found := version_path(each)) != path), "")
    copy = f"`cp {other} {path}` if that one is whole, or " if other else ""
    return (
        f"Every directory of a bookie, and the metadata store, have the same text: {copy}`quire cookie show ID > "
        f"{path}`.  `quire bookie check --conf FILE --offline` looks at the other files"
    )


def explain(options: BookieOptions, failure: BaseException) -> None:
    """Raises `IdentityError` with the next step if the system refuses a start a file, or has no room for one."""
    if isinstance(failure, OSError) and is_full(failure):
        raise IdentityError(
            f"{failure}.  Nothing is lost: make room on that disk (16 MiB, or what is wanted above), not by removing "
            "files of the bookie, and start again"
        ) from failure
    if isinstance(failure, OSError) and is_refused(failure):
        path = str(failure.filename or failure)
        known = sorted(directories(options), key=len, reverse=True)  # of nested ones the inner first
        inside = [each for each in known if (each in path if failure.filename is None else is_within(path, each))]
        above = [each for each in known if is_within(each, path)]  # a directory that was to be made on the way to it
        if near := inside + above:
            raise IdentityError(
                f"{failure}.  {owner_advice(path if failure.filename else near[0], near[0])}"
            ) from failure


def is_within(path: str, directory: str) -> bool:
    """True if the path is the directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_empty(files: Files, directory: str) -> bool:
    """True if `current` holds but cookie, role or a note never made whole; `IdentityError` when it can't be read."""
    path = current(directory)
    try:
        nothing = {COOKIE, ROLE, LOCK, *(f"{name}.tmp" for name in (COOKIE, ROLE, RESTORING))}
        return not set(files.names(path)) - nothing
    except OSError as failure:
        raise IdentityError(error_at(path, directory, failure)) from failure


async def cluster_of(store: MetadataStore, options: BookieOptions, files: Files) -> str:
    """The id of the store's cluster, or `NoCluster`; `IdentityError` where directories are of one: none may be made."""
    try:
        return (await store.cluster()).instance_id
    except NoCluster as failure:
        without = with_indexes(options, failed_directories(files, options))
        for directory, cookie in read_cookies(files, options, without).items():
            if cookie is not None:
                raise IdentityError(
                    f"{store.uri} holds no cluster, and {directory} is of cluster "
                    f"{cookie.instance_id or 'without an id'}: {OTHER_STORE}"
                ) from failure
        raise


async def stored_cookie(store: MetadataStore, bookie: str) -> Versioned[bytes] | None:
    try:
        return await store.read_cookie(bookie)
    except CookieNotFound:
        return None


def stamp(files: Files, options: BookieOptions, cookie: Cookie, without: Collection[str] = ()) -> None:
    """
    Writes the cookie to every directory, durably, except those `without`; `IdentityError` names the directory that
    can't be written.  No directory has it before all were written to: a cookie binds them to each other, so that a
    wrong name among them could not be corrected.
    """
    wanted = [directory for directory in directories(options) if directory not in without]
    for directory in wanted:
        try:
            files.make_directories(current(directory))
        except OSError as failure:
            raise IdentityError(f"it can't be made: {error_at(current(directory), directory, failure)}") from failure
    note_roles(files, options, wanted)
    for directory in wanted:
        try:
            files.replace(version_path(directory), cookie.encode())
        except OSError as failure:
            raise IdentityError(error_at(version_path(directory), directory, failure)) from failure


async def check(
    store: MetadataStore,
    options: BookieOptions,
    bookie: str,
    instance_id: str | None,
    files: Files,
    write: bool = True,
    failed: Mapping[str, str] | None = None,
) -> Admitted:
    """
    Decides whether the bookie may start, and gives a new one its cookies.  Raises `IdentityError`.  Nothing is written
    unless the answer is yes, and nothing at all without `write`.
    `failed`: ledger directories that it must do without, and why; only for a bookie whose other directories all have
    their cookies.
    """
    expected = Cookie.expected(options, bookie, instance_id)
    without = with_indexes(options, failed or ())
    cookies = read_cookies(files, options, without)
    stored = await stored_cookie(store, bookie)
    expansion = options.allow_storage_expansion
    check_cookies(expected, cookies, expansion)
    without_role = check_roles(files, options, without)
    bare = [directory for directory, cookie in cookies.items() if cookie is None]
    full = [directory for directory in cookies if not is_empty(files, directory)]
    if failed and (stored is None or bare):
        named = "; ".join(f"{directory}: {reason}" for directory, reason in failed.items())
        raise IdentityError(
            f"{named}.  Only a bookie that the cluster knows, and whose other directories have their cookies, starts "
            "without such a directory"
        )
    known = None if stored is None else known_cookie(expected, stored.value, store.uri, expansion)
    if known is None:
        check_unknown(bookie, bare, full)
        if (trace := await trace_of(store, bookie)) is not None:
            raise IdentityError(
                f"{', '.join(cookies)} is empty, and {trace}: an empty bookie would deny what that one acknowledged.  "
                f"Choose another bookieId; or keep this one with {RESTORE}, which marks what may be lacking, and "
                "refuses writers of before"
            )
    elif bare or expected.differences(known, expansion=False):
        check_expansion(options, expected, known, bare, full)
    wanted = expected.of(incarnation_of(files, options, cookies, known) or new_incarnation(files))
    if write:
        stale = any(cookie is None or cookie.incarnation != wanted.incarnation for cookie in cookies.values())
        if known is None or stale or expected.differences(known, expansion=False):
            stamp(files, options, wanted, without)
        else:
            note_roles(files, options, without_role)
        if stored is None:
            await first_cookie(store, wanted)
        elif known != wanted:
            await store.write_cookie(bookie, wanted.encode(), stored.version)
    return Admitted(stored is None, wanted)


async def first_cookie(store: MetadataStore, cookie: Cookie) -> None:
    """Has the metadata store know a bookie that it did not know; `IdentityError` when another one was faster."""
    try:
        await store.write_cookie(cookie.bookie, cookie.encode(), NEW)
    except CookieExists:
        raise IdentityError(
            f"another bookie began under the id {cookie.bookie} at the same time: give this one another bookieId, and "
            "remove its directories first, which hold nothing but this id"
        ) from None


async def trace_of(store: MetadataStore, bookie: str) -> str | None:
    """Names what shows that others were in the cluster under a forgotten id, or None.  Reads all ledgers' metadata."""
    if (how := await retired(store, bookie)) is not None:
        return f"{bookie} was {how}"
    if (ledger := await ledger_naming(store, bookie)) is not None:
        return f"ledger {ledger} names {bookie}, whose cookie is gone"
    return None


def incarnation_of(
    files: Files, options: BookieOptions, cookies: Mapping[str, Cookie | None], known: Cookie | None
) -> str | None:
    """
    The incarnation of directories that belong together: the metadata store's (`known`), or where it has none what the
    directories say; None: nobody says one.  `IdentityError` when a directory is of another one, except the one before
    an interrupted restore, and what a directory says that had failed meanwhile.
    """
    said = {directory: cookie.incarnation for directory, cookie in cookies.items() if cookie and cookie.incarnation}
    first = known.incarnation if known is not None and known.incarnation else next(iter(said.values()), None)
    allowed = (first, known.before if known is not None else None)
    others = [directory for directory, incarnation in said.items() if incarnation not in allowed]
    if others and set(others) - with_indexes(options, notes.noted_failed(files, options.ledger_directories)):
        raise IdentityError(
            f"{', '.join(map(version_path, others))}: these directories are of another life of the bookie than "
            f"{'its cookie in the metadata store' if known is not None else 'the others'} (incarnation "
            f"{said[others[0]]} instead of {first}).  If another machine has the same id, give one of them another "
            "bookieId; if the metadata store was put back from a backup, `quire cookie delete`, then `quire cookie "
            "create --conf FILE` on this machine; else bring the right disks back, or empty these directories and copy "
            f"their entries from other bookies with {RESTORE}"
        )
    return first


async def begin_incarnation(
    store: MetadataStore,
    options: BookieOptions,
    bookie: str,
    instance_id: str | None,
    files: Files,
    lost: Collection[str],
) -> Cookie:
    """
    Has the metadata store know which incarnation a restore of the `lost` directories brings, beside the one of those
    that are left, if any; its cookie, which is to be that of all directories when they are restored, and then the
    store's.  Where none is left, directories of the one before are another machine's, and refused from now on.
    `IdentityError`, and what the store says.
    """
    wanted = Cookie.expected(options, bookie, instance_id).of(new_incarnation(files))
    stored = await stored_cookie(store, bookie)
    if stored is None:
        await first_cookie(store, wanted)
        return wanted
    known = Cookie.decode(stored.value, f"the cookie of {bookie} in {store.uri}")
    left = set(directories(options)).difference(lost)
    if left and known.before is not None:  # an interrupted restore: its incarnation has never served
        return replace(wanted, incarnation=known.incarnation)
    before = known.incarnation if left else None
    await store.write_cookie(bookie, replace(wanted, before=before).encode(), stored.version)
    return wanted


async def end_restore(store: MetadataStore, cookie: Cookie) -> None:
    """Gives the store the cookie that all directories have.  `IdentityError`: it has another incarnation by now."""
    stored = await store.read_cookie(cookie.bookie)
    if stored.value == cookie.encode():
        return
    known = Cookie.decode(stored.value, f"the cookie of {cookie.bookie} in {store.uri}")
    if known.incarnation != cookie.incarnation:
        raise IdentityError(
            f"another machine began under the id {cookie.bookie} while this one was being restored (incarnation "
            f"{known.incarnation} instead of {cookie.incarnation}): give one of them another bookieId, and empty its "
            "directories first"
        )
    await store.write_cookie(cookie.bookie, cookie.encode(), stored.version)


def check_cookies(expected: Cookie, cookies: Mapping[str, Cookie | None], expansion: bool) -> None:
    """Raises `IdentityError` unless the directories' cookies are of this bookie and this configuration."""
    for directory, cookie in cookies.items():
        if cookie is not None and (different := expected.differences(cookie, expansion)):
            raise IdentityError(
                f"{version_path(directory)} belongs to another bookie or configuration: {'; '.join(different)}.  "
                f"{advice(cookie, expected)}"
            )


def known_cookie(expected: Cookie, stored: bytes, uri: str, expansion: bool) -> Cookie:
    """The cookie that the metadata store at `uri` has; `IdentityError` unless it is of the same bookie."""
    known = Cookie.decode(stored, f"the cookie of {expected.bookie} in {uri}")
    if different := expected.differences(known, expansion):
        raise IdentityError(
            f"the cookie of {expected.bookie} in the metadata store is another one: {'; '.join(different)}.  "
            f"{advice(known, expected)}"
        )
    return known


def check_unknown(bookie: str, bare: Collection[str], full: Collection[str]) -> None:
    """
    Raises `IdentityError` unless a bookie that the cluster does not know is a new one.  Cookies in directories that
    are otherwise empty are of a first start that ended before the store had its copy.
    """
    if not full:
        return
    named = ", ".join(full)
    if set(full) & set(bare):
        raise IdentityError(
            f"{named} has files but no cookie, and {bookie} is not known to the cluster: empty it, or name other "
            "directories"
        )
    raise IdentityError(
        f"the cluster does not know {bookie}, but {named} holds its data: if its cookie was lost, `quire cookie create "
        f"{bookie} --conf FILE` makes it again; if it was decommissioned, begin, empty, under another bookieId"
    )


def check_expansion(options: BookieOptions, expected: Cookie, known: Cookie, bare: list[str], full: list[str]) -> None:
    """`IdentityError` unless new, empty directories may join; one that lost its cookie lost its data, too."""
    before = {*known.journals.split(","), *listed(known.ledgers), *listed(known.indexes or known.ledgers)}
    lost = [directory for directory in bare if directory in before]
    if lost:
        raise IdentityError(
            f"{', '.join(lost)} has lost its cookie, so perhaps its entries too: bring the disk back; or empty the "
            "directory and copy its entries from other bookies with `quire bookie start --conf FILE --restore`; or "
            f"give the bookie up with `quire decommission {expected.bookie}`, then begin, empty, under another bookieId"
        )
    if not options.allow_storage_expansion:
        raise IdentityError(f"{', '.join(bare)} is new to this bookie: set allowStorageExpansion=true to add it")
    holding = [directory for directory in full if directory in listed(known.ledgers)]
    if holding and len(options.ledger_directories) != len(listed(known.ledgers)):
        raise IdentityError(
            f"{', '.join(holding)} holds ledgers, and a ledger's directory follows from its id and how many there are: "
            f"with one more they would not be found.  To add it, `quire decommission {expected.bookie}`, then begin "
            "with all of them, empty, under another bookieId"
        )
    filled = [directory for directory in bare if directory in full]
    if filled:
        raise IdentityError(f"{', '.join(filled)} is to be added but is not empty: empty it, or name another directory")


async def lost_directories(
    store: MetadataStore, options: BookieOptions, bookie: str, instance_id: str | None, files: Files
) -> list[str]:
    """
    The directories that a bookie had and that are empty now, for a restore; none when it has them all.  All of them of
    one that the cluster knows no more and of which it has a trace.  `IdentityError` where more is wrong than that: then
    `check` would refuse what was restored.
    """
    expected = Cookie.expected(options, bookie, instance_id)
    stored = await stored_cookie(store, bookie)
    cookies = read_cookies(files, options)
    check_cookies(expected, cookies, expansion=False)
    check_roles(files, options)
    if stored is None:
        bare = [directory for directory, cookie in cookies.items() if cookie is None]
        check_unknown(bookie, bare, [each for each in cookies if not is_empty(files, each)])
        if await trace_of(store, bookie) is None:
            raise IdentityError(
                f"the cluster does not know {bookie}, so nothing can be restored: check bookieId and "
                "metadataServiceUri, or start without --restore"
            )
        return list(cookies)
    incarnation_of(files, options, cookies, known_cookie(expected, stored.value, store.uri, expansion=False))
    lost = [directory for directory, cookie in cookies.items() if cookie is None]
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
