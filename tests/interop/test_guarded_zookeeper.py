"""
A ZooKeeper that asks who comes, beside Apache's: one user, one cluster, bookies and clients of both kinds, and access
lists that each takes from the other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop import peer
from tests.interop.ours import TEXT, Bookies, Ours, lines, sha256, wait_for_bookies
from tests.metadata.zk.guarded import OPEN, OURS, Guarded, GuardedPlace, acls
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

TEXT_LINES = lines()
SHAPE = {"ensemble": 3, "write": 3, "ack": 3}


@contextmanager
def java_is(jaas: str) -> Iterator[None]:
    """Java processes that begin meanwhile are the user in the section Client of this file, and make znodes for it."""
    options = (
        f"-Djava.security.auth.login.config={jaas} -Dzookeeper.fips-mode=false "
        "-Dorg.apache.bookkeeper.conf.readsystemproperties=true -DzkEnableSecurity=true"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", options)
        yield


def test_one_user_of_both_kinds(tmp_path: Path) -> None:
    """
    Ledgers written by either are read by the other, on a bookie of ours and two of Apache's; each znode that either has
    made is that user's, but for those that stay open.
    """
    with Guarded(tmp_path / "guarded") as guarded:
        known = guarded.known("quire")
        place = GuardedPlace(guarded, 0)
        run(place.make)
        keys = {"saslJaasFile": known["jaas_file"], "zkSaslSection": "Client", "zkEnableSecurity": "true"}
        apaches: list[peer.JavaBookie] = []
        with Bookies(tmp_path, place.uri, 1, **keys):
            try:
                with java_is(known["jaas_file"]):
                    for number in range(2):
                        folder = tmp_path / f"java-{number}"
                        apaches.append(peer.JavaBookie(folder, place.uri, {"zkEnableSecurity": "true"}))
                    java = peer.JavaClient(place.uri, tmp_path / "client", password="x", timeout=10)
                with java, Ours(place.uri, **known, zk_acl=True) as ours:
                    wait_for_bookies(java, 3)
                    mine = ours.write(TEXT_LINES, password=b"x", ack_quorum=3)
                    assert java.call("read", ledger=mine)["sha256"] == sha256(TEXT_LINES)
                    written = java.call("lines", file=TEXT, **SHAPE)
                    assert (written["entries"], written["failed"]) == (len(TEXT_LINES), 0)
                    assert sha256(ours.read(written["ledger"], b"x")) == sha256(TEXT_LINES)
                    found = acls(guarded, place.root)
            finally:
                for bookie in apaches:
                    bookie.stop()
        run(place.close)
    open_to_all = {path.removeprefix(f"{place.root}/") for path, acl in found.items() if acl == OPEN}
    assert open_to_all <= {"underreplication/lostBookieRecoveryDelay"}
    assert {acl for acl in found.values() if acl != OPEN} == {OURS}
    assert {path.rpartition("/")[2] for path in found} >= {bookie.id for bookie in apaches}
