"""Apache's HTTP routes on a cluster of ours, beside the answers of a bookie of Apache's."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quire.bookie.admin.bookie_paths import Admin, GcPaths, IndexPaths
from quire.bookie.admin.gate import Gate
from quire.bookie.admin.http import Answer
from quire.bookie.admin.recovery_paths import RecoveryPaths
from quire.client.api import Client, connect
from quire.tools.daemons.apache_paths import ENTRIES_A_PAGE, LEDGERS_A_PAGE, BookiePaths, ClusterPaths
from tests.bookie.fakes.asking import OPEN, asking
from tests.bookie.fakes.in_process import new_store, running
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

CAPTURE: dict[str, list[str]] = json.loads((Path(__file__).parents[2] / "vectors" / "java_http.json").read_text())
DIFFERS = {
    "PUT /api/v1/config/server_config": "options are read at the start, so it is refused",
    "GET /api/v1/ledger/metadata": "Apache's 4.18 answers 500",
    "GET /api/v1/ledger/read": "Apache's 4.18 answers 500",
    "PUT /api/v1/bookie/gc/suspend_compaction": "answers with the state of both",
    "PUT /api/v1/bookie/gc/resume_compaction": "answers with the state of both",
    "GET /api/v1/bookie/gc_details": "a row for each ledger directory, when one was looked at",
    "GET /api/v1/autorecovery/who_is_auditor": "nobody audits here",
}
ONE: dict[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
Ask = Callable[..., Awaitable[Answer]]


class Repairs:
    """A process without a part in AutoRecovery, which empties bookies at once."""

    def status(self) -> None:
        return None

    def empty(self, bookie: str, forget: bool) -> str | None:
        return None


@asynccontextmanager
async def cluster(path: Path, **options: object) -> AsyncIterator[tuple[Ask, Client]]:
    """A bookie and its paths, and a client."""
    store = await new_store()

    async def opened() -> Client:
        return await connect(reactor, store.uri)  # type: ignore[arg-type]

    async with running(path, store, **options) as bookie:
        paths = ClusterPaths(lambda: store, opened)
        parts = [
            Admin(reactor, bookie),  # type: ignore[arg-type]
            GcPaths(bookie.garbage, bookie.id),
            IndexPaths(bookie.upkeep, bookie.id),
            RecoveryPaths(lambda: store, Repairs()),
            paths,
            BookiePaths(bookie.options, lambda: (bookie.id, bookie.read_only), paths),
        ]
        gate = Gate([each.routes for each in parts], OPEN)

        async def ask(method: str, where: str, body: bytes = b"") -> Answer:
            path, _, query = where.partition("?")
            words = dict(part.split("=") for part in query.split("&")) if query else {}
            found = asking(gate, method, path, body, **words)
            return found if isinstance(found, Answer) else await found

        client = await opened()
        yield ask, client
        await client.close()
    await store.close()


def skeleton(text: str) -> str:
    """Without what differs from cluster to cluster: numbers, ids, names of files, stores of the index."""
    plain = re.sub(r"\(\w+\.\w+\)", "(FILE)", text.replace("raw", "127.0.0.1:3181"))
    plain = re.sub(r"^/.*/current/(locations|runs)$", "STORE", plain)
    return re.sub(r"[0-9a-f]*\d[0-9a-f.:]*", "0", plain).strip().strip('"')


def shape(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return skeleton(text)
    if isinstance(value, dict):
        return {skeleton(key): type(each) for key, each in value.items()}
    return skeleton(text) if isinstance(value, str) else type(value)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """What a bookie of ours answers to each request of the capture, in its order."""
    folder: Path = tmp_path_factory.mktemp("routes")

    async def story() -> dict[str, Answer]:
        async with cluster(folder) as (ask, client):
            for _ in range(2):
                writer = await client.create_ledger(**ONE)
                await writer.append(b"entry")
                await writer.close()
            found = {}
            for each in CAPTURE:
                method, where, *body = each.split(" ", 2)
                found[each] = await ask(method, where, "".join(body).encode())
            return found

    return run(story)


@pytest.mark.parametrize("asked", CAPTURE)
def test_a_route_answers_as_apaches(asked: str, answers: dict[str, Answer]) -> None:
    """Status, texts, keys and their types; ours may have keys more."""
    found, (said, body) = answers[asked], CAPTURE[asked]
    if asked.partition("?")[0].partition(" {")[0] in DIFFERS:
        assert found.status in {200, 400, 404}
        return
    assert found.status == int(said.split()[0])
    wanted, ours = shape(body), shape(found.body.decode())
    if isinstance(wanted, dict) and isinstance(ours, dict) and "server_config" not in asked:
        assert wanted.items() <= ours.items()
    elif not isinstance(wanted, dict):
        assert ours == wanted


def test_ledgers_are_listed_by_pages_and_shown(tmp_path: Path) -> None:
    """A page is a hundred; metadata as an object has no password; a ledger that is not there is 404."""

    async def story() -> None:
        async with cluster(tmp_path) as (ask, client):
            made = [await client.create_ledger(**ONE, password=b"secret") for _ in range(LEDGERS_A_PAGE + 3)]
            everything = json.loads((await ask("GET", "/api/v1/ledger/list")).body)
            assert list(everything) == [str(each.id) for each in made]
            pages = [
                json.loads(
                    (await ask("GET", f"/api/v1/ledger/list?print_metadata=true&decode_meta=true&page={page}")).body
                )
                for page in (1, 2, 3)
            ]
            assert [len(page) for page in pages] == [LEDGERS_A_PAGE, 3, 0]
            assert list(pages[0] | pages[1]) == list(everything)
            one = pages[0][str(made[0].id)]
            assert (one["state"], one["ensembleSize"], len(one["allEnsembles"])) == ("OPEN", 1, 1)
            assert "secret" not in json.dumps(pages)
            shown = json.loads((await ask("GET", f"/api/v1/ledger/metadata?ledger_id={made[0].id}")).body)
            assert shown == {str(made[0].id): one}
            assert (await ask("GET", "/api/v1/ledger/metadata?ledger_id=77777")).status == 404
            assert (await ask("GET", "/api/v1/ledger/metadata")).status == 400
            assert (await ask("GET", "/api/v1/ledger/metadata?ledger_id=x")).status == 400

    run(story)


def test_entries_are_read_by_pages(tmp_path: Path) -> None:
    """A thousand a page, without a fence; a deleted ledger is gone."""

    async def story() -> None:
        async with cluster(tmp_path) as (ask, client):
            writer = await client.create_ledger(**ONE, password=b"secret")
            await writer.append_many([b"%d" % each for each in range(ENTRIES_A_PAGE + 2)])
            await writer.append(b"last")
            where = f"/api/v1/ledger/read?ledger_id={writer.id}"
            found: dict[str, Any] = json.loads((await ask("GET", f"{where}&start_entry_id=1&end_entry_id=2")).body)
            assert found == {"1": "1", "2": "2"}
            second = json.loads((await ask("GET", f"{where}&page=2")).body)
            assert second.pop("Entries for page: ") == "2"
            assert list(second) == [str(ENTRIES_A_PAGE), str(ENTRIES_A_PAGE + 1)]
            await writer.append(b"it was not fenced")
            await writer.close()
            gone = await ask("DELETE", f"/api/v1/ledger/delete?ledger_id={writer.id}")
            assert json.loads(gone.body) == f"Deleted ledger: {writer.id}"
            assert (await ask("GET", where)).status == 404

    run(story)


def test_sanity_says_what_is_wrong(tmp_path: Path) -> None:
    """A bookie that takes nothing has not passed, and its ledgers are as before."""

    async def story() -> None:
        async with cluster(tmp_path) as (ask, client):
            assert json.loads((await ask("GET", "/api/v1/bookie/sanity")).body) == {"passed": True, "readOnly": False}
            await ask("PUT", "/api/v1/bookie/state/readonly", b'{"readOnly": true}')
            assert json.loads((await ask("GET", "/api/v1/bookie/sanity")).body) == {"passed": False, "readOnly": True}
            assert await client.ledger_ids() == []

    run(story)
