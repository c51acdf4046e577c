"""
A real etcd server as a child process: the program of that name on the PATH (Debian's package etcd-server has it).

Knows: how the server is started on the loopback address, alone or as a member of a cluster, and when it answers.
Does not know: what is kept in it.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import urlopen

from quire.tools.local_cluster.guarded import GuardedServer, ServerFailed, free_port

# SPDX-License-Identifier: Apache-2.0

HOST = "127.0.0.1"
START_S = 60.0
HEALTH_S = 2.0
TXN_OPS = "20000"  # the largest transaction of records: 5,000 steps, each with up to three changes


class EtcdMissing(Exception):
    """The program is not there; the text says where it comes from."""


class EtcdFailed(ServerFailed):
    """The server did not come up; the text shows the end of its log."""


def program() -> str:
    """Where the server's program is; `EtcdMissing`."""
    found = shutil.which("etcd")
    if found is None:
        raise EtcdMissing("there is no etcd on the PATH: install it, from Debian with `apt-get install etcd-server`")
    return found


class Etcd(GuardedServer):
    """
    A server on 127.0.0.1 that keeps its data in `directory`; `wait_until_healthy` returns when it serves.  Ports that
    are 0 are free ones.  `members`: the peers' ports by the members' names, of a cluster; `peer_port`: where this one
    listens, if something stands before it; `tls`: options for its clients' connections, by which these are encrypted;
    `settings`: more options.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        port: int = 0,
        *,
        name: str = "etcd",
        members: Mapping[str, int] | None = None,
        peer_port: int = 0,
        tls: Sequence[str] = (),
        settings: Sequence[str] = (),
    ) -> None:
        """`EtcdMissing`."""
        command = program()
        super().__init__(directory, "etcd", EtcdFailed)
        self.port = port or free_port()
        self._health = f"http://{HOST}:{free_port()}"
        members = members or {name: free_port()}
        peer, listens = (f"http://{HOST}:{each}" for each in (members[name], peer_port or members[name]))
        clients = f"{'https' if tls else 'http'}://{HOST}:{self.port}"
        arguments = [
            command,
            *("--name", name, "--data-dir", str(self.directory / "data"), "--logger", "zap"),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", listens, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(f"{each}=http://{HOST}:{at}" for each, at in members.items())),
            *("--listen-metrics-urls", self._health),
            *("--max-txn-ops", TXN_OPS, *tls, *settings),
        ]
        self.launch(arguments)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def uri(self) -> str:
        """Where a cluster may be made."""
        return f"etcd://{self.address}/ledgers"

    def wait_until_healthy(self, seconds: float = START_S) -> None:
        """Returns when it has a leader and answers; `EtcdFailed`, and it is stopped then."""
        try:
            self.wait(self._is_healthy, seconds, f"on port {self.port}")
        except BaseException:
            self.stop()
            raise

    def _is_healthy(self) -> bool:
        try:
            with urlopen(f"{self._health}/health", timeout=HEALTH_S) as answer:
                return b'"true"' in answer.read()
        except (OSError, URLError, HTTPException):
            return False
