"""The pages of the console: each over a real cluster, and what it makes of foreign text and of what is not there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from html import escape
from urllib.parse import urlencode

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.admin.http import Answer, Asked
from quire.conf.log import LogOptions
from quire.console import pages as module
from quire.console.cluster import Cluster
from quire.console.pages import Pages
from quire.console.views import Views
from quire.log.api import Logs
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import NEW
from tests.console.test_cluster import look
from tests.reactor import run
from tests.tools.commands.doctor.conftest import World

# SPDX-License-Identifier: Apache-2.0

EVIL = "<script>alert(1)</script>\"'&"
SAFE = escape(EVIL).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")


class Browser:
    """Asks for pages as they are behind the gate."""

    def __init__(self, cluster: Cluster, changes: bool = False) -> None:
        self.cluster = cluster
        self._routes = Pages(cluster, Views(), changes).routes

    async def get(self, path: str, **query: object) -> tuple[int, str]:
        return await self._ask(Asked("GET", path, b"", {key: str(value) for key, value in query.items()}))

    async def post(self, path: str, form: dict[str, object], **query: object) -> tuple[int, str]:
        asked = Asked("POST", path, urlencode(form).encode(), {key: str(value) for key, value in query.items()})
        return await self._ask(asked)

    async def _ask(self, asked: Asked) -> tuple[int, str]:
        coming = self._routes[asked.method, asked.path](asked)
        answer = await coming if isinstance(coming, Deferred) else coming
        assert isinstance(answer, Answer)
        return answer.status, answer.body.decode()


@asynccontextmanager
async def browser(world: World) -> AsyncIterator[Browser]:
    client = await world.client()
    try:
        yield Browser(Cluster(client))
    finally:
        await client.close()


def browsed(world: World, story: Callable[[Browser], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with browser(world) as one:
            await story(one)

    run(whole)


def test_pages_are_there_before_the_first_look(world: World) -> None:
    """They say that nothing is known yet, instead of waiting."""

    async def story(one: Browser) -> None:
        for path in ("/", "/ledgers", "/repair", "/logs", "/charts"):
            status, text = await one.get(path)
            assert (status, "<h1>" in text) == (200, True), path
        assert "They have not been asked yet" in (await one.get("/"))[1]
        assert (await one.get("/healthz")) == (200, "OK\n")
        assert (await one.get("/style.css"))[0] == 200
        assert "nothing was measured yet" in (await one.get("/chart.svg", of="adds"))[1]

    browsed(world, story)


def test_the_cluster_at_a_glance(world: World) -> None:
    """Each bookie with a link to its page; findings with the next command; names are foreign text."""

    async def story(one: Browser) -> None:
        await world.store.write_cookie("lost:1", b"cookie", NEW)
        await look(one.cluster)
        await world.store.remove_cookie("lost:1")
        _, text = await one.get("/")
        assert '<a href="/bookie?id=b0">b0</a>' in text
        assert '<span aria-hidden="true">✕</span> down' in text
        assert "quire decommission lost:1" in text
        status, text = await one.get("/bookie", id="b0")
        assert (status, "writable" in text) == (200, True)
        status, text = await one.get("/bookie", id=EVIL)
        assert (status, "<script>" in text, "&lt;script&gt;" in text) == (404, False, True)
        assert (await one.get("/chart.svg", of=EVIL))[0] == 404
        assert " b1</text>" in (await one.get("/chart.svg", of="disk"))[1]
        assert " b1</text>" not in (await one.get("/chart.svg", of="disk", bookie="b0"))[1]

    browsed(world, story)


def test_ledgers_are_listed_found_and_shown(world: World) -> None:
    """By id and by custom metadata, which is foreign text; with fragments over bookies."""

    async def story(one: Browser) -> None:
        ledger = 4_000_000_000
        made = LedgerMetadata.new(2, 2, 2, ["b0", "gone:1"], custom={EVIL: EVIL.encode() + b"\xff"})
        await world.store.create_ledger(ledger, made)
        try:
            await look(one.cluster)
            for path, query in (
                ("/ledgers", {}),
                ("/ledgers", {"find": EVIL}),
                ("/ledgers", {"find": str(ledger)}),
                ("/ledger", {"id": ledger}),
            ):
                status, text = await one.get(path, **query)
                assert (status, EVIL in text, SAFE in text, str(ledger) in text) == (200, False, True, True), path
            assert '<td class="held writable">0</td>' in text
            assert "1 have" in (await one.get("/ledgers", find=EVIL))[1]
            assert (await one.get("/ledgers", after=ledger))[1].count("There is no ledger") == 1
        finally:
            await world.store.delete_ledger(ledger)
        assert (await one.get("/ledger", id=ledger))[0] == 404

    browsed(world, story)


@pytest.mark.parametrize("text", ["", "x", "-2", str(1 << 63), "9" * 50, "1.5", "٣x"])
def test_no_number(world: World, text: str) -> None:
    """A number that can't be is a page that says so."""

    async def story(one: Browser) -> None:
        assert (await one.get("/ledger", id=text))[0] == 404
        if text:
            assert (await one.get("/ledgers", after=text))[0] == 404

    browsed(world, story)


def test_entries_on_request(world: World) -> None:
    """They are foreign text; the password of the ledger opens them, and is on no page."""

    async def story(one: Browser) -> None:
        writer = await one.cluster.client.create_ledger(password=b"open sesame")
        await writer.append_many([EVIL.encode(), b"two"])
        await writer.close()
        status, text = await one.post("/ledger", {"password": "wrong"}, id=writer.id)
        assert (status, "this is not the password" in text, "wrong" in text) == (200, True, False)
        form = {"password": "open sesame", "first": 0, "count": 2, "form": "text"}
        status, text = await one.post("/ledger", form, id=writer.id)
        assert (status, EVIL in text, SAFE in text, "sesame" in text) == (200, False, True, False)
        assert (
            "There is no entry there: the last that can be read is 1"
            in (await one.post("/ledger", {**form, "first": 7}, id=writer.id))[1]
        )
        for wrong in ({"count": 0}, {"count": 1000}, {"form": "xml"}, {"first": "-1"}):
            assert (await one.post("/ledger", {**form, **wrong}, id=writer.id))[0] == 404
        await one.cluster.client.delete_ledger(writer.id)
        assert (await one.post("/ledger", form, id=writer.id))[0] == 404

    browsed(world, story)


def test_entries_that_no_bookie_has(world: World) -> None:
    """The page says why, and shows the ledger all the same."""

    async def story(one: Browser) -> None:
        ledger = 4_000_000_001
        await world.store.create_ledger(ledger, LedgerMetadata.new(1, 1, 1, ["gone:1"]))
        try:
            status, text = await one.post("/ledger", {}, id=ledger)
        finally:
            await world.store.delete_ledger(ledger)
        assert (status, "they can&#39;t be read" in text, "gone:1" in text) == (200, True, True)

    browsed(world, story)


def test_ledgers_that_wait_for_repair(world: World) -> None:
    """With what they lack."""

    async def story(one: Browser) -> None:
        await world.store.repairs.mark(4_000_000_002, ["lost:1"], None)
        try:
            status, text = await one.get("/repair")
        finally:
            lock = await world.store.repairs.take()
            assert lock is not None
            await world.store.repairs.finish(lock)
        assert (status, "4000000002" in text, "lost:1" in text, "queued" in text) == (200, True, True, True)
        assert "The repair queue is empty" in (await one.get("/repair"))[1]

    browsed(world, story)


def test_named_logs(world: World) -> None:
    """With owner, segments, cursors; names are foreign text."""

    async def story(one: Browser) -> None:
        logs, name = Logs(one.cluster.client, LogOptions()), "a <b>&'\""
        await logs.create(name)
        try:
            owner = await logs.own(name, address="<i>here</i>")
            await owner.append(b"one")
            cursor = await logs.cursor(name, "reports", start="begin")
            await look(one.cluster)
            status, text = await one.get("/logs")
            assert (status, "<b>&" in text, "&lt;b&gt;" in text, "&lt;i&gt;here" in text) == (200, False, True, True)
            status, text = await one.get("/log", name=name)
            assert (status, "<i>" in text, "reports" in text, "owner" in text) == (200, False, True, True)
            ledger = (await logs.info(name)).ledger
            assert f'<a href="/ledger?id={ledger}">{ledger}</a>' in text
            await cursor.close()
            await owner.close()
        finally:
            await logs.delete(name)
            await logs.close()
        assert (await one.get("/log", name=name))[0] == 404
        assert (await one.get("/log", name=EVIL))[0] == 404

    browsed(world, story)


def test_nothing_is_changed_unless_it_is_allowed(world: World) -> None:
    """Then a bookie takes no new entries, and takes them again; repair is turned off, and on."""

    async def story(plain: Browser) -> None:
        await look(plain.cluster)
        forms = ("/bookie", "/repair")
        assert not any(("POST", path) in Pages(plain.cluster, Views()).routes for path in forms)
        assert "<button name" not in (await plain.get("/bookie", id="b0"))[1] + (await plain.get("/repair"))[1]
        one = Browser(plain.cluster, changes=True)
        assert "Take no new entries" in (await one.get("/bookie", id="b0"))[1]
        bookie = next(each for each in world.bookies if each.id == "b0")
        for word in ("on", "off"):
            assert (await one.post("/bookie", {"readonly": word}, id="b0"))[0] == 303
            assert bookie.read_only == (word == "on")
        await world.writable(3)
        for word in ("off", "on"):
            assert (await one.post("/repair", {"repair": word}))[0] == 303
            assert await world.store.repairs.enabled() == (word == "on")
        status, text = await one.post("/bookie", {"readonly": "on"}, id="none:1")
        assert (status, "it announced no HTTP address" in text) == (502, True)
        for path in forms:
            assert (await one.post(path, {"readonly": "x", "repair": "x"}, id="b0"))[0] == 404

    browsed(world, story)


def test_a_page_that_takes_too_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and says so."""
    monkeypatch.setattr(module, "ANSWER_S", 0.01)

    async def story(one: Browser) -> None:
        monkeypatch.setattr(one.cluster.client.store, "ledger_ids", lambda *_: Deferred())
        status, text = await one.get("/ledgers")
        assert (status, "did not answer within" in text) == (504, True)

    browsed(world, story)
