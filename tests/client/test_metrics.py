"""What Prometheus is shown of a client: every number under its documented name, and right after a story."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from twisted.internet.defer import gatherResults

from quire.client import ClientOptions, aio, api, connect
from quire.protocol.errors import NoSuchLedgerExistsOnMetadataServer, Status, TooManyRequests
from quire.protocol.messages import ReadReply
from tests.client.fakes.cluster import FakeCluster
from tests.client.fakes.ledgers import written
from tests.client.fakes.scripted import Listener, Net, batch, body, make_pool
from tests.metrics.scraped import scraped
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0

BOOKIE = "127.0.0.1:3181"
DONE = 'quire_client_bookie_done_total{peer="%s",request="%s"}'
PAGE = Path(__file__).parents[2] / "docs" / "client.md"


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_client_s_life_in_numbers(tmp_path, protocol):
    """Adds by their entries, reads, ledgers made, opened, recovered and deleted, each bookie, Apache's names."""

    async def story(uri, bookies):
        client = await api.connect(reactor, uri, ClientOptions(protocol=protocol))
        writer = await client.create_ledger()
        for _ in range(4):
            await writer.append_many([b"x" * 100] * 50)
        await writer.append(b"y" * 11)
        reader = await client.open_ledger(writer.id)  # which recovers it
        assert len(await reader.read(3, 3)) == 1
        assert sum([len(some.payloads) async for some in reader.runs()]) == 201
        await client.delete_ledger(writer.id)
        with pytest.raises(NoSuchLedgerExistsOnMetadataServer):
            await client.open_ledger(writer.id)
        shown = scraped(client.metrics)
        counts = {"add": 201, "create": 1, "open": 1, "recover": 1, "delete": 1}
        for operation, count in counts.items():
            assert shown[f'quire_client_seconds_count{{operation="{operation}"}}'] == count, operation
        assert shown['quire_client_seconds_count{operation="read"}'] >= 2
        assert shown["quire_client_read_entries_total"] == 202
        assert shown["quire_client_add_bytes_total"] == 20_011
        error = NoSuchLedgerExistsOnMetadataServer.__name__
        assert shown[f'quire_client_failed_total{{error="{error}",operation="open"}}'] == 1
        assert shown['bookkeeper_client_ADD_ENTRY_count{success="true"}'] == 201
        assert shown['bookkeeper_client_LEDGER_OPEN_count{success="true"}'] == 1
        assert shown['bookkeeper_client_LEDGER_OPEN_count{success="false"}'] == 1
        assert shown['zk_get_data_count{success="true"}'] >= 1
        done = {kind: [shown[DONE % (bookie, kind)] for bookie in bookies] for kind in ("add", "fence")}
        assert sum(done["add"]) >= 2 * 201  # the third may be on its way
        assert max(done["add"]) <= 251  # what the recovery found is stored again
        assert sum(done["fence"]) >= 2
        timed = [shown[f'quire_client_bookie_seconds_count{{peer="{bookie}",request="add"}}'] for bookie in bookies]
        assert 2 <= sum(timed) <= 3
        for bookie in bookies:
            of = f'{{peer="{bookie}"}}'
            assert shown[f"quire_client_bookie_connections{of}"] == (1 if protocol == "v3" else 2)
            assert shown[f"quire_client_bookie_connections_made_total{of}"] >= 1
            assert shown[f"quire_client_bookie_sent_bytes_total{of}"] > 20_011
            assert shown[f"quire_client_bookie_received_bytes_total{of}"] > 0
        await client.close()
        after = scraped(client.metrics)
        assert {name: value for name, value in after.items() if "bookie_connections{" in name and value} == {}
        sent = f'quire_client_bookie_sent_bytes_total{{peer="{bookies[0]}"}}'
        assert after[sent] == shown[sent]

    with RealCluster(tmp_path, 3) as cluster:
        run(lambda: story(cluster.uri, cluster.ids))


def test_appends_that_fail_are_counted_by_their_error():
    """Those that a close overtook, and one that the window had no room for."""
    cluster = FakeCluster()
    client = cluster.client(window_bytes_max=1000, batch_bytes_max=1000)
    writer = cluster.succeed(client.create_ledger())
    cluster.judge = lambda _request: "hold"
    outcomes = [cluster.outcome(writer.append_many([b"x" * 500] * 2)) for _ in range(5)]
    cluster.spin(0.01)
    refused = sum(isinstance(each.error, TooManyRequests) for each in outcomes)
    assert 0 < refused < 5
    closing = cluster.outcome(writer.close())
    cluster.spin(0.01)
    assert closing.done
    assert client.counters.adds.times.count == 0
    assert client.counters.adds.failed == {"TooManyRequests": 2 * refused, "LedgerClosed": 2 * (5 - refused)}


def test_an_advanced_writer_s_entries_are_counted_in_any_order():
    """Each when it is acknowledged, which is when all before it are."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(advanced=True))
    later = cluster.outcome(writer.append_at(1, b"b"))
    cluster.spin(0.1)
    assert client.counters.adds.times.count == 0
    cluster.succeed(writer.append_at(0, b"a"))
    cluster.spin(0.1)
    assert later.done
    assert (client.counters.adds.times.count, client.counters.add_bytes) == (2, 2)


def test_reads_of_one_entry_are_all_counted_however_many_there_are_at_once():
    """The time of one counts for others of the same moment; one that fails is counted by its error."""
    cluster = FakeCluster()
    client, writer = written(cluster, 50)
    reader = cluster.succeed(client.open_ledger(writer.id))
    reads = client.counters.reads
    cluster.succeed(gatherResults([reader.read(entry, entry) for entry in range(45)]))
    assert (reads.times.count, client.counters.read_entries) == (45, 45)
    for each in cluster.bookies.values():
        each.up = False
    failed = cluster.outcome(reader.read(7, 7))
    cluster.spin(60)
    assert failed.error is not None
    assert (reads.times.count, reads.failed) == (45, {type(failed.error).__name__: 1})


def test_a_replaced_bookie_is_a_change_of_the_ensemble():
    """One that was stored."""
    cluster = FakeCluster(4)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    cluster.bookies[writer.metadata.last_fragment.bookies[0]].up = False
    cluster.succeed(writer.append(b"x"))
    cluster.spin(10)
    assert client.counters.ensemble_changes == writer.ensemble_changes == 1


def test_what_a_lost_connection_leaves_unanswered_has_failed():
    """Entries that were sent, those that waited for the connection, and a read."""
    net = Net()
    pool = make_pool(net)
    channel = pool.add_channel(BOOKIE, 1, Listener())
    channel.send(batch(1, 0, 3))
    peer = net.accept()
    pool.read(BOOKIE, 1, 0)
    channel.send(batch(1, 3, 2))
    peer.lose()
    found = pool.requests()
    assert found[BOOKIE, "add"].failed == {"BookieHandleNotAvailable": 5}
    assert found[BOOKIE, "read"].failed == {"BookieHandleNotAvailable": 1}
    traffic = pool.traffic()[BOOKIE]
    assert (traffic.open, traffic.connected, traffic.failed, traffic.lost) == (0, 1, 0, 1)
    assert traffic.sent_bytes > 0
    other = pool.add_channel(BOOKIE, 2, Listener())
    other.send(batch(2, 0, 4))
    net.turn(1)
    net.refuse()
    net.turn()
    assert found[BOOKIE, "add"].failed == {"BookieHandleNotAvailable": 9}
    assert pool.traffic()[BOOKIE].failed == 1


def test_one_of_eight_requests_is_timed():
    """The first; others are only counted."""
    net = Net()
    pool = make_pool(net)
    pool.read(BOOKIE, 1, 0)
    peer = net.accept()
    first = peer.only()
    net.turn(0.5)
    pool.read(BOOKIE, 1, 1)
    second = peer.only()
    net.turn(0.25)
    for asked in (second, first):
        peer.answer(asked, ReadReply(Status.EOK, 1, asked.entry, body(1, asked.entry), txn=asked.txn))
    reads = pool.requests()[BOOKIE, "read"]
    assert (reads.done, reads.waiting, reads.times.count, reads.times.sum) == (2, 0, 1, 0.75)
    for _ in range(7):
        pool.read(BOOKIE, 1, 2)
        asked = peer.only()
        peer.answer(asked, ReadReply(Status.EOK, 1, asked.entry, body(1, asked.entry), txn=asked.txn))
    assert (reads.done, reads.times.count) == (9, 2)


def test_every_face_has_them_and_prometheus_takes_them(tmp_path):
    """`metrics` is registered as the manual's page says, in each face; also as OpenMetrics."""

    async def story(uri):
        async with aio.connect(uri) as bk:
            await (await bk.create_ledger()).append(b"x")
            return text_of(bk.metrics)

    def text_of(metrics):
        registry = CollectorRegistry()
        registry.register(metrics)
        list(text_string_to_metric_families(generate_open(registry).decode()))
        return generate_latest(registry).decode()

    with RealCluster(tmp_path, 3) as cluster:
        with connect(cluster.uri) as bk, bk.create_ledger() as writer:
            writer.append(b"x")
            text = text_of(bk.metrics)
        added = 'quire_client_seconds_count{operation="add"} 1.0'
        assert added in text
        assert added in asyncio.run(story(cluster.uri))


def test_the_page_names_all_of_them():
    """Each family that is ours is in the table."""
    page = PAGE.read_text()
    names = {family.name for family in FakeCluster().client().metrics.collect() if family.name.startswith("quire_")}
    assert len(names) > 15
    assert not {name for name in names if f"`{name}" not in page and f"`{name}_total" not in page}
