"""
A real RocketMQ on this machine: a name server, brokers that make small files, and its client and store module.

    with RocketMQ(folder) as peer, peer.broker("a") as broker:
        peer.call("topic", topic="T", address=broker.address)
        peer.call("send", topic="T", count=10)

Knows: how to start, stop and kill these processes; the settings of a broker that suit a small machine.  A broker's
store directory stays behind.
Does not know: what is expected of them.  The commands of the Java side are in `RocketMQ.java`.
"""

import contextlib
import pathlib
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.interop import peer

# SPDX-License-Identifier: Apache-2.0

VERSION = "5.3.3"
FILE_BYTES, QUEUE_FILE_BYTES = 65_536, 2_000
CLEAN_STOP_SECONDS_MAX = 120.0  # a clean stop takes 20 s: its threads are waited for, one after another
SMALL = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "diskMaxUsedSpaceRatio": 95,
}
SETTINGS = SMALL | {
    "brokerClusterName": "c",
    "brokerId": 0,
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "fileReservedTime": 720,
    "autoCreateTopicEnable": "false",
    "timerWheelEnable": "true",
    "enableDetailStat": "false",
    "transactionCheckInterval": 600_000,
    "useEpollNativeSelector": "false",
    # What waits longer than that is refused, and a machine may be busy.
    **{f"waitTimeMillsIn{queue}Queue": 60_000 for queue in ("Send", "Pull", "AdminBroker", "Transaction")},
    "osPageCacheBusyTimeOutMills": 60_000,
    **{f"{name}Nums": 2 for name in ("sendMessageThreadPool", "pullMessageThreadPool", "queryMessageThreadPool")},
    **{f"{name}Nums": 2 for name in ("adminBrokerThreadPool", "clientManageThreadPool", "consumerManageThreadPool")},
    **{f"{name}Nums": 2 for name in ("heartbeatThreadPool", "endTransactionThreadPool")},
}
JAVA = [
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util")),
    *("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED"),
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=512m"),
]
LEADS = "Finish to change to master"  # in the log of a broker in DLedger mode


def classes() -> str:
    """The jars and the compiled driver of RocketMQ."""
    return peer.compiled(peer.cache() / f"rocketmq-{VERSION}", pathlib.Path(__file__).with_name("RocketMQ.java"))


def command(folder: pathlib.Path, heap: str, *words: str, java: Sequence[str] = ()) -> list[str]:
    """A Java process whose home, with its logs, is the folder; `java`: further options of it."""
    options = [*JAVA, *java, f"-Xmx{heap}", f"-Drocketmq.home.dir={folder}", f"-Duser.home={folder}"]
    return peer.java_command([*options, "-Drocketmq.client.logUseSlf4j=false"], words, folder, classes=classes())


def free_port() -> int:
    """A port whose neighbours are free: a broker takes that two below, and that above for its copies."""
    while True:
        port = peer.free_port()
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for near in range(port - 2, port + 2):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", near))
            return port


class Broker:
    """One broker, which serves; `store` is its directory.  Left, it is stopped cleanly."""

    def __init__(
        self,
        folder: pathlib.Path,
        store: pathlib.Path,
        port: int,
        settings: dict[str, object],
        java: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.store, self.port, self.address = folder, store, port, f"127.0.0.1:{port}"
        conf = folder / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = command(folder, "384m", "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf), java=java)
        self.process = peer.Process(words, folder / "broker.out")
        try:
            self.process.wait_for(port)
            self.process.wait_for_text("boot success")
        except BaseException:
            self.kill()
            raise

    def log(self) -> str:
        """What it logged, of all parts of the broker."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.rglob("*.log")))

    def stop(self) -> None:
        """A clean stop, which writes all that it keeps."""
        self.process.child.terminate()
        self.process.child.wait(CLEAN_STOP_SECONDS_MAX)

    def kill(self) -> None:
        self.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        elif self.process.alive:
            self.stop()


class RocketMQ:
    """
    A name server and a process of clients; brokers of it are begun by `broker`.  All ends with the block.  `java`:
    further options of the brokers' and the clients' processes.
    """

    def __init__(self, folder: pathlib.Path, java: Sequence[str] = ()) -> None:
        self.folder = folder
        self.java = java
        self.brokers: list[Broker] = []

    def __enter__(self) -> Self:
        home = self.folder / "names"
        home.mkdir(parents=True)
        port = peer.free_port()
        self.names = f"127.0.0.1:{port}"
        (home / "names.conf").write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
        words = ("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(home / "names.conf"))
        self._names = peer.Process(command(home, "128m", *words), home / "names.out")
        try:
            self._names.wait_for(port)
            self._client = client(self.folder / "client", self.java, namesrv=self.names)
        except BaseException:
            self._names.kill()
            raise
        return self

    def broker(
        self, name: str, store: pathlib.Path | None = None, port: int | None = None, dledger: str = "", **more: object
    ) -> Broker:
        """Begins one, on a directory that may be there; `dledger`: the id of the only node of a group."""
        store, port = store or self.folder / name, port or free_port()
        settings: dict[str, object] = SETTINGS | {"brokerName": name, "listenPort": port, "haListenPort": port + 1}
        settings |= {"namesrvAddr": self.names, "storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
        if dledger:
            peers = f"{dledger}-127.0.0.1:{peer.free_port()}"
            settings |= {"enableDLegerCommitLog": "true", "dLegerGroup": name, "dLegerPeers": peers}
            settings["dLegerSelfId"] = dledger
        found = Broker(self.folder / f"{name}-{len(self.brokers)}", store, port, settings | more, self.java)
        self.brokers.append(found)
        return found

    def call(self, command: str, **options: object) -> Any:
        """What the client said to one command, a list; PeerError where it failed."""
        return self._client.call(command, **options)["said"]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        for broker in self.brokers:
            broker.kill()
        self._names.kill()


def client(folder: pathlib.Path, java: Sequence[str] = (), **defaults: object) -> peer.Driver:
    """A process of clients; without a name server it decodes records, or opens a store by itself."""
    words = [f"{key}={value}" for key, value in defaults.items()]
    return peer.Driver(command(folder, "384m", "RocketMQ", *words, java=java))
