"""
A register that any number of processes keep: get, put, compare-and-set, by lines on standard input.

    quire log create register
    python register.py zk://127.0.0.1:2181/ledgers register one

Start several.  One of them leads and answers; the others say which one it is, or "" while none is: ask again.  Kill
it, and another one goes on with the same state.

    put k v          {"index": 0, "done": true}
    get k            {"value": "v"}
    cas k v w        {"index": 1, "done": true}      k becomes w if it is v; "-" for none
"""

import json
import sys
from collections.abc import Iterable

from quire.client import LedgerError
from quire.log import LogError, NotOwner, Record, Replica, connect

# SPDX-License-Identifier: Apache-2.0

WORDS = {"put": 3, "get": 2, "cas": 4}  # of each command


class Register:
    """The state: what each key is.  It follows from the log's records alone."""

    name = "register/1"

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, record: Record) -> dict[str, object]:
        """A put or a compare-and-set: whether it was done, which all processes decide alike."""
        key, expected, value = json.loads(record.value)
        done = expected is None or self.values.get(key, "-") == expected
        if done:
            self.values[key] = value
        return {"index": record.index, "done": done}

    def save(self) -> Iterable[bytes]:
        """A snapshot."""
        return [json.dumps(self.values).encode()]

    def load(self, data: Iterable[bytes]) -> None:
        """What `save` gave, cut anywhere."""
        self.values = json.loads(b"".join(data))


def answer(replica: Replica, words: list[str]) -> dict[str, object]:
    """What one command gives."""
    command, key, *rest = words
    if command == "get":
        return {"value": replica.read(lambda register: register.values.get(key), mode="barrier").value}
    expected, value = rest if command == "cas" else (None, rest[0])
    done: dict[str, object] = replica.propose(json.dumps([key, expected, value]).encode())
    return done


def main(uri: str, log: str, me: str) -> None:
    """Until the input ends."""
    with connect(uri) as logs, logs.replica(log, Register, stand=True, address=me) as replica:
        print(json.dumps({"ready": me}), flush=True)
        for line in sys.stdin:
            words = line.split()
            try:
                if not words or len(words) != WORDS.get(words[0]):
                    raise ValueError(f"put K V, get K or cas K OLD NEW, not {line!r}")
                found = answer(replica, words)
            except NotOwner as error:
                found = {"ask": error.address}
            except (LogError, ValueError) as error:
                found = {"error": str(error)}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: register.py METADATA LOG NAME, where NAME is what others call this process")
    try:
        main(*sys.argv[1:])
    except (LedgerError, ValueError) as failure:  # no store, no such log, ...
        sys.exit(f"{type(failure).__name__}: {failure}")
