"""
What the processes of a random workload say of one log, and the judge of it.

Each process writes what it does as lines of JSON into a file of its own: a call when it begins, and its answer, both
with the time of a clock that all processes of the machine share.  A call without an answer may have taken effect, or
not.

    {"id": ID, "op": "append", "handle": H, "values": [...], "t": T}      records of one handle, in its order
    {"id": ID, "op": "produce", "producer": P, "values": [V], "t": T}     a producer's record, until it is answered
    {"id": ID, "op": "publish", "txn": X, "values": [...], "t": T}        a whole batch
    {"id": ID, "op": "read", "t": T}                                      linearizable; answered with what is applied
    {"id": ID, "at": [INDEX, ...], "t": T}                                -1: a duplicate whose index is not known
    {"id": ID, "seen": RECORDS, "chain": HASH, "t": T}
    {"id": ID, "error": NAME, "t": T}
    {"saw": INDEX, "values": [...], "t": T}                               a tail was given these records

The judge knows the log as it is read in the end, and nothing of how it came to be.  A log is a row of records, so the
order of all calls is that of their places: a call that began when a place was known to somebody has a higher one.  That
is linearizability, and needs no search.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

# SPDX-License-Identifier: Apache-2.0

NOT_IN_THE_LOG = ("NotOwner", "LogFenced", "BacklogQuota", "TooManyRequests")
NEVER = float("inf")

Event = Mapping[str, Any]


class Broken(AssertionError):
    """A promise that was not kept: `kind` and what was seen."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def events_of(path: Path) -> Iterator[Event]:
    """The whole lines of a file; a process that was killed may have left a part of one."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)


def chain_of(values: Iterable[str]) -> Iterator[str]:
    """The hash of each prefix, from the empty one on."""
    state = ""
    yield state
    for value in values:
        state = sha256(f"{state}{value}".encode()).hexdigest()[:16]
        yield state


class History:
    """All that was told, by call."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.calls: list[Event] = []
        self.answers: dict[str, Event] = {}
        self.seen: list[Event] = []
        for event in events:
            if "saw" in event:
                self.seen.append(event)
            elif "op" in event:
                self.calls.append(event)
            else:
                self.answers[event["id"]] = event
        self.calls.sort(key=lambda call: call["t"])

    def answered(self, *ops: str) -> Iterator[tuple[Event, Event]]:
        """Calls that were answered without an error, with their answers."""
        for call in self.calls:
            answer = self.answers.get(call["id"])
            if call["op"] in ops and answer is not None and "error" not in answer:
                yield call, answer


def judge(history: History, log: Sequence[str]) -> dict[str, int]:
    """How much of each was judged; `Broken`."""
    places = _places(history, log)
    judged = {
        "records": len(log),
        "acknowledged": _acknowledged(history, log),
        "denied": _denied(history, places),
        "ordered": _ordered(history, places),
        "produced": _produced(history, places),
        "published": _published(history, places),
        "tailed": _tailed(history, log),
        "read": _read(history, log),
    }
    _in_time(history, places)
    return judged


def _places(history: History, log: Sequence[str]) -> dict[str, int]:
    """value -> index; each was appended by somebody, and is there once."""
    sent = {value for call in history.calls for value in call.get("values", ())}
    places: dict[str, int] = {}
    for index, value in enumerate(log):
        if value not in sent:
            raise Broken("stranger", f"nobody appended {value!r}, which is at {index}")
        if value in places:
            raise Broken("twice", f"{value!r} is at {places[value]} and at {index}")
        places[value] = index
    return places


def _acknowledged(history: History, log: Sequence[str]) -> int:
    count = 0
    for call, answer in history.answered("append", "produce", "publish"):
        if len(answer["at"]) != len(call["values"]):
            raise Broken("lost", f"{call} was answered {answer}")
        for value, index in zip(call["values"], answer["at"], strict=True):
            count += 1
            if index < 0:
                continue  # `_produced` looks for it
            if index >= len(log):
                raise Broken("lost", f"{value!r} was acknowledged at {index}, and the log ends at {len(log)}")
            if log[index] != value:
                raise Broken("lost", f"{value!r} was acknowledged at {index}, where {log[index]!r} is")
    return count


def _denied(history: History, places: Mapping[str, int]) -> int:
    """What failed for good is not there; a producer's record may have been stored by another try."""
    count = 0
    for call in history.calls:
        error = history.answers.get(call["id"], {}).get("error")
        if call["op"] == "append" and error in NOT_IN_THE_LOG:
            count += 1
            for value in call["values"]:
                if value in places:
                    raise Broken("denied", f"{value!r} failed with {error}, and is at {places[value]}")
    return count


def _ordered(history: History, places: Mapping[str, int]) -> int:
    """Records of one handle are in the order in which it appended them."""
    handles: dict[str, list[int]] = {}
    for call in history.calls:
        if call["op"] == "append":
            handles.setdefault(call["handle"], []).extend(places[v] for v in call["values"] if v in places)
    for handle, found in handles.items():
        for before, after in pairwise(found):
            if after < before:
                raise Broken("order", f"the records of {handle} at {before} and {after} have changed places")
    return sum(map(len, handles.values()))


def _produced(history: History, places: Mapping[str, int]) -> int:
    """What a producer was told is stored is there, and its records are in order."""
    producers: dict[str, dict[str, None]] = {}
    for call in history.calls:
        if call["op"] == "produce":
            producers.setdefault(call["producer"], {})[call["values"][0]] = None
    for call, _answer in history.answered("produce"):
        if call["values"][0] not in places:
            raise Broken("lost", f"{call['values'][0]!r} was answered to {call['producer']}, and is not there")
    for producer, values in producers.items():
        for before, after in pairwise(places[value] for value in values if value in places):
            if after < before:
                raise Broken("order", f"records of the producer {producer} at {before} and {after} changed places")
    return sum(map(len, producers.values()))


def _published(history: History, places: Mapping[str, int]) -> int:
    """A batch is there whole, in one piece, or not at all, and those of one txn are in order."""
    txns: dict[str, list[int]] = {}
    batches = {(call["txn"], tuple(call["values"])): None for call in history.calls if call["op"] == "publish"}
    for txn, values in batches:
        found = [places[value] for value in values if value in places]
        if found and found != list(range(found[0], found[0] + len(values))):
            raise Broken("batch", f"a batch of {txn} with {len(values)} records is at {found}")
        txns.setdefault(txn, []).extend(found[:1])
    for txn, firsts in txns.items():
        if firsts != sorted(firsts):
            raise Broken("batch", f"the batches of {txn} are at {firsts}")
    return sum(map(len, txns.values()))


def _tailed(history: History, log: Sequence[str]) -> int:
    """Who follows the log is given what it holds."""
    count = 0
    for event in history.seen:
        first, values = event["saw"], event["values"]
        count += len(values)
        if list(log[first : first + len(values)]) != values:
            raise Broken("reader", f"a reader was given other records from {first} on than the log holds")
    return count


def _read(history: History, log: Sequence[str]) -> int:
    """A state is that of a beginning of the log."""
    chain, count = list(chain_of(log)), 0
    for call, answer in history.answered("read"):
        count += 1
        if answer["seen"] > len(log) or chain[answer["seen"]] != answer["chain"]:
            raise Broken("state", f"{call} was answered with a state at {answer['seen']} that the log does not give")
    return count


def _in_time(history: History, places: Mapping[str, int]) -> None:
    """What began when a place was known has a higher one, a read no lower one."""
    known = [(event["t"], event["saw"] + len(event["values"]), "a tail was given") for event in history.seen]
    for call, answer in history.answered("append", "produce", "publish", "read"):
        end = answer["seen"] if "seen" in answer else max(answer["at"], default=-1) + 1
        known.append((answer["t"], end, f"{call['id']} was answered with"))
    known.sort(reverse=True)
    newest, whence = 0, ""
    first_sent: dict[str, float] = {}
    for call in history.calls:
        while known and known[-1][0] < call["t"]:
            _at, end, said = known.pop()
            if end > newest:
                newest, whence = end, said
        if call["op"] == "read":
            answer = history.answers.get(call["id"], {})
            if answer.get("seen", newest) < newest:
                raise Broken("stale", f"{call} was answered {answer}; before it began {whence} record {newest - 1}")
            continue
        for value in call["values"]:
            if first_sent.setdefault(value, call["t"]) == call["t"] and places.get(value, newest) < newest:
                raise Broken(
                    "late", f"{value!r} is at {places[value]}; before it was sent {whence} record {newest - 1}"
                )
