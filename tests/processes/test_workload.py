"""
A random workload on named logs, over processes that are killed and stopped, and so are bookies and the metadata store:
owners, producers, publishers, replicas under leases and tails, judged from outside for density, uniqueness, loss,
order and linearizability (`workload`).
"""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.processes.workload import Broken, History, chain_of, judge
from tests.processes.workload_field import Field
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def stopping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four bookies and a ZooKeeper that may be hit."""
    with LocalCluster(tmp_path_factory.mktemp("workload"), 4, "zookeeper", options=SMALL, tick_ms=250) as made:
        yield made


def tried(cluster: LocalCluster, kind: str, seed: int, seconds: float, directory: Path) -> dict[str, int]:
    with Field(cluster, kind, seed, directory) as field:
        field.going_on()
        field.faults(seconds)
        field.going_on()
        return field.judged()


KINDS = {
    "plain": ("acknowledged", "ordered", "produced", "published", "tailed"),
    "leased": ("acknowledged", "ordered", "read", "tailed"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_workload_keeps_all_promises(stopping: LocalCluster, kind: str, tmp_path: Path) -> None:
    """Some seconds of it, from a seed that is drawn; it is printed."""
    seed = int(os.environ.get("SEED", "0")) or int.from_bytes(os.urandom(4), "big")
    print(f"SEED={seed}")
    found = tried(stopping, kind, seed, 8, tmp_path)
    assert all(found[each] for each in KINDS[kind]), found


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(int(os.environ.get("ROUNDS", "3"))))
def test_a_random_workload_for_long(stopping: LocalCluster, kind: str, number: int, tmp_path: Path) -> None:
    """A minute and a half each."""
    seed = int(os.environ.get("SEED", "0")) + number or int.from_bytes(os.urandom(4), "big")
    print(f"SEED={seed}")
    tried(stopping, kind, seed, 90, tmp_path)


# -- the judge itself --------------------------------------------------------------------------------------------------


class Good:
    """A history in which all went well, for a judge that is to be shown one fault."""

    def __init__(self, seed: int = 1) -> None:
        self.dice, self.now, self.numbers = Random(seed), 0.0, count()
        self.log: list[str] = []
        self.events: list[dict[str, Any]] = []
        for number in range(60):
            [self.append, self.produce, self.publish, self.read, self.tail][number % 5](number)

    def _call(self, begin: float, op: str, answer: dict[str, Any], **about: Any) -> None:
        name = f"c{next(self.numbers)}"
        self.events.append({"id": name, "op": op, "t": begin, **about})
        self.now += 1
        self.events.append({"id": name, "t": self.now, **answer})

    def _stored(self, values: list[str]) -> list[int]:
        self.log += values
        return [*range(len(self.log) - len(values), len(self.log))]

    def _begin(self) -> float:
        self.now += 1
        return self.now

    def append(self, number: int) -> None:
        values = [f"a{number}.{n}" for n in range(3)]
        self._call(self._begin(), "append", {"at": self._stored(values)}, handle=f"h{number % 2}", values=values)
        self._call(self._begin(), "append", {"error": "LogFenced"}, handle="h9", values=[f"f{number}"])

    def produce(self, number: int) -> None:
        values = [f"p:{number}"]
        begin = self._begin()
        at = self._stored(values)
        self._call(begin, "produce", {"error": "AppendUnknown"}, producer="p", values=values)
        self._call(self._begin(), "produce", {"at": self.dice.choice([at, [-1]])}, producer="p", values=values)

    def publish(self, number: int) -> None:
        values = [f"x:{number}:{n}" for n in range(4)]
        self._call(self._begin(), "publish", {"at": self._stored(values)}, txn="x", values=values)

    def read(self, _number: int) -> None:
        state = [*chain_of(self.log)][-1]
        self._call(self._begin(), "read", {"seen": len(self.log), "chain": state})

    def tail(self, number: int) -> None:
        self.now += 1
        first = self.dice.randrange(max(0, len(self.log) - 3))
        self.events.append({"saw": first, "values": self.log[first : first + 2], "t": self.now})

    def pair(self, op: str, nth: int = 5) -> tuple[dict[str, Any], dict[str, Any]]:
        """The nth call of a kind that was answered with places or a state, and its answer."""
        answers = {each["id"]: each for each in self.events if "at" in each or "seen" in each}
        found = [(each, answers[each["id"]]) for each in self.events if each.get("op") == op and each["id"] in answers]
        return found[nth]


def lose(good: Good) -> None:
    _call, answer = good.pair("append")
    del good.log[answer["at"][1]]


def double(good: Good) -> None:
    good.log.append(good.log[5])


def invent(good: Good) -> None:
    good.log.append("nobody's")


def swap(good: Good) -> None:
    """Two records of a handle whose acknowledgement was lost."""
    call, answer = good.pair("append")
    first = answer["at"][0]
    good.log[first], good.log[first + 1] = good.log[first + 1], good.log[first]
    good.events.remove(answer)
    good.events = [each for each in good.events if "saw" not in each and each.get("op") != "read"]
    assert call in good.events


def deny(good: Good) -> None:
    _call, answer = good.pair("append")
    answer["error"] = "LogFenced"


def tear(good: Good) -> None:
    """A record of another one is in the middle of a batch, of which nobody was told."""
    _call, answer = good.pair("publish", -1)
    good.events.remove(answer)
    good.events.append({"id": "between", "op": "append", "handle": "h8", "values": ["between"], "t": 0.5})
    good.events = [each for each in good.events if "saw" not in each and each.get("op") != "read"]
    good.log.insert(answer["at"][2], "between")


def forget_resend(good: Good) -> None:
    """A resend was answered as a duplicate of what was never stored."""
    call, answer = good.pair("produce", -1)
    answer["at"] = [-1]
    good.log.remove(call["values"][0])
    good.log.append("filling")
    good.events.append({"id": "filling", "op": "append", "handle": "h8", "values": ["filling"], "t": good.now + 1})


def misread(good: Good) -> None:
    next(each for each in good.events if each.get("saw"))["values"].reverse()


def stale(good: Good) -> None:
    """A read that does not know what was acknowledged before it began."""
    _call, answer = good.pair("read", -1)
    answer["seen"] -= 1
    answer["chain"] = [*chain_of(good.log)][answer["seen"]]


def back(good: Good) -> None:
    """A read that does not know what a tail was given before it began; all acknowledgements were lost."""
    good.events = [each for each in good.events if "at" not in each]
    call, answer = good.pair("read", -2)
    good.events.append({"saw": answer["seen"], "values": [good.log[answer["seen"]]], "t": call["t"] - 0.5})


def early(good: Good) -> None:
    """A record is below one that was acknowledged before it was sent."""
    call, answer = good.pair("publish", -1)
    good.events.remove(answer)
    good.events.append({"saw": len(good.log) - 1, "values": [good.log[-1]], "t": call["t"] - 0.5})


def mistake_state(good: Good) -> None:
    good.pair("read", 3)[1]["chain"] = "another"


SPOILED = {
    lose: "lost",
    double: "twice",
    invent: "stranger",
    swap: "order",
    deny: "denied",
    tear: "batch",
    forget_resend: "lost",
    misread: "reader",
    stale: "stale",
    back: "stale",
    early: "late",
    mistake_state: "state",
}


def test_a_good_history_is_not_broken() -> None:
    """All kinds of calls are judged."""
    for seed in range(20):
        good = Good(seed)
        assert all(judge(History(good.events), good.log).values())


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_each_fault_is_found(spoil: Callable[[Good], None]) -> None:
    """One fault in a good history breaks the promise that it should."""
    good = Good()
    spoil(good)
    with pytest.raises(Broken) as broken:
        judge(History(good.events), good.log)
    assert broken.value.kind == SPOILED[spoil]
