"""The views of a process: shared by the readers of a log, gone with the last of them."""

import pytest
from twisted.internet.defer import Deferred

from quire.metadata.store import Watch
from quire.protocol.log_errors import NoSuchLog
from tests.log.fakes.cluster import cluster, values
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def watched(logs):
    """The paths of the records that this process watches, from now on."""
    paths, records = [], logs.bk.store.records
    real = records.watch

    def watch(path, fn):
        found = real(path, fn)
        paths.append(path)

        def cancelled():
            paths.remove(path)
            found.cancel()

        return Watch(cancelled)

    records.watch = watch
    return paths


def following(batches):
    """The next batch, or None at the end."""

    async def one():
        try:
            return await anext(batches)
        except StopAsyncIteration:
            return None

    return Deferred.fromCoroutine(one())


def test_one_view_for_all_readers_of_a_log(tmp_path):
    """Ten tails watch the manifest once; the watch goes with the last of them, whatever way each ended."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"first")
            await owner.close()
            watches = watched(other)
            readers = [await other.read("a", "end") for _ in range(10)]
            assert watches == []
            tails = [reader.tail(60) for reader in readers]
            waiting = [following(tail) for tail in tails]
            owner = await logs.own("a")
            await owner.append(b"second")
            for each in waiting:
                assert (await each).values == [b"second"]
            assert len(watches) == 1
            for reader in readers[1:]:
                await reader.close()
                await reader.close()
            assert len(watches) == 1
            await readers[0].close()
            assert watches == []
            assert await other.seek("a", 0) == (0, False)
            assert await other.find("a", 7) == (1, 5)
            assert watches == []

    run(story)


@pytest.mark.parametrize("what", ["the end of a closed log", "an open ledger"])
def test_a_close_ends_what_waits(tmp_path, what):
    """A tail that waits for news ends at once, without an error; so does one that is asked for later."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"first")
            if what == "the end of a closed log":
                await owner.close()
            reader = await logs.read("a")
            tail = reader.tail(600)
            assert (await following(tail)).values == [b"first"]
            waiting = following(tail)
            assert not waiting.called
            await reader.close()
            assert await waiting is None
            assert await values(reader) == []

    run(story)


def test_what_a_reader_knows(tmp_path):
    """Where it is, where the log begins, how far it is known to reach, and whether it has its end."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a", roll_records=2)
            owner = await logs.own("a")
            for number in range(5):
                await owner.append(b"%d" % number)
            reader = await other.read("a", 1)
            assert (reader.index, reader.begin, reader.end_known, reader.terminated) == (1, 0, 4, False)
            batches = reader.batches()
            assert (await anext(batches)).index == 1
            assert (reader.index, reader.end_known) == (2, 4)
            assert await values(reader, 3) == [b"2", b"3", b"4"]
            assert (reader.index, reader.end_known) == (5, 5)
            assert (await logs.read("a", "end")).index == 5

    run(story)


def test_a_log_that_is_not_there(tmp_path):
    """Nothing is kept of a reader that could not be made."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            watches = watched(other)
            reader = await other.read("a")
            assert await other.seek("a", 1) == (0, False)
            await logs.delete("a")
            for wanted in (other.read("a"), other.seek("a", 1), other.find("a", 1)):
                await failing(Deferred.fromCoroutine(wanted), NoSuchLog)
            await failing(Deferred.fromCoroutine(values(reader)), NoSuchLog)
            await reader.close()
            assert watches == []

    run(story)


@pytest.mark.parametrize("word", ["on_trim", "on_loss"])
def test_a_reader_passes_over_records_only_when_it_is_told_to(tmp_path, word):
    """Any other word than "skip" passed over what was trimmed or lost, without an error."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            watches = watched(logs)
            with pytest.raises(ValueError, match=f"{word} is 'raise' or 'skip', not 'ignore'"):
                await logs.read("a", **{word: "ignore"})
            assert watches == []

    run(story)
