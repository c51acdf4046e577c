"""
The bookies' cookies, one node each, and the note about a store that was set back (metadata-rules.md 6).

    R/cookies       the note, where Apache has nothing
    R/cookies/ID    a cookie

Knows: how an own write whose answer was lost is recognised.  Does not know: what a cookie or the note says.

Safety: a cookie, and the note, change only with the version that was read.
"""

from collections.abc import Awaitable, Callable

from quire.metadata.store import NEW, CookieChanged, CookieExists, CookieNotFound, Versioned, no_cluster
from quire.metadata.tree import BadVersion, NodeExists, NoNode, Tree

# SPDX-License-Identifier: Apache-2.0


class BookieCookies:
    """The cookies of the cluster at `root`.  `instance_id` is that of the cluster."""

    def __init__(self, tree: Tree, root: str, instance_id: Callable[[], Awaitable[str]]) -> None:
        self._tree = tree
        self._uri = tree.uri
        self._cookies = f"{root}/cookies"
        self._instance_id = instance_id

    def _path(self, bookie: str) -> str:
        return f"{self._cookies}/{bookie}"

    def _none(self, bookie: str) -> CookieNotFound:
        return CookieNotFound(f"{self._uri}: {bookie} has no cookie")

    def _changed(self, bookie: str, version: int) -> CookieChanged:
        return CookieChanged(f"{self._uri}: the cookie of {bookie} is no longer at version {version}")

    async def read(self, bookie: str) -> Versioned[bytes]:
        """The cookie and its version; `CookieNotFound`."""
        try:
            data, stat = await self._tree.get(self._path(bookie))
        except NoNode:
            raise self._none(bookie) from None
        return Versioned(data, stat.version)

    async def write(self, bookie: str, data: bytes, version: int) -> int:
        """
        Makes the cookie, if the version is `NEW`, or replaces the one of that version; its version then.
        `CookieExists`, `CookieChanged`, `CookieNotFound`, `NoCluster`.
        """
        return await (self._make(bookie, data) if version == NEW else self._change(bookie, data, version))

    async def _make(self, bookie: str, data: bytes) -> int:
        while True:
            try:
                await self._tree.create(self._path(bookie), data)
            except NodeExists as error:
                if error.retried and await self.read(bookie) == (data, 0):
                    return 0
                raise CookieExists(f"{self._uri}: {bookie} has a cookie already") from None
            except NoNode:
                try:
                    await self._tree.create(self._cookies)
                except NodeExists:
                    continue
                except NoNode:
                    raise no_cluster(self._uri) from None
            else:
                return 0

    async def _change(self, bookie: str, data: bytes, version: int) -> int:
        try:
            return await self._tree.set(self._path(bookie), data, version)
        except NoNode:
            raise self._none(bookie) from None
        except BadVersion as error:
            if error.retried and await self._tree.holds(self._path(bookie), data, version + 1):
                return version + 1
            raise self._changed(bookie, version) from None

    async def remove(self, bookie: str, version: int) -> None:
        """Removes the cookie of that version; `CookieChanged`, `CookieNotFound`."""
        try:
            await self._tree.delete(self._path(bookie), version)
        except NoNode as error:
            if not error.retried:
                raise self._none(bookie) from None
        except BadVersion:
            raise self._changed(bookie, version) from None

    async def bookies(self) -> list[str]:
        """The bookies that have a cookie, sorted; `NoCluster`."""
        try:
            return sorted(await self._tree.children(self._cookies))
        except NoNode:
            await self._instance_id()  # no cluster, or none of its bookies has ever started
            return []

    async def note(self) -> bytes:
        """Reads the note about a store that was set back; empty where there is no note."""
        return (await self._note())[0]

    async def _note(self) -> tuple[bytes, int | None]:
        """The note, and the version of its node, if there is one."""
        try:
            await self._tree.sync(self._cookies)
            data, stat = await self._tree.get(self._cookies)
        except NoNode:
            return b"", None
        return data, stat.version

    async def swap_note(self, old: bytes, new: bytes) -> bool:
        """Replaces the note if it is `old`; False if it is another one.  `NoCluster`."""
        found, version = await self._note()
        if found != old:
            return False
        try:
            if version is None:
                await self._tree.create(self._cookies, new)
            else:
                await self._tree.set(self._cookies, new, version)
        except NoNode:
            raise no_cluster(self._uri) from None
        except (NodeExists, BadVersion):
            return await self.note() == new
        return True
