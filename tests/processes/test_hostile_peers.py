"""
Peers that mean it ill, hundreds of each kind (`peers`), from many addresses and from one: a bookie's memory keeps its
bound, and a good client is served.

`PEERS=10000 ROUNDS=9` in the environment, with `-s`, makes it long: so many of each kind, and for each so many pairs of
the good client's 99th percentile, with them and without; a line that begins with the kind has their median.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from quire.protocol import v2
from quire.protocol.messages import Auth, AuthReply
from quire.security.digest_md5 import ClientsSide, digest_of
from tests.bookie.fakes.wires import adds
from tests.processes import peers
from tests.security.authority import Authority
from tests.tools.bookie_process import BY_COMMAND, WAIT_S, Cluster, Process

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
PEERS = int(os.environ.get("PEERS", "250"))
ROUNDS = int(os.environ.get("ROUNDS", "0"))
FRAMES_BYTES, PEER_BYTES = 64 * MIB, 4 << 10  # what all may take together, and each
TLS = {"handshake": 64 << 10, "hello": 96 << 10, "secured": 64 << 10, "reconnects": 64 << 10}  # each, with TLS
SETTLED_BYTES = 8 * MIB  # what a bookie that just started may still take of its own
ADDS = 500
FIRST_S = 1  # until a good client has connected and its first append is acknowledged; with `ROUNDS`
JAAS = 'Bookie {\n org.apache.zookeeper.server.auth.DigestLoginModule required\n user_hd="testpwd";\n};\n'


@pytest.fixture(scope="module")
def open_bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """It serves whoever comes."""
    yield from started(Cluster(tmp_path_factory.mktemp("open")))


@pytest.fixture(scope="module")
def asking_bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """It serves who proves a password."""
    cluster = Cluster(tmp_path_factory.mktemp("asking"))
    users = cluster.path / "users"
    users.write_text(JAAS)
    cluster.write_conf(
        "bookieAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory\n"
        f"saslJaasFile={users}\nsaslJaasClientAllowedIds=hd\n"
    )
    yield from started(cluster)


@pytest.fixture(scope="module")
def tls_bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """It serves who comes over TLS."""
    cluster = Cluster(tmp_path_factory.mktemp("tls"))
    authority = Authority(cluster.path)
    issued = authority.issue("bookie")
    cluster.write_conf(
        f"tlsProviderFactoryClass=true\ntlsCertificatePath={issued.certificate}\ntlsKeyStore={issued.key}\n"
        f"tlsTrustStore={authority.trust}\n"
    )
    yield from started(cluster)


def started(cluster: Cluster) -> Iterator[Process]:
    """It has a line in its log for each of a thousand addresses."""
    with open(cluster.path / "bookie.log", "wb") as log:
        try:
            bookie = cluster.start(module=BY_COMMAND, log=log)
            bookie.ready()
            yield bookie
        finally:
            cluster.end()


class Good:
    """A client that connects, with TLS where `kind` has it, proves who it is where that is asked, and appends."""

    def __init__(self, port: int, kind: str) -> None:
        self._replies = v2.Replies()
        self._peer = socket.create_connection(("127.0.0.1", port), WAIT_S)
        if kind in TLS:
            secured = peers.secure(self._peer)
            assert secured is not None
            self._peer = secured
        if kind == "stranger":
            side = ClientsSide("hd", digest_of("hd", "testpwd"))
            challenge = self._ask(v2.pack_auth(Auth("sasl", side.step(b""))))
            assert isinstance(challenge, AuthReply)
            self._ask(v2.pack_auth(Auth("sasl", side.step(challenge.payload))))

    def append(self, entry: int) -> float:
        """How long it took."""
        began = time.monotonic()
        answer = self._ask(adds(b"good", first=entry))
        assert answer.status == 0  # type: ignore[union-attr]
        return time.monotonic() - began

    def close(self) -> None:
        self._peer.close()

    def _ask(self, data: bytes) -> object:
        self._peer.sendall(data)
        while not (found := self._replies.feed(self._peer.recv(1 << 16))):
            assert self._replies.failure is None
        return found[0]


def resident(bookie: Process) -> int:
    """Bytes."""
    status = Path(f"/proc/{bookie.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


@contextmanager
def hostile(kind: str, count: int, addresses: int, bookie: Process) -> Iterator[None]:
    """So many are where they should be; with `ROUNDS` it prints how many more came each second."""
    command = [sys.executable, peers.__file__, kind, str(count), str(addresses), str(bookie.port)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        assert program.stdout.readline().startswith(b"ready "), kind
        yield
        program.stdin.close()
        more = program.stdout.readline().decode().strip()
        if ROUNDS:
            print(f"{kind}: {more} more came")
        assert program.wait(WAIT_S) == 0
    finally:
        program.kill()
        program.wait()
        program.stdin.close()
        program.stdout.close()


def appended(bookie: Process, kind: str, count: int = 20) -> tuple[float, float]:
    """Seconds until the first append of a new client, and the 99th percentile of more."""
    began = time.monotonic()
    good = Good(bookie.port, kind)
    try:
        good.append(0)
        first = time.monotonic() - began
        times = sorted(good.append(entry) for entry in range(1, count))
        return first, times[len(times) * 99 // 100]
    finally:
        good.close()


@pytest.mark.timeout(3600 if ROUNDS else 300)
@pytest.mark.parametrize("addresses", [1, PEERS], ids=["one address", "many addresses"])
@pytest.mark.parametrize("kind", peers.KINDS)
def test_memory_has_its_bound_and_a_good_client_is_served(
    kind: str, addresses: int, request: pytest.FixtureRequest
) -> None:
    """Also one that connects after them, from the address of one of them."""
    name = "tls_bookie" if kind in TLS else "asking_bookie" if kind == "stranger" else "open_bookie"
    bookie: Process = request.getfixturevalue(name)
    each = TLS.get(kind, PEER_BYTES)
    count = PEERS if ROUNDS or kind != "large" else PEERS // 8
    appended(bookie, kind)
    before = resident(bookie)
    with hostile(kind, count, addresses, bookie):
        appended(bookie, kind)
        grown = resident(bookie) - before
        print(f"{kind}, {count} from {addresses}: {grown / MIB:.1f} MiB, {grown / count / 1024:.2f} KiB each")
    assert grown <= SETTLED_BYTES + (FRAMES_BYTES if kind == "large" else 0) + count * each
    ratios, firsts = [], []
    for number in range(ROUNDS):
        with hostile(kind, count, addresses, bookie):
            first, with_them = appended(bookie, kind, ADDS)
        _, without = appended(bookie, kind, ADDS)
        ratios.append(with_them / without)
        firsts.append(first)
        print(
            f"{number}: first {first:.3f} s, p99 {1000 * with_them:.2f} ms, without {1000 * without:.2f} ms", end=", "
        )
        print(f"{ratios[-1]:.2f} times", flush=True)
    if ROUNDS:
        times = f"p99 {median(ratios):.2f} times, {min(ratios):.2f} to {max(ratios):.2f}, in {ROUNDS} pairs"
        print(f"{kind}, {count} from {addresses}: {times}; the slowest first append took {max(firsts):.3f} s")
        assert max(firsts) <= FIRST_S
