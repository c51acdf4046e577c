"""Calls of etcd that only tests and operators make, and clusters of several members."""

import os
import signal
from contextlib import contextmanager

import grpc

from quire.protocol.schema import classes
from quire.tools.local_cluster.cluster import free_ports
from quire.tools.local_cluster.etcd import Etcd

# SPDX-License-Identifier: Apache-2.0

MESSAGES = classes(
    "quire/etcd_tests.proto",
    {
        "Empty": "",
        "Compaction": "1 revision O int64",
        "User": "1 name O string; 2 password O string",
        "Token": "2 token O string",
        "Role": "1 name O string",
        "Grant": "1 user O string; 2 role O string",
        "Permission": "1 permType O int32; 2 key O bytes; 3 range_end O bytes",
        "Permit": "1 name O string; 2 perm O Permission",
        "Header": "2 member_id O uint64",
        "Status": "1 header O Header; 4 leader O uint64",
    },
    {},
)


def call(address, method, message="Empty", answer="Empty", token="", **fields):
    """One call, and its answer."""
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(
            f"/etcdserverpb.{method}",
            request_serializer=MESSAGES[message].SerializeToString,
            response_deserializer=MESSAGES[answer].FromString,
        )
        return method(MESSAGES[message](**fields), timeout=30, metadata=(("token", token),) if token else ())


def compact(address, revision) -> None:
    """Forgets what was before a revision."""
    call(address, "KV/Compact", "Compaction", revision=revision)


def status(address):
    """Who a member is, and which one it takes for the leader."""
    return call(address, "Maintenance/Status", answer="Status")


def guard(address, users) -> None:
    """Lets only these users in, by their passwords: root, who may do all, and others, who may do what quire needs."""
    call(address, "Auth/RoleAdd", "Role", name="root")
    call(address, "Auth/RoleAdd", "Role", name="quire")
    permission = MESSAGES["Permission"](permType=2, key=b"quire", range_end=b"quirf")
    call(address, "Auth/RoleGrantPermission", "Permit", name="quire", perm=permission)
    for name, password in users.items():
        call(address, "Auth/UserAdd", "User", name=name, password=password)
        if name in {"root", "quire"}:
            call(address, "Auth/UserGrantRole", "Grant", user=name, role=name)
    call(address, "Auth/AuthEnable")


def forget_tokens(address, root, name, password) -> None:
    """Gives a user the password that it has, so that its tokens end; `root`: the password of that user."""
    token = call(address, "Auth/Authenticate", "User", "Token", name="root", password=root).token
    call(address, "Auth/UserChangePassword", "User", token=token, name=name, password=password)


class Member:
    """A member of a cluster, which is killed and started again with what it has."""

    def __init__(self, directory, name, peers, peer_port) -> None:
        self._given = {"directory": directory / name, "name": name, "members": peers, "peer_port": peer_port}
        self._port = 0
        self.start()

    def start(self) -> None:
        self.server = Etcd(port=self._port, **self._given)
        self._port = self.server.port

    def kill(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.stop()


@contextmanager
def three(directory, listening=(), known=()):
    """
    The members of a cluster, which serve.  `listening`: the ports for their peers, `known`: those by which the others
    know these, if something stands between.
    """
    listening = listening or free_ports(3)
    peers = {f"m{number}": port for number, port in enumerate(known or listening)}
    members = [Member(directory, name, peers, port) for name, port in zip(peers, listening, strict=True)]
    try:
        for each in members:
            each.server.wait_until_healthy()
        yield members
    finally:
        for each in members:
            each.server.stop()
