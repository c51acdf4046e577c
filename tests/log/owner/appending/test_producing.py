"""Resends of producers: stored once and in order, over fences and takeovers, whatever their first try became."""

from random import Random
from types import SimpleNamespace as Namespace

import pytest
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import Clock

from quire.conf.log import LogOptions, LogSettings
from quire.log.api import Logs
from quire.log.core.batch import RECORDS_MAX, ProducerRun, Records
from quire.log.core.streams.producers import Producers
from quire.log.core.streams.rates import Together
from quire.log.owner.appending import producing
from quire.log.owner.appending.appends import Appended, Call, Position
from quire.log.owner.appending.producing import Producing
from quire.log.owner.appending.window import Window
from quire.metadata.clock import pause
from quire.protocol.errors import ClientClosed, MetaStore, TooManyRequests
from quire.protocol.log_errors import AppendUnknown, BacklogQuota, LogFenced, LogFull, NotOwner
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import kill
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def appended(owner, numbers, producer="p"):
    return await gatherResults(
        [owner.append(b"%s%d" % (producer.encode(), each), producer=producer, sequence=each) for each in numbers]
    )


def test_a_resend_is_not_stored_again(tmp_path):
    """It is told where the first is, while that is known, and that it is a duplicate."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            first = await owner.append(b"one", producer="p", sequence=7)
            assert first == Position(0, 0)
            again = await owner.append(b"one", producer="p", sequence=7)
            assert (again.index, again.duplicate) == (0, True)
            assert await owner.append(b"other", producer="q", sequence=7) == Position(1, 3)
            many = await owner.append_many([b"x"] * 100, producer="p", first_sequence=5)
            assert (list(many.indexes), many.duplicates) == ([-1, -1, 0, *range(2, 99)][:100], 3)
            late = await owner.append(b"x", producer="p", sequence=9)
            assert (late.index, late.duplicate) == (-1, True)
            assert logs.metrics.of("a").duplicates == 5
            assert len(await values(await logs.read("a"), 99)) == 99

    run(story)


def test_a_resend_of_what_is_under_way_has_its_answer(tmp_path):
    """No error, which would make its sender try again; of a part of a call the part's."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            first = owner.append_many([b"0", b"1", b"2"], producer="p", first_sequence=0)
            again = owner.append_many([b"1", b"2", b"3"], producer="p", first_sequence=1)
            one = owner.append(b"1", producer="p", sequence=1)
            assert not first.called
            assert list((await first).indexes) == [0, 1, 2]
            assert list((await again).indexes) == [1, 2, 3]
            assert (await one).index == 1
            assert await values(await logs.read("a"), 4) == [b"0", b"1", b"2", b"3"]

    run(story)


def gaps(*sequences):
    """Records of the producer p with these sequences, each run of them a run."""
    runs, start = [], 0
    for number, sequence in enumerate(sequences):
        if number and sequence != sequences[number - 1] + 1:
            runs.append(ProducerRun("p", start, number - start, sequences[start]))
            start = number
    runs.append(ProducerRun("p", start, len(sequences) - start, sequences[start]))
    return Records([b"%d" % each for each in sequences], producers=runs)


def test_sequences_with_gaps(tmp_path):
    """Of some records of a batch, as a partition has them: one entry; sent again, in any part, each is stored once."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            first = owner.append_runs(gaps(3, 4, 8, 10, 11))
            again = owner.append_runs(gaps(4, 8, 10))
            more = owner.append_runs(gaps(8, 11, 15, 17))
            assert list((await first).indexes) == [0, 1, 2, 3, 4]
            assert list((await again).indexes) == [1, 2, 3]
            assert list((await more).indexes) == [2, 4, 5, 6]
            done = await owner.append_runs(gaps(3, 8, 17, 20))
            assert (list(done.indexes), done.duplicates) == ([0, 2, 6, 7], 3)
            taken = await other.own("a", force=True)
            await failing(owner.append_runs(gaps(21, 30)), LogFenced, NotOwner)
            await failing(owner.append_runs(gaps(21, 30)), LogFenced, NotOwner)
            done = await taken.append_runs(gaps(17, 20, 21, 30))
            assert (list(done.indexes)[2:], done.duplicates) == ([8, 9], 2)
            await taken.close()
            wanted = [3, 4, 8, 10, 11, 15, 17, 20, 21, 30]
            assert await values(await logs.read("a")) == [b"%d" % each for each in wanted]
            assert (await other.info("a")).segments == 2

    run(story)


@pytest.mark.parametrize("table_records", [3, 50_000])
def test_takeovers(tmp_path, monkeypatch, table_records):
    """The next owner knows what is stored, by the newest table and what is behind it; indexes while they are known."""
    monkeypatch.setattr(producing, "TABLE_RECORDS", table_records)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            stored = 0
            for number in range(6):
                owner = await (await world.logs()).own("a", force=True)
                await appended(owner, range(stored, stored + 2), "old")
                assert all(each.duplicate for each in await appended(owner, range(stored + 2), "old"))
                for each in range(5):
                    await appended(owner, [number * 5 + each])
                again = await appended(owner, range(number * 5 + 5))
                assert all(each.duplicate for each in again)
                assert again[-1].index >= 0
                stored += 2
                if number % 3 == 0:
                    await owner.close()
            wanted = [b"p%d" % each for each in range(30)]
            found = await values(await logs.read("a"), 42)
            assert [each for each in found if each[:1] == b"p"] == wanted
            assert [each for each in found if each[:1] == b"o"] == [b"old%d" % each for each in range(12)]

    run(story)


def test_a_fence(tmp_path):
    """What was under way is sent again once, and resends meanwhile join it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            await appended(owner, range(3))
            await other.bk.recover_ledger((await logs.info("a")).ledger)
            first = [owner.append(b"p%d" % each, producer="p", sequence=each) for each in range(3, 9)]
            again = [owner.append(b"p%d" % each, producer="p", sequence=each) for each in range(9)]
            assert [each.index for each in await gatherResults(first)] == list(range(3, 9))
            assert [each.index for each in await gatherResults(again)] == list(range(9))
            assert await values(await logs.read("a"), 9) == [b"p%d" % each for each in range(9)]

    run(story)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_resends_to_several_owners(tmp_path, seed, killed):
    """
    Each append of three producers 1 to 4 times, over 20 takeovers, by force or from one that was killed, and again to
    the next owner: stored once, in order, and each answer is the record's index.
    """

    async def story():
        async with cluster(tmp_path) as world:
            dice, sequences, told = Random(seed), dict.fromkeys(PRODUCERS, 0), {}
            looking = await world.logs()
            await looking.create("a", dedup=True, roll_records=7)
            logs = await world.logs(append_ms=3000)
            owner = await logs.own("a")
            for _ in range(20):
                sent, wanted = [], []
                for producer in dice.choices(PRODUCERS, [8, 8, 1], k=6):
                    wanted.append((producer, sequences[producer]))
                    sequences[producer] += 1
                for each in wanted:
                    sent += [asked(owner, each, told) for _ in range(dice.randint(1, 4))]
                await gatherResults(sent[: dice.randrange(len(sent))])
                if killed:
                    kill(logs)
                logs = await world.logs(append_ms=3000)
                owner = await logs.own("a", force=not killed)
                newest = [(producer, count - 1) for producer, count in sequences.items() if count]
                again = [asked(owner, each, told) for each in [*wanted, *newest] for _ in range(dice.randint(1, 3))]
                await gatherResults(again)
            found = await values(await looking.read("a"), 120)
            for producer in PRODUCERS:
                mine = [value for value in found if value.startswith(producer.encode())]
                assert mine == [b"%s%d" % (producer.encode(), each) for each in range(sequences[producer])]
            for (producer, sequence), indexes in told.items():
                assert indexes == {found.index(b"%s%d" % (producer.encode(), sequence))}
            assert len(told) == 120

    run(story, 60)


PRODUCERS = ["p", "q", "r"]


def asked(owner, each, told):
    """One try of an append; its index is noted, and a failure that a resend is for passed over."""
    producer, sequence = each

    def answered(position):
        assert position.index >= 0
        told.setdefault(each, set()).add(position.index)

    done = owner.append(b"%s%d" % (producer.encode(), sequence), producer=producer, sequence=sequence)
    return done.addCallbacks(answered, lambda failure: failure.trap(LogFenced, NotOwner, AppendUnknown, ClientClosed))


def test_what_is_no_producer(tmp_path):
    """`TypeError` and `ValueError` at once; a log without `dedup` says what to set, while it is owned, too."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            for wrong, error in (
                (("p", None), TypeError),
                ((None, 1), TypeError),
                ((b"p", 1), TypeError),
                (("p" * 201, 1), ValueError),
                (("", 1), ValueError),
                (("p", -1), ValueError),
                (("p", 1 << 64), ValueError),
            ):
                await failing(owner.append(b"x", producer=wrong[0], sequence=wrong[1]), error)
            refused = await failing(owner.append(b"x", producer="p", sequence=1), ValueError)
            assert "dedup=true" in str(refused)
            await owner.append(b"before")
            await logs.update("a", dedup=True)
            while not owner.records.known.value.settings["dedup"]:
                await pause(reactor, 0.01)
            assert (await owner.append(b"x", producer="p", sequence=1)).index == 1
            owner = await other.own("a", force=True)
            assert (await owner.append(b"x", producer="p", sequence=1)) == (1, -1, True)
            assert (await owner.append(b"plain")).index == 2

    run(story)


@pytest.mark.parametrize("together", [True, False])
def test_what_a_hook_refuses_fails_those_of_its_producer_behind_it(tmp_path, together):
    """In the same entry and in the next ones: a resend finds its place, and what others append is stored."""
    refuses = [True]

    def hook(_index, _at, _stamp, given):
        if refuses and b"p1" in given:
            raise ValueError("not now")
        return given

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1 << 20 if together else 1)
            await logs.create("a", dedup=True)
            owner = await logs.own("a", before_append=hook)
            await appended(owner, [0])
            done = [owner.append(b"p%d" % number, producer="p", sequence=number) for number in (1, 2, 3)]
            done.insert(2, owner.append(b"q0", producer="q", sequence=0))
            for number in (0, 1, 3):
                await failing(done[number], ValueError)
            assert (await done[2]).index == 1
            refuses.clear()
            again = [owner.append(b"p%d" % number, producer="p", sequence=number) for number in (1, 2, 3)]
            assert [(await each).index for each in again] == [2, 3, 4]
            assert await values(await logs.read("a"), 5) == [b"p0", b"q0", b"p1", b"p2", b"p3"]

    run(story)


def test_the_table_is_stored_though_what_comes_with_it_is_refused(tmp_path):
    """Else all that is behind it would name another entry as the table."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            too_many = [b""] * (RECORDS_MAX + 1)
            await failing(owner.append_many(too_many, atomic=True, producer="p", first_sequence=0), ValueError)
            await appended(owner, [0, 1])
            await owner.close()
            owner = await (await world.logs()).own("a")
            assert (await owner.append(b"p1", producer="p", sequence=1)).duplicate
            assert await values(await logs.read("a"), 2) == [b"p0", b"p1"]

    run(story)


def test_a_resend_of_what_failed_behind_another_one(tmp_path):
    """Which is still under way: what was refused is refused again, and is no part of it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            await appended(owner, [0])
            first = owner.append(b"p1", producer="p", sequence=1)
            left = owner.close()
            for _ in range(2):
                await failing(owner.append(b"p2", producer="p", sequence=2), NotOwner)
            assert (await first).index == 1
            await left
            assert await values(await logs.read("a"), 2) == [b"p0", b"p1"]

    run(story)


def test_a_producer_for_which_the_table_has_no_room(tmp_path, monkeypatch):
    """`LogFull`, never sent; those that are in it go on, and in the next segment, too."""
    monkeypatch.setattr(producing, "TABLE_BYTES_MAX", 30)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            await appended(owner, [0])
            for _ in range(2):
                refused = await failing(owner.append(b"q0", producer="q", sequence=0), LogFull)
                assert "this was not sent" in str(refused)
                owner.roll()
            await appended(owner, [1])
            assert await values(await logs.read("a"), 2) == [b"p0", b"p1"]

    run(story)


def test_a_table_fits_into_a_small_frame():
    """A producer more than fit is refused, and the next segment begins all the same."""
    world = FakeCluster()
    logs = Logs(world.client(placement="random", frame_bytes_max=8192), LogOptions(), now=world.clock.seconds)
    world.succeed(logs.create("a", dedup=True))
    owner = world.succeed(logs.own("a"))
    names = [f"{number:0200d}" for number in range(60)]
    refused = [world.outcome(owner.append(b"v", producer=name, sequence=0)) for name in names]
    world.spin(1)
    assert {type(each.error) for each in refused} == {type(None), LogFull}
    owner.roll()
    assert world.succeed(owner.append(b"v", producer=names[0], sequence=1)).index > 1


def test_thousands_that_fail_together(tmp_path):
    """Each is answered, in order, and who sends them again in the answers finds their places."""
    again, order = [], []

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            refuses = [True]

            def hook(_index, _at, _stamp, given):
                if refuses.pop() if refuses else False:
                    raise ValueError("not now")
                return given

            owner = await logs.own("a", before_append=hook)

            def failed(failure, number):
                failure.trap(ValueError)
                order.append(number)
                again.append(owner.append(b"p%d" % number, producer="p", sequence=number))

            for number in range(2000):
                done = owner.append(b"p%d" % number, producer="p", sequence=number)
                done.addErrback(failed, number)
            while len(again) < 2000:
                await pause(reactor, 0.01)
            assert order == list(range(2000))
            assert [(await each).index for each in again] == list(range(2000))

    run(story)


def test_none_overtakes_one_that_waited_for_a_rate(tmp_path):
    """Also where the one that was refused and the one behind it leave the window together."""
    refuses = []

    def hook(_index, _at, _stamp, given):
        if refuses and b"p1" in given:
            raise ValueError("not now")
        return given

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", dedup=True)
            owner = await logs.own("a", before_append=hook)
            await appended(owner, [0])
            await pause(reactor, 0)  # nothing is under way, so the next one goes at once
            refuses.append(True)
            owner.window.hold(True)
            first = owner.append(b"p1", producer="p", sequence=1)
            owner.window.may_go = lambda: True  # its time has come, and no timer has told yet
            second = owner.append(b"p2", producer="p", sequence=2)
            for each in (first, second):
                await failing(each, ValueError)
            refuses.clear()
            assert [each.index for each in await appended(owner, [1, 2])] == [1, 2]

    run(story)


class Taken:
    """Producers of an owner whose log is read when a test says so; values longer than `refuses` have no room."""

    def __init__(self, bytes_max=None, **options):
        self.loads, self.calls, self.runs, self.refuses = [], [], [], None
        self.clock = Clock()
        self.together = Together(1 << 40 if bytes_max is None else bytes_max)
        self.room = Window(LogOptions(**options), self.clock, Random(1), LogSettings, self.together, lambda: None)
        self.manifest = Namespace(settings={"dedup": True}, open_segment=Namespace(n=4))
        known = Namespace(value=self.manifest)
        records = Namespace(known=known, name="a", counters=Namespace(duplicates=0), now_ms=lambda: 0)
        self.refusal = None  # of a hook, for what is sent
        doing = self.take, self.flush, lambda: None, self.load
        self.producing = Producing(records, self.room, *doing, self.clock)

    def take(self, records, _atomic, has_room):
        if self.refuses is not None and len(records.values[0]) > self.refuses:
            raise TooManyRequests("no room")
        count, size = len(records.values), records.weight
        self.room.admit("a", count, size, has_room)
        self.calls.append(Call(count, False, 0.0))
        self.runs.append(records.producers)
        self.calls[-1].done.addBoth(lambda answer: (self.room.take(-count, -size), answer)[1])
        return self.calls[-1]

    def flush(self):
        if self.refusal is not None:
            self.calls[-1].fail(self.refusal)

    def load(self):
        self.loads.append(Deferred())
        return self.loads[-1]

    def append(self, name, first=0, value=b"x"):
        return self.producing.append(name, first, Records([value]), False, False)

    def becomes_unknown(self, name, first=0):
        done = self.append(name, first)
        self.calls[-1].fail(AppendUnknown("where is it"))
        done.addErrback(lambda failure: failure.trap(AppendUnknown))

    def stored(self, number, index):
        self.producing.stored(self.runs[number], index, 0)
        self.calls[number].stored(range(index, index + 1), [index])
        self.calls[number].done.callback(self.calls[number].answer)


def errors(answers):
    """What each failed with, None: it is not answered, or is well."""
    found = []
    for each in answers:
        each.addErrback(lambda failure: failure.value)
        found.append(each.result if isinstance(getattr(each, "result", None), Exception) else None)
    return found


def test_a_call_with_gaps_that_fails_in_part():
    """One run is stored, another is not: the error denies neither; where only room was missing, that is said."""
    for error, kind in ((LogFenced("taken"), AppendUnknown), (TooManyRequests("no room"), TooManyRequests)):
        taken = Taken()
        taken.append("p", 0)
        if kind is TooManyRequests:
            taken.refuses = 0
        both = taken.producing.append_runs(gaps(0, 5))
        if kind is AppendUnknown:
            taken.calls[1].fail(error)
        taken.stored(0, 0)
        assert isinstance(errors([both])[0], kind)


def test_what_becomes_unknown_while_the_log_is_read():
    """Is not what was read: the producer waits until its own segment is closed and read."""
    owner = Taken()
    owner.becomes_unknown("p")
    owner.manifest.open_segment = Namespace(n=5)
    settled = owner.append("p")
    owner.becomes_unknown("q")
    owner.loads[0].callback(Producers())
    owner.stored(-1, 0)
    assert settled.result == Appended(range(0, 1), [0])
    count = len(owner.calls)
    owner.append("q").addErrback(lambda failure: failure.trap(AppendUnknown))
    assert len(owner.calls) == count


def test_those_that_wait_until_the_log_is_read_keep_their_order():
    """One read is for all of them, and none passes them, though the owner has read the log for itself meanwhile."""
    owner = Taken()
    owner.becomes_unknown("p", 5)
    owner.manifest.open_segment = None
    answers = [owner.append("p", 5), owner.append("p", 6)]
    opening = Deferred.fromCoroutine(owner.producing.settle())
    owner.loads[-1].callback(Producers())
    assert opening.called
    answers.append(owner.append("p", 7))
    assert len(owner.calls) == 1
    owner.loads[0].callback(Producers())
    assert len(owner.loads) == 2
    for number in (1, 2, 3):
        owner.stored(number, number)
    assert [each.result for each in answers] == [Appended(range(each, each + 1), [each]) for each in (1, 2, 3)]


def test_what_is_under_way_before_one_that_became_unknown():
    """May be sent again in the next segment, so what closed ones say is not all: its answer comes first."""
    owner = Taken()
    answers = [owner.append("p", 0)]
    owner.becomes_unknown("p", 1)
    owner.manifest.open_segment = None
    assert Deferred.fromCoroutine(owner.producing.settle()).called
    refused = owner.append("p", 0)
    assert [type(each) for each in errors([refused])] == [AppendUnknown]
    assert not owner.loads
    owner.stored(0, 0)
    answers.append(owner.append("p", 1))
    owner.loads[0].callback(Producers())
    owner.stored(-1, 1)
    assert [list(each.result.indexes) for each in answers] == [[0], [1]]


@pytest.mark.parametrize("what", ["the read", "the first"])
def test_one_that_waited_and_fails_fails_those_behind_it(what):
    """Whether the log can't be read or the window has no room: a resend finds its place."""
    owner = Taken()
    owner.becomes_unknown("p")
    owner.manifest.open_segment = None
    answers = [owner.append("p", 0, b"large"), owner.append("p", 1)]
    again = []
    answers[0].addErrback(lambda failure: again.append(owner.append("p", 0, b"large")) or failure)
    if what == "the read":
        owner.loads[0].errback(MetaStore("no answer"))
        assert [type(each) for each in errors(answers)] == [MetaStore] * 2
        owner.loads[1].callback(Producers())
    else:
        owner.refuses = 1
        owner.loads[0].callback(Producers())
        assert [type(each) for each in errors([*answers, *again])] == [TooManyRequests] * 3
        owner.refuses = None
        again = [owner.append("p", 0, b"large")]
    again.append(owner.append("p", 1))
    for number in (1, 2):
        owner.stored(number, number - 1)
    assert [each.result for each in again] == [Appended(range(0, 1), [0]), Appended(range(1, 2), [1])]


def stored_of(first, count):
    """What a log says of which so many sequences of `p` are its first records."""
    found = Producers()
    found.stored([ProducerRun("p", 0, count, first)], 0, 0)
    return found


def test_those_that_wait_until_the_log_is_read_have_their_room():
    """Of the window, which takes no more of them than of others; what was stored, or fails, gives it back."""
    owner = Taken(window_bytes=10)
    owner.becomes_unknown("p", 5)
    owner.manifest.open_segment = None
    waiting = [owner.append("p", number) for number in (5, 6, 7)]
    assert owner.room.bytes == 3
    refused = [owner.append("p", 8, bytes(8))]
    owner.clock.advance(0)
    refused.append(owner.append("p", 9))  # behind it
    assert [type(each) for each in errors(refused)] == [TooManyRequests] * 2
    room = owner.room.ready(1, 8)
    assert not room.called
    owner.loads[0].callback(stored_of(5, 2))
    assert room.called
    assert owner.room.bytes == 1
    owner.stored(-1, 2)
    assert [list(each.result.indexes) for each in waiting] == [[0], [1], [2]]
    owner.becomes_unknown("p", 8)
    waiting = [owner.append("p", number) for number in (8, 9)]
    assert owner.room.bytes == 2
    owner.loads[-1].errback(MetaStore("no answer"))
    assert [type(each) for each in errors(waiting)] == [MetaStore] * 2
    assert owner.room.bytes == 0


def test_one_that_waited_and_that_a_hook_refuses():
    """With whatever error: those behind it fail so, and the next append is no concern of it."""
    owner = Taken()
    owner.becomes_unknown("p")
    owner.manifest.open_segment = None
    answers = [owner.append("p", 0), owner.append("p", 1)]
    owner.refusal = KeyError("not now")
    owner.loads[0].callback(Producers())
    assert [type(each) for each in errors(answers)] == [KeyError] * 2
    owner.refusal = None
    assert errors([owner.append("p", 2)]) == [None]


def test_none_of_those_that_have_their_room_is_refused_for_lack_of_it():
    """Though other logs have taken more than all may have meanwhile: those that waited for room would pass it."""
    owner = Taken(bytes_max=10)
    owner.becomes_unknown("p", 5)
    owner.manifest.open_segment = None
    waiting = [owner.append("p", number) for number in (5, 6)]
    owner.together.bytes += 20
    owner.room.refusal = BacklogQuota("too much is kept")
    owner.loads[0].callback(Producers())
    for number in (1, 2):
        owner.stored(number, number)
    assert [list(each.result.indexes) for each in waiting] == [[1], [2]]
    assert (owner.room.bytes, owner.together.bytes) == (0, 20)


def test_who_gives_up_what_was_refused_while_others_waited():
    """Goes on once those have their answers, also where nothing of them had to be stored."""
    owner = Taken(window_bytes=10)
    owner.becomes_unknown("p", 5)
    owner.manifest.open_segment = None
    waiting = owner.append("p", 5)
    assert [type(each) for each in errors([owner.append("p", 6, bytes(10))])] == [TooManyRequests]
    owner.clock.advance(0)
    owner.loads[0].callback(stored_of(5, 1))
    assert waiting.result.duplicates == 1
    owner.clock.advance(0)
    assert errors([owner.append("p", 7)]) == [None]


@pytest.mark.parametrize("how", ["refused", "failed", "unknown"])
def test_what_failed_and_was_passed_by_a_higher_one(how):
    """Is no duplicate when it comes again: it is not in the log, and never will be."""
    owner = Taken()
    if how == "unknown":
        owner.becomes_unknown("p", 1)
        failed = [owner.append("p", 2)]
        owner.manifest.open_segment = None
    else:
        owner.append("p", 1)
        owner.stored(0, 0)
        owner.refuses = 0 if how == "refused" else None
        failed = [owner.append("p", 2)]
        owner.refuses = None
        owner.calls[-1].fail(LogFenced("another has it"))
        owner.clock.advance(0)
    assert errors(failed) != [None]
    higher = owner.append("p", 3)
    if how == "unknown":
        owner.loads[0].callback(stored_of(1, 1))
    for _ in range(2):  # while that is under way, and when it is stored
        refused = errors([owner.append("p", 2)])[0]
        assert type(refused) is ValueError
        assert "of sequences 2 to 2 of the producer 'p' some failed" in str(refused)
        if not higher.called:
            owner.stored(-1, 1)
    assert list(higher.result.indexes) == [1]
    assert owner.append("p", 1).result == Appended([0], [-1], 1)


def test_what_was_not_sent_for_one_that_was_passed():
    """It failed, too: when it comes again behind a higher one it is no duplicate."""
    owner = Taken()
    owner.refuses = 0
    assert errors([owner.append("p", 1)]) != [None]
    owner.refuses = None
    owner.clock.advance(0)
    owner.append("p", 2)
    some = owner.producing.append("p", 1, Records([b"x"] * 3), False, False)
    assert [type(each) for each in errors([some])] == [ValueError]
    assert errors([owner.append("p", 4)]) == [None]
    assert [type(each) for each in errors([owner.append("p", 3)])] == [ValueError]


def test_those_behind_one_that_was_refused():
    """Are refused, too, though there is room for them, until all are sent again: none is a duplicate of nothing."""
    owner = Taken()
    first = owner.append("p", 0)
    owner.refuses = 1
    answers = [owner.append("p", 1, b"large"), owner.append("p", 2), owner.append("p", 3)]
    assert [type(each) for each in errors(answers)] == [TooManyRequests] * 3
    assert errors([owner.append("q", 0)]) == [None]
    owner.clock.advance(0)
    owner.refuses = None
    again = [owner.append("p", 1, b"large")]
    late = owner.append("p", 4)
    assert [type(each) for each in errors([late])] == [TooManyRequests]
    again += [owner.append("p", number) for number in (2, 3, 4, 5)]
    for index, number in enumerate((0, 2, 3, 4, 5, 6)):
        owner.stored(number, index)
    assert [list(each.result.indexes) for each in [first, *again]] == [[each] for each in range(6)]


@pytest.mark.parametrize("under_way", [True, False])
def test_who_gives_up_what_was_refused(under_way):
    """Goes on when it has all its answers; or at once, by sending again the one behind, for then it knows."""
    owner = Taken()
    if under_way:
        owner.append("p", 0)
    for number in (1, 5):
        owner.refuses = 1
        assert [type(each) for each in errors([owner.append("p", number, b"large")])] == [TooManyRequests]
        owner.refuses = None
        assert [type(each) for each in errors([owner.append("p", number + 1)])] == [TooManyRequests]
        if number == 5:
            answer = owner.append("p", 6)
            break
        if under_way:
            owner.clock.advance(0)
            assert [type(each) for each in errors([owner.append("p", 3)])] == [TooManyRequests]
            owner.stored(0, 0)
        owner.clock.advance(0)
        answer = owner.append("p", 4)
        owner.stored(-1, number)
        assert list(answer.result.indexes) == [number]
    owner.stored(-1, 7)
    assert list(answer.result.indexes) == [7]


def test_a_window_that_has_no_room_for_one_of_a_producer(tmp_path):
    """A smaller one behind it does not take its place, and who waits for room in order is stored in order."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(window_bytes=1000)
            await logs.create("a", dedup=True)
            owner = await logs.own("a")
            sent = [bytes(800), bytes(500), bytes(100), b"x"]

            async def waiting(number):
                while True:
                    try:
                        return await owner.append(sent[number], producer="p", sequence=number)
                    except TooManyRequests:
                        await owner.ready(1, len(sent[number]))

            done = await gatherResults([Deferred.fromCoroutine(waiting(number)) for number in range(4)])
            assert [each[:3:2] for each in done] == [(number, False) for number in range(4)]
            assert await values(await logs.read("a"), 4) == sent

    run(story)


@pytest.mark.parametrize("waits", [False, True])
def test_a_call_of_which_a_hook_refuses_a_later_entry(tmp_path, waits):
    """What is sent of it is not denied, and a resend is stored once; where nothing is, the hook's error stays."""
    refuses = []

    def hook(_index, _at, _stamp, given):
        if any(each in given for each in refuses):
            raise ValueError("not now")
        return given

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=2)
            await logs.create("a", dedup=True)
            owner = await logs.own("a", before_append=hook)
            await appended(owner, [0])
            refuses.append(b"p3")
            if waits:
                owner.window.hold(True)
            done = owner.append_many([b"p1", b"p2", b"p3", b"p4"], producer="p", first_sequence=1)
            behind = owner.append(b"p5", producer="p", sequence=5)
            owner.window.hold(False)
            for each in (done, behind):
                assert "not now" in str(await failing(each, AppendUnknown))
            refuses.clear()
            while True:
                try:
                    again = await owner.append_many([b"p1", b"p2", b"p3", b"p4"], producer="p", first_sequence=1)
                    break
                except AppendUnknown:
                    await pause(reactor, 0.01)
            assert (list(again.indexes), again.duplicates) == ([1, 2, 3, 4], 2)
            refuses.append(b"p5")
            await failing(owner.append_many([b"p5", b"p6"], producer="p", first_sequence=5), ValueError)
            await failing(owner.append_many([b"xx", b"p5"]), AppendUnknown)
            refuses.clear()
            assert (await owner.append(b"p5", producer="p", sequence=5)).index == 6
            assert await values(await logs.read("a"), 7) == [b"p0", b"p1", b"p2", b"p3", b"p4", b"xx", b"p5"]

    run(story)
