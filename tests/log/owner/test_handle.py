"""An owner's window, its hook, and what is answered when it ends."""

import traceback

from twisted.internet.defer import Deferred, fail, gatherResults

from quire.client.api import Writer
from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.batch import RECORDS_MAX
from quire.log.owner.appending.appends import Position
from quire.log.owner.appending.encoder import Prepared
from quire.log.owner.appending.sending import SENT_BYTES
from quire.log.owner.handle import ENTRIES_UNDER_WAY_MAX
from quire.log.store.paths import log_path
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore, TooManyRequests
from quire.protocol.log_errors import AppendUnknown, BacklogQuota, LogFenced, NotOwner
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster, values
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_the_window_pushes_back(tmp_path):
    """Beyond it an append is refused, never sent; `ready` fires when there is room."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(window_records=10)
            await logs.create("a")
            owner = await logs.own("a")
            waiting = [owner.append(b"%d" % number) for number in range(10)]
            await failing(owner.append(b"refused"), TooManyRequests)
            ready = owner.ready()
            assert not ready.called
            await gatherResults(waiting)
            await ready
            assert (await owner.append(b"10")).index == 10
            assert await values(await logs.read("a"), 11) == [b"%d" % number for number in range(11)]

    run(story)


def test_a_log_whose_compression_is_not_installed_is_not_owned(tmp_path, monkeypatch):
    """Before the claim is taken, with the command that installs it; a log without compression is owned."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", compression="zstd")
            await logs.create("b")
            monkeypatch.setattr("quire.conf.log.find_spec", lambda _name: None)
            assert "[zstd]" in str(await failing(logs.own("a", wait_s=0), ValueError))
            assert [each async for each in logs.candidates("a")] == []
            await (await logs.own("b", wait_s=0)).close()

    run(story)


def test_what_comes_in_one_turn_is_one_call_to_the_writer(tmp_path, monkeypatch):
    """Its entries are sent together, in several calls only above so many bytes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"opens")
            calls, send = [], Writer.append_many

            def counted(writer, entries):
                calls.append(len(entries))
                return send(writer, entries)

            monkeypatch.setattr(Writer, "append_many", counted)
            for size, wanted in ((10, [20]), (SENT_BYTES // 4, [4] * 5)):
                calls.clear()
                places = await gatherResults([owner.append(bytes(size)) for _ in range(20)])
                assert calls == wanted
                assert [place.index for place in places] == list(range(places[0].index, places[0].index + 20))

    run(story)


def test_who_has_closed_is_in_nobodys_way(tmp_path):
    """When a close is answered the claim is free, for one who does not wait, too; a second close says the same."""

    async def story():
        async with cluster(tmp_path) as world:
            one, two = await world.logs(), await world.logs()
            await one.create("a")
            for each in (one, two):
                each.bk.store.faults = lambda *_: Fault(before=0.002)
            for number in range(4):
                owner = await (one, two)[number % 2].own("a", wait_s=0)
                assert owner.epoch == number + 1
                closing, again = owner.close(), owner.close()
                await again
                assert closing.called
                assert await one.bk.store.records.children(log_path((await one.info("a")).id) + "/candidates") == []

    run(story)


def test_a_barrier(tmp_path):
    """It is acknowledged behind all that came before, and takes no index."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            first = owner.append(b"one")
            assert await owner.barrier() == Position(1, 3)
            assert first.called
            assert (await owner.append(b"two")).index == 1
            assert await values(await logs.read("a"), 2) == [b"one", b"two"]

    run(story)


def test_room_is_given_in_the_order_of_the_calls(tmp_path):
    """A large append that waits for room is not passed by small ones, and gets it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(window_records=10)
            await logs.create("a")
            owner = await logs.own("a")
            order = []

            async def wanting(count):
                await owner.ready(count, count)
                order.append(count)
                return await owner.append_many([b"x"] * count)

            first = owner.append_many([b"x"] * 9)
            waiting = [Deferred.fromCoroutine(wanting(count)) for count in (10, 1, 100, 1)]
            assert not order
            assert (await first).indexes == range(9)
            done = await gatherResults(waiting)
            assert order == [10, 1, 100, 1]
            assert [each.indexes[0] for each in done] == [9, 19, 20, 120]

    run(story)


def test_a_hook_decides_what_is_stored(tmp_path):
    """It sees where the records will be, also again after a fence; its skips show in positions; what it raises fails
    that append only."""

    async def story():
        async with cluster(tmp_path) as world:
            seen = []

            def hook(index, at, _stamp, given):
                seen.append((index, at, given))
                if given == [b"bad"]:
                    raise ValueError("no such thing")
                return Prepared([b"<%s>" % value for value in given], [5] * len(given))

            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a", before_append=hook)
            assert await owner.append(b"one") == Position(0, 5)
            await failing(owner.append(b"bad"), ValueError)
            assert await owner.append(b"two") == Position(1, 15)
            await logs.bk.recover_ledger((await logs.info("a")).ledger)
            assert (await owner.append(b"three")).index == 2
            reader = await logs.read("a")
            assert await values(reader, 3) == [b"<one>", b"<two>", b"<three>"]
            assert seen[0] == (0, 0, [b"one"])
            assert (2, 20, [b"three"]) in seen

    run(story)


def test_a_close_stores_what_was_appended(tmp_path):
    """All that was appended before is acknowledged; what comes after is refused; a second close is nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            waiting = [owner.append(b"%d" % number) for number in range(200)]
            await owner.close()
            done = await gatherResults(waiting)
            assert [each.index for each in done] == list(range(200))
            await failing(owner.append(b"late"), NotOwner)
            await owner.close()
            info = await logs.info("a")
            assert (info.end, info.owner) == (200, None)

    run(story)


def test_a_hook_that_raises_fails_that_append_only(tmp_path):
    """Also one of several in an entry, with an error of a log, and when a fence has the rest sent again."""

    async def story():
        async with cluster(tmp_path) as world:

            def hook(_index, _at, _stamp, given):
                if b"bad" in given:
                    raise BacklogQuota("no")
                return given

            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a", before_append=hook)
            await owner.append(b"0")
            await logs.bk.recover_ledger((await logs.info("a")).ledger)
            done = [owner.append(each) for each in (b"bad", b"1", b"bad", b"2", b"3")]
            for number in (0, 2):
                await failing(done[number], BacklogQuota)
            assert [(await each).index for each in (done[1], *done[3:])] == [1, 2, 3]
            assert owner.under_way == (0, 0)
            assert owner.end == Position(4, 4)
            more = [owner.append(b"%d" % number) for number in range(4, 300)]
            assert [each.index for each in await gatherResults(more)] == list(range(4, 300))
            assert await values(await logs.read("a"), 300) == [b"%d" % number for number in range(300)]

    run(story)


def test_keys_and_headers_are_bytes_under_way(tmp_path):
    """They fill the window, and share an entry only as far as one may be large."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(window_bytes=1 << 20, batch_bytes=100_000)
            await logs.create("a")
            owner = await logs.own("a")
            headers = [("h", b"x" * 40_000)]
            done = [owner.append(b"v", key=b"k" * 1000, headers=headers) for _ in range(20)]
            assert owner.under_way == (20, 20 * (1 + 1000 + 40_007))
            await failing(owner.append_many([b"v"] * 7, headers=[headers] * 7), TooManyRequests)
            assert [each.index for each in await gatherResults(done)] == list(range(20))
            assert owner.under_way == (0, 0)
            assert (await owner.append_many([b"v"] * 9, headers=[headers] * 9)).indexes == range(20, 29)

    run(story)


def test_a_hook_s_values_are_what_every_reader_gets(tmp_path):
    """With skips in each position, over a publisher that comes between and a takeover; what was told is what is
    there."""

    async def story():
        async with cluster(tmp_path) as world:
            stored = {}

            def hook(index, at, _stamp, given):
                made = [b"%d@%d:%s" % (index + number, at, value) for number, value in enumerate(given)]
                stored.update(zip(range(index, index + len(given)), made, strict=True))
                return Prepared(made, [100] * len(given))

            logs, second = await world.logs(batch_bytes=8), await world.logs()
            await logs.create("a", roll_records=7)
            owner = await logs.own("a", before_append=hook)
            sink = await second.sink("a", "txn", "run")
            told = {}
            for batch in range(4):
                part = await sink.part(batch, 0, 0)
                await part.append_many([b"published"] * 3)
                publishing = Deferred.fromCoroutine(sink.commit(batch, [await part.close()]))
                done = [owner.append(b"%d" % number) for number in range(20)]
                for number, position in enumerate(await gatherResults(done)):
                    told[position.index] = position.at, b"%d" % number
                receipt = await publishing
                for index in range(receipt.first, receipt.end):
                    stored[index] = b"published"
            owner = await second.own("a", force=True, before_append=hook)
            last = await owner.append(b"last")
            told[last.index] = last.at, b"last"
            assert last.index == 92
            found, end = [], 0
            async for batch in (await logs.read("a")).tail(60):
                for record in batch.records():
                    assert record.index == len(found)
                    assert record.at == (end if record.value == b"published" else end + 100)
                    end = record.at + len(record.value)
                    found.append(record)
                if len(found) > last.index:
                    break
            assert [record.value for record in found] == [stored[index] for index in range(93)]
            for index, (at, value) in told.items():
                assert found[index].at == at
                assert found[index].value.endswith(b":" + value)
            assert owner.end == Position(93, end)

    run(story)


def test_a_large_backlog_is_stored_by_close_and_barrier(tmp_path):
    """More entries than may be under way: a barrier is behind all of them, and a close stores them."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await logs.create("a")
            owner = await logs.own("a")
            first = [owner.append(b"x") for _ in range(ENTRIES_UNDER_WAY_MAX * 2)]
            assert (await owner.barrier()).index == len(first)
            second = [owner.append(b"y") for _ in range(ENTRIES_UNDER_WAY_MAX * 2)]
            await owner.close()
            assert [each.index for each in await gatherResults([*first, *second])] == list(range(len(first) * 2))

    run(story)


def test_an_atomic_batch_is_bounded(tmp_path):
    """More records than one batch may have are refused, never sent; as many as it may have are one batch."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await failing(owner.append_many([b""] * (RECORDS_MAX + 1), atomic=True), ValueError)
            done = await owner.append_many([b"v"] * RECORDS_MAX, atomic=True)
            assert done.indexes == range(RECORDS_MAX)
            async for batch in (await logs.read("a")).tail(60):
                assert batch.count == RECORDS_MAX
                break

    run(story)


def test_a_candidate_that_could_not_register_leaves(tmp_path):
    """The error is the store's, and nothing of the handle goes on: the next one owns the log."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            faults = [Fault(error=MetaStore("no answer"), applied=True)]
            logs.bk.store.faults = lambda name, _: faults.pop() if faults and name == "transact" else None
            await failing(logs.own("a"), MetaStore)
            assert await logs.bk.store.records.children(log_path((await logs.info("a")).id) + "/candidates") == []
            assert (await (await logs.own("a", wait_s=5)).append(b"1")).index == 0

    run(story)


def test_who_is_answered_together_shares_the_next_entry(tmp_path):
    """Callers with one append under way each: after the first of them all, each round is about one entry."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"first")
            entries = logs.metrics.of("a").batch_records

            async def caller():
                for _ in range(10):
                    await owner.append(b"x")

            await gatherResults([Deferred.fromCoroutine(caller()) for _ in range(50)])
            return dict(entries.buckets())["+Inf"]

    assert run(story) <= 1 + 10 + 3


def test_an_entry_that_the_writer_refuses(tmp_path, monkeypatch):
    """None behind it takes its place: it is sent again, in order, and what is answered is in the log."""
    refuses, append_many = [True], Writer.append_many

    def refusing(writer, payloads):
        if any(b"two" in each for each in payloads) and refuses:
            refuses.clear()
            return fail(TooManyRequests("not now"))
        return append_many(writer, payloads)

    monkeypatch.setattr(Writer, "append_many", refusing)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"one")
            large = [each + bytes(SENT_BYTES) for each in (b"two", b"three", b"four")]
            done = await gatherResults([owner.append(each) for each in large])
            assert [each.index for each in done] == [1, 2, 3]
            assert await values(await logs.read("a"), 4) == [b"one", *large]

    run(story)


def test_parts_fit_into_a_frame(tmp_path):
    """Whatever size is asked for."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(part_bytes=64 << 20, batch_bytes=64 << 20)
            await logs.create("a")
            owner = await logs.own("a")
            large = b"x" * (6 << 20)
            done = await gatherResults([owner.append(each) for each in (large, b"small")])
            assert [each.at for each in done] == [0, len(large)]
            assert await values(await logs.read("a"), 2) == [large, b"small"]

    run(story)


def test_lists_that_are_used_again(tmp_path):
    """What was appended is stored, whatever becomes of the caller's lists before that is encoded."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            values, keys, times, headers = [b"one"], [b"k1"], [1], [[("n", b"1")]]
            first = owner.append_many(values, keys=keys, times_ms=times, headers=headers)
            values[0], keys[0], times[0], headers[0][0] = b"two", b"k2", 2, ("n", b"2")
            await gatherResults([first, owner.append_many(values, keys=keys, times_ms=times, headers=headers)])
            reader = await logs.read("a")
            found = []
            async for batch in reader.tail(60):
                found += [(each.value, each.key, each.time_ms, each.headers) for each in batch.records()]
                if len(found) == 2:
                    break
            assert found == [(b"one", b"k1", 1, (("n", b"1"),)), (b"two", b"k2", 2, (("n", b"2"),))]

    run(story)


def test_a_refusal_that_many_appends_meet(tmp_path):
    """Is one error, which keeps none of them in memory."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            refusal = owner.window.refusal = BacklogQuota("not now")
            depths = []
            for _ in range(100):
                await failing(owner.append(b"x"), BacklogQuota)
                depths.append(len(traceback.extract_tb(refusal.__traceback__)))
            assert depths[-1] == depths[9]

    run(story)


def test_a_call_that_is_sent_in_part_when_the_log_is_lost():
    """What is sent of it is not denied: it may be in the log, and here it is."""
    world = FakeCluster()
    logs, other = (Logs(world.client(placement="random"), LogOptions(batch_bytes=1)) for _ in range(2))
    world.succeed(logs.create("a"))
    owner = world.succeed(logs.own("a"))
    assert world.succeed(owner.append(b"0")).index == 0
    world.judge = lambda request: "mute" if request.op == "add" else "pass"
    cut = owner.append_many([b"x"] * (ENTRIES_UNDER_WAY_MAX + 6))
    owner.roll()
    behind = owner.append(b"x")
    barrier = owner.barrier()  # the rest of the call waits for the end of the segment
    next_owner = world.outcome(other.own("a", force=True))
    assert [type(world.fails(each)) for each in (cut, behind, barrier)] == [AppendUnknown, LogFenced, LogFenced]
    world.judge = lambda _request: "pass"
    world.spin(10)
    assert next_owner.value.end.index == 1 + ENTRIES_UNDER_WAY_MAX
