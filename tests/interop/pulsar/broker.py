"""
A real Pulsar broker on bookies that are there, and clients of it.

Knows: how to set its metadata up in a ZooKeeper in which a cluster of bookies is, and to start it; to ask its
administration over HTTP.  Its own settings are left as they are, but for what would need more of Pulsar than a broker.
Does not know: the bookies, or what is expected of it.
"""

import contextlib
import json
import pathlib
import subprocess
import time
import urllib.request
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.interop import peer
from tests.reactor import between_looks

# SPDX-License-Identifier: Apache-2.0

VERSION = "4.0.0"
HEALTHY_SECONDS_MAX = 120.0
TOPIC = "persistent://public/default/t"
OPENED = ("java.io", "java.util.zip", "java.lang", "java.time", "sun.net", "jdk.internal.platform")
JAVA = [
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED),
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
    *("-Xms256m", "-Xmx768m", "-XX:MaxDirectMemorySize=768m"),
]


def classes(driver: str = "Traffic.java") -> str:
    """The jars and a compiled driver of Pulsar."""
    return peer.compiled(peer.cache() / f"pulsar-{VERSION}", pathlib.Path(__file__).with_name(driver))


class Broker:
    """
    `with Broker(folder, metadata) as broker`: one that is healthy.  `ensemble`, `write`, `ack` of its ledgers; `more`
    settings.
    """

    def __init__(
        self, folder: pathlib.Path, metadata: str, ensemble: int = 3, write: int = 2, ack: int = 2, **more: object
    ) -> None:
        self.folder, self.metadata = folder, metadata
        self.zookeeper = urlsplit(metadata.replace("+hierarchical", "")).netloc
        port, web_port = peer.free_port(), peer.free_port()
        self.service, self.web = f"pulsar://127.0.0.1:{port}", f"http://127.0.0.1:{web_port}"
        self.settings = {
            "clusterName": "quire",
            "metadataStoreUrl": f"zk:{self.zookeeper}",
            "configurationMetadataStoreUrl": f"zk:{self.zookeeper}",
            "advertisedAddress": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "brokerServicePort": port,
            "webServicePort": web_port,
            "managedLedgerDefaultEnsembleSize": ensemble,
            "managedLedgerDefaultWriteQuorum": write,
            "managedLedgerDefaultAckQuorum": ack,
            "managedLedgerMaxEntriesPerLedger": 1000,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "functionsWorkerEnabled": "false",
            "loadBalancerEnabled": "false",
            "transactionCoordinatorEnabled": "false",
            "systemTopicEnabled": "false",
            "topicLevelPoliciesEnabled": "false",
        } | more

    def __enter__(self) -> "Broker":
        self._set_up()
        conf = self.folder / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        words = ["org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(conf)]
        self.process = peer.Process(self._command(*words), self.folder / "broker.log")
        try:
            self._wait()
        except BaseException:
            self.process.kill()
            raise
        return self

    def _command(self, *words: str) -> list[str]:
        return peer.java_command(JAVA, words, self.folder, classes=classes())

    def _set_up(self) -> None:
        """Makes Pulsar's part of the metadata, beside that of the bookies."""
        store = f"zk:{self.zookeeper}"
        command = self._command(
            *("org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", "quire", "--metadata-store", store),
            *("--configuration-metadata-store", store, "--existing-bk-metadata-service-uri", self.metadata),
            *("--web-service-url", self.web, "--broker-service-url", self.service),
            *("--initial-num-stream-storage-containers", "0", "--initial-num-transaction-coordinators", "1"),
        )
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def _wait(self) -> None:
        """Returns once it says that it is healthy: it has then written to a topic of its own."""
        end = time.monotonic() + HEALTHY_SECONDS_MAX
        while time.monotonic() < end and self.process.alive:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.web}/admin/v2/brokers/health", timeout=20) as answer,
            ):
                if answer.status == 200:
                    return
            between_looks()
        raise TimeoutError(f"the broker is not healthy:\n{peer.tail_of(self.process.log)}")

    def client(self) -> peer.Driver:
        """A client with a producer and a consumer of one topic."""
        command = peer.java_command(["-Xmx256m"], ["Traffic", self.service, TOPIC], self.folder, classes=classes())
        return peer.Driver(command)

    def topics(self, *words: str) -> peer.Driver:
        """A client that writes and reads messages of every kind, with `transactions` if that word is given."""
        command = peer.java_command(
            ["-Xmx512m"], ["Topics", self.service, *words], self.folder, classes=classes("Topics.java")
        )
        return peer.Driver(command)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request to its administration; the answer, None where it is empty."""
        request = urllib.request.Request(
            f"{self.web}/admin/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.stop()
