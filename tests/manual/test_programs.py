"""The programs of docs/examples end with one line where they can't begin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.manual.blocks import ROOT
from tests.requirements import need
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a cluster that was stopped: its store is a file, and is there."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 1, options=SMALL) as cluster:
        return cluster.uri


@pytest.mark.parametrize(
    ("program", "given", "said"),
    [
        ("register.py", [], "usage: register.py METADATA LOG NAME"),
        ("register.py", ["URI", "nothing", "one"], "NoSuchLog: there is no log 'nothing'"),
        (
            "register.py",
            ["sqlite:///nowhere/metadata.db", "nothing", "one"],
            "NoCluster: sqlite:///nowhere/metadata.db",
        ),
        ("register.py", ["nonsense", "nothing", "one"], "ValueError: "),
        ("config_store.py", [], "usage: config_store.py METADATA LOG HOST:PORT"),
        ("config_store.py", ["URI", "nothing", "127.0.0.1:0"], "NoSuchLog: there is no log 'nothing'"),
        ("config_store.py", ["URI", "nothing", "127.0.0.1"], "ValueError: "),
        (
            "capture",
            ["publish", "--metadata", "sqlite:///nowhere/metadata.db", "--db", "nothing.db", "--table", "items"],
            "ValueError: there is no database nothing.db",
        ),
        (
            "shop/pipeline.py",
            ["--metadata", "sqlite:///nowhere/metadata.db"],
            "NoCluster: sqlite:///nowhere/metadata.db",
        ),
    ],
)
def test_what_is_wrong_is_one_line(program: str, given: list[str], said: str, uri: str, tmp_path: Path) -> None:
    """It names the error and the thing, without a traceback."""
    if program.startswith("shop"):
        need("matplotlib")
    command = [sys.executable, str(ROOT / "docs" / "examples" / program), *(uri if it == "URI" else it for it in given)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(said)
