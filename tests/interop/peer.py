#!/usr/bin/env python3
"""
The peer: a real ZooKeeper, real Apache BookKeeper bookies and their Java client, on this machine.

    python tests/interop/peer.py fetch                                    # jars by Maven, once
    python tests/interop/peer.py cluster --bookies 3               # runs until interrupted; one JSON line when it is up
    python tests/interop/peer.py drive METADATA-URI read ledger=3         # one command of Peer.java
    python tests/interop/peer.py shell METADATA-URI listbookies -rw       # Apache's `bookkeeper shell`

Knows: how to start, stop, kill, pause and measure these processes; the Java settings that serve them best on a small
machine.
Does not know: quire.  Its bookies join by registering at the same metadata URI.
Everything it keeps lies in a cache folder of the user's home (`--cache`, `QUIRE_PEER`), everything a cluster writes in
a temporary folder. It ends only the processes that it started.  The version is the one that `pom.xml` names, or that of
`QUIRE_PEER_VERSION` in the environment; each has a folder of its own in the cache.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

HERE = pathlib.Path(__file__).resolve().parent
LOG4J = """status=error
appender.file.type=Console
appender.file.name=C
appender.file.target=SYSTEM_ERR
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %-5p %c{1} %m %X%n%ex
rootLogger.level=%LEVEL%
rootLogger.appenderRef.c.ref=C
"""
ADD_OPENS = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
]
BOOKIE_OPTIONS = [
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=10",
    "-XX:+ParallelRefProcEnabled",
    "-XX:+DisableExplicitGC",
    "-Dio.netty.leakDetectionLevel=disabled",
]
PORTS = (12_000, 20_000)
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 15.0


class PeerError(Exception):
    """A command of the Java client failed; `code` is BookKeeper's number, 0 when it was something else."""

    def __init__(self, name: str, code: int, message: str) -> None:
        super().__init__(f"{name} ({code}): {message}")
        self.name, self.code = name, code


def cache() -> pathlib.Path:
    return pathlib.Path(os.environ.get("QUIRE_PEER") or pathlib.Path.home() / ".cache" / "quire-peer")


def version() -> str:
    """Of Apache BookKeeper, for this process and those that it starts."""
    found = re.search("<bookkeeper.version>(.*)</", (HERE / "pom.xml").read_text())
    assert found is not None
    return os.environ.get("QUIRE_PEER_VERSION") or found[1]


def class_path() -> str:
    """The jars and the compiled driver of Apache BookKeeper."""
    return compiled(cache() / version(), HERE / "Peer.java", f"-Dbookkeeper.version={version()}")


def compiled(home: pathlib.Path, source: pathlib.Path, *words: str, pom: str = "pom.xml") -> str:
    """
    The class path of a driver and of what the `pom` beside it names, made once and kept in `home`; `words` are
    Maven's.
    """
    jars, classes = home / "lib", home / "classes"
    if not (home / "complete").exists():
        shutil.rmtree(jars, ignore_errors=True)
        words = ("dependency:copy-dependencies", f"-DoutputDirectory={jars}", *words)
        subprocess.run(["mvn", "-q", "-B", "-f", source.with_name(pom), *words], check=True, stdout=sys.stderr)
        (home / "complete").touch()
    made = classes / source.with_suffix(".class").name
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", classes, source], check=True, stdout=sys.stderr)
    return f"{classes}:{jars}/*"


def free_port() -> int:
    """
    A port without a listener, below the range from which outgoing connections take theirs: a bookie that was killed
    must find it free when it comes back.
    """
    dice = random.SystemRandom()
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", dice.randrange(*PORTS)))
            return int(probe.getsockname()[1])


def tail_of(log: pathlib.Path, size: int = 2000) -> str:
    return log.read_text(errors="replace")[-size:] if log.exists() else ""


def java_command(
    options: Sequence[str],
    arguments: Sequence[str],
    folder: pathlib.Path,
    level: str = "warn",
    classes: str | None = None,
) -> list[str]:
    """
    A Java process that dies with this one where `setpriv` can arrange that, its log4j set to `level`; with another
    class path than that of Apache BookKeeper, where one is given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"log4j2-{level}.properties"
    if not config.exists():
        config.write_text(LOG4J.replace("%LEVEL%", level))
    leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [
        *leash,
        "java",
        *ADD_OPENS,
        f"-Dlog4j2.configurationFile={config}",
        *options,
        "-cp",
        classes or class_path(),
        *arguments,
    ]


class Process:
    """One child with its log."""

    def __init__(self, command: Sequence[str], log: pathlib.Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self.child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def wait_for(self, port: int) -> None:
        """Returns once the port answers; RuntimeError with the end of the log when the process ends first."""
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            if not self.alive:
                raise RuntimeError(f"{self.log.stem} ended with status {self.child.returncode}:\n{tail_of(self.log)}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                return
            time.sleep(0.05)
        raise TimeoutError(f"{self.log.stem} does not listen on port {port}:\n{tail_of(self.log)}")

    def wait_for_text(self, text: str) -> None:
        """Returns once its log has the text: a bookie whose start failed says why, and goes on without a port."""
        end = time.monotonic() + START_SECONDS_MAX
        while text not in tail_of(self.log, 20_000):
            if time.monotonic() > end:
                raise TimeoutError(f"{self.log.stem} never said {text!r}:\n{tail_of(self.log)}")
            time.sleep(0.05)

    def stop(self) -> int:
        """SIGTERM, then SIGKILL after a while; the exit status."""
        if self.alive:
            self.child.send_signal(signal.SIGCONT)
            self.child.terminate()
            try:
                self.child.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.child.kill()
        return self.child.wait()

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def cpu_seconds(self) -> float:
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        return resident_mb(self.child.pid)

    def written_bytes(self) -> int:
        """Bytes that this process sent towards the disk."""
        return next(
            int(line.split()[1])
            for line in pathlib.Path(f"/proc/{self.child.pid}/io").read_text().splitlines()
            if line.startswith("write_bytes")
        )


def resident_mb(pid: int) -> float:
    line = next(
        line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


class ZooKeeper:
    """A ZooKeeper server of one node, from the peer's own jars."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self.start()

    def start(self) -> None:
        options = ["-Xmx256m", "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=*"]
        server = [
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(self.port),
            str(self.folder / "zookeeper"),
            "500",
        ]  # tick 500 ms: short sessions are granted
        self.process = Process(java_command(options, server, self.folder, "warn"), self.folder / "zookeeper.log")
        self.process.wait_for(self.port)

    def uri(self, layout: str = "hierarchical", root: str = "/ledgers") -> str:
        return f"zk+{layout}://127.0.0.1:{self.port}{root}"

    def stop(self) -> None:
        self.process.stop()


class JavaBookie:
    """One Apache bookie; its directories and port outlive a stop or a kill."""

    def __init__(
        self,
        folder: pathlib.Path,
        metadata: str,
        settings: Mapping[str, object] = {},
        heap: str = "256m",
        direct: str = "256m",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port, self.heap, self.direct = folder, free_port(), heap, direct
        self.id = f"127.0.0.1:{self.port}"
        self.conf = folder / "bookie.conf"
        self.conf.write_text(
            "".join(
                f"{key}={value}\n"
                for key, value in (bookie_settings(folder, metadata, self.port) | dict(settings)).items()
            )
        )
        self.start()

    def start(self, wait: bool = True) -> None:
        options = [f"-Xms{self.heap}", f"-Xmx{self.heap}", f"-XX:MaxDirectMemorySize={self.direct}", *BOOKIE_OPTIONS]
        self.process = Process(
            java_command(options, ["org.apache.bookkeeper.server.Main", "-c", str(self.conf)], self.folder, "warn"),
            self.folder / "bookie.log",
        )
        if wait:
            self.process.wait_for(self.port)

    def restart(self) -> None:
        """On its old port and data; nothing when it runs."""
        if not self.process.alive:
            self.start()

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


def bookie_settings(folder: pathlib.Path, metadata: str, port: int) -> dict[str, object]:
    """The settings that served the peer best on two cores."""
    return {
        "metadataServiceUri": metadata,
        "bookiePort": port,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "zkTimeout": 4000,
        "journalDirectories": folder / "journal",
        "ledgerDirectories": folder / "ledgers",
        "indexDirectories": folder / "index",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": 128,
        "dbStorage_readAheadCacheMaxSizeMb": 64,
        "dbStorage_rocksDB_blockCacheSize": 16777216,
        "journalSyncData": "true",
        "journalWriteData": "true",
        "journalMaxGroupWaitMSec": 1,
        "journalAdaptiveGroupWrites": "true",
        "httpServerEnabled": "false",
        "enableStatistics": "false",
        "prometheusStatsHttpEnable": "false",
        # With the limits of 10,000 a replica that lags is refused, and under plain load the ledger closes.
        "maxPendingAddRequestsPerThread": 0,
        "maxPendingReadRequestsPerThread": 0,
        "serverTcpNoDelay": "true",
        "nettyMaxFrameSizeBytes": 5253120,
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.98,
    }


class Driver:
    """A long-lived Java process that takes commands by lines, and answers each with a line of JSON."""

    def __init__(self, command: Sequence[str]) -> None:
        self.lock = threading.Lock()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )

    def call(self, command: str, seconds: float = 120.0, **options: object) -> dict[str, Any]:
        """One command, answered within `seconds`, else its process is killed and TimeoutError raised."""
        words = [command, *(f"{key}={value}" for key, value in options.items())]
        stdin, stdout = self.child.stdin, self.child.stdout
        assert stdin is not None
        assert stdout is not None
        with self.lock:
            late = threading.Timer(seconds, self.child.kill)
            late.start()
            begun = time.monotonic()
            try:
                stdin.write("\t".join(words) + "\n")
                stdin.flush()
                while (line := stdout.readline()) and not line.startswith("{"):
                    pass
            finally:
                late.cancel()
        if not line:
            if time.monotonic() - begun >= seconds:
                raise TimeoutError(f"the Java process gave no answer to {' '.join(words)!r} within {seconds:g} s")
            raise RuntimeError(f"the Java process ended during {' '.join(words)!r}: {self.logged()}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise PeerError(found["error"], found["code"], found["message"])
        return found

    def logged(self, size: int = 2000) -> str:
        """The end of what the Java process logged: its errors."""
        self.errors.seek(0)
        return self.errors.read()[-size:].decode(errors="replace")

    def close(self) -> None:
        if self.child.stdin is not None:
            with contextlib.suppress(OSError):
                self.child.stdin.close()
        try:
            self.child.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        if self.child.stdout is not None:
            self.child.stdout.close()
        self.errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class JavaClient(Driver):
    """
    Apache's client in one long-lived Java process: `client.call("read", ledger=3)` -> dict, PeerError when the command
    failed. The keyword arguments of the constructor are the defaults of every call.
    """

    def __init__(
        self, metadata: str, folder: pathlib.Path | None = None, heap: str = "512m", **defaults: object
    ) -> None:
        self.folder = folder or cache()
        words = [f"{key}={value}" for key, value in ({"metadata": metadata} | defaults).items()]
        options = [
            f"-Xms{heap}",
            f"-Xmx{heap}",
            f"-XX:MaxDirectMemorySize={heap}",
            "-XX:+UseG1GC",
            "-Dio.netty.leakDetectionLevel=disabled",
        ]
        super().__init__(java_command(options, ["Peer", "serve", *words], self.folder))


def shell(metadata: str, *arguments: str, conf: pathlib.Path | None = None) -> str:
    """
    What one command of Apache's `bookkeeper shell` prints, most of it through its logger: until 4.17 in sentences, from
    4.18 on as a message and, in braces, its attributes.  `conf`: of the bookie on whose directories it works.
    RuntimeError with that when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="quire-peer-") as folder:
        home = pathlib.Path(folder)
        if conf is None:
            conf = home / "shell.conf"
            conf.write_text("".join(f"{key}={value}\n" for key, value in bookie_settings(home, metadata, 1).items()))
        command = java_command(
            ["-Xmx256m"], ["org.apache.bookkeeper.bookie.BookieShell", "-conf", str(conf), *arguments], home, "info"
        )
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=START_SECONDS_MAX, check=False
        )
    if done.returncode:
        raise RuntimeError(
            f"bookkeeper shell {' '.join(arguments)} ended with {done.returncode}:\n"
            f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    answers = [
        found[1].removesuffix(" {}")
        for line in done.stderr.splitlines()
        if (found := re.search(r" INFO +(?:\w+Command|FormatUtil|LedgersIndex\w+|BookieShell) (.*)", line))
    ]
    return "\n".join([*done.stdout.splitlines(), *answers, ""])


class Cluster:
    """
    A ZooKeeper (or a given metadata URI, already initialised) and some Java bookies; `with Cluster(bookies=3) as
    cluster`.
    """

    def __init__(
        self,
        bookies: int = 3,
        metadata: str | None = None,
        layout: str = "hierarchical",
        settings: Mapping[str, object] = {},
        heap: str = "256m",
        direct: str = "256m",
        directory: str | None = None,
    ) -> None:
        self.temporary = (
            None if directory else tempfile.TemporaryDirectory(prefix="quire-peer-", ignore_cleanup_errors=True)
        )
        self.directory = pathlib.Path(directory or (self.temporary.name if self.temporary else "."))
        self.count, self.layout, self.settings, self.heap, self.direct = bookies, layout, settings, heap, direct
        self.given = metadata
        self.zookeeper: ZooKeeper | None = None
        self.bookies: list[JavaBookie] = []

    def __enter__(self) -> "Cluster":
        try:
            if self.given:
                self.metadata = self.given
            else:
                self.zookeeper = ZooKeeper(self.directory)
                self.metadata = self.zookeeper.uri(self.layout)
                shell(self.metadata, "initnewcluster")
            for _ in range(self.count):
                self.add_bookie()
        except BaseException:
            self.close()
            raise
        return self

    def add_bookie(self) -> JavaBookie:
        number = len(list(self.directory.glob("java-bookie*")))  # those that left keep their folders
        bookie = JavaBookie(
            self.directory / f"java-bookie{number}", self.metadata, self.settings, self.heap, self.direct
        )
        self.bookies.append(bookie)
        return bookie

    def client(self, **defaults: object) -> JavaClient:
        # heap is a str, all else are options
        return JavaClient(self.metadata, self.directory, **defaults)  # type: ignore[arg-type]

    def cpu_seconds(self) -> float:
        """Of the living bookies together."""
        return sum(bookie.process.cpu_seconds() for bookie in self.bookies if bookie.process.alive)

    def close(self) -> None:
        for bookie in self.bookies:
            if bookie.process.alive:
                bookie.process.child.send_signal(signal.SIGCONT)
                bookie.process.child.terminate()
        for bookie in self.bookies:
            bookie.stop()
        if self.zookeeper is not None:
            self.zookeeper.stop()
        if self.temporary is not None:
            self.temporary.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", help="where the jars are kept (default: ~/.cache/quire-peer)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch the jars, compile the driver, print the class path")
    cluster = commands.add_parser("cluster", help="ZooKeeper and bookies until interrupted")
    cluster.add_argument("--bookies", type=int, default=3)
    cluster.add_argument("--metadata", help="join this cluster instead of starting a ZooKeeper")
    cluster.add_argument("--layout", default="hierarchical", choices=("hierarchical", "longhierarchical", "flat"))
    cluster.add_argument("--directory")
    for name in ("drive", "shell"):
        one = commands.add_parser(name)
        one.add_argument("metadata")
        one.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.cache:
        os.environ["QUIRE_PEER"] = options.cache

    if options.command == "fetch":
        print(class_path())
    elif options.command == "shell":
        print(shell(options.metadata, *options.words), end="")
    elif options.command == "drive":
        with JavaClient(options.metadata) as client:
            try:
                print(
                    json.dumps(
                        client.call(
                            options.words[0], seconds=3600, **dict(word.split("=", 1) for word in options.words[1:])
                        )
                    )
                )
            except PeerError as error:
                print(f"peer.py: {options.words[0]} failed: {error}", file=sys.stderr)
                return 1
    else:
        with Cluster(options.bookies, options.metadata, options.layout, directory=options.directory) as up:
            print(
                json.dumps(
                    {
                        "metadata": up.metadata,
                        "bookies": [bookie.id for bookie in up.bookies],
                        "directory": str(up.directory),
                    }
                ),
                flush=True,
            )
            with contextlib.suppress(KeyboardInterrupt):
                signal.signal(signal.SIGTERM, signal.default_int_handler)
                signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
