"""`quire local` with a console beside it."""

import os
import select
from pathlib import Path
from typing import Any

from quire.conf.version import own_version
from tests.console.test_daemon import shown, status
from tests.reactor import between_looks
from tests.tools.commands.test_local import WAIT_S, Local

# SPDX-License-Identifier: Apache-2.0


def test_a_console_is_beside_the_bookies(tmp_path: Path) -> None:
    """Its address and the file of its token are printed; it asks the bookies, and stops with them."""
    with Local("--console", "--bookies", 1, "--dir", tmp_path / "cluster") as local:
        found: dict[str, Any] = local.report["console"]
        handle = os.pidfd_open(found["pid"])
        assert status(found["url"]) == 401
        while "</span> writable" not in (text := shown(found["url"], found["token_file"])):
            between_looks()
        assert f"<td>{own_version()}</td>" in text, "it has asked over HTTP, with the bookie's own token"
        local.process.terminate()
        assert local.process.wait(WAIT_S) == 0
        assert select.select([handle], [], [], WAIT_S)[0]
        os.close(handle)


def test_a_console_with_tls(tmp_path: Path) -> None:
    """It reaches bookies as their clients do."""
    with Local("--console", "--bookies", 1, "--tls", "--dir", tmp_path / "cluster") as local:
        found: dict[str, Any] = local.report["console"]
        while "Rack" not in (text := shown(found["url"], found["token_file"])):
            between_looks()
        assert f"<td>{own_version()}</td>" in text, "it has asked over HTTP"
        assert "</span> writable" in text
        assert "</span> silent" not in text
        assert "Traceback" not in (tmp_path / "cluster/console/console.log").read_text()
