"""
A DLedger group of RocketMQ brokers on this machine.

Knows: how to start and kill its brokers, and which is master.  Does not know: what is measured, or expected of them.
"""

import contextlib
import time
from collections.abc import Mapping

from tests.interop.peer import PeerError, free_port
from tests.interop.rocketmq.broker import Broker, RocketMQ

# SPDX-License-Identifier: Apache-2.0

NODES = ("n0", "n1", "n2")
LED_S = 120.0


class Group:
    """Three brokers of one DLedger group, which have a topic.  They end with the peer."""

    def __init__(self, peer: RocketMQ, topic: str, settings: Mapping[str, object] = {}) -> None:
        self._peer = peer
        self._settings = settings
        self._peers = ";".join(f"{node}-127.0.0.1:{free_port()}" for node in NODES)
        self.brokers: dict[str, Broker] = {}
        for node in NODES:
            self.start(node)
        self.master()
        for broker in self.brokers.values():
            with contextlib.suppress(PeerError):  # from one that follows: it has the topic by the master
                self._peer.call("topic", topic=topic, address=broker.address)

    def start(self, node: str) -> None:
        """Begins a broker, on its directory if there is one."""
        settings = {**self._settings, "dLegerPeers": self._peers}
        self.brokers[node] = self._peer.broker("a", self._peer.folder / node, dledger=node, **settings)

    def kill(self, node: str) -> None:
        """SIGKILL; the process is gone when this returns."""
        self.brokers.pop(node).kill()

    def master(self) -> str:
        """The node that clients are sent to."""
        end = time.monotonic() + LED_S
        while time.monotonic() < end:
            with contextlib.suppress(PeerError):
                for found in self._peer.call("master", broker="a"):
                    for node, broker in self.brokers.items():
                        if broker.address == found["address"] and broker.process.alive:
                            return node
        raise TimeoutError("no broker of the group became master")
