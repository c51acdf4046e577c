"""
Compaction by key: which records are left when only the newest of each key is, and how a manifest comes to name them.

The keys of a log may be more than memory takes.  So `Newest` sees all records once or several times: in each pass it
takes the keys of one range of their hashes, as wide as fits, and keeps the indexes that are left.

Knows: keys, indexes, what an empty value means, the member `compacted` of a manifest, when a compaction is worth it.
Does not know: ledgers, who compacts, how records are read and written.
Safety: the horizon only rises; ledgers that are not named any more are doomed in the same edit, and none is named that
is doomed.  A compaction counts only while the log still has the first record behind its horizon: otherwise a newer
value, or the removal, of a key may be among the records that are missing in between.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from quire.log.core.edits import check_exists, is_doomed
from quire.log.core.manifest import Manifest
from quire.log.core.values import Compacted, Doomed

# SPDX-License-Identifier: Apache-2.0

HASH_BYTES = 16
LOWEST, ABOVE_ALL = b"", b"\xff" * (HASH_BYTES + 1)
REMOVED = -1  # of a key whose newest value is empty


class Newest:
    """
    The newest index of each key.  Give it all records in order with `add`, then call `end_pass`, and do so again until
    that says that no key is left.  At most `keys_max` keys and one batch are held, about 200 bytes each, and 8 bytes
    for each index that is left.
    """

    def __init__(self, keys_max: int) -> None:
        self._keys_max = max(2, keys_max)
        self._low, self._bound = LOWEST, ABOVE_ALL  # the hashes of this pass
        self._newest: dict[bytes, int] = {}
        self._left = array("Q")

    def add(self, indexes: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes]) -> None:
        """The next records; an empty value removes its key."""
        newest, low, bound = self._newest, self._low, self._bound
        for index, key, value in zip(indexes, keys, values, strict=True):
            if key is not None:
                name = blake2b(key, digest_size=HASH_BYTES).digest()
                if low <= name < bound:
                    newest[name] = index if value else REMOVED
        if len(newest) > self._keys_max:
            self._narrow()

    def _narrow(self) -> None:
        """The upper half of the hashes is left to later passes."""
        names = sorted(self._newest)
        self._bound = names[len(names) // 2]
        for name in names[len(names) // 2 :]:
            del self._newest[name]

    def end_pass(self) -> bool:
        """All records were added; whether that was the last time, else again, for keys that did not fit."""
        self._left.extend(index for index in self._newest.values() if index != REMOVED)
        self._newest.clear()
        self._low, self._bound = self._bound, ABOVE_ALL
        return self._low == ABOVE_ALL

    def left(self) -> "Left":
        """After the last pass."""
        return Left(array("Q", sorted(self._left)))


class Left:
    """The indexes of the records with a key that are left."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._indexes)

    def picked(self, indexes: Sequence[int], keys: Sequence[bytes | None], keyless: bool) -> list[int]:
        """Picks a batch's records that are left, as numbers in the batch; of those without a key all or none."""
        low, high = bisect_left(self._indexes, indexes[0]), bisect_left(self._indexes, indexes[-1] + 1)
        left = set(self._indexes[low:high])
        return [
            number
            for number, (index, key) in enumerate(zip(indexes, keys, strict=True))
            if index in left or (key is None and keyless)
        ]


def dismissed(manifest: Manifest, now_ms: int) -> Manifest:
    """With a compaction that does not stand any more taken out, and its ledgers among the doomed."""
    done = manifest.compacted
    if done is None or manifest.standing is not None:
        return manifest
    return replace(manifest, compacted=None, doomed=(*manifest.doomed, *_doomed(done, now_ms)))


def _doomed(done: Compacted, now_ms: int) -> list[Doomed]:
    return [Doomed(each.ledger, "compacted", now_ms) for each in done.ledgers]


def has_news(manifest: Manifest) -> bool:
    """True if records were closed since the last compaction."""
    done = manifest.standing
    return manifest.closed_end[0] > (manifest.begin.index if done is None else done.horizon + 1)


def is_due(manifest: Manifest) -> bool:
    """True if a log that is to be compacted has as many new bytes as the last compaction left."""
    done = manifest.standing
    if not manifest.settings.get("compaction") or not has_news(manifest):
        return False
    return done is None or manifest.closed_end[1] - done.at >= sum(each.bytes for each in done.ledgers)


@dataclass(frozen=True, slots=True)
class Compact:
    """
    Names what a compaction left, if its horizon is higher than that of the one before, whose ledgers go, and if the log
    still has what is behind it.  The caller found the new ledgers CLOSED after it had read the version that is
    replaced.
    """

    done: Compacted
    now_ms: int
    name = "compacted"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        before = manifest.compacted
        if before is not None and before.horizon >= self.done.horizon:
            return None
        if any(is_doomed(manifest, each.ledger) for each in self.done.ledgers):
            return None
        after = replace(manifest, compacted=self.done)
        if after.standing is None:
            return None
        doomed = [] if before is None else _doomed(before, self.now_ms)
        return replace(after, doomed=(*manifest.doomed, *doomed))
