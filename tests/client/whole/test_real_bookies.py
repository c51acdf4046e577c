"""The client's core on real bookies, real sockets and real disks in one process: what the fakes promise holds."""

import pytest
from twisted.internet.defer import Deferred

from quire.client import api
from quire.conf.client import ClientOptions
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import LedgerFenced, UnauthorizedAccess
from quire.replication.checker import check_ledger
from quire.replication.lost_bookies import recover_bookies
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster


class Stage:
    """A cluster and the clients of one story; everything is ended after it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.clients = []

    async def client(self, **options):
        client = await api.connect(reactor, self.cluster.uri, ClientOptions(**options))
        self.clients.append(client)
        return client

    async def stop(self, bookie):
        await self.cluster.halted(bookie)

    async def end(self):
        for client in self.clients:
            await client.close()


def stage_of(path, bookies):
    with RealCluster(path, bookies, write_cache_bytes_max=32 << 20, journal_segment_bytes=8 << 20) as cluster:
        stage = Stage(cluster)
        yield stage
        run(stage.end)


@pytest.fixture
def three(tmp_path):
    yield from stage_of(tmp_path, 3)


@pytest.fixture
def four(tmp_path):
    yield from stage_of(tmp_path, 4)


async def everything(reader):
    return [entry.data async for batch in reader.stream() for entry in batch]


def lines(count, size=60):
    return [(b"line %d " % number).ljust(size, b".") for number in range(count)]


async def append_all(writer, wanted, batch=100):
    for start in range(0, len(wanted), batch):
        await writer.append_many(wanted[start : start + batch])


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("shape", [(3, 3, 2), (4, 3, 2), (4, 2, 2)])
def test_write_close_read(four, protocol, shape):
    """Both protocols and several shapes: entries, length and ranges come back, a wrong password is refused."""

    async def story():
        client = await four.client(protocol=protocol)
        writer = await client.create_ledger(
            ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2], password=b"p"
        )
        wanted = lines(2000)
        await append_all(writer, wanted)
        await writer.close()
        reader = await client.open_ledger(writer.id, b"p")
        assert (reader.last_entry_id, reader.length) == (1999, 120_000)
        assert await everything(reader) == wanted
        assert [entry.data for entry in await reader.read(7, 9)] == wanted[7:10]
        with pytest.raises(UnauthorizedAccess):
            await client.open_ledger(writer.id, b"q")

    run(story)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_bookie_stops_while_entries_are_appended(four, protocol):
    """All appends succeed with one change of the ensemble, and every entry is read."""

    async def story():
        client = await four.client(protocol=protocol)
        writer = await client.create_ledger()
        wanted = lines(3000)
        await append_all(writer, wanted[:1000])
        going = [writer.append_many(wanted[start : start + 50]) for start in range(1000, 2000, 50)]
        await four.stop(writer.metadata.last_fragment.bookies[0])
        for each in going:
            await each
        await append_all(writer, wanted[2000:])
        assert writer.ensemble_changes == 1
        await writer.close()
        reader = await client.open_ledger(writer.id)
        assert await everything(reader) == wanted

    run(story)


def test_d17_three_bookies_and_one_stops(three):
    """
    Writing goes on with two; the third returns and gets what is new; all is read back; the metadata was not touched.
    """
    wanted = lines(900)

    async def first():
        client = await three.client()
        writer = await client.create_ledger()
        await append_all(writer, wanted[:300])
        gone = writer.metadata.last_fragment.bookies[1]
        await three.stop(gone)
        await append_all(writer, wanted[300:600])
        assert writer.bookies_out == (gone,)
        return client, writer, gone

    client, writer, gone = run(first)
    three.cluster.start(gone)

    async def second():
        while writer.bookies_out:
            await client.pool.info(gone)
        await append_all(writer, wanted[600:])
        stored = 0
        while stored < 900:  # the other two acknowledge without it, and a close does not wait for the third
            first, count = (await client.pool.list_entries(gone, writer.id)).runs[-1]
            stored = first + count
        await writer.close()
        assert len((await client.metadata(writer.id)).fragments) == 1
        assert await everything(await client.open_ledger(writer.id)) == wanted

    run(second)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_recovery_fences_a_living_writer(three, protocol):
    """The writer's append and close raise `LedgerFenced`, and the reader has all entries."""

    async def story():
        one, two = await three.client(protocol=protocol), await three.client(protocol=protocol)
        writer = await one.create_ledger()
        await append_all(writer, lines(500))
        reader = await two.open_ledger(writer.id)
        assert reader.last_entry_id == 499
        with pytest.raises(LedgerFenced):
            await writer.append(b"late")
        with pytest.raises(LedgerFenced):
            await writer.close()
        assert await everything(reader) == lines(500)

    run(story)


def test_recovery_of_an_abandoned_ledger_with_a_bookie_gone(four):
    """The writer vanished with adds on their way; every acknowledged entry is in the recovered ledger."""

    async def story():
        client = await four.client()
        writer = await client.create_ledger()
        wanted = lines(1000)
        await append_all(writer, wanted)
        for _ in range(5):
            writer.append_many(lines(100)).addErrback(lambda _failure: None)
        await client.close()
        await four.stop(writer.metadata.last_fragment.bookies[2])
        other = await four.client()
        reader = await other.open_ledger(writer.id)
        assert reader.last_entry_id >= 999
        assert (await everything(reader))[:1000] == wanted
        assert reader.metadata.is_closed

    run(story)


def test_many_recoveries_at_once_agree(three):
    """S22 on sockets."""

    async def story():
        writer = await (await three.client()).create_ledger()
        clients = [await three.client() for _ in range(6)]
        acknowledged = []
        for _ in range(50):
            writer.append_many(lines(20)).addCallbacks(lambda ids: acknowledged.append(ids[-1]), lambda _failure: None)
        opening = [client.open_ledger(writer.id) for client in clients]
        ends = {(await each).last_entry_id for each in opening}
        assert len(ends) == 1
        assert max(acknowledged, default=-1) <= ends.pop()

    run(story)


def test_a_tail_follows_to_the_close(three):
    """Entries come while the writer writes, without waiting for a poll's time-out; the end comes with the close."""

    async def story():
        client, other = await three.client(), await three.client()
        writer = await client.create_ledger()
        wanted, got = lines(300), []
        await append_all(writer, wanted[:10])
        await writer.write_lac()
        reader = await other.open_ledger(writer.id, recover=False)
        appended = 10
        began = reactor.seconds()
        async for batch in reader.tail(60.0):
            got += [entry.data for entry in batch]
            if appended < 300:
                await writer.append_many(wanted[appended : appended + 10])
                appended += 10
                await writer.write_lac()
            elif not writer.closed:
                await writer.close()
        assert got == wanted
        assert reactor.seconds() - began < 40, "29 polls of 3 s would take more than twice as long"

    run(story)


def asked(client, kind):
    """How many requests of a kind went to bookies."""
    return sum(found.done + found.waiting for (_bookie, name), found in client.pool.requests().items() if name == kind)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_reader_that_waits_sees_an_entry_without_the_next_one(three, protocol):
    """A bookie says with its answer that one waits, and the writer tells it; a writer without readers tells nobody."""

    async def story():
        alone, client, other = await three.client(), await three.client(protocol=protocol), await three.client()
        await append_all(await alone.create_ledger(), lines(20))
        writer = await client.create_ledger()
        await append_all(writer, lines(2))
        got, waits = [], []

        async def follow():
            async for batch in (await other.open_ledger(writer.id, recover=False)).tail(60.0):
                got.extend(entry.entry_id for entry in batch)
                for entry, seen in waits:
                    if entry == got[-1] and not seen.called:
                        seen.callback(None)

        def seen(entry):
            waits.append((entry, Deferred()))
            if entry in got:
                waits[-1][1].callback(None)
            return waits[-1][1]

        following = Deferred.fromCoroutine(follow())
        for _attempt in range(20):  # the reader may not wait yet
            await writer.append(b"next")
            await seen(writer.last_add_pushed - 1)
            await seen(writer.last_add_pushed).addTimeout(0.5, reactor, lambda _late, _seconds: None)
            if got[-1] == writer.last_add_pushed:
                break
        assert got == list(range(writer.last_add_pushed + 1))
        assert asked(client, "write_lac") > 0 == asked(alone, "write_lac")
        await writer.close()
        await following

    run(story)


def test_large_entries(three):
    """A megabyte each, in both directions; one that fits no frame is refused at once."""

    async def story():
        client = await three.client()
        writer = await client.create_ledger()
        wanted = [bytes([number]) * (1 << 20) for number in range(8)]
        assert await writer.append_many(wanted) == range(8)
        with pytest.raises(ValueError, match="too large"):
            await writer.append(bytes(6 << 20))
        await writer.close()
        assert await everything(await client.open_ledger(writer.id)) == wanted

    run(story)


def test_explicit_lac_and_force(three):
    """A reader without recovery sees what `write_lac` confirmed, and `force` succeeds."""

    async def story():
        client = await three.client()
        writer = await client.create_ledger()
        await append_all(writer, lines(10))
        await writer.write_lac()
        reader = await client.open_ledger(writer.id, recover=False)
        assert reader.last_entry_id == 9
        await writer.force()
        await writer.close()

    run(story)


def test_deferred_sync_and_own_ids(three):
    """`force` confirms entries, and an advanced writer's entries are read in the order of ids."""

    async def story():
        client = await three.client()
        writer = await client.create_ledger(write_flags="DEFERRED_SYNC")
        await append_all(writer, lines(10))
        assert writer.last_add_confirmed == -1
        await writer.force()
        assert writer.last_add_confirmed == 9
        await writer.close()
        advanced = await client.create_ledger(advanced=True)
        late = advanced.append_at(1, b"one")
        await advanced.append_at(0, b"zero")
        await late
        await advanced.close()
        assert await everything(await client.open_ledger(advanced.id)) == [b"zero", b"one"]

    run(story)


class Exchange:
    """
    Six bookies with ids of their own; a ledger of 100 entries on the first three, whose writer, and a reader of it, are
    idle when all six are rolled one after another: each comes back with its files, at the address that another one had.
    """

    def __init__(self, path):
        self.cluster = RealCluster(path, 3, named=True)
        self.cluster.__enter__()
        self.stage = Stage(self.cluster)
        run(self.begin)
        for _ in range(3):
            self.cluster.add()
        for bookie in self.cluster.ids:
            self.cluster.kill(bookie)
        self.cluster.ports = self.cluster.ports[3:] + self.cluster.ports[:3]
        for bookie in self.cluster.ids:
            self.cluster.start(bookie)

    async def begin(self):
        self.writing, self.reading, self.fresh = [await self.stage.client() for _ in range(3)]
        self.writer = await self.writing.create_ledger()
        await append_all(self.writer, lines(100))
        await self.reading.open_ledger(self.writer.id, recover=False)


@pytest.fixture
def exchange(tmp_path):
    made = Exchange(tmp_path)
    yield made
    run(made.stage.end)
    made.cluster.__exit__(None, None, None)


def test_an_idle_writer_finds_its_bookies_where_they_went(exchange):
    """Every entry that is acknowledged to it is where the metadata says."""

    async def story():
        await append_all(exchange.writer, lines(200)[100:])
        await exchange.writer.close()
        assert await everything(await exchange.fresh.open_ledger(exchange.writer.id)) == lines(200)

    run(story)


def test_an_idle_reader_recovers_on_the_bookies_that_are_meant(exchange):
    """It fences those, and no others, and finds all that was acknowledged."""

    async def story():
        reader = await exchange.reading.open_ledger(exchange.writer.id)
        assert reader.last_entry_id == 99
        with pytest.raises(LedgerFenced):
            await exchange.writer.append(b"too late")

    run(story)


def test_a_ledger_made_after_the_exchange_has_one_end(exchange):
    """Its writer never knew another address; who recovers it did."""

    async def story():
        writer = await exchange.fresh.create_ledger()
        while {"bookie-3", "bookie-4", "bookie-5"} & set(writer.metadata.last_fragment.bookies):
            writer = await exchange.fresh.create_ledger()
        await append_all(writer, lines(100))
        reader = await exchange.reading.open_ledger(writer.id)
        assert reader.last_entry_id == 99
        with pytest.raises(LedgerFenced):
            await append_all(writer, lines(200)[100:])

    run(story)


def test_a_bookie_at_an_address_that_is_not_its_own_yet_is_not_taken_for_the_one_before(tmp_path):
    """
    The store still lists who was there; a client that asks for that one gets a no, and the ledger goes on without it.
    """

    async def story(cluster, stage, gone):
        client = await stage.client()
        store = client.store
        asked = store.service_info
        store.service_info = lambda bookie: asked("bookie-3" if bookie == gone else bookie)  # where that one is now
        writer = await client.create_ledger()
        assert (await client.pool.info(gone)).code == -8
        assert (await client.pool.info("bookie-3")).code == 0
        await append_all(writer, lines(100))
        await writer.close()
        assert gone not in writer.metadata.last_fragment.bookies
        assert await everything(await client.open_ledger(writer.id)) == lines(100)

    with RealCluster(tmp_path, 4, named=True) as cluster:
        stage = Stage(cluster)
        run(lambda: story(cluster, stage, "bookie-0"))
        run(stage.end)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_entries_that_fill_a_v2_frame_are_recovered_and_copied(tmp_path, protocol):
    """As Java's V2 client writes them: our own leaves room."""
    limit = 1 << 20
    digest = Digest(DigestType.CRC32C, b"")
    sizes = [limit - 28 - 36 - less for less in (600, 128, 100, 90, 60, 8, 1, 0)]

    async def story(stage):
        client = await stage.client(protocol=protocol, frame_bytes_max=limit)
        writer = await client.create_ledger()
        first = writer.metadata.last_fragment.bookies
        before = 0
        for entry, size in enumerate(sizes):
            sinks = [Noting() for _ in first]
            made = AddBatch(digest, writer.id, entry, entry - 1, before, [bytes([entry]) * size])
            for bookie, sink in zip(first, sinks, strict=True):
                client.pool.add_channel(bookie, writer.id, sink).send(made)
            for sink in sinks:
                assert await sink.done == 0
            before += size
        other = await stage.client(protocol=protocol, frame_bytes_max=limit)
        reader = await other.open_ledger(writer.id)
        assert [len(data) for data in await everything(reader)] == sizes
        await stage.stop(first[0])
        report = await recover_bookies(other, [first[0]])
        assert report.complete, report
        assert first[0] not in (await other.metadata(writer.id)).last_fragment.bookies
        assert [len(data) for data in await everything(await other.open_ledger(writer.id))] == sizes

    with RealCluster(tmp_path, 4, frame_bytes_max=limit) as cluster:
        stage = Stage(cluster)
        run(lambda: story(stage))
        run(stage.end)


class Noting:
    """An `AddSink` for one entry."""

    def __init__(self):
        self.done = Deferred()

    def acked(self, channel, first, count, code):
        channel.close()
        self.done.callback(code)

    def failed(self, channel, code, reason):
        self.done.callback(code)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_program_that_appends_once_and_ends_leaves_all_copies(three, protocol):
    """The address of one bookie is known only after writer and client were closed: its copy is sent all the same."""

    async def story():
        client = await api.connect(reactor, three.cluster.uri, ClientOptions(protocol=protocol))
        known, late, resolve = client.store.service_info, [], Deferred()

        async def service_info(bookie):
            if not late:
                late.append(bookie)
            if bookie in late:
                await resolve
            return await known(bookie)

        client.store.service_info = lambda bookie: Deferred.fromCoroutine(service_info(bookie))
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=1)
        await writer.append(b"only")
        await writer.close()
        closing = client.close()
        resolve.callback(None)
        await closing
        report = await check_ledger(await three.client(), writer.id)
        assert late
        assert report.complete, report

    run(story)
