"""Directories of a real broker in a log: all that it acknowledged is there, and it goes on with what comes back out."""

import hashlib
import pathlib
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from quire.conf.messages import MessageOptions
from quire.messages.api import Message, Stores
from quire.messages.core.layout import file_name
from quire.messages.core.record import unpack
from quire.messages.rocketmq.exported import exported
from tests.interop.rocketmq.broker import FILE_BYTES, SMALL, Broker, RocketMQ, client, free_port
from tests.interop.rocketmq.test_exported import all_taken, by_queue, found, goes_on, taken
from tests.log.fakes.cluster import cluster
from tests.messages.exported import SIZES, blanked, tree
from tests.messages.reference import parser
from tests.messages.rocketmq.imports import NAME, Held, held, imported
from tests.reactor import between_looks, run

# SPDX-License-Identifier: Apache-2.0

SENT_MAX = 20_000


def sent_until_killed(peer: RocketMQ, broker: Broker, data: pathlib.Path, offset: int, size: int) -> list[Any]:
    """What was acknowledged by a broker that is killed when its log has a byte at an offset."""
    path = data / file_name(offset - offset % FILE_BYTES)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(peer.call, "send", topic="T", count=SENT_MAX, size=size)
        while not (path.is_file() and any(at_and_behind(path, offset % FILE_BYTES))):
            if sending.done():
                raise AssertionError(f"the client ended: {sending.result()[-1]}")
            between_looks()
        broker.kill()
        return [each for each in sending.result() if "error" not in each]


def at_and_behind(path: pathlib.Path, at: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read()


def kept(store: Held) -> dict[tuple[str, int, int], Any]:
    """The records of a store by topic, queue and position."""
    records = (unpack(value, 48 if value[:4] == b"\0\0\0\1" else 0) for _at, value in store.values)
    return {(record.topic, record.queue, record.queue_offset): record for record in records}


@pytest.mark.parametrize("dledger", ["", "n0"])
@pytest.mark.parametrize("number", range(5))
def test_a_broker_that_was_killed(tmp_path: pathlib.Path, number: int, dledger: str) -> None:
    """At any moment: each message that it acknowledged is in the store, at its position, with its id and body."""
    dice = Random(f"{number}{dledger}")
    with RocketMQ(tmp_path / "peer") as peer:
        broker = peer.broker("a", dledger=dledger)
        peer.call("topic", topic="T", address=broker.address)
        data = broker.store / (f"dledger-{dledger}/data" if dledger else "commitlog")
        size = dice.choice((10, 1000, 20_000))
        files = dice.randrange(5 if size == 10 else 20)  # small messages take longer
        offset = files * FILE_BYTES + dice.randrange(FILE_BYTES // 3)  # not where the largest ones leave a filler
        acknowledged = sent_until_killed(peer, broker, data, offset, size)

    async def story() -> Held:
        async with cluster(tmp_path / "c") as world:
            logs = await world.logs()
            await imported(logs, broker.store)
            return await held(logs)

    records = kept(run(story))
    assert acknowledged
    for each in acknowledged:
        record = records["T", each["queue"], each["queue_offset"]]
        assert hashlib.sha1(record.body).hexdigest() == each["body_sha1"]
        assert record.message_id == each["id"]


def test_there_and_back(tmp_path: pathlib.Path) -> None:
    """A broker on an export of an import; its directory in and out again has all bytes that were there before."""

    async def in_and_out(store: pathlib.Path, out: pathlib.Path) -> None:
        async with cluster(tmp_path / f"c-{out.name}") as world:
            logs = await world.logs()
            await imported(logs, store)
            await exported(logs, NAME, str(out), sizes=SIZES)

    first, second, port = tmp_path / "first", tmp_path / "second", free_port()
    with RocketMQ(tmp_path) as peer:
        with peer.broker("a", port=port) as broker:
            peer.call("topic", topic="T", address=broker.address)
            peer.call("scenario", topic="T")
            all_taken(peer)
            before = by_queue(peer, "T")
        run(lambda: in_and_out(broker.store, first))
        files = {name: data for name, data in tree(first).items() if name.startswith("commitlog/")}
        with peer.broker("a", first, port) as broker:
            assert peer.call("take", topic="T", group="again", quiet=8000) == []
            goes_on(peer, broker, before, 200)
        run(lambda: in_and_out(first, second))
        after = dict(blanked({name: data for name, data in tree(second).items() if name in files}))
        for name, data in blanked(files):
            end = len(data.rstrip(b"\0"))
            assert after[name][:end] == data[:end]


def test_messages_of_ours_behind_those_of_a_broker(tmp_path: pathlib.Path) -> None:
    """A broker with the printed settings has them by position, key and id, delivers them alone, and goes on."""
    port, out = free_port(), tmp_path / "out"
    with RocketMQ(tmp_path) as peer:
        with peer.broker("a", port=port) as broker:
            peer.call("topic", topic="T", address=broker.address)
            peer.call("scenario", topic="T")
            all_taken(peer)
            before = by_queue(peer, "T")

        async def story() -> tuple[list[Any], Any]:
            async with cluster(tmp_path / "c") as world:
                stores = Stores(await world.logs(), MessageOptions(derived_dir=tmp_path / "rows"))
                await stores.import_([str(broker.store)], into=NAME)
                store = await stores.open(NAME, stand=True, rows=False)
                assert await store.leads(60)
                ours = [Message("T", b"ours %d" % n, queue=n % 2, tags="A", keys=f"o{n}") for n in range(990)]
                puts = await store.put_many(ours)
                group = [Message("T", b"ours %d" % n, queue=1, keys=f"o{n}") for n in range(990, 1000)]
                puts += await store.put_group(group)
                report = await stores.export(NAME, str(out))
                await stores.close()
                return puts, report

        puts, report = run(story)
        places = {
            put.offset: (number, hashlib.sha1(b"ours %d" % number).hexdigest()) for number, put in enumerate(puts)
        }
        settings = dict(line.split("=", 1) for line in report.settings)
        assert settings["listenPort"] == str(port)
        with peer.broker("a", out, port, **settings) as broker:
            ours = taken(peer, len(places))
            assert sorted(message["offset"] for message in ours) == sorted(places)
            after = by_queue(peer, "T")
            for number, queue in before.items():
                messages = after[number]["messages"]
                assert [m["offset"] for m in messages[: queue["max"]]] == [m["offset"] for m in queue["messages"]]
                mine = [put for put in puts if places[put.offset][0] % 2 == number or places[put.offset][0] >= 990]
                mine = [put for put in mine if number == 1 or places[put.offset][0] < 990]
                assert [m["offset"] for m in messages[queue["max"] :]] == [put.offset for put in mine]
                for message in messages[queue["max"] :]:
                    assert message["body_sha1"] == places[message["offset"]][1]
            viewed = peer.call("view", topic="T", ids=",".join(put.message_id for put in puts))
            assert [each["found"]["offset"] for each in viewed] == list(places)
            for key, messages in found(peer, "T", [f"o{n}" for n in range(0, 1000, 50)]).items():
                assert [message["offset"] for message in messages] == [puts[int(key[1:])].offset]
            goes_on(peer, broker, after)


def test_messages_that_expired(tmp_path: pathlib.Path) -> None:
    """Queues go on behind messages whose files a broker has deleted, those that have none left, too."""
    store, out = tmp_path / "store", tmp_path / "out"
    with client(tmp_path / "home", dir=store, **SMALL) as module:
        module.call("open")
        for words in (*["put E 0 100"] * 5, *["put T 1 30000"] * 9, "settle 100", "clean"):
            (said,) = module.call("do", words=words)["said"]
        assert said["deleted"] > 0
        module.call("close")
    left = [record["queue_offset"] for _at, record in parser.log(store)]
    assert 0 < min(left) < max(left) + 1 == 9

    async def story() -> None:
        async with cluster(tmp_path / "c") as world:
            logs = await world.logs()
            _plan, descriptor = await imported(logs, store)
            assert [each.topic for each in descriptor.next] == ["E"]
            await exported(logs, NAME, str(out), sizes=SIZES)

    run(story)
    with client(tmp_path / "home", dir=out, **SMALL) as module:
        module.call("open")
        module.call("do", words="settle 500")
        assert module.call("do", words="range E 0")["said"] == [{"min": 5, "max": 5}]
        assert module.call("do", words="range T 1")["said"] == [{"min": min(left), "max": 9}]
        (put,) = module.call("do", words="put E 0 100")["said"]
        assert put["append"][3] == 5
