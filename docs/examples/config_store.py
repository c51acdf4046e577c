"""
A replicated configuration store: keys with versions over HTTP, on any number of processes.

    quire log create config
    python config_store.py zk://127.0.0.1:2181/ledgers config 127.0.0.1:8101

Start it on several addresses.  Whoever leads takes changes and answers reads; the others send clients to it (307), and
nobody has to be told who it is.  A client follows redirects (`curl -L`), and asks another address when one is gone.

    curl -L -X PUT -d blue  127.0.0.1:8101/keys/color               {"version": 1}
    curl -L -X PUT -d red -H 'If-Match: 1' …/keys/color             only if that is its version now, else 412
    curl -L -X PUT -d red -H 'If-None-Match: *' …/keys/color        only if there is none
    curl -L …/keys/color                                            {"value": "red", "version": 2}; 404 without one
    curl …/keys/color?after=2                                       from any process, once its version is above 2
    curl -L …/keys?prefix=co                                        {"color": {"value": "red", "version": 2}}
    curl -L -X DELETE …/keys/color                                  {"version": 3}
    curl …/state                                                    {"role": "leading", "applied": 3}

A key's version is one more than the index of the record that changed it last, so versions rise over all keys.
"""

import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.error import CannotListenError
from twisted.internet.task import react
from twisted.web.http import Request as HttpRequest
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from quire.log.api import Logs, Record, Replica, connect
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import NotOwner

# SPDX-License-Identifier: Apache-2.0

VALUE_BYTES_MAX = 1 << 20
WATCH_S = 30.0
Answer = tuple[int, dict[str, Any]]


class Store:
    """The state.  `waiting` fire at the next change of any key."""

    name = "config/1"

    def __init__(self) -> None:
        self.keys: dict[str, dict[str, Any]] = {}  # key -> value and version
        self.version = 0
        self.waiting: list[Deferred[None]] = []

    def apply(self, record: Record) -> Answer:
        """A change, if the key has the expected version; 0: there is none; None: whatever it has."""
        change = json.loads(record.value)
        key, expected = change["key"], change["expected"]
        found = self.keys.get(key, {}).get("version", 0)
        if expected is not None and expected != found:
            return 412, {"version": found}
        self.version = record.index + 1
        if change["value"] is not None:
            self.keys[key] = {"value": change["value"], "version": self.version}
        elif self.keys.pop(key, None) is None:
            return 404, {"version": 0}
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if not each.called:
                each.callback(None)
        return 200, {"version": self.version}

    def save(self) -> Iterable[bytes]:
        return [json.dumps([self.version, self.keys]).encode()]

    def load(self, data: Iterable[bytes]) -> None:
        self.version, self.keys = json.loads(b"".join(data))

    def get(self, key: str) -> Answer:
        """A key, or that there is none."""
        return (200, self.keys[key]) if key in self.keys else (404, {"version": 0})

    def with_prefix(self, prefix: str) -> Answer:
        """All keys that begin so."""
        return 200, {key: self.keys[key] for key in sorted(self.keys) if key.startswith(prefix)}


class Keys(Resource):
    """What HTTP asks of one replica."""

    isLeaf = True

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self._clock = clock
        self.replica: Replica | None = None  # until it is loaded

    def render(self, request: HttpRequest) -> int:
        Deferred.fromCoroutine(self._answer(request)).addErrback(lambda _failure: None)  # the client is gone
        return NOT_DONE_YET

    async def _answer(self, request: HttpRequest) -> None:
        try:
            code, found = await self._work(request)
        except NotOwner as error:
            if error.address:
                code, found = 307, {"ask": error.address}
                request.setHeader("Location", f"http://{error.address}{request.uri.decode()}")
            else:
                code, found = 503, {"error": "nobody leads now"}
        except LedgerError as error:
            code, found = 503, {"error": str(error)}
        except ValueError as error:
            code, found = 400, {"error": str(error)}
        request.setResponseCode(code)
        request.setHeader("Content-Type", "application/json")
        if code == 503:
            request.setHeader("Retry-After", "1")
        request.write(json.dumps(found).encode() + b"\n")
        request.finish()

    async def _work(self, request: HttpRequest) -> Answer:
        replica = self.replica
        if replica is None:
            return 503, {"error": "it is loading"}
        method, path = request.method.decode(), request.path.decode()
        folder, _, key = path.strip("/").partition("/")
        if method == "GET" and folder == "state":
            return 200, {"role": replica.role.value, "applied": replica.applied}
        if folder != "keys":
            return 404, {"error": f"there is no {path}"}
        if method == "GET" and key and b"after" in request.args:
            return await self._above(replica, key, int(request.args[b"after"][0]))
        if method == "GET":
            prefix = request.args.get(b"prefix", [b""])[0].decode()
            found: Answer = (
                await replica.read(lambda store: store.get(key) if key else store.with_prefix(prefix), "barrier")
            ).value
            return found
        if method not in {"PUT", "DELETE"} or not key:
            return 405, {"error": f"{method} of {path}"}
        value = request.content.read(VALUE_BYTES_MAX + 1)
        if len(value) > VALUE_BYTES_MAX:
            return 413, {"error": f"a value has at most {VALUE_BYTES_MAX} bytes"}
        change = {"key": key, "value": value.decode() if method == "PUT" else None, "expected": expected(request)}
        done: Answer = await replica.propose(json.dumps(change).encode())
        return done

    async def _above(self, replica: Replica, key: str, version: int) -> Answer:
        """The key once it has a higher version, or was deleted, by what is applied here; 304 when that takes long."""
        end = self._clock.seconds() + WATCH_S
        while (left := end - self._clock.seconds()) > 0:
            store: Store = (await replica.read(lambda store: store, "unsafe")).value
            code, found = store.get(key)
            if found["version"] > version or (code == 404 and 0 < version < store.version):
                return code, found
            changed: Deferred[None] = Deferred()
            store.waiting.append(changed)
            with suppress(TimeoutError):
                await changed.addTimeout(left, self._clock)
        return 304, {}


def expected(request: HttpRequest) -> int | None:
    """The version that a change asks for."""
    if request.getHeader("If-None-Match") == "*":
        return 0
    asked = request.getHeader("If-Match")
    return None if asked is None else int(asked.strip('"'))


async def main(clock: Any, uri: str, log: str, address: str) -> None:
    """Until it is stopped.  Port 0: any that is free."""
    host, _, port = address.rpartition(":")
    keys = Keys(clock)
    listening = clock.listenTCP(int(port), Site(keys), interface=host)
    here = f"{host}:{listening.getHost().port}"
    logs: Logs = await connect(clock, uri)
    clock.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromCoroutine(logs.close()))
    keys.replica = await logs.replica(log, Store, stand=True, address=here)
    print(json.dumps({"ready": here}), flush=True)
    await Deferred()


async def begin(clock: Any, *arguments: str) -> None:
    """Ends with one line where it can't begin: no store, no such log, an address that is taken."""
    try:
        await main(clock, *arguments)
    except (LedgerError, CannotListenError, ValueError) as failure:
        raise SystemExit(f"{type(failure).__name__}: {failure}") from None


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: config_store.py METADATA LOG HOST:PORT")
    react(begin, sys.argv[1:])
