"""What docs/logs.md shows works as shown, over SQLite and over ZooKeeper: the commands, and the first program."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.command import PROGRAM, environment, warm
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

PAGE = (Path(__file__).parents[4] / "docs" / "logs.md").read_text(encoding="utf-8")


def shown(section: str) -> str:
    """The program of a section."""
    found = re.search(rf"^## {section}\n+```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module", params=["sqlite", "zookeeper"])
def place(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URI of a cluster of three bookies."""
    with LocalCluster(tmp_path_factory.mktemp(request.param), 3, request.param, SMALL) as cluster:
        yield cluster.uri


def test_the_commands(place: str) -> None:
    """Appended lines are read, followed, and counted."""
    done = warm().shell(shown("From a shell"), environment(place))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "roll_bytes=67108864" in lines[0]
    assert lines[1:3] == ["0 to 1", "k2 two"]
    assert [line.split("\t")[0::2] + line.split("\t")[3:] for line in lines[3:5]] == [
        ["0", "k1", "k1 one"],
        ["1", "k2", "k2 two"],
    ]
    assert any(re.fullmatch(r"end: +2", line) for line in lines)
    assert re.match(r"orders +open +0 +1 +- +0 +2 +1 ", lines[-1])


def test_the_first_program(place: str) -> None:
    """It prints where its records are, and reads them."""
    program = shown("A first program").replace('"orders"', '"program"').replace("timeout=1.0", "timeout=0.2")
    done = subprocess.run(
        [*PROGRAM, program], env=environment(place), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Position(index=0, at=0, duplicate=False)",
        "Appended(indexes=range(1, 3), positions=[3, 6], duplicates=0)",
        "0 b'k' b'one'",
        "1 None b'two'",
        "2 None b'three'",
    ]
