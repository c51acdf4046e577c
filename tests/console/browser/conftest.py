"""Chromium, and consoles that it looks at."""

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.console.test_daemon import console
from tests.requirements import need
from tests.tools.conftest import SMALL

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# SPDX-License-Identifier: Apache-2.0

WAIT_MS = 120_000  # it ends what hangs
PICTURES = os.environ.get("QUIRE_PICTURES")  # the folder of the manual's pictures, where they are to be made again
COLOURS, HEIGHT_MAX = 96, 1250  # of a picture


class Site:
    """A console, and windows of Chromium on it, each with what a page may not do: see `faults`."""

    def __init__(self, browser: "Browser", url: str, token: str) -> None:
        self._browser = browser
        self.url = url
        self._token = token
        self.faults: list[str] = []

    def __repr__(self) -> str:
        return f"Site({self.url})"

    @contextmanager
    def window(self, width: int = 1100, scheme: Any = "light") -> Iterator["Page"]:
        """A window of that width.  Errors, messages and requests for other hosts are faults."""
        context = self._browser.new_context(
            viewport={"width": width, "height": 700},
            color_scheme=scheme,
            http_credentials={"username": "anybody", "password": self._token},
        )
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        host = urlsplit(self.url).netloc

        def asked(request: Any) -> None:
            if urlsplit(request.url).netloc != host:
                self.faults.append(f"it asks {request.url}")

        page.on("request", asked)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda said: said.type == "error" and self.faults.append(f"{said.text} at {page.url}"))
        try:
            yield page
        finally:
            context.close()

    def open(self, page: "Page", path: str = "") -> None:
        """Opens a page and waits for what it shows."""
        page.goto(self.url + path.lstrip("/"), wait_until="networkidle")


@pytest.fixture(scope="package")
def browser() -> Iterator["Browser"]:
    need("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        # A sandbox of Chromium's own can't be had by root, nor in most containers; it sees pages of ours alone.
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def cluster(browser: "Browser") -> Iterator[LocalCluster]:
    """Four bookies and AutoRecovery, at a short path, which is on the pictures."""
    with (
        tempfile.TemporaryDirectory(prefix="quire-") as place,
        LocalCluster(Path(place) / "demo", 4, options=SMALL, autorecovery=True) as made,
    ):
        yield made


@pytest.fixture(scope="package")
def site(browser: "Browser", cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The console of that cluster."""
    with console(tmp_path_factory.mktemp("home"), cluster.uri) as ready:
        yield Site(browser, ready["ready"], Path(ready["token_file"]).read_text().strip())


@pytest.fixture(scope="package")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Callable[["Page", str], Path]:
    """Takes a picture of a page and names its file: with few colours, into the manual where that is wanted."""
    folder = Path(PICTURES) if PICTURES else tmp_path_factory.mktemp("pictures")

    def take(page: "Page", name: str) -> Path:
        from PIL import Image

        path = folder / f"{name}.png"
        height = min(HEIGHT_MAX, page.evaluate("document.documentElement.scrollHeight"))
        part: Any = {"x": 0, "y": 0, "width": page.evaluate("innerWidth"), "height": height}
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=part)))
        shot.convert("RGB").quantize(COLOURS).save(path, optimize=True)
        return path

    return take
