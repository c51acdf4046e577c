"""Reads of a message store beside those of RocketMQ's store module on the same directory."""

import pathlib
import shutil
from random import Random
from typing import Any

from quire.conf.messages import MessageOptions
from quire.messages.api import Stores
from tests.interop.peer import Driver
from tests.interop.rocketmq.broker import SMALL, client
from tests.log.fakes.cluster import cluster
from tests.messages.archives import unpack
from tests.messages.reference import parser
from tests.messages.rocketmq.imports import NAME
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

SECOND = 1000


def said(module: Driver, *words: object) -> Any:
    return module.call("do", words=" ".join(map(str, words)))["said"]


def test_pulls_times_and_queries(tmp_path: pathlib.Path) -> None:
    """The same status and positions for each position, for each edge of store times, the same messages by key."""
    directory, theirs = (unpack("plain-clean", tmp_path / name) for name in ("ours", "theirs"))
    shutil.rmtree(theirs / "batchconsumequeue")  # without a broker it does not know which topics have such queues
    records = [record for _at, record in parser.log(directory)]
    times = sorted({record["store_ms"] for record in records})
    dice = Random(7)
    around = range(times[0] - 3 * SECOND, times[-1] + 3 * SECOND, 250)
    free = [ms for ms in around if all(abs(ms - each) > SECOND for each in times)]
    keys = sorted({key for record in records for key in record["properties"].get("KEYS", "").split()} - {"Aa", "BB"})
    queries = [(dice.choice(keys), *sorted(dice.choices(free, k=2)), dice.randint(1, 5)) for _ in range(200)]
    positions = [("T", queue, at) for queue in (0, 1, 9) for at in range(-2, 60)]
    edges = [("T", queue, ms + by) for queue in (0, 1) for ms in times for by in (-1, 0, 1)]

    async def ours() -> tuple[list[Any], list[Any], list[Any]]:
        async with cluster(tmp_path / "c") as world:
            stores = Stores(await world.logs(), MessageOptions(derived_dir=tmp_path / "rows"))
            await stores.import_([str(directory)], into=NAME)
            store = await stores.open(NAME)
            await store.caught_up()
            pulls = []
            for each in positions:
                found = await store.reads.pull(*each)
                pulls.append((found.status, found.next, [message.offset for message in found.messages]))
            by_time = [[await store.reads.offset_by_time(*each, edge) for edge in ("lower", "upper")] for each in edges]
            by_key = [
                [message.offset for message in await store.reads.query("T", key, begin, end, count)]
                for key, begin, end, count in queries
            ]
            await stores.close()
            return pulls, by_time, by_key

    pulls, by_time, by_key = run(ours)
    with client(tmp_path / "home", dir=theirs, **SMALL) as module:
        module.call("open")
        said(module, "settle", 100)
        for each, (status, next_, offsets) in zip(positions, pulls, strict=True):
            (found,) = said(module, "read", *each, 32)
            assert (found["status"], found["next"]) == (status, next_), each
            assert [message[1] for message in found["found"]] == offsets, each
        for each, two in zip(edges, by_time, strict=True):
            assert [said(module, "time", *each, edge)[0]["position"] for edge in ("LOWER", "UPPER")] == two, each
        for (key, begin, end, count), offsets in zip(queries, by_key, strict=True):
            assert [found[0] for found in said(module, "query", "T", key, count, begin, end)] == offsets, key
    assert any(by_key)
