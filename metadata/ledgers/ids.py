"""
New ledger ids from numbered nodes (metadata-rules.md 3.1, 3.2).

    flat              R/ID-%010d              31 bits, then LedgerIdOverflow
    hierarchical,     R/idgen/ID-%010d        31 bits, then the long ones:
    longhierarchical  R/idgen-long/HOB-h/ID-n -> (h << 32) | n

Knows: which node to make, and when to go on to the next.  Does not know: whether a caller has chosen that id himself;
see the store.

Safety: the directories of the long ids are listed again for each id.  With an old list a deleted directory would
be made again, whose numbers begin at 0: ids would repeat.  None is ever deleted here.

Many ids can be drawn in one transaction and used later, each in the transaction that makes its ledger: that one also
checks that the node which drew them, the token of the block, is still there.  It goes with its session, with the
cluster, and with a raise above the block; its name has a random part, so that no other is taken for it.

The directories of the long ids are open to everybody, as Apache makes them (metadata-rules.md 2.3).

Numbers can't be set, only used up, which takes ZooKeeper a node each.  Where that would take too long, in a directory
of long ids, the next directory is made instead.
"""

import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.ledgers.layout import Layout
from quire.metadata.position import Position
from quire.metadata.store import ANY, LEDGER_ID_MAX, no_cluster
from quire.metadata.tree import Create, Delete, NodeExists, NoNode, Step, Tree
from quire.protocol.errors import LedgerIdOverflow, MetaStore

# SPDX-License-Identifier: Apache-2.0

log = Logger()

SHORT_END = (1 << 31) - 1  # the first number that is none
DRAWN_AT_ONCE_MAX = 64
USED_UP_MAX = 10_000_000  # numbers of one directory of long ids; beyond that the next directory is made
TOKEN = re.compile(r"ID-[0-9a-f]{16}-(\d{10})", re.ASCII)
HIGH_HALF = re.compile(r"HOB-(\d{1,10})", re.ASCII)


@dataclass(eq=False, slots=True)
class Block:
    """Ids that were drawn together, from `next` to below `end`; they are good while the node `token` is there."""

    token: str
    next: int
    end: int
    left: int  # that are not used yet


class LedgerIds:
    """The generator of one cluster.  `random` names tokens."""

    def __init__(self, tree: Tree, root: str, layout: Layout, random: Random) -> None:
        self._tree = tree
        self._root = root
        self._layout = layout
        self._random = random
        self._long: bool | None = None  # whether the short ids are used up; None: not looked at yet
        self._hand: Block | None = None
        self._waiting: deque[Deferred[None]] = deque()  # for the next block
        self._drawing = False  # it is under way
        self._count = 1  # of the next block: who makes one ledger and ends wastes no ids

    async def next(self) -> int:
        """`LedgerIdOverflow`, `NoCluster`."""
        block = await self._draw(1)
        self._put_back(block)
        return block.next

    async def take(self) -> tuple[int, Block]:
        """An id to be used together with a check of its block, and then `used`.  `LedgerIdOverflow`, `NoCluster`."""
        while (block := self._hand) is None:
            drawn: Deferred[None] = Deferred()
            self._waiting.append(drawn)
            if not self._drawing:
                Deferred.fromCoroutine(self._draw_block())
            await drawn
        ledger, block.next = block.next, block.next + 1
        if block.next == block.end:
            self._hand = None
        return ledger, block

    async def _draw_block(self) -> None:
        """Draws blocks until nobody waits; those that were cancelled meanwhile take none."""
        self._drawing = True
        while self._waiting:
            try:
                self._hand = await self._draw(self._count)
            except Exception as error:
                self._drawing = False  # who is called may ask again at once
                waiting, self._waiting = self._waiting, deque()
                for drawn in waiting:
                    if not drawn.called:
                        drawn.errback(error)
                return
            self._count = min(2 * self._count, DRAWN_AT_ONCE_MAX)
            while self._waiting and self._hand is not None:
                drawn = self._waiting.popleft()
                if not drawn.called:
                    drawn.callback(None)
        self._drawing = False

    def used(self, block: Block) -> None:
        """An id of it is used; with the last one its token goes."""
        block.left -= 1
        if not block.left:
            self._put_back(block)

    def drop(self, block: Block) -> None:
        """Forgets a token that is gone, and its ids with it."""
        if self._hand is block:
            self._hand = None

    async def _draw(self, count: int) -> Block:
        """At most so many ids, which follow one another."""
        if self._layout is Layout.FLAT:
            found = await self._sequence(self._root, count)
            if found is None:
                raise LedgerIdOverflow(f"{self._tree.uri} has no ledger ids left: a flat cluster has 2^31 - 1")
            return found
        if self._long is None:
            # "No" is never asked again: short ids stay unique until this generator meets their end itself.
            self._long = await self._tree.exists(f"{self._root}/idgen-long") is not None
        if not self._long:
            found = await self._sequence(f"{self._root}/idgen", count)
            if found is not None:
                return found
            await self._make(f"{self._root}/idgen-long")
            self._long = True
        return await self._draw_long(count)

    async def position(self) -> Position:
        """The id that is drawn next, unless another client draws one meanwhile; this draws none.  `NoCluster`."""
        return Position([await self._next()])

    async def _next(self) -> int:
        if self._layout is Layout.FLAT:
            return await self._used(self._root)
        if await self._tree.exists(f"{self._root}/idgen-long") is None:
            used = await self._used(f"{self._root}/idgen")
            return used if used < SHORT_END else 1 << 32
        while high := await self._high():
            used = await self._used(self._directory(high))
            # else an Apache client has just dropped that directory for a newer one
            if used or await self._high() == high:
                return high << 32 | used
        return 1 << 32

    async def _used(self, path: str) -> int:
        """How many children were ever made below a node: its counter of their comings and goings says that."""
        stat = await self._tree.exists(path)
        if stat is None:
            if path == self._root or await self._tree.exists(self._root) is None:
                raise no_cluster(self._tree.uri)
            return 0
        return int((stat.family + stat.children) % (1 << 32)) >> 1

    async def raise_to(self, position: Position) -> None:
        """
        No id that the position has is drawn after this.  A client that draws short ids continues to do so: it looks
        once whether there are long ones.  `LedgerIdOverflow`, `NoCluster`.
        """
        first = max(position)
        if (first > SHORT_END and self._layout is Layout.FLAT) or first > LEDGER_ID_MAX:
            raise LedgerIdOverflow(f"{self._tree.uri} has no ledger ids from {first} on")
        if first > SHORT_END and (first < 1 << 32 or first % (1 << 32) >= SHORT_END):
            first = ((first >> 32) + 1) << 32  # those between are never drawn
        while (at := await self._next()) < first:
            if self._layout is Layout.FLAT:
                parent = self._root
            elif first <= SHORT_END:
                parent = f"{self._root}/idgen"
                await self._make(parent)
            else:
                high = first >> 32 if at >> 32 < first >> 32 or first - at <= USED_UP_MAX else (at >> 32) + 1
                parent = self._directory(high)
                await self._make(f"{self._root}/idgen-long")
                await self._make(parent)
                self._long = True
                if high != at >> 32:
                    continue
            await self._tree.use_up(parent, first - at)
        await self._end_blocks(first)

    async def _end_blocks(self, first: int) -> None:
        """Removes the tokens of all blocks that begin below an id, whoever has drawn them."""
        parents = [self._root if self._layout is Layout.FLAT else f"{self._root}/idgen"]
        if self._layout is not Layout.FLAT:
            with suppress(NoNode):
                names = await self._tree.children(f"{self._root}/idgen-long")
                parents += [f"{self._root}/idgen-long/{name}" for name in names if HIGH_HALF.fullmatch(name)]
        for parent in parents:
            high = HIGH_HALF.fullmatch(parent.rpartition("/")[2])
            with suppress(NoNode):
                for token in filter(None, map(TOKEN.fullmatch, await self._tree.children(parent))):
                    if (int(high.group(1)) << 32 if high else 0) | int(token.group(1)) < first:
                        with suppress(NoNode):
                            await self._tree.delete(f"{parent}/{token.group()}")

    async def _high(self) -> int:
        """The number of the last directory of long ids; 0 when there is none."""
        names = await self._tree.children(f"{self._root}/idgen-long")
        return max((int(found.group(1)) for found in map(HIGH_HALF.fullmatch, names) if found), default=0)

    async def _draw_long(self, count: int) -> Block:
        while True:
            high = await self._high()
            if high == 0:
                await self._make(self._directory(1))
                continue
            if high >= 1 << 31:
                raise LedgerIdOverflow(f"{self._tree.uri} has no ledger ids left")
            try:
                block = await self._numbers(self._directory(high), count)
            except NoNode:
                continue  # an Apache client has just dropped that directory for a newer one
            if block is None:
                await self._make(self._directory(high + 1))
                continue
            block.next, block.end = high << 32 | block.next, high << 32 | block.end
            return block

    def _directory(self, high: int) -> str:
        return f"{self._root}/idgen-long/HOB-{high:010d}"

    async def _make(self, path: str) -> None:
        try:
            await self._tree.create(path, shared=path.startswith(f"{self._root}/idgen-long"))
        except NodeExists:
            return
        except NoNode:
            raise no_cluster(self._tree.uri) from None

    async def _sequence(self, parent: str, count: int) -> Block | None:
        """The next numbers below a node, which is made if it is missing; None when they are used up."""
        while True:
            try:
                return await self._numbers(parent, count)
            except NoNode:
                if parent == self._root:
                    raise no_cluster(self._tree.uri) from None
                await self._make(parent)

    async def _numbers(self, parent: str, count: int) -> Block | None:
        """The first of them is that of a numbered node, the others are used up in the same transaction."""
        prefix = f"{parent}/ID-{self._random.getrandbits(64):016x}-"
        other: list[Step] = [Create(f"{parent}/ID-quire"), Delete(f"{parent}/ID-quire", ANY)]
        done = await self._tree.transact([Create(prefix, claim=True, numbered=True), *other * (count - 1)])
        made = done[0].path
        try:
            first = int(made[len(prefix) :])
        except ValueError:
            raise MetaStore(f"{self._tree.uri}: {made} is no numbered node") from None
        block = Block(made, first, min(first + count, SHORT_END), 0)
        block.left = block.end - first
        if 0 <= first < SHORT_END:
            return block
        self._put_back(block)
        return None

    def _put_back(self, block: Block) -> None:
        """A token that stays costs nothing: it goes with the session."""
        self._tree.delete(block.token).addErrback(
            lambda failure: log.debug("{path} stays until the session ends: {why}", path=block.token, why=failure.value)
        )
