"""
Changes of a stopped bookie's cookies, in its directories and in the metadata store together: another id for the same
directories, more directories, no bookie any more.

Knows: the order of the copies, so that a change which was cut off is made whole by making it again.
Does not know: what a start makes of cookies (`start_check`).

Safety: the directories are locked and the bookie is not listed while they change.  The store knows the new id before a
directory has it, and forgets the old one last, of which it notes that it was in use.  A cookie goes from directories
that hold data only if that is insisted on: then what they held counts as lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from quire.bookie.layout import LOCK, current, directories
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.ids import IdentityError
from quire.bookie.lifecycle.start_check import (
    check,
    cluster_of,
    is_empty,
    read_cookies,
    stamp,
    stored_cookie,
    version_path,
)
from quire.conf.bookie import BookieOptions
from quire.metadata.retired_ids import FORGOTTEN, RENAMED, retire
from quire.metadata.store import NEW
from quire.metadata.tree_store import MetadataStore
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0


@contextmanager
def alone(files: Files, options: BookieOptions) -> Iterator[None]:
    """Locks the directories that are there; `IdentityError` when a bookie runs on one."""
    locks: list[int] = []
    try:
        for directory in directories(options):
            if files.exists(current(directory)):
                try:
                    locks.append(files.lock(current(directory, LOCK)))
                except BlockingIOError:
                    raise IdentityError(f"{directory} is in use: a bookie runs on it; stop it first") from None
        yield
    finally:
        for lock in locks:
            files.close(lock)


async def check_down(store: MetadataStore, *bookies: str) -> None:
    """`IdentityError` when one is listed."""
    listed = await store.bookies()
    for bookie in bookies:
        if listed.find(bookie) is not None:
            raise IdentityError(f"{bookie} is listed: it runs, here or elsewhere; stop it first")


async def everywhere(
    store: MetadataStore, options: BookieOptions, files: Files, bookie: str
) -> dict[str, Cookie | None]:
    """Reads the cookie that the store has, by its address, and those of the directories, by their paths."""
    stored = await stored_cookie(store, bookie)
    known = None if stored is None else Cookie.decode(stored.value, f"the cookie of {bookie} in {store.uri}")
    return {store.uri: known, **read_cookies(files, options)}


async def rename(store: MetadataStore, options: BookieOptions, files: Files, before: str, after: str) -> None:
    """
    Gives the directories of one bookie another id.  Ledgers that name the old one are not changed
    (`replication/renaming.py`).  `IdentityError` where the cookies are not those of that bookie, or the new id is in
    use.
    """
    await check_down(store, before, after)
    with alone(files, options):
        wanted = Cookie.expected(options, after, await cluster_of(store, options, files))
        for directory, found in read_cookies(files, options).items():
            if found is None:
                raise IdentityError(f"{version_path(directory)} is missing: only a bookie that ran gets another id")
            wanted = wanted if found.incarnation is None else wanted.of(found.incarnation)
            old = Cookie.expected(options, before, wanted.instance_id)
            if different := min((each.differences(found, False) for each in (old, wanted)), key=len):
                raise IdentityError(
                    f"{version_path(directory)} is not the cookie of {before}: {'; '.join(different)}.  Name the "
                    "directories as they were, and the id that it had"
                )
        stored = await stored_cookie(store, after)
        if stored is None:
            await store.write_cookie(after, wanted.encode(), NEW)
        elif Cookie.decode(stored.value, f"the cookie of {after}") != wanted:
            raise IdentityError(f"{after} is the id of another bookie: `quire cookie show {after}` prints its cookie")
        stamp(files, options, wanted)
        await retire(store, before, RENAMED)


async def expand(store: MetadataStore, options: BookieOptions, files: Files, bookie: str) -> None:
    """Adds the configuration's new, empty directories to a bookie, as a start with allowStorageExpansion does."""
    await check_down(store, bookie)
    allowing = options.model_copy(update={"allow_storage_expansion": True})
    with alone(files, options):
        if await stored_cookie(store, bookie) is None:
            raise IdentityError(f"the cluster does not know {bookie}: a first start takes all its directories")
        await check(store, allowing, bookie, await cluster_of(store, options, files), files)


async def delete(
    store: MetadataStore, options: BookieOptions, files: Files, bookie: str, *, even_with_data: bool
) -> None:
    """Takes the cookies from the directories, then from the store, which remembers the id."""
    await check_down(store, bookie)
    with alone(files, options):
        full = [directory for directory in read_cookies(files, options) if not is_empty(files, directory)]
        if full and not even_with_data:
            raise IdentityError(
                f"{', '.join(full)} holds data, which no bookie would serve any more: `quire decommission {bookie}` "
                "copies it first; -delete force gives it up"
            )
        for directory in directories(options):
            if files.exists(version_path(directory)):
                files.unlink_durably(version_path(directory))
        await retire(store, bookie, FORGOTTEN)
