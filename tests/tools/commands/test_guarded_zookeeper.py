"""
A cluster in a ZooKeeper that asks who comes, as processes with configuration files: bookies, commands, AutoRecovery;
and processes that are not let in, which end with the reason.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.conf.bookie import BookieOptions
from quire.conf.options import key_of
from quire.tools.local_cluster.cluster import LocalBookie, LocalRecovery, free_ports
from quire.tools.local_cluster.process import NotStarted
from tests.metadata.zk.guarded import OPEN, Guarded, acls
from tests.reactor import between_looks
from tests.tools.command import Done, environment, warm

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 100.0
FIELDS = BookieOptions.model_fields


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("guarded")) as made:
        yield made


def keys_of(options: dict[str, str]) -> dict[str, str]:
    """Options as a file has them."""
    return {key_of(FIELDS[name])["names"][0]: value for name, value in options.items()}


class Commands:
    """Those of one client's file."""

    def __init__(self, path: Path, uri: str, keys: dict[str, str]) -> None:
        path.write_text("".join(f"{key}={value}\n" for key, value in {"metadataServiceUri": uri, **keys}.items()))
        self._environment = environment() | {"QUIRE_CONF": str(path)}

    def ok(self, *arguments: object, stdin: bytes = b"") -> Done:
        done = warm().run([*map(str, arguments)], stdin, self._environment)
        assert done.code == 0, (arguments, done.err)
        return done

    def refused(self, code: int, *arguments: object) -> str:
        """The line that says why."""
        done = warm().run([*map(str, arguments)], b"", self._environment)
        assert done.code == code, (arguments, done.out, done.err)
        assert "Traceback" not in done.err
        return done.err.strip().splitlines()[-1]


class Bookies:
    """Bookies, and AutoRecovery, of one cluster; all are killed at the end."""

    def __init__(self, directory: Path, uri: str, keys: dict[str, str]) -> None:
        self._uri = uri
        self._keys = keys
        self.running = [LocalBookie(directory / f"bookie-{port}", port) for port in free_ports(3)]
        self.recovery = LocalRecovery(directory / "autorecovery")

    def __enter__(self) -> "Bookies":
        try:
            for each in [*self.running, self.recovery]:
                each.write_conf(self._uri, {**self._keys, "zkTimeout": "20000"})
                each.begin()
            for each in [*self.running, self.recovery]:
                each.ready(time.monotonic() + WAIT_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in [*self.running, self.recovery]:
            each.end_now()


@pytest.mark.parametrize("way", ["password", "certificate", "both"])
def test_a_cluster_of_one_user(guarded: Guarded, tmp_path: Path, way: str) -> None:
    """
    Made, written, read, listed and recovered by commands; a lost bookie's copies are made again by AutoRecovery; each
    znode is the user's.  Another user sees nothing, and is told why.
    """
    root = f"/{way}/ledgers"
    address = guarded.plain if way == "password" else guarded.secure
    uri = f"zk://{address}{root}"
    options = {
        "password": guarded.known("quire"),
        "certificate": guarded.shown,
        "both": {**guarded.known("quire"), **guarded.shown},
    }[way]
    keys = {**keys_of(options), "zkEnableSecurity": "true"}
    ours = Commands(tmp_path / "client.conf", uri, keys)
    ours.ok("metadata", "init")
    with Bookies(tmp_path, uri, keys) as bookies:
        shape = ("--ensemble", 2, "--write", 2, "--ack", 2)
        closed = int(ours.ok("ledger", "write", "--lines", *shape, stdin=b"one\ntwo\n").out)
        left_open = int(ours.ok("ledger", "write", "--lines", "--keep-open", *shape, stdin=b"three\n").out)
        assert ours.ok("ledger", "read", closed).out == "one\ntwo\n"
        assert "IN_RECOVERY" not in ours.ok("ledger", "recover", left_open).out
        shown = ours.ok("ledger", "list", "--json").rows
        assert {(row["ledger"], row["state"]) for row in shown} == {(closed, "CLOSED"), (left_open, "CLOSED")}
        held = ours.ok("ledger", "show", closed, "--json").document["fragments"][0]["bookies"]
        next(bookie for bookie in bookies.running if bookie.id == held[0]).end_now()
        while held[0] in ours.ok("ledger", "show", closed, "--json").document["fragments"][0]["bookies"]:
            between_looks()
        ours.ok("ledger", "check", closed)
        if way != "certificate":
            lists = acls(guarded, root)
            open_to_all = {path for path, acl in lists.items() if acl == OPEN}
            assert {path.removeprefix(f"{root}/") for path in open_to_all} <= {
                "underreplication/lostBookieRecoveryDelay"
            }
            assert len(lists) > 20
        theirs = {
            "password": guarded.known("other"),
            "certificate": guarded.stranger,
            "both": {**guarded.known("other"), **guarded.stranger},
        }[way]
        other = {**keys_of(theirs), "zkEnableSecurity": "true"}
        line = Commands(tmp_path / "other.conf", uri, other).refused(1, "ledger", "show", closed)
        assert line.startswith("quire: MetaStoreRefused: ")
        assert f"the access list of {root}/" in line
        assert "docs/security.md 10" in line


@pytest.mark.parametrize("kind", ["bookie", "autorecovery", "command"])
def test_a_wrong_password_ends_the_start(guarded: Guarded, tmp_path: Path, kind: str) -> None:
    """With the key and the file, and without the password."""
    wrong = "not the password"
    keys = {**keys_of(guarded.known("quire", wrong)), "zkTimeout": "100000"}
    uri = f"zk://{guarded.plain}/wrong/ledgers"
    if kind == "command":
        said = Commands(tmp_path / "client.conf", uri, keys).refused(1, "metadata", "init")
    else:
        (port,) = free_ports(1)
        process = LocalBookie(tmp_path / "b", port) if kind == "bookie" else LocalRecovery(tmp_path / "r")
        process.write_conf(uri, keys)
        process.begin()
        try:
            with pytest.raises(NotStarted) as ended:
                process.ready(time.monotonic() + WAIT_S)
        finally:
            process.end_now()
        said = f"{ended.value}\n{process.log.read_text()}"
    assert f"section Client (zkSaslSection) of {keys['saslJaasFile']} (saslJaasFile)" in said
    assert "it does not let the user quire in" in said
    assert "Traceback" not in said
    assert wrong not in said


def test_options_for_another_store_are_refused(tmp_path: Path) -> None:
    """They would protect nothing there."""
    commands = Commands(tmp_path / "client.conf", f"sqlite://{tmp_path}/m.db", {"zkTlsTrustStore": "/ca.pem"})
    assert "is no ZooKeeper" in commands.refused(2, "metadata", "init")
