"""
The bookies' cookies in ZooKeeper: one znode each.

Knows: where they are, and how an own write whose answer was lost is recognised.  Does not know: what a cookie says.

Safety: a cookie changes only with the version that was read.
"""

from quire.metadata.store import NEW, CookieChanged, CookieExists, CookieNotFound, Versioned, no_cluster
from quire.metadata.tree import BadVersion, NodeExists, NoNode
from quire.metadata.zk.calls.session import ZooKeeperSession
from quire.metadata.zk.cluster import ZooKeeperCluster

# SPDX-License-Identifier: Apache-2.0


class BookieCookies:
    """The cookies of one cluster."""

    def __init__(self, session: ZooKeeperSession, uri: str, root: str, cluster: ZooKeeperCluster) -> None:
        self._session = session
        self._uri = uri
        self._root = root
        self._cluster = cluster

    def _path(self, bookie: str) -> str:
        return f"{self._root}/cookies/{bookie}"

    def _none(self, bookie: str) -> CookieNotFound:
        return CookieNotFound(f"{self._uri}: {bookie} has no cookie")

    def _changed(self, bookie: str, version: int) -> CookieChanged:
        return CookieChanged(f"{self._uri}: the cookie of {bookie} is no longer at version {version}")

    async def read(self, bookie: str) -> Versioned[bytes]:
        """The cookie and its version; `CookieNotFound`."""
        try:
            data, stat = await self._session.get(self._path(bookie))
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
                await self._session.create(self._path(bookie), data)
            except NodeExists as error:
                if error.retried and await self.read(bookie) == (data, 0):
                    return 0
                raise CookieExists(f"{self._uri}: {bookie} has a cookie already") from None
            except NoNode:
                try:
                    await self._session.create(f"{self._root}/cookies")
                except NodeExists:
                    continue
                except NoNode:
                    raise no_cluster(self._uri) from None
            else:
                return 0

    async def _change(self, bookie: str, data: bytes, version: int) -> int:
        try:
            return await self._session.set(self._path(bookie), data, version)
        except NoNode:
            raise self._none(bookie) from None
        except BadVersion as error:
            if error.retried and await self._session.holds(self._path(bookie), data, version + 1):
                return version + 1
            raise self._changed(bookie, version) from None

    async def remove(self, bookie: str, version: int) -> None:
        """Removes the cookie of that version; `CookieChanged`, `CookieNotFound`."""
        try:
            await self._session.delete(self._path(bookie), version)
        except NoNode as error:
            if not error.retried:
                raise self._none(bookie) from None
        except BadVersion:
            raise self._changed(bookie, version) from None

    async def bookies(self) -> list[str]:
        """The bookies that have a cookie, sorted; `NoCluster`."""
        try:
            return sorted(await self._session.children(f"{self._root}/cookies"))
        except NoNode:
            await self._cluster.instance_id()  # no cluster, or none of its bookies has ever started
            return []
