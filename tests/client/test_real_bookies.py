"""The client's core on real bookies, real sockets and real disks in one process: what the fakes promise holds."""

import pytest

from quire.client import api
from quire.conf.client import ClientOptions
from quire.protocol.errors import LedgerFenced, UnauthorizedAccess
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
        await self.cluster.killed(bookie)

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
    async def story():
        client = await four.client(protocol=protocol)
        writer = await client.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2], password=b"p")
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
    """Writing goes on with two; the third returns and gets what is new; all is read back; the metadata was not touched."""
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
    three.cluster.start(three.cluster.number_of(gone))

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
        async for batch in reader.tail(10.0):
            got += [entry.data for entry in batch]
            if appended < 300:
                await writer.append_many(wanted[appended : appended + 10])
                appended += 10
                await writer.write_lac()
            elif not writer.closed:
                await writer.close()
        assert got == wanted
        assert reactor.seconds() - began < 9

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
