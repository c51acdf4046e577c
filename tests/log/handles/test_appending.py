"""Appends of other threads: which travel together, in which order, and what each is answered."""

import pytest
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.python.failure import Failure

from quire.client.threads import ReactorThread
from quire.conf.log import LogOptions
from quire.log.core.batch import Records
from quire.log.handles.appending import WaitingAppends, gathering, item_of, records_of
from quire.log.owner.appending.appends import RECORDS_PER_ENTRY_MAX, Appended
from quire.protocol.errors import TooManyRequests
from quire.protocol.log_errors import NotOwner
from tests.log.fakes.cluster import cluster, values
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def call_each(pairs) -> None:
    """Waiters of these tests are functions."""
    for waiter, answer in pairs:
        waiter(answer)


def test_lists_are_cut_where_entries_end(tmp_path):
    """So that no two records of different entries share an answer."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=100)
            await logs.create("a")
            owner = await logs.own("a")
            appends = WaitingAppends(owner)
            seen = []

            class Looked:
                ready, window_full = appends.ready, False

                async def append_many(self, items, /):
                    seen.append([len(item[0]) for item in items])
                    return await appends.append_many(items)

            gathered = gathering(ReactorThread(reactor), Looked(), logs.options, False)
            answers = []
            sizes = [60, 30, 9, 1, 500, 40, 60, 1]
            for number, size in enumerate(sizes):
                gathered.put(
                    item_of(b"%d" % number * size, b"k" if number == 2 else None, None, None), answers.append, call_each
                )
            await owner.ready()
            while len(answers) < len(sizes):
                await owner.barrier()
            assert seen == [[60, 30, 9], [1], [500], [40, 60], [1]]  # with its key the third has ten
            assert [each.index for each in answers] == list(range(8))
            await owner.barrier()  # whose entry says that the others are acknowledged
            reader = await logs.read("a")
            records = [each async for batch in reader.batches() for each in batch.records()]
            assert [record.key for record in records] == [None, None, b"k", None, None, None, None, None]
            assert [record.at for record in records] == [each.at for each in answers]

    run(story)


def test_keys_and_headers_take_their_room(tmp_path):
    """Of the window, for which small values with large headers wait, too; and of entries, that share no answer."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(window_bytes=1000, batch_bytes=700)
            await logs.create("a")
            owner = await logs.own("a")
            appends, answers, sent = WaitingAppends(owner), [], []

            class Looked:
                ready, window_full = appends.ready, False

                async def append_many(self, items, /):
                    sent.append(len(items))
                    return await appends.append_many(items)

            gathered = gathering(ReactorThread(reactor), Looked(), logs.options, False)
            headers = (("h", b"x" * 200),)
            for number in range(20):
                gathered.put(item_of(b"%d" % number, b"k" * 100, None, headers), answers.append, call_each)
            many, size = records_of([b"x"] * 3, None, None, [headers] * 3, None, None)
            done = [Deferred.fromCoroutine(appends.append_records(many, size, False)) for _ in range(3)]
            await gatherResults(done)
            while len(answers) < 20:
                await owner.barrier()
            assert sent == [2] * 10
            assert len({each.index for each in answers}) == 20

    run(story)


def test_a_list_of_many_small_ones_is_cut_too(tmp_path):
    """An entry has a maximum of records."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            answers = []
            gathered = gathering(ReactorThread(reactor), WaitingAppends(owner), logs.options, False)
            for _ in range(RECORDS_PER_ENTRY_MAX + 1):
                gathered.put(item_of(b"", None, None, None), answers.append, call_each)
            while len(answers) <= RECORDS_PER_ENTRY_MAX:
                await owner.barrier()
            assert [each.index for each in answers] == list(range(RECORDS_PER_ENTRY_MAX + 1))
            await owner.barrier()  # whose entry says that the others are acknowledged
            assert [batch.count async for batch in (await logs.read("a")).batches()] == [RECORDS_PER_ENTRY_MAX, 1]

    run(story)


def test_what_waits_for_room_comes_before_a_barrier_and_a_close(tmp_path):
    """In the order of the calls; what comes after the close is refused."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(window_records=4)
            await logs.create("a")
            owner = await logs.own("a")
            appends = WaitingAppends(owner)
            gathered = gathering(ReactorThread(reactor), appends, LogOptions(window_records=1000, batch_bytes=1), False)
            answers = {}

            def put(number):
                gathered.put(
                    item_of(b"%d" % number, None, None, None),
                    lambda found: answers.update({number: found}),
                    call_each,
                )

            for number in range(20):
                put(number)
            await owner.ready()
            assert (await owner.barrier()).index <= 4
            barrier = Deferred.fromCoroutine(appends.barrier())
            closed = Deferred.fromCoroutine(appends.close())
            put(20)
            assert (await gatherResults([barrier, closed]))[0].index == 20
            late = answers.pop(20)
            assert isinstance(late, Failure)
            assert late.check(NotOwner)
            assert {number: each.index for number, each in answers.items()} == {each: each for each in range(20)}
            assert await values(await logs.read("a")) == [b"%d" % number for number in range(20)]

    run(story)


def test_who_appends_what_can_t_be_is_told_at_once():
    """Before it is among others, which would fail with it."""
    for wrong in (
        ("text", None, None, None),
        (b"x", 3, None, None),
        (b"x", None, "now", None),
        (b"x", None, None, [1]),
    ):
        with pytest.raises(TypeError):
            item_of(*wrong)
    with pytest.raises(ValueError, match="key"):
        item_of(b"x", b"k" * 70_000, None, None)
    headers = item_of(b"x", None, None, iter([("n", b"v")]))[3]
    assert headers == (("n", b"v"),), "what can be read once is stored"


def test_a_list_that_finds_no_room_waits_for_it_again():
    """Others, or another log of the process, may be quicker, or it waited until its producer's log was read."""
    asked, rooms, refuses = [], [], [TooManyRequests("no room")]

    class Quicker:
        def ready(self, count, size):
            asked.append((count, size))
            rooms.append(Deferred())
            return rooms[-1]

        def append_many(self, values, **_columns):
            return fail(refuses.pop()) if refuses else succeed(Appended(range(len(values)), []))

    done = Deferred.fromCoroutine(WaitingAppends(Quicker()).append_records(Records([b"x", b"y"]), 2, False))
    rooms[0].callback(None)
    assert asked == [(2, 2)] * 2
    assert not done.called
    rooms[1].callback(None)
    assert done.result.indexes == range(2)
