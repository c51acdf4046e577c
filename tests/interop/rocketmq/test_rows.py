"""Rows of made directories beside the queues that RocketMQ's store module builds of the same commit log."""

import pathlib
from typing import Any

import pytest

from quire.conf.messages import MessageOptions
from quire.log.api import Logs
from quire.messages.api import Stores
from tests.interop.peer import Driver
from tests.interop.rocketmq.broker import FILE_BYTES, SMALL, client
from tests.log.fakes.cluster import cluster
from tests.messages.reference.builder import Builder
from tests.messages.rocketmq.imports import NAME
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

PREPARED, COMMIT, ROLLBACK, INNER_BATCH = 0x4, 0x8, 0xC, 0x80
# Of each topic: queue offsets of its records in the order of the log, with their flags.
HISTORIES: dict[str, list[tuple[int, int]]] = {
    "whole": [(at, 0) for at in range(6)],
    "gap": [(at, 0) for at in (0, 1, 2, 5, 6)],
    "double": [(at, 0) for at in (0, 1, 1, 2, 0, 3)],
    "both": [(at, 0) for at in (0, 1, 4, 2, 5, 5, 9, 3, 10)],
    "late": [(at, 0) for at in (7, 8, 9)],
    "late-gap": [(at, 0) for at in (7, 9, 8, 12)],
    "states": [(0, 0), (0, PREPARED), (1, COMMIT), (0, ROLLBACK), (2, 0), (0, PREPARED), (3, COMMIT)],
    "inner": [(0, 0), (1, INNER_BATCH), (2, 0)],  # without INNER_BASE it is one message
}


def made(directory: pathlib.Path) -> pathlib.Path:
    """Writes the histories, one record of each topic after the other; many files of the log."""
    builder = Builder(directory, FILE_BYTES)
    for number in range(max(map(len, HISTORIES.values()))):
        for topic, history in HISTORIES.items():
            if number < len(history):
                at, flags = history[number]
                body = f"{topic} {number} ".encode() * 400
                builder.put(topic, body, queue_offset=at, sys_flag=flags, store_ms=1_700_000_000_000 + number)
    builder.close()
    return directory


async def listed(logs: Logs, rows: pathlib.Path, pulls: list[tuple[str, int, int]]) -> list[Any]:
    """What a store answers to these pulls, with rows made of its log."""
    stores = Stores(logs, MessageOptions(derived_dir=rows))
    store = await stores.open(NAME)
    await store.caught_up()
    found = [await store.reads.pull(*each) for each in pulls]
    await store.close()
    return [(each.status, each.next, [message.offset for message in each.messages]) for each in found]


def theirs(module: Driver, pull: tuple[str, int, int]) -> tuple[str, int, list[int]]:
    """The same of RocketMQ."""
    words = " ".join(map(str, ("read", *pull, 32)))
    (found,) = module.call("do", words=words)["said"]
    return found["status"], found["next"], [message[1] for message in found["found"]]


@pytest.mark.timeout(300)
def test_gaps_doubles_and_states(tmp_path: pathlib.Path) -> None:
    """The same status, next position and messages for each position of each queue; rows that are made again too."""
    directory, copy = made(tmp_path / "ours"), made(tmp_path / "theirs")
    pulls = [(topic, 0, at) for topic in HISTORIES for at in range(-1, 15)]

    async def ours() -> tuple[list[Any], list[Any]]:
        async with cluster(tmp_path / "c") as world:
            logs = await world.logs()
            await Stores(logs, MessageOptions()).import_([str(directory)], into=NAME)
            first = await listed(logs, tmp_path / "rows", pulls)
            return first, await listed(logs, tmp_path / "again", pulls)

    found, again = run(ours)
    assert again == found
    with client(tmp_path / "home", dir=copy, **SMALL) as module:
        module.call("open")
        module.call("do", words="settle 100")
        for each, answer in zip(pulls, found, strict=True):
            assert theirs(module, each) == answer, each
    assert sum(bool(messages) for _status, _next, messages in found) > len(HISTORIES)
