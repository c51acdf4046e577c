"""
A master of a message store in a worker (`tests.processes.log_worker`), and what it tells of its puts:

    master <epoch>, slave <epoch>                        its role
    put <offset> <position> <message id> <store ms> <size> <unique id>       one message of a put that was answered
    lost <unique id> <error> <status>                    one that failed; with `AppendUnknown` it may be there

`StoreStory` creates the store, and judges what its workers told.
"""

from random import Random

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from quire.conf.messages import MessageOptions
from quire.messages.api import Message, Put, Stores
from quire.messages.descriptor import USE
from quire.protocol.log_errors import AppendUnknown
from tests.messages.truth import all_of, judge
from tests.processes.log_story import Story
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

FILE_BYTES = 16_384
TOPICS, QUEUES = 5, 4
UNDER_WAY = 4  # puts of one master
PAUSE_S = 0.002
UNKNOWN = AppendUnknown.__name__


class Master:
    """One worker's store.  The job: `rows`, the directory of its rows; `body`: bytes of the largest body."""

    def __init__(self, player, tell):
        self.job, self.reactor = player.job, player.reactor
        options = MessageOptions(derived_dir=self.job["rows"], progress_ms=50)
        self.stores = Stores(player.logs, options, reached=player.reached)
        self._tell = tell
        self._number = 0

    async def live(self):
        if self.job.get("creates"):
            await self.stores.create(self.job["log"], address="10.0.0.5:10911", file_bytes=FILE_BYTES)
            self._tell("created")
        store = self.store = await self.stores.open(self.job["log"], stand=True, on_role=self._tell)
        self._tell("ready")
        for client in range(UNDER_WAY):
            made = self._client(store, Random(f"{self.job['who']} {client}"))
            Deferred.fromCoroutine(made).addErrback(lambda failure: self._tell("broken", failure.getErrorMessage()))
        await Deferred()

    async def _client(self, store, rng):
        while True:
            if not await store.leads(1e6):
                continue
            topic, queue = f"T{rng.randrange(TOPICS)}", rng.randrange(QUEUES)
            messages = []
            for _ in range(rng.choice([1, 1, 1, 3, 10])):
                self._number += 1
                id_, body = f"{self.job['who']}-{self._number}", rng.randbytes(rng.randrange(self.job.get("body", 300)))
                messages.append(Message(topic, body, queue=queue, unique_id=id_))
            put = store.put_group if rng.random() < 0.3 else store.put_many
            done = Deferred()
            put(messages).addCallbacks(self._told, self._lost, errbackArgs=(messages,)).chainDeferred(done)
            await done
            await deferLater(self.reactor, PAUSE_S)

    def _told(self, puts):
        self._tell("\n".join(" ".join(("put", *map(str, put))) for put in puts))

    def _lost(self, failure, messages):
        kind, status = failure.type.__name__, failure.value.status or "-"
        self._tell("\n".join(f"lost {message.unique_id} {kind} {status}" for message in messages))


def put_of(words):
    """An answer, as it was told."""
    offset, position, message_id, store_ms, size, unique_id = words
    return Put(int(offset), int(position), message_id, int(store_ms), int(size), unique_id)


class StoreStory(Story):
    """A store whose masters are processes."""

    def __enter__(self):
        self.stores = Stores(self.logs)
        made = self.stores.create(self.name, address="10.0.0.5:10911", file_bytes=FILE_BYTES, **self.settings)
        run(lambda: Deferred.fromCoroutine(made))
        run(self._follow)
        return self

    def master(self, rows, **job):
        return self.worker("store", rows=str(rows), **job)

    def end_of_log(self):
        async def settle():
            await (await self.logs.own(self.name, use=USE)).close()

        run(settle)

    def judge(self):
        """What each master told is true; how many messages there are, and how many were told."""
        for worker in self.workers:
            worker.end()
        self.end_of_log()
        told = self.told()
        assert not [words for words in told if words[0] == "broken"]
        found = run(lambda: Deferred.fromCoroutine(all_of(self.logs, self.name)))
        puts = [put_of(words[1:]) for words in told if words[0] == "put"]
        lost = [words for words in told if words[0] == "lost"]
        assert not [words for words in lost if words[3] == "-"], "each error of a put has a status"
        judge(found, puts, [words[1] for words in lost if words[2] != UNKNOWN])
        flaws = run(lambda: Deferred.fromCoroutine(self._flaws()))
        assert not flaws
        print(f"{len(found)} messages, {len(puts)} told, {len(lost)} lost")
        return len(found), len(puts)

    async def _flaws(self):
        return [flaw async for flaw in self.stores.flaws(self.name)]
