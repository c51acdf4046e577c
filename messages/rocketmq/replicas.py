"""
The choice among several directories of one DLedger group.

Knows: what a majority is, that entries up to the smallest committed index are the same everywhere, and that an election
takes the highest last term, then the highest last index.
Does not know: what records say.
Safety: with a majority of the group, all that was acknowledged is in the one that is taken, or the import is refused.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.messages.core.layout import ENTRY_HEADER
from quire.messages.rocketmq.source import LogFile, Source, Tree, Wanted
from quire.messages.rocketmq.walking import Walker
from quire.protocol.message_errors import ImportRefused

# SPDX-License-Identifier: Apache-2.0


class Entry(NamedTuple):
    """An entry of DLedger: its index, where it is, and its bytes."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    file: LogFile
    place: int
    value: bytes


def chosen(tree: Tree, sources: Sequence[Source], wanted: Wanted) -> Source:
    """`ImportRefused`: MajorityMissing, ReplicasDiffer, SourceUnknown, and for a tail as of a single directory."""
    first = sources[0]
    if first.kind == "plain":
        if len(sources) > 1:
            raise ImportRefused(
                "SourceUnknown",
                "a plain store is one directory, without replicas: import each into a store of its own",
                file=sources[1].root,
            )
        return first
    plain = next((each for each in sources if each.kind == "plain"), None)
    if plain is not None:
        raise ImportRefused("SourceUnknown", "it has no dledger-*/data, unlike the others", file=plain.root)
    if not wanted.single:
        _check_majority(sources, wanted.group_size)
    if len(sources) == 1:
        return first
    replicas = [Replica(tree, each, wanted.end) for each in sources]
    _compare(replicas)
    for replica in replicas:
        replica.finish(wanted.accept_tail)
    return max(replicas, key=lambda replica: replica.last).source


def _check_majority(sources: Sequence[Source], group_size: int | None) -> None:
    nodes = sorted({each.group for each in sources})  # a copy of a node's directory is no other node
    have = len(nodes)
    if group_size is None:
        raise ImportRefused(
            "MajorityMissing",
            "other nodes of its DLedger group may have acknowledged messages that are not here: give the number of "
            "nodes with --group-size and directories of a majority, or --single to take what is there",
            file=sources[0].root,
        )
    need = group_size // 2 + 1
    if have < need:
        raise ImportRefused(
            "MajorityMissing",
            f"{have} of {group_size} nodes ({', '.join(nodes)}) may lack acknowledged messages: give directories of "
            f"{need}, or --single to take what is there",
            file=sources[0].root,
        )


class Replica:
    """One directory, whose entries are gone through once."""

    def __init__(self, tree: Tree, source: Source, end: int | None) -> None:
        self.source = source
        self._walker = Walker(tree, source, end)
        self._entries = self._walked()
        self.next = next(self._entries, None)

    def _walked(self) -> Iterator[Entry]:
        for window in self._walker.windows():
            is_entry = window.file.rule == "dledger"
            for at, size, *_ in window.values:
                if is_entry:
                    index = ENTRY_HEADER.unpack_from(window.data, at)[2]
                    yield Entry(index, window.file, window.place + at, window.data[at : at + size])

    def step(self) -> None:
        self.next = next(self._entries, None)

    def finish(self, accept_tail: bool) -> None:
        """Goes through what is left; `ImportRefused`: DamagedMiddle, TornTail."""
        for _entry in self._entries:
            continue
        self._walker.check_tail(accept_tail)

    @property
    def last(self) -> tuple[int, int]:
        """Term and index of its last entry."""
        index, term = self._walker.last
        return term, index


def _compare(replicas: Sequence[Replica]) -> None:
    """`ReplicasDiffer` names the first entry that is not the same, up to the smallest committed index."""
    committed = min(each.source.committed for each in replicas)
    first = max((each.next.index for each in replicas if each.next is not None), default=0)
    for replica in replicas:
        while replica.next is not None and replica.next.index < first:
            replica.step()
    for index in range(first, committed + 1):
        one = replicas[0].next
        for other in replicas[1:]:
            _check_equal(index, replicas[0], one, other, other.next)
        for replica in replicas:
            replica.step()


def _check_equal(index: int, one: Replica, entry: Entry | None, other: Replica, entry_2: Entry | None) -> None:
    if entry is not None and entry_2 is not None and entry.value == entry_2.value:
        return
    have = entry or entry_2
    lacking = one.source.root if entry is None else other.source.root
    if have is None:
        raise ImportRefused(
            "ReplicasDiffer",
            f"no directory has the entry {index}, which is committed: a majority of another moment is needed",
            file=one.source.root,
        )
    if entry is None or entry_2 is None:
        text = f"entry {index}, which is committed, is not in {lacking}: leave that directory out"
    else:
        text = (
            f"entry {index}, which is committed, is another one in {entry_2.file.path} at {entry_2.place}: leave the "
            "wrong one out"
        )
    raise ImportRefused("ReplicasDiffer", text, file=have.file.path, offset=have.place)
