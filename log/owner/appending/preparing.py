"""
What `before_append` makes of appends before they are encoded.

Knows: where the records will be, that appends share an entry, and which calls are slow.
Does not know: what the hook does, what is sent.

Safety: what the hook raises fails the append that it was asked about, and no other one of the same entry.
"""

from collections.abc import Sequence
from typing import NamedTuple

from quire.log.core.batch import Records
from quire.log.core.counters import LogCounters
from quire.log.owner.appending.appends import Batch, joined, part
from quire.log.owner.appending.encoder import Encoder, Hook, Prepared
from quire.metadata.clock import Clock
from quire.protocol.errors import TooManyRequests
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0

SLOW_S = 0.1  # of a call, in which the process does nothing else


class Refused(NamedTuple):
    """An append that the hook does not want."""

    batch: Batch
    error: Exception


def timed(hook: Hook, clock: Clock, counters: LogCounters) -> Hook:
    """The same hook, its slow calls counted, those that raise among them."""

    def call(index: int, position: int, stamp_ms: int, values: Sequence[bytes]) -> Sequence[bytes] | Prepared:
        begun = clock.seconds()
        try:
            return hook(index, position, stamp_ms, values)
        finally:
            counters.hook_slow += clock.seconds() - begun > SLOW_S

    return call


def prepare(hook: Hook, batch: Batch, encoder: Encoder, now_ms: int) -> tuple[Records, list[Refused]]:
    """
    The records to be stored.  The hook is asked about the entry as a whole, and when it raises about each append by
    itself; those that it refuses leave the batch.
    """
    stamp = max(encoder.stamp, now_ms)
    try:
        return _asked(hook, batch.records, encoder.index, encoder.position, stamp), []
    except Exception as error:
        if len(batch.calls) == 1:
            refused = [Refused(Batch(batch.records, batch.calls), error)]
            batch.records, batch.calls = Records([]), []
            return batch.records, refused
    made: list[Records] = []
    kept: list[Batch] = []
    refused = []
    start, index, at = 0, encoder.index, encoder.position
    for call, count in batch.calls:
        own = Batch(part(batch.records, start, start + count), [(call, count)])
        start += count
        try:
            stored = _asked(hook, own.records, index, at, stamp)
        except Exception as error:
            refused.append(Refused(own, error))
            continue
        made.append(stored)
        kept.append(own)
        index += count
        at += stored.size
    batch.calls = [own.calls[0] for own in kept]
    batch.records = joined([own.records for own in kept])
    return joined(made), refused


def _asked(hook: Hook, records: Records, index: int, at: int, stamp: int) -> Records:
    try:
        found = hook(index, at, stamp, list(records.values))
    except TooManyRequests as error:  # taken for a window that is full, it would be appended again for ever
        raise LogError(f"before_append raised {error!r}") from error
    values, skips = (found.values, found.skips) if isinstance(found, Prepared) else (found, None)
    count = len(records.values)
    if len(values) != count or (skips is not None and len(skips) != count):
        raise ValueError(f"before_append gave {len(values)} values for {count}")
    for value in values:
        if not isinstance(value, bytes):
            raise TypeError(f"before_append gave a {type(value).__name__}, a value must be bytes")
    return Records(list(values), records.keys, records.times, records.headers, records.producers, skips)
