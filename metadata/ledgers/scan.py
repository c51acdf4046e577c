"""
Walks over the trees of ledgers: all of them in ascending order, and the removal of directories that they have left
empty.

Knows: in which order to list what (metadata-rules.md 3.4).  Does not know: what ledgers hold.

Safety: the ids come ascending and complete, or the walk fails.  A directory that vanishes meanwhile was pruned, hence
empty; any other trouble ends the walk, for garbage collection would take a missing id for a deleted ledger.
"""

import re
from bisect import bisect_right
from contextlib import suppress

from twisted.internet.defer import Deferred

from quire.metadata.clock import Clock, Timer
from quire.metadata.ledgers.layout import UUIDS, Layout, LedgerPaths
from quire.metadata.store import LEDGER_ID_MAX, no_cluster
from quire.metadata.tree import NoNode, Tree
from quire.protocol.errors import LedgerMisplaced, MetaStore

# SPDX-License-Identifier: Apache-2.0

PRUNE_AFTER_S = 0.1


class LedgerScan:
    """One page of ids: those above `after`, at most `limit`."""

    def __init__(self, tree: Tree, paths: LedgerPaths, after: int, limit: int) -> None:
        self._tree = tree
        self._paths = paths
        self._after = after
        self._limit = limit
        self._found: list[int] = []
        self._misplaced: str | None = None  # a node

    async def run(self) -> list[int]:
        """The ids, ascending; `NoCluster` without a root, `LedgerMisplaced` when a node is in a wrong place."""
        found = await self._ids()
        if self._misplaced is not None:
            raise LedgerMisplaced(
                f"{self._tree.uri}: {self._misplaced} is where no ledger of this layout may be: remove it, or nothing "
                "can be listed safely",
                found,
            )
        return found

    async def _ids(self) -> list[int]:
        # before any level is listed: a server that is behind lacks whole directories
        await self._tree.sync(self._paths.root)
        if self._paths.layout is Layout.APACHE_ETCD:
            return await self._page()
        try:
            top = await self._tree.children(self._paths.root)
        except NoNode:
            raise no_cluster(self._tree.uri) from None
        for patterns in self._paths.levels():
            if len(self._found) < self._limit:
                await self._walk(self._paths.root, top, patterns, "")
        return self._found[: self._limit]

    async def _page(self) -> list[int]:
        """In Apache's layout of etcd they are in one directory, and their names in the order of the ids."""
        path = f"{self._paths.root}/{UUIDS}"
        after = self._paths.path_of(self._after).rpartition("/")[2] if self._after >= 0 else ""
        try:
            names = await self._tree.page(path, after, self._limit)
        except NoNode:
            raise no_cluster(self._tree.uri) from None
        for name in names:
            ledger = self._paths.id_of(f"{path}/{name}")
            if ledger is None or ledger > LEDGER_ID_MAX:
                self._misplaced = f"{path}/{name}"
            else:
                self._found.append(ledger)
        return self._found

    async def _walk(self, path: str, names: list[str], patterns: tuple[str, ...], digits: str) -> None:
        """`names` are those of `path`, `patterns` those of its levels on, `digits` those of the levels above."""
        leaf = len(patterns) == 1
        matching = sorted(names)
        if re.fullmatch(f"(?:{patterns[0]}\n)*", "\n".join([*matching, ""]), re.ASCII) is None:
            matching = list(filter(re.compile(patterns[0], re.ASCII).fullmatch, matching))
        if leaf:
            self._take(path, matching, digits)
            return
        for name in matching:
            width = len(digits) + len(name) + 4 * len(patterns[1:])
            if int((digits + name).ljust(width, "9")) <= self._after:
                continue
            try:
                below = await self._tree.children(f"{path}/{name}")
            except NoNode:
                continue
            await self._walk(f"{path}/{name}", below, patterns[1:], digits + name)
            if len(self._found) >= self._limit:
                return

    def _take(self, path: str, names: list[str], digits: str) -> None:
        if self._paths.layout is Layout.FLAT:
            names = sorted(names, key=lambda name: (len(name), name))
        found = [int(digits + name[1:]) for name in names]
        # Of fixed width they are all in their places if the first and the last are.
        places = range(len(found)) if self._paths.layout is Layout.FLAT else {0, len(found) - 1} if found else ()
        if not all(self._is_placed(f"{path}/{names[place]}", found[place]) for place in places):
            wrong = {
                name for name, ledger in zip(names, found, strict=True) if not self._is_placed(f"{path}/{name}", ledger)
            }
            self._misplaced = f"{path}/{min(wrong)}"
            found = [ledger for name, ledger in zip(names, found, strict=True) if name not in wrong]
        self._found += found[bisect_right(found, self._after) :]

    def _is_placed(self, path: str, ledger: int) -> bool:
        return self._paths.id_of(path) == ledger <= LEDGER_ID_MAX


class Pruning:
    """
    Removes empty directories some time after a ledger has left them: no caller waits for that, and one that many leave
    is looked at once.  One that stays does no harm.
    """

    def __init__(self, clock: Clock, tree: Tree) -> None:
        self._clock = clock
        self._tree = tree
        self._left: dict[str, list[str]] = {}
        self._round: Timer | None = None

    def left(self, directories: list[str]) -> None:
        """A ledger was deleted from the first of these, each in the next; a flat cluster has none."""
        if directories:
            self._left[directories[0]] = directories
            self._round = self._round or self._clock.callLater(PRUNE_AFTER_S, self._begin)

    def end(self) -> None:
        """Asks for what is outstanding at once, without a look: an operation is sent before the session's end is."""
        if self._round is not None and self._round.active():
            self._round.cancel()
        left, self._left = self._left, {}
        for path in [path for directories in left.values() for path in directories]:
            self._tree.delete(path).addErrback(lambda _failure: None)

    def _begin(self) -> None:
        self._round = None
        left, self._left = self._left, {}
        for directories in left.values():
            Deferred.fromCoroutine(self._prune(directories))

    async def _prune(self, directories: list[str]) -> None:
        with suppress(MetaStore):  # it holds others by now, or the store is away
            for path in directories:
                found = await self._tree.exists(path)
                if found is not None:
                    if found.children:
                        return
                    with suppress(NoNode):
                        await self._tree.delete(path)
