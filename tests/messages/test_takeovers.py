"""A hundred takeovers of one store, orderly and by force, under puts, with clocks an hour apart."""

import threading
from random import Random

import pytest
from twisted.internet.defer import DeferredList
from twisted.internet.task import deferLater

from quire.conf.messages import MessageOptions
from quire.messages.api import Message, Stores
from quire.messages.derived.dispatch import Dispatch
from quire.messages.descriptor import USE
from quire.metadata.clock import time_of_day
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import AppendUnknown
from tests.log.fakes.cluster import cluster
from tests.messages.test_store import F, created, master
from tests.messages.truth import all_of, judge
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

HOUR_S = 3600
A_TURN = 60  # messages


class Master:
    """A store that stands and puts; its user's listener raises each time."""

    def __init__(self):
        self.roles = []

    def hear(self, role, epoch):
        self.roles.append((role, epoch))
        raise RuntimeError("a listener that raises")

    async def stand(self, stores):
        self.store = await stores.open("pay", stand=True, rows=False, on_role=self.hear)
        return self


def terms(roles):
    """Each change was heard once and in order: the epochs in which it was master."""
    assert [role for role, _epoch in roles] == ["master", "slave"] * (len(roles) // 2)
    begun, ended = roles[::2], roles[1::2]
    epochs = [epoch for _role, epoch in begun]
    assert epochs == sorted(set(epochs))
    assert [epoch for _role, epoch in ended] == epochs
    return epochs


def random_puts(store, chance, queues, count):
    """Single ones, groups and lists: (unique ids of the call, its Deferred)."""
    sent = []
    while count > 0:
        queue = chance.randrange(queues)
        many = chance.choice([1, 1, 1, 5])
        ids = [f"{chance.getrandbits(128):032X}" for _ in range(many)]
        made = [Message(f"T{queue // 8}", chance.randbytes(9), queue=queue % 8, unique_id=id_) for id_ in ids]
        put = store.put_group if chance.random() < 0.3 else store.put_many
        sent.append((ids, put(made)))
        count -= many
    return sent


async def answered(sent, told, lost):
    """Notes what each call was told: its `Put`s, or that it is not in the store; of some nobody knows."""
    for (ids, _call), (done, found) in zip(
        sent, await DeferredList([call for _, call in sent], consumeErrors=True), strict=True
    ):
        if done:
            assert [put.unique_id for put in found] == ids
            told += found
        elif not found.check(AppendUnknown):
            assert found.check(LedgerError), found
            assert found.value.status == "SERVICE_NOT_AVAILABLE", found
            lost += ids
    return told


@pytest.mark.parametrize(
    ("takeovers", "queues"), [(5, 100), pytest.param(100, 1000, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]
)
def test_takeovers(tmp_path, takeovers, queues):
    """Every other one by force, with puts under way; whoever was deposed stands again, until it is closed."""

    async def story():
        chance = Random(takeovers)
        async with cluster(tmp_path) as world:
            stores = []
            for behind in (0, HOUR_S, -HOUR_S):
                logs = await world.logs(now=lambda behind=behind: time_of_day() - behind)
                stores.append(Stores(logs, MessageOptions(derived_dir=tmp_path / "rows", progress_ms=20)))
            await stores[0].create("pay", address="10.0.0.5:10911", file_bytes=F)
            other = await world.logs()
            masters, told, lost = [], [], []
            for number in range(takeovers):
                masters.append(await Master().stand(stores[number % 3]))
                former, last = masters[-2:][0], masters[-1]
                sent = [] if former is last else random_puts(former.store, chance, queues, A_TURN)
                if former is not last and number % 2:
                    owner = await other.own("pay", use=USE, force=True)
                    sent += random_puts(former.store, chance, queues, 1)  # by whose failure it hears of that
                    await answered(sent, told, lost)
                    while former.store.role == "master":  # in the turn in which the last put was answered
                        await deferLater(reactor, 0)
                    await former.store.close()
                    await owner.close()
                elif former is not last:
                    await former.store.close()
                    await answered(sent, told, lost)
                assert await last.store.leads(60)
                await answered(random_puts(last.store, chance, queues, A_TURN), told, lost)
            await masters[-1].store.close()
            found = await all_of(other)
            judge(found, told, lost)
            epochs = [terms(master.roles) for master in masters]
            assert all(epochs)
            each = [epoch for some in epochs for epoch in some]
            assert each == sorted(set(each))
            print(f"{len(found)} messages, {len(told)} told, {len(lost)} refused")
            assert len(told) > takeovers * A_TURN

    run(story, 1200)


def test_a_takeover_does_not_wait_for_rows(tmp_path, monkeypatch):
    """The next master is answered while its dispatch stands still; then its rows catch up."""
    goes, take = threading.Event(), Dispatch.take

    def held(*arguments):
        assert goes.wait(60)
        return take(*arguments)

    monkeypatch.setattr(Dispatch, "take", held)

    async def story():
        async with cluster(tmp_path / "cluster") as world:
            first = await master(await created(world, tmp_path))
            await first.put_many([Message("T")] * 50)
            await first.close()
            stores = Stores(await world.logs(), MessageOptions(derived_dir=tmp_path / "rows"))
            store = await stores.open("pay", stand=True)
            try:
                assert await store.leads(60)
                puts = await store.put_many([Message("T")] * 50)
                assert [put.position for put in puts] == list(range(50, 100))
                assert store.lag > 0
            finally:
                goes.set()
            assert (await store.reads.get(puts[-1].offset, 60)).position == 99
            await store.caught_up()
            assert (await store.reads.bounds("T", 0)).next == 100
            await store.close()

    run(story)
