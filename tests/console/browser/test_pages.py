"""The console in Chromium: over a cluster that works, while a bookie dies, over an empty one."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quire.client import connect
from quire.log import connect as connect_logs
from quire.tools.local_cluster.cluster import LocalCluster
from tests.console.browser.conftest import PICTURES, Site
from tests.console.test_daemon import console
from tests.tools.command import environment, ok

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# SPDX-License-Identifier: Apache-2.0

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
PASSWORD = "open sesame"
PATHS = ("/", "/ledgers", "/repair", "/logs", "/charts")
LOAD_S = 180 if PICTURES else 0
Take = Callable[["Page", str], Path]


@pytest.fixture(scope="module")
def ledger(cluster: LocalCluster) -> int:
    """A ledger with entries of several kinds behind a password, and foreign text wherever it may be."""
    with connect(cluster.uri) as bk:
        for number in range(60):
            custom = {"application": b"orders", "part": str(number).encode()}
            with bk.create_ledger(custom_metadata=custom) as writer:
                writer.append(b"x" * 1000)
        with bk.create_ledger(password=PASSWORD.encode(), custom_metadata={EVIL: EVIL.encode()}) as writer:
            writer.append_many([b"plain text", json.dumps({"order": 7, "items": ["a"]}).encode(), EVIL.encode()])
        return writer.id


@pytest.fixture(scope="module")
def log(cluster: LocalCluster) -> Iterator[str]:
    """A log with an owner and a cursor that is behind."""
    with connect_logs(cluster.uri) as logs:
        logs.create("orders")
        with logs.own("orders", address="10.0.0.9:7000") as owner, logs.cursor("orders", "reports", start="begin"):
            owner.append_many([f"order {number}".encode() for number in range(1000)])
            yield "orders"


@pytest.fixture(scope="module", autouse=True)
def load(cluster: LocalCluster) -> Iterator[None]:
    """Appends all the while, so that there is something to be seen."""
    command = [sys.executable, "-m", "quire.tools", "bench", "write", "--size", "200", "--entries", "10000000"]
    process = subprocess.Popen(
        [*command, "--rate", "1500"],
        env=environment(cluster.uri),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield
    process.kill()
    process.wait()


def test_every_page(site: Site, ledger: int, log: str) -> None:
    """Wide and on a phone, light and dark: it fits, has one heading, and does nothing that it may not."""
    paths = [*PATHS, f"/ledger?id={ledger}", f"/log?name={log}", "/ledgers?find=application", "/nothing"]
    grounds = set()
    for width, scheme in ((1100, "light"), (390, "dark")):
        with site.window(width, scheme) as page:
            for path in paths[:-1]:
                site.open(page, path)
                assert page.locator("h1").count() == 1, path
                assert page.evaluate("document.documentElement.scrollWidth") <= width, path
                for image in page.locator("img").all():
                    assert image.evaluate("it => it.complete && it.naturalWidth > 0"), path
                    assert image.get_attribute("alt")
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
    assert site.faults == []


def test_the_keyboard_is_enough(site: Site) -> None:
    """The first stop leads past the navigation; each page is reached, and what has the focus shows it."""
    with site.window() as page:
        site.open(page)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        site.open(page)
        for _ in range(3):
            page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        page.wait_for_url("**/ledgers")
        page.locator("#find").focus()
        page.keyboard.type("0")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:text('Ledger 0')")
    assert site.faults == []


def test_entries_are_shown_on_request(site: Site, ledger: int, picture: Take) -> None:
    """With the password, which is in no address; as what they are, foreign mark-up included."""
    with site.window() as page:
        site.open(page, f"/ledger?id={ledger}")
        page.locator("#password").fill("wrong")
        page.get_by_role("button", name="Show").click()
        page.wait_for_selector("text=this is not the password")
        page.locator("#form").select_option("json")
        page.locator("#password").fill(PASSWORD)
        page.get_by_role("button", name="Show").click()
        page.wait_for_selector("h3:text('Entry 1')")
        assert page.locator("pre").nth(1).inner_text().splitlines()[1] == '  "order": 7,'
        page.locator("#form").select_option("text")
        page.locator("#password").fill(PASSWORD)
        page.get_by_role("button", name="Show").click()
        page.wait_for_selector("pre:text('plain text')")
        assert page.locator("pre").nth(2).inner_text() == EVIL
        assert PASSWORD not in page.url
        assert PASSWORD not in page.content()
    assert site.faults == []


def test_a_page_renews_itself_while_a_bookie_dies(
    site: Site, cluster: LocalCluster, ledger: int, log: str, picture: Take
) -> None:
    """It says so without being loaded again, and keeps what has the focus; its ledgers get other bookies."""
    with site.window() as page, site.window(1100, "dark") as dark:
        site.open(page)
        page.wait_for_selector("text=orders", state="detached")
        page.wait_for_selector("td.state, span.state.writable")
        page.wait_for_timeout(1000 * LOAD_S)  # for the charts of the manual
        pictures(
            site,
            page,
            dark,
            picture,
            {"console": "/", "console-ledgers": "/ledgers", "console-log": f"/log?name={log}"},
        )
        site.open(page)
        lost = cluster.ids[-1]
        page.get_by_role("link", name=lost).focus()
        page.evaluate("window.here = true")
        cluster.kill(lost)
        page.wait_for_selector(f"tr:has-text('{lost}') >> text=down")
        page.wait_for_selector("text=it is known, and away")
        assert page.evaluate("window.here"), "it was not loaded again"
        assert page.evaluate("document.activeElement.textContent") == lost
        pictures(site, page, dark, picture, {"console-killed": "/"})
        cluster.restart(lost)
        page.wait_for_selector(f"tr:has-text('{lost}') >> text=writable")
    assert site.faults == []


def pictures(site: Site, light: "Page", dark: "Page", picture: Take, paths: dict[str, str]) -> None:
    """Takes both pictures of each page."""
    for name, path in paths.items():
        for page, scheme in ((light, "light"), (dark, "dark")):
            site.open(page, path)
            assert picture(page, f"{name}-{scheme}").stat().st_size < 100_000


def test_an_empty_cluster(browser: "Browser", tmp_path: Path) -> None:
    """Without a bookie, a ledger, a log: each page says so, and what to do; what may be changed is, by buttons."""
    uri = f"sqlite://{tmp_path}/metadata.db"
    ok("metadata", "init", metadata=uri)
    with console(tmp_path, uri, "--allow-changes") as ready:
        site = Site(browser, ready["ready"], Path(ready["token_file"]).read_text().strip())
        with site.window() as page:
            site.open(page)
            page.wait_for_selector("text=No bookie is known")
            page.wait_for_selector("text=no ledger with the usual 3 copies can be made")
            for path in PATHS[1:]:
                site.open(page, path)
            site.open(page, "/repair")
            page.get_by_role("button", name="Turn repair off").click()
            page.get_by_role("button", name="Turn repair on").click()
            page.get_by_role("button", name="Turn repair off").wait_for()
    assert site.faults == []


def test_a_console_that_is_gone(browser: "Browser", tmp_path: Path) -> None:
    """The page that is open says that it is not up to date."""
    uri = f"sqlite://{tmp_path}/metadata.db"
    ok("metadata", "init", metadata=uri)
    with console(tmp_path, uri) as ready:
        site = Site(browser, ready["ready"], Path(ready["token_file"]).read_text().strip())
        window = site.window()
        page = window.__enter__()
        site.open(page)
        assert page.locator("#stale").is_hidden()
    page.wait_for_selector("#stale", state="visible")
    window.__exit__(None, None, None)


def test_without_the_token(browser: "Browser", site: Site) -> None:
    """There is no page, and nothing of one."""
    with Site(browser, site.url, "x" * 64).window() as page:
        answer = page.goto(site.url)
        assert answer is not None
        assert answer.status == 401
        assert "bookie" not in page.content().lower()
