"""
The metadata of ledgers, one node each (metadata-rules.md 2 to 4, 8).

Knows: in which order nodes are made, whether a write was our own retried one or another client's, that a ledger which
can't be read is no news until it changes.
Does not know: how a tree is kept, the names of ledgers' nodes (`layout`), bytes (`formats`).

Safety: ledger metadata changes only with the version that was read; a create is known as our own by its creation token.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Clock
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerMetadata, check_ledger_id, check_page, no_ledger
from quire.metadata.ledgers.cluster import TreeCluster
from quire.metadata.ledgers.layout import LedgerPaths
from quire.metadata.ledgers.scan import LedgerScan, Pruning
from quire.metadata.store import ANY, CTOKEN_MAX, LedgerWatcher, Versioned, Watch, no_cluster
from quire.metadata.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeError,
    NodeExists,
    NoNode,
    SessionId,
    SessionOver,
    Stat,
    Step,
    Tree,
    Wake,
    Write,
)
from quire.metadata.watches import Reading, Watches
from quire.protocol.errors import (
    IncorrectParameter,
    LedgerExist,
    MetadataSerialization,
    MetadataVersion,
    MetaStore,
    NoSuchLedgerExistsOnMetadataServer,
)

# SPDX-License-Identifier: Apache-2.0

log = Logger()

T = TypeVar("T")
P = ParamSpec("P")
READ_AT_ONCE = 500  # ledgers
USED_MAX = 1000  # directories


class Ledgers:
    """The ledgers of the cluster at `root`; `random` draws creation tokens."""

    def __init__(self, clock: Clock, tree: Tree, root: str, cluster: TreeCluster, random: Random) -> None:
        self._clock = clock
        self._tree = tree
        self._uri = tree.uri
        self._root = root
        self._cluster = cluster
        self._layout = cluster.layout
        self._deletions = cluster.deletions
        self._random = random
        self._making: dict[str, list[Deferred[None]]] = {}  # what is made once, and what waits for it
        self._used: set[str] = set()  # directories, some of those that had a ledger of ours
        self._pruning = Pruning(clock, tree)
        self._watches: Watches[int, Versioned[LedgerMetadata]] = Watches(clock, tree, self._read_watched)

    def end(self) -> None:
        """Ends the watches, and asks for what is still to be removed."""
        self._watches.end()
        self._pruning.end()

    # -- making --------------------------------------------------------------------------------------------------------

    async def new_id(self) -> int:
        """Draws an id that no ledger has; the errors of `LedgerIds.next`, and `LedgerExist`."""
        paths, ids = await self._layout()
        deadline = self._clock.seconds() + self._tree.timeout_s
        while True:
            ledger = await ids.next()
            if await self._tree.exists(paths.path_of(ledger)) is None:
                return ledger
            self._pass_over(ledger, deadline)

    async def create(self, ledger: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """Stores a ledger under that id; `LedgerExist`, `NoCluster`."""
        check_ledger_id(ledger)
        made = await self._make(ledger, self._with_token(metadata), [])
        if made is None:
            raise LedgerExist(f"ledger {ledger} exists already: give another id, or none to have one chosen")
        return made

    async def create_new(self, metadata: LedgerMetadata) -> tuple[int, Versioned[LedgerMetadata]]:
        """Stores a ledger under a new id; the errors of `new_id`."""
        metadata = self._with_token(metadata)
        _, ids = await self._layout()
        deadline = self._clock.seconds() + self._tree.timeout_s
        while True:
            ledger, block = await ids.take()
            try:
                made = await self._make(ledger, metadata, [Check(block.token)])
            except NoNode:  # the block's token
                ids.drop(block)
                continue
            finally:
                ids.used(block)
            if made is not None:
                return ledger, made
            self._pass_over(ledger, deadline)

    def _pass_over(self, ledger: int, deadline: float) -> None:
        """A caller had chosen this id; each try has one of its own, so a run of them, as a restore leaves, ends."""
        if self._clock.seconds() >= deadline:
            raise LedgerExist(
                f"{self._uri}: a ledger is there already under each id that was tried for {self._tree.timeout_s:g} s, "
                f"at last {ledger}: try again, which goes on behind that"
            )

    def _with_token(self, metadata: LedgerMetadata) -> LedgerMetadata:
        if metadata.ctoken == 0 and metadata.format_version >= 3:
            return replace(metadata, ctoken=self._random.randrange(1, CTOKEN_MAX))
        return metadata

    async def _make(
        self, ledger: int, metadata: LedgerMetadata, checks: Sequence[Check]
    ) -> Versioned[LedgerMetadata] | None:
        """None: there is another one.  `NoNode` when a check fails."""
        paths, _ = await self._layout()
        lowest = next(iter(paths.parents(ledger)), self._root)
        if lowest in self._used:
            return await self._create(paths, lowest, ledger, metadata, checks)
        first = await self._once(f"a ledger in {lowest}", self._create, paths, lowest, ledger, metadata, checks)
        return await self._create(paths, lowest, ledger, metadata, checks) if first is None else first[0]

    async def _create(
        self, paths: LedgerPaths, lowest: str, ledger: int, metadata: LedgerMetadata, checks: Sequence[Check]
    ) -> Versioned[LedgerMetadata] | None:
        steps: list[Step] = [*checks, Create(paths.path_of(ledger), ledger_codec.encode(metadata))]
        while True:
            try:
                await self._tree.transact(steps)
            except (NoNode, NodeExists) as error:
                if isinstance(error, NoNode) and error.step == len(checks):
                    # and again: others prune empty ones
                    await self._once(lowest, self._make_directories, paths, ledger)
                    continue
                found = await self._own_create(ledger, metadata, error.retried)
                if found is None and isinstance(error, NoNode):
                    raise
                return found
            if len(self._used) >= USED_MAX:
                self._used.clear()
            self._used.add(lowest)
            return Versioned(metadata, 0)

    async def _once(
        self, what: str, story: Callable[P, Coroutine[Deferred[Any], Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[T] | None:
        """Runs a story; None: another has run it meanwhile, for all that need it, whatever came of it."""
        waiting = self._making.get(what)
        if waiting is not None:
            waiting.append(Deferred())
            await waiting[-1]
            return None
        waiting = self._making[what] = []
        try:
            return (await story(*args, **kwargs),)
        finally:
            del self._making[what]
            for each in waiting:
                if not each.called:
                    each.callback(None)

    async def _make_directories(self, paths: LedgerPaths, ledger: int) -> None:
        for path in reversed(paths.parents(ledger)):
            try:
                await self._tree.create(path)
            except NodeExists:
                continue
            except NoNode:
                if path.count("/") == self._root.count("/") + 1:  # a child of the root
                    self._cluster.forget()
                    raise no_cluster(self._uri) from None
                return
        above = paths.path_of(ledger).rpartition("/")[0]
        if not paths.parents(ledger) and await self._tree.exists(above) is None:
            self._cluster.forget()
            if await self._tree.exists(self._root) is None:
                raise no_cluster(self._uri)
            raise MetaStore(
                f"{self._uri} has no {above}, the directory of its ledgers: put back a snapshot of etcd that has it, "
                "or that key, with no value"
            )

    async def _own_create(
        self, ledger: int, metadata: LedgerMetadata, retried: bool
    ) -> Versioned[LedgerMetadata] | None:
        """The ledger that is there, if an earlier try of this very create has made it."""
        if metadata.format_version < 3 or not retried:
            return None
        try:
            found = await self.read(ledger)
        except (NoSuchLedgerExistsOnMetadataServer, MetadataSerialization):
            return None
        return found if found.value.ctoken == metadata.ctoken else None

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self, ledger: int) -> Versioned[LedgerMetadata]:
        """`NoSuchLedgerExistsOnMetadataServer`, `MetadataSerialization`."""
        check_ledger_id(ledger)
        paths, _ = await self._layout()
        try:
            data, stat = await self._tree.get(paths.path_of(ledger))
        except NoNode:
            raise no_ledger(self._uri, ledger) from None
        return ledger_codec.decode_stored(ledger, data, stat.version)

    async def read_each(self, ledgers: Sequence[int]) -> list[Versioned[LedgerMetadata] | None]:
        """The metadata of each, in order; None for a ledger that does not exist."""
        return [
            None if node is None else ledger_codec.decode_stored(ledger, node[0], node[1].version)
            for ledger, node in zip(ledgers, await self._nodes(ledgers), strict=True)
        ]

    async def absent(self, ledgers: Sequence[int]) -> list[int]:
        """Lists the ledgers that do not exist, in their order."""
        return [ledger for ledger, node in zip(ledgers, await self._nodes(ledgers), strict=True) if node is None]

    async def _nodes(self, ledgers: Sequence[int]) -> list[tuple[bytes, Stat] | None]:
        for ledger in ledgers:
            check_ledger_id(ledger)
        paths, _ = await self._layout()
        found: list[tuple[bytes, Stat] | None] = []
        for start in range(0, len(ledgers), READ_AT_ONCE):
            found += await self._tree.get_each([paths.path_of(each) for each in ledgers[start : start + READ_AT_ONCE]])
        return found

    async def page(self, after: int, limit: int) -> list[int]:
        """The next at most `limit` ids above `after`, ascending; `NoCluster`, `IncorrectParameter`."""
        check_page(after, limit)
        paths, _ = await self._layout()
        return await LedgerScan(self._tree, paths, after, limit).run()

    def watch(self, ledger: int, fn: LedgerWatcher) -> Watch:
        """Calls `fn` with the metadata, now and after each change, until the ledger is deleted."""
        return self._watches.add(ledger, fn)

    async def _read_watched(self, ledger: int, wake: Wake) -> Reading[Versioned[LedgerMetadata]] | None:
        paths, _ = await self._layout()
        try:
            data, stat = await self._tree.get(paths.path_of(ledger), wake)
        except NoNode:
            return Reading(None, None, last=True)
        try:
            return Reading(stat.changed, ledger_codec.decode_stored(ledger, data, stat.version))
        except MetadataSerialization as error:
            log.error("{uri}: a watched ledger can't be read: {error}", uri=self._uri, error=str(error))
            return None

    # -- changing ------------------------------------------------------------------------------------------------------

    async def write(self, ledger: int, metadata: LedgerMetadata, version: int) -> Versioned[LedgerMetadata]:
        """Compare-and-set; `MetadataVersion`, `NoSuchLedgerExistsOnMetadataServer`, `IncorrectParameter`."""
        check_ledger_id(ledger)
        if version < 0:
            raise IncorrectParameter(
                f"ledger {ledger}: metadata is written with the version that was read, not {version}"
            )
        try:
            return await self.write_with(ledger, metadata, version, (), None)
        except BadVersion:
            raise MetadataVersion(f"ledger {ledger} is no longer at version {version}") from None

    async def write_with(
        self, ledger: int, metadata: LedgerMetadata, version: int, steps: Sequence[Step], session: SessionId | None
    ) -> Versioned[LedgerMetadata]:
        """As `Repairs` asks for it."""
        data = ledger_codec.encode(metadata)
        paths, _ = await self._layout()
        path = paths.path_of(ledger)
        try:
            await self._tree.transact([Write(path, data, version), *steps], session=session)
        except NodeError as error:
            error.step -= 1
            if error.step >= 0 or isinstance(error, SessionOver):
                raise
            if isinstance(error, NoNode):
                raise no_ledger(self._uri, ledger) from None
            if not error.retried:
                raise MetadataVersion(f"ledger {ledger} is no longer at version {version}") from None
            if not await self._tree.holds(path, data, version + 1):
                raise
        return Versioned(metadata, version + 1)

    async def delete(self, ledger: int) -> None:
        """Removes the metadata, if there is any."""
        check_ledger_id(ledger)
        paths, _ = await self._layout()
        steps: list[Step] = [Delete(paths.path_of(ledger), ANY)]
        if self._deletions is not None:
            steps.append(Write(self._deletions, b"", ANY))
        try:
            await self._tree.transact(steps)
        except NoNode as error:
            if error.step:  # the count of deletions: nothing was deleted
                raise
        else:
            self._pruning.left(paths.parents(ledger))

    async def deletions(self) -> int | None:
        """How many ledgers were ever deleted; None where nothing counts them.  `NoCluster`."""
        if self._deletions is None:
            return None
        await self._layout()
        found = await self._tree.exists(self._deletions)
        return 0 if found is None else found.version
