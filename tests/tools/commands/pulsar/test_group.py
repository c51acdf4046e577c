"""`quire pulsar` against real bookies: topics listed, shown, read and exported."""

import json

import pytest

from quire.client.api import connect
from tests.pulsar import made
from tests.pulsar.broker import Broker
from tests.reactor import reactor, run
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0

T = "public/default/persistent/orders"
AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}).encode()


@pytest.fixture(scope="module")
def ledgers(cluster):
    """Of a topic, of which one message is of an open transaction; and a topic of two partitions."""

    async def begin():
        client = await connect(reactor, cluster.uri)
        broker = Broker(client)
        info = made.proto((1, "t"), (2, "u"), (3, 5), (4, AVRO), (5, 0), (6, 0))
        registry = await broker.ledger(made.proto((2, info)))
        place = made.proto((1, 0), (2, made.place(registry, 0)), (3, b"hash"))
        await broker.node("/schemas/public/default/orders", made.proto((1, place)))
        batch = made.batch(
            [made.single(b"%d" % number, sequence=number) for number in range(3)], publish=1_700_000_000_000
        )
        avro = made.entry(made.metadata((16, bytes(8)), key="k", publish=1_700_000_001_000), b"\x0a")
        txn = made.entry(made.metadata((22, 1), (23, 2), publish=1_700_000_002_000), b"open")
        first = await broker.topic(T, [batch, avro, txn])
        second = await broker.topic(T, [made.entry(made.metadata((25, 1), key="k", publish=1_700_000_003_000), b"")])
        await broker.cursor(T, "billing", made.place(first, 0))
        for number in range(2):
            await broker.topic(f"{T}-parts-partition-{number}", [made.entry(made.metadata(), b"p%d" % number)])
        await broker.node("/admin/partitioned-topics/public/default/persistent/orders-parts", b'{"partitions": 2}')
        await client.close()
        return first, second

    return run(begin)


def test_topics_are_listed_and_shown(uri, ledgers):
    """Ledgers, entries, subscriptions; partitions by themselves."""
    first, second = ledgers
    found = {row["topic"]: row for row in ok("pulsar", "topics", "--json", metadata=uri).rows}
    row = found["persistent://public/default/orders"]
    assert (row["ledgers"], row["entries"], row["subscriptions"]) == (2, 4, 1)
    assert "persistent://public/default/orders-parts-partition-1" in found
    assert "orders" in ok("pulsar", "topics", "public/default", metadata=uri).out
    assert "--root says" in ok("pulsar", "topics", "--root", "/elsewhere", metadata=uri).err
    shown = ok("pulsar", "show", "orders", metadata=uri).out
    assert f"ledger {first}: 3 entries" in shown
    assert f"subscription billing: acknowledged up to {first}:0, 3 entries left" in shown
    document = ok("pulsar", "show", "orders-parts", "--json", metadata=uri).document
    assert [part["entries"] for part in document["partitions"]] == [1, 1]
    assert document["partitions"][0]["subscriptions"] == []
    assert ok("pulsar", "show", "orders", "--json", metadata=uri).document["partitions"][0]["end"] == f"{second}:0"


def test_messages_are_read(uri, ledgers):
    """As lines, values and documents; parts of a topic; what is passed over is noted."""
    first, second = ledgers
    done = ok("pulsar", "read", "orders", metadata=uri)
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert lines[0] == [f"{first}:0:0", "2023-11-14 22:13:20Z", "-", "0"]
    assert [line[0] for line in lines[3:]] == [f"{first}:1", f"{second}:0"]
    assert lines[4][2:] == ["k", "-"]
    assert f"passed over {first}:2: transaction (2,1) is open" in done.err
    assert ok("pulsar", "read", "orders", "--values", "--max", 2, metadata=uri).out == "0\n1\n"
    rows = ok("pulsar", "read", "orders", "--json", "--decode", "--from", f"{first}:0:2", metadata=uri).rows
    assert [row["value"] for row in rows] == ["2", {"n": 5}, None]
    assert rows[1]["publish_time"] == "2023-11-14T22:13:21.000+00:00"
    assert rows[1]["key"] == "k"
    left = ok("pulsar", "read", "orders", "--subscription", "billing", "--json", metadata=uri).rows
    assert [row["position"] for row in left] == [f"{first}:1", f"{second}:0"]
    after = ok(
        "pulsar", "read", "orders", "--from", "2023-11-14T22:13:21+00:00", "--to", f"{first}:9", metadata=uri
    ).out
    assert after.startswith(f"{first}:1\t")
    parts = ok("pulsar", "read", "orders-parts", "--follow", "--timeout", 0, metadata=uri)
    assert [line.split("/")[0] for line in parts.out.splitlines()] == ["0", "1"]
    assert ok("pulsar", "read", "orders-parts", "--from", "latest", metadata=uri).out == ""


def test_topics_in_files(uri, ledgers, tmp_path):
    """Parquet and JSON lines, a file for each range, and what they hold."""
    from pyarrow import parquet

    first, second = ledgers
    to = tmp_path / "orders"
    done = ok("pulsar", "export", "orders", to, "--jobs", 1, "--json", metadata=uri)
    assert (done.document["messages"], done.document["files"], done.document["passed_over"]) == (5, 2, 1)
    assert done.document["ends"] == {"persistent://public/default/orders": f"{second}:0"}
    table = parquet.read_table(to / "part-00000.parquet")
    assert table.column("value").to_pylist() == [b"0", b"1", b"2", b"\x0a"]
    summary = json.loads((to / "export.json").read_text())
    assert [each["messages"] for each in summary["files"]] == [4, 1]
    assert summary["passed_over"][0]["position"] == f"{first}:2"
    assert sorted(path.name for path in to.iterdir()) == ["export.json", "part-00000.parquet", "part-00001.parquet"]
    assert "already" in refused(1, "pulsar", "export", "orders", to, metadata=uri)
    again = tmp_path / "json"
    ok("pulsar", "export", "orders", again, "--format", "jsonl", "--decode", "--jobs", 1, metadata=uri)
    rows = [json.loads(line) for line in (again / "part-00000.jsonl").read_text().splitlines()]
    assert rows[3]["value"] == {"n": 5}


@pytest.mark.long
def test_topics_in_files_by_processes(uri, ledgers, tmp_path):
    """Each range by one of two processes."""
    done = ok("pulsar", "export", "orders", tmp_path / "x", "--jobs", 2, "--format", "jsonl", "--json", metadata=uri)
    assert (done.document["messages"], done.document["files"]) == (5, 2)
    assert "4 entries" in done.err
    assert len((tmp_path / "x" / "part-00001.jsonl").read_text().splitlines()) == 1


def test_what_is_refused(uri, ledgers, tmp_path):
    """Each names the thing and the next step; a failed export leaves no directory."""
    assert "quire pulsar topics" in refused(1, "pulsar", "read", "nothing", metadata=uri)
    assert "'billing'" in refused(1, "pulsar", "read", "orders", "--subscription", "no", metadata=uri)
    assert "LEDGER:ENTRY" in refused(2, "pulsar", "read", "orders", "--from", "yesterday", metadata=uri)
    assert "orders-parts-partition-0" in refused(2, "pulsar", "read", "orders-parts", "--from", "3:0", metadata=uri)
    assert "non-persistent" in refused(1, "pulsar", "read", "non-persistent://a/b/c", metadata=uri)
    assert "--follow" in refused(2, "pulsar", "read", "orders", "--follow", "--to", "1:1", metadata=uri)
    assert "exclude" in refused(2, "pulsar", "read", "orders", "--values", "--json", metadata=uri)
    assert "parquet or jsonl" in refused(
        2, "pulsar", "export", "orders", tmp_path / "x", "--format", "csv", metadata=uri
    )
    assert refused(1, "pulsar", "export", "nothing", tmp_path / "x", metadata=uri)
    assert not (tmp_path / "x").exists()
