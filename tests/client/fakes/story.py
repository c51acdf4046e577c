"""One writer's machine, and what it asked for: channels, sends, metadata writes, alarms."""

from quire.client.core.append.machine import AppendMachine
from quire.client.core.append.messages import (
    Acked,
    AddRefused,
    Append,
    AppendMode,
    ChannelLost,
    EnsembleChanged,
    Limits,
)
from quire.client.core.quorum import Quorums
from quire.protocol.digest import Digest, DigestType

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")

FENCED, UNAUTHORIZED, READ_ONLY, LOST, TIMED_OUT, CLOSED, NOT_ENOUGH, CLIENT_CLOSED = (
    -101,
    -102,
    -104,
    -8,
    -23,
    -11,
    -6,
    -19,
)


class Story:
    """A machine and what it asked for: channels, sends, metadata writes."""

    def __init__(self, shape=(3, 3, 2), bookies=None, limits=None, **options):
        self.q = Quorums(*shape)
        bookies = bookies or [f"b{index}" for index in range(shape[0])]
        self.machine = AppendMachine(7, self.q, DIGEST, bookies, limits or Limits(), AppendMode(**options))
        self.open = {}  # channel -> (index, bookie)
        self.opened = []  # every (channel, index, bookie) ever
        self.sent = {}  # channel -> ids in the order sent
        self.released = self.machine.head
        self.failed = []
        self.refused = []
        self.stores = []
        self.changing = False
        self.watching = False
        self.alarms = {}
        self.closes = []
        self.ended = None
        self.batches = []

    def give(self, given):
        effects = self.machine.handle(given)
        for effect in effects:
            getattr(self, "on_" + type(effect).__name__)(effect)
        return effects

    def on_OpenChannel(self, effect):
        assert effect.channel not in self.sent, "a channel number is used once"
        assert self.machine.bookies[effect.index] == effect.bookie
        self.open[effect.channel] = (effect.index, effect.bookie)
        self.opened.append((effect.channel, effect.index, effect.bookie))
        self.sent[effect.channel] = []

    def on_CloseChannel(self, effect):
        del self.open[effect.channel]

    def on_SendAdds(self, effect):
        ids = list(range(effect.batch.first, effect.batch.last + 1)) if effect.entries is None else list(effect.entries)
        assert ids == sorted(set(ids))
        assert ids
        self.batches.append(effect.batch)
        for channel in effect.channels:
            index, _bookie = self.open[channel]
            assert all(self.q.has(entry, index) for entry in ids)
            assert not set(ids) & set(self.sent[channel]), "an id goes out once per channel"
            self.sent[channel] += ids

    def on_ReleaseAcks(self, effect):
        assert not self.changing, "no acknowledgement while an ensemble change is under way"
        assert effect.last > self.released, "the LAC only rises"
        self.released = effect.last

    def on_FailPending(self, effect):
        self.failed.append(effect.code)

    def on_Refuse(self, effect):
        self.refused.append(effect.code)

    def on_StoreEnsemble(self, effect):
        assert not self.changing, "one change at a time"
        assert effect.first == self.machine.head + 1
        self.changing = True
        self.stores.append(effect)

    def on_StoreClose(self, effect):
        assert self.failed, "pending adds fail before the closing write"
        self.closes.append((effect.last, effect.length))

    def on_WatchBookies(self, effect):
        assert self.watching != effect.on
        self.watching = effect.on

    def on_SetAlarm(self, effect):
        self.alarms[effect.alarm] = effect.wait_ms

    def on_StopAlarm(self, effect):
        self.alarms.pop(effect.alarm, None)

    def on_Ended(self, effect):
        assert self.ended is None
        self.ended = effect.code

    # shorthands

    def append(self, count, size=10, first=None):
        return self.give(Append([bytes(size)] * count, first, token="t"))

    def channel(self, index):
        return next(channel for channel, (at, _bookie) in self.open.items() if at == index)

    def ack(self, index, first, last=None):
        return self.give(Acked(self.channel(index), first, (first if last is None else last) - first + 1))

    def lose(self, index, code=LOST):
        channel = self.channel(index)
        return self.give(ChannelLost(channel, code, "lost"))

    def refuse(self, index, entry, code):
        return self.give(AddRefused(self.channel(index), entry, 1, code))

    def changed(self, shortage="", seen=(), **replaced):
        """The change under way ends: `i0="b7"` puts b7 at index 0."""
        bookies = list(self.machine.bookies)
        for index, bookie in replaced.items():
            bookies[int(index[1:])] = bookie
        self.changing = False
        return self.give(EnsembleChanged(tuple(bookies), shortage, frozenset(seen)))
