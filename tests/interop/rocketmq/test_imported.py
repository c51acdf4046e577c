"""Directories of a real broker in a log: all that it acknowledged is there, and it goes on with what comes back out."""

import hashlib
import pathlib
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from quire.messages.core.layout import file_name
from quire.messages.core.record import unpack
from quire.messages.rocketmq.exported import exported
from tests.interop.rocketmq.broker import FILE_BYTES, Broker, RocketMQ, free_port
from tests.interop.rocketmq.test_exported import by_queue, goes_on
from tests.log.fakes.cluster import cluster
from tests.messages.exported import SIZES, blanked, tree
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


def kept(found: Held) -> dict[tuple[str, int, int], Any]:
    """The records of a store by topic, queue and position."""
    records = (unpack(value, 48 if value[:4] == b"\0\0\0\1" else 0) for _at, value in found.values)
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
            peer.call("take", topic="T", group="again", back=1, quiet=8000)
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
