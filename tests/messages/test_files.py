"""Random puts over fences and takeovers: what the log holds are the files that the reference writes for that order."""

from random import Random

import pytest

from quire.messages.api import Message
from quire.messages.descriptor import USE
from quire.metadata.clock import time_of_day
from tests.log.fakes.cluster import cluster
from tests.messages.reference import parser
from tests.messages.reference.builder import Builder
from tests.messages.test_store import F, created, master, stores_of
from tests.messages.test_takeovers import HOUR_S, answered
from tests.messages.truth import all_of, judge, unique_id
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

TOPICS, QUEUES = 9, 7
A_GO = 400  # messages between two looks at what goes wrong
HOST = (b"\x0a\0\0\x05", 10911)


def some_puts(store, chance, groups):
    """About `A_GO` messages, three in ten of them in groups; `groups`: of each unique id, the messages put with it."""
    sent, left = [], A_GO
    while left > 0:
        grouped = chance.random() < 0.37  # groups are smaller than lists
        topic, queue = f"T{chance.randrange(TOPICS)}", chance.randrange(QUEUES)
        made = []
        for _ in range(chance.randrange(2, 7) if grouped else chance.randrange(1, 11)):
            own = queue if grouped else chance.randrange(QUEUES)
            id_, size = f"{chance.getrandbits(128):032X}", int(chance.paretovariate(0.8)) % 2500
            made.append(Message(topic, chance.randbytes(size), unique_id=id_, queue=own, born_ms=len(groups)))
        for message in made:
            groups[message.unique_id] = made if grouped else [message]
        put = store.put_group if grouped else store.put_many
        sent.append(([message.unique_id for message in made], put(made)))
        left -= len(made)
    return sent


def written(found, groups, directory):
    """The files that the reference writes for the messages in this order, each with the store time that it got."""
    reference, at = Builder(directory, size=F), 0
    while at < len(found):
        group = groups[unique_id(found[at][1])]
        records = [record for _at, record in found[at : at + len(group)]]
        assert [unique_id(record) for record in records] == [message.unique_id for message in group], "a group is torn"
        reference.place(sum(record["size"] for record in records))
        for message, record in zip(group, records, strict=True):
            reference.put(
                message.topic,
                message.body,
                queue=message.queue,
                store_ms=record["store_ms"],
                born_ms=message.born_ms,
                born=HOST,
                store=HOST,
                properties=b"UNIQ_KEY\1" + message.unique_id.encode() + b"\2",
            )
        at += len(group)
    reference.close()
    return reference


@pytest.mark.parametrize(
    ("messages", "fences", "takeovers"),
    [(3000, 3, 2), pytest.param(100_000, 50, 20, marks=[pytest.mark.long, pytest.mark.timeout(1800)])],
)
def test_files_of_random_puts(tmp_path, messages, fences, takeovers):
    """Positions, skips and bytes are those of the reference's files; what each put was told is true."""

    async def story():
        chance = Random(messages)
        goes = messages // A_GO
        fenced, taken = (set(chance.sample(range(goes), count)) for count in (fences, takeovers))
        async with cluster(tmp_path / "cluster") as world:
            await created(world, tmp_path)
            other = await world.logs()
            stores = [
                await stores_of(world, tmp_path, now=lambda behind=behind: time_of_day() - behind)
                for behind in (0, HOUR_S)
            ]
            store, told, lost, groups = await master(stores[0]), [], [], {}
            for go in range(goes):
                sent = some_puts(store, chance, groups)
                if go in fenced and (ledger := (await other.info("pay")).ledger) is not None:
                    await other.bk.recover_ledger(ledger)
                if go in taken:
                    stores.reverse()
                    if chance.random() < 0.5:
                        owner = await other.own("pay", use=USE, force=True)
                        await store.close()
                        await owner.close()
                    else:
                        await store.close()
                    store = await master(stores[0])
                await answered(sent, told, lost)
            await store.close()
            found = await all_of(other)
        judge(found, told, lost)
        reference = written(found, groups, tmp_path / "files")
        assert [(at, record["raw"]) for at, record in reference.records] == [(at, each["raw"]) for at, each in found]
        read = [(at, each["raw"]) for kind, at, each in parser.plain(tmp_path / "files/commitlog") if kind == "record"]
        assert read == [(at, record["raw"]) for at, record in found]
        print(f"{len(found)} messages in {len(reference.data)} files, {len(told)} told, {len(lost)} refused")
        assert len(told) > messages // 2

    run(story, 1800)
