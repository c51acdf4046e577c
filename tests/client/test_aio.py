"""The asyncio face on real bookies, in a plain asyncio loop: what is asyncio's own, and one whole life."""

import asyncio

import pytest

import quire.client as quire
from quire.client import ClientOptions, aio
from quire.client.api import Client as LedgerClient
from tests.real_cluster import RealCluster


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("aio"), 3) as cluster:
        yield cluster.uri


def test_the_example_of_the_manual(uri):
    """Create, append, read, iterate, list and delete work as the manual shows them."""

    async def story():
        async with aio.connect(uri) as bk:
            async with await bk.create_ledger(custom_metadata={"app": b"demo"}) as writer:
                assert await writer.append(b"one") == 0
                assert await writer.append_many([b"two", b"three"]) == range(1, 3)
                assert await writer.append_async(b"four") == 3
                assert (writer.last_add_confirmed, writer.last_add_pushed, writer.length) == (3, 3, 15)
            async with await bk.open_ledger(writer.id) as reader:
                assert (reader.id, reader.last_entry_id, reader.length, reader.closed) == (writer.id, 3, 15, True)
                assert [entry.data for entry in await reader.read(1, 2)] == [b"two", b"three"]
                assert [entry.data async for entry in reader] == [b"one", b"two", b"three", b"four"]
            assert writer.id in [ledger async for ledger in bk.ledgers()]
            assert (await bk.metadata(writer.id)).custom == {"app": b"demo"}
            await bk.delete_ledger(writer.id)
            with pytest.raises(quire.NoSuchLedger):
                await bk.open_ledger(writer.id)

    asyncio.run(story())


def test_a_client_may_be_awaited_and_closed_by_hand(uri):
    """Without `async with`, calls after the close raise `ClientClosed`."""

    async def story():
        bk = await aio.connect(uri, ClientOptions(protocol="v3"))
        writer = await bk.create_ledger()
        await writer.append(b"x")
        assert writer.metadata.ensemble_size == 3
        await writer.close()
        await bk.close()
        with pytest.raises(quire.ClientClosed):
            await bk.create_ledger()

    asyncio.run(story())


def test_tasks_that_append_at_the_same_time_share_batches_and_a_window(uri):
    """Ids are dense; with a small window tasks wait for room instead of piling up."""

    async def story():
        async with aio.connect(uri, ClientOptions(window_entries_max=16)) as bk, await bk.create_ledger() as writer:
            ids = await asyncio.gather(*(writer.append(b"%d" % number) for number in range(400)))
            assert sorted(ids) == list(range(400))

    asyncio.run(story())


def test_tail_follows_a_writer_in_the_same_loop(uri):
    """It delivers the entries of a writer in the same event loop and ends at its close."""

    async def story():
        async with (
            aio.connect(uri) as bk,
            await bk.create_ledger() as writer,
            await bk.open_ledger(writer.id, recover=False) as reader,
        ):
            seen: list[bytes] = []

            async def follow():
                async for entry in reader.tail(timeout=60.0):
                    seen.append(entry.data)

            follower = asyncio.create_task(follow())
            await writer.append(b"a")
            await writer.append(b"b")
            await writer.write_lac()
            assert await reader.read_last_confirmed() == 1
            assert [entry.data for entry in await reader.read_unconfirmed(0, 1)] == [b"a", b"b"]
            await writer.close()
            await asyncio.wait_for(follower, 20)
            assert seen == [b"a", b"b"]

    asyncio.run(story())


def test_a_fenced_writer_and_the_error_of_its_own_block(uri):
    """The error raised inside the block comes out, not that of the close at its end."""

    async def story():
        async with aio.connect(uri) as bk:
            with pytest.raises(quire.LedgerFenced):  # noqa: PT012  # the block's own error must come out
                async with await bk.create_ledger() as writer:
                    await writer.append(b"mine")
                    await (await bk.open_ledger(writer.id)).close()
                    await writer.append(b"late")

    asyncio.run(story())


def test_cancelling_a_task_cancels_what_it_waits_for(uri):
    """A tail that waits is let go; the reader stays usable."""

    async def story():
        async with (
            aio.connect(uri) as bk,
            await bk.create_ledger() as writer,
            await bk.open_ledger(writer.id, recover=False) as reader,
        ):

            async def wait_for_news():
                return [entry async for entry in reader.tail(timeout=60.0)]

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wait_for_news(), 0.1)
            assert await reader.read_last_confirmed() == -1

    asyncio.run(story())


def test_wrong_arguments(uri):
    """A malformed URI raises `ValueError`, text as payload `TypeError`."""

    async def story():
        with pytest.raises(ValueError, match="metadata"):
            await aio.connect("nowhere")
        with pytest.raises(TypeError, match="not dict"):
            await aio.connect(uri, {})
        async with aio.connect(uri) as bk, await bk.create_ledger() as writer:
            with pytest.raises(TypeError):
                await writer.append("text")
            with pytest.raises(TypeError):
                await writer.append_many(["text"])

    asyncio.run(story())


def test_metadata_is_watched_and_the_last_entry_asked_for(uri):
    """A watch delivers states up to the deletion, and the last entry is read."""

    async def story():
        async with aio.connect(uri) as bk:
            writer = await bk.create_ledger()
            await writer.append_many([b"a", b"b"])
            states = []

            async def watch():
                async for metadata in bk.watch_ledger(writer.id):
                    states.append(metadata and metadata.state)
                    if metadata is None:
                        return

            watching = asyncio.ensure_future(watch())
            reader = await bk.open_ledger(writer.id, recover=False)
            assert await reader.try_read_last_confirmed() in (-1, 1)
            await writer.close()
            async with await bk.open_ledger(writer.id) as closed:
                assert (await closed.read_last_entry()).data == b"b"
            await bk.delete_ledger(writer.id)
            await asyncio.wait_for(watching, 30)
            assert states[0] is not None
            assert states[-1] is None

    asyncio.run(story())


def test_a_loop_that_was_left_hears_no_more(uri, monkeypatch):
    """Leaving the iteration cancels the watch."""
    watches = []
    begin = LedgerClient.watch_ledger
    monkeypatch.setattr(LedgerClient, "watch_ledger", lambda *given: watches.append(begin(*given)) or watches[-1])

    async def story():
        async with aio.connect(uri) as bk:
            writer = await bk.create_ledger()
            async for metadata in bk.watch_ledger(writer.id):
                assert metadata is not None
                break
            await bk.metadata(writer.id)  # goes over the reactor's thread after what the loop's end asked of it
            await bk.metadata(writer.id)
            assert [watch.cancelled for watch in watches] == [True]

    asyncio.run(story())


def test_a_client_s_close_ends_the_loops_that_watch(uri):
    """A loop that waits for news of a ledger ends, and so does one that begins afterwards."""

    async def story():
        bk = await aio.connect(uri)
        writer = await bk.create_ledger()
        seen = asyncio.Event()

        async def watch():
            async for _metadata in bk.watch_ledger(writer.id):
                seen.set()

        watching = asyncio.ensure_future(watch())
        await asyncio.wait_for(seen.wait(), 30)
        await bk.close()
        for task in (watching, watch()):
            with pytest.raises(quire.ClientClosed):
                await asyncio.wait_for(task, 30)

    asyncio.run(story())
