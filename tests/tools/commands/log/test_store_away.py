"""`quire log …` where the metadata store can't be reached, or is not there: one line that says so, in time."""

import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import pytest
from typer.main import get_command_name

from quire.tools.commands.log import bench, group
from tests.tools.command import Done, Warm, environment, warm

# SPDX-License-Identifier: Apache-2.0

URI = "the store that is away"
COMMANDS = {
    "create": ["a"],
    "set": ["a", "roll_records=5"],
    "rename": ["a", "b"],
    "list": [],
    "show": ["a"],
    "append": ["a"],
    "read": ["a"],
    "tail": ["a"],
    "seek": ["a", "2026-01-01T00:00:00Z"],
    "own": ["a"],
    "transfer": ["a"],
    "move": ["a", "eu"],
    "mirror": ["a", "--to", URI],
    "delete": ["a", "--yes"],
    "txns": ["a"],
    "janitor": ["a"],
    "adopt": ["a", "5"],
    "compact": ["a"],
    "merge": ["a"],
    "cursors": ["a"],
    "snapshots": ["a"],
    "trim": ["a", "--before", "1", "--yes"],
    "truncate": ["a", "--yes"],
    "terminate": ["a", "--yes"],
    "tidy": [],
    "orphans": [],
    "check": ["a"],
    "give-up": ["a", "0", "--yes"],
    "purge": ["--of", "2c0c8f33-7f2b-4d8c-9d2e-5b6f0a1e7f10", "--yes"],
    "bench append": [],
    "bench read": [],
}
AT_ONCE = 5
QUESTIONS = {"delete", "trim", "truncate", "terminate", "give-up", "purge"}  # they say what they will do first


def test_all_commands_are_here() -> None:
    """A new one has to be, too."""
    benches = {f"bench {get_command_name(each.callback.__name__)}" for each in bench.app.registered_commands}
    assert set(COMMANDS) == {*group.COMMANDS, *benches}


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(scope="module")
def closed() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def free() -> "Queue[Warm]":
    """Processes that take commands; each is in use once at a time, for most commands wait."""
    found: Queue[Warm] = Queue()
    for _ in range(AT_ONCE):
        found.put(warm().another())
    return found


def ended(free: "Queue[Warm]", tmp_path: Path, uri: str, commands: Iterable[str]) -> dict[str, Done]:
    """How each command ended, with a session timeout of a second; several at a time."""
    conf = tmp_path / "client.conf"
    conf.write_text("zkTimeout=1000\n")
    around = environment(uri) | {"QUIRE_CONF": str(conf)}

    def run(words: str) -> Done:
        one = free.get()
        try:
            given = [uri if each == URI else each for each in COMMANDS[words]]
            return one.run(["log", *words.split(), *given], b"x", around)
        finally:
            free.put(one)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(commands, pool.map(run, commands), strict=True))


def said(done: Done, words: str) -> str:
    """The one line of a failure, behind the question if there is one."""
    assert done.code == 1, done.err
    assert done.raw == b""
    *before, line = done.err.splitlines()
    assert len(before) == (words in QUESTIONS), done.err
    return line


def test_a_zookeeper_that_is_not_there(free: "Queue[Warm]", tmp_path: Path, closed: int) -> None:
    """It is waited for no longer than the session timeout of the configuration."""
    uri = f"zk://127.0.0.1:{closed}/ledgers"
    for words, done in ended(free, tmp_path, uri, COMMANDS).items():
        line = said(done, words)
        assert line.startswith(f"quire: MetaStore: ZooKeeper at {uri} did not answer within 1 s: ")
        assert line.endswith("(code -18); check --metadata and whether the store is up")


def test_a_zookeeper_that_says_nothing(free: "Queue[Warm]", tmp_path: Path, silent: int) -> None:
    """The same for one that takes connections."""
    uri = f"zk://127.0.0.1:{silent}/ledgers"
    for words, done in ended(free, tmp_path, uri, ["show", "append", "orphans"]).items():
        assert f"ZooKeeper at {uri} did not answer within 1 s" in said(done, words)


def test_a_file_that_is_not_there(free: "Queue[Warm]", tmp_path: Path) -> None:
    """The command that makes a cluster is named, and no file is made."""
    uri = f"sqlite://{tmp_path}/no/such.db"
    for words, done in ended(free, tmp_path, uri, COMMANDS).items():
        line = said(done, words)
        assert line.startswith(f"quire: NoCluster: {uri} holds no cluster yet: make one with `quire metadata init ")
        assert not (tmp_path / "no").exists()
