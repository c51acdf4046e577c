"""A million ledgers and a hundred bookies, some of which never answer: each page is there in half a second."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_server
from urllib.request import Request, urlopen

from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.metadata.store import ServiceInfo, at_once
from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from tests.console.test_daemon import basic, console
from tests.reactor import between_looks, reactor, run
from tests.tools.command import ok

# SPDX-License-Identifier: Apache-2.0

LEDGERS, LEAF = 1_000_000, 10_000  # of a directory of the hierarchical layout
BOOKIES, MUTE = 100, 5
PAGE_S = 0.5
TRIES = 5  # the machine may be busy in some of them
INSERT = (
    "INSERT INTO nodes (parent, name, version, made, changed, children, family, children_changed, data) "
    "VALUES (?, ?, 0, 2, 2, 0, 0, 2, ?)"
)


def stored(number: int) -> bytes:
    """One of the values that ledgers have."""
    bookies = tuple(f"10.0.0.{1 + (number + place) % BOOKIES}:3181" for place in range(3))
    return ledger_codec.encode(
        LedgerMetadata(
            *(3, 3, 2, LedgerState.CLOSED, 999, 1 << 20, (Fragment(0, bookies),)),
            digest=LedgerMetadata.new(3, 3, 2, bookies).digest,
            password=b"",
            custom={"application": b"orders" if number % 2 else b"payments"},
            ctime_ms=1_700_000_000_000,
        )
    )


def fill(path: Path) -> None:
    """Puts the ledgers into a SQLite store as it keeps them, past the store: that takes seconds, not minutes."""
    values = [stored(number) for number in range(BOOKIES)]
    with sqlite3.connect(path) as file:
        file.execute(INSERT, ("/ledgers", "00", b""))
        for directory in range(LEDGERS // LEAF):
            file.execute(INSERT, ("/ledgers/00", f"{directory:04d}", b""))
            rows = [(f"/ledgers/00/{directory:04d}", f"L{leaf:04d}", values[leaf % BOOKIES]) for leaf in range(LEAF)]
            file.executemany(INSERT, rows)
    file.close()


@contextmanager
def announced(uri: str) -> Iterator[None]:
    """So many bookies: nobody listens where most are; some take connections, and never answer."""
    with ExitStack() as stack:
        ports = [stack.enter_context(create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(MUTE)]

        async def begin() -> MetadataStore:
            store = await open_store(reactor, uri)  # type: ignore[arg-type]
            infos = [ServiceInfo.of("127.0.0.1", port, http=("127.0.0.1", port)) for port in ports]
            infos += [ServiceInfo.of("127.0.0.1", 1, http=("127.0.0.1", 1))] * (BOOKIES - MUTE)
            names = [f"10.0.0.{1 + number}:3181" for number in range(BOOKIES)]

            async def register(name: str, info: ServiceInfo) -> None:
                await store.register_bookie(name, info)

            await at_once([register(name, info) for name, info in zip(names, infos, strict=True)])
            return store

        store = run(begin)
        try:
            yield
        finally:
            run(store.close)


def test_each_page_is_there_in_half_a_second(tmp_path: Path) -> None:
    """While looks at bookies are under way, and once all is known; and pages say the age of what they show."""
    uri = f"sqlite://{tmp_path}/metadata.db"
    ok("metadata", "init", metadata=uri)
    fill(tmp_path / "metadata.db")
    with announced(uri), console(tmp_path, uri) as ready:
        shown = {"Authorization": basic(Path(ready["token_file"]).read_text().strip())}

        def get(path: str) -> tuple[float, str]:
            begun = time.monotonic()
            with urlopen(Request(f"{ready['ready']}{path}", headers=shown), timeout=60) as answer:
                return time.monotonic() - begun, answer.read().decode()

        pages = {
            "": "What needs care",
            "bookie?id=10.0.0.7:3181": "10.0.0.7:3181",
            "ledgers": "/ledger?id=49",
            "ledgers?after=777776": "/ledger?id=777777",
            "ledgers?find=application%3Dorders": "50 have",
            "ledgers?find=nothing": "There are more ledgers to look at",
            "ledger?id=999999": "999",
            "repair": "The repair queue is empty",
            "logs": "0 logs",
            "charts": "The last hours",
            "chart.svg?of=adds": "<svg",
        }
        while "silent" not in get("")[1] or "1,000,000" not in get("")[1]:
            between_looks()
        for path, holds in pages.items():
            took, text = min(get(path) for _ in range(TRIES))
            assert holds in text, path
            assert took < PAGE_S, f"/{path} took {took:.2f} s"
        assert f"/ledgers?after={LEDGERS - 51}" in get("ledgers")[1]
