"""
An Apache bookie is emptied while it is up: it does not follow the order by itself, and is emptied all the same once its
own file makes it read-only; what it had is read by Java without it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from quire.client.api import Client
from quire.metadata.clock import pause
from quire.protocol.errors import IllegalOp
from quire.replication import decommission
from quire.replication.decommission import drain
from quire.replication.freeing.run import Recovered
from tests.interop import peer
from tests.interop.ours import READY_SECONDS_MAX, TEXT, Bookies, Ours, lines, sha256, wait_for_bookies
from tests.reactor import reactor, run

LEDGERS = 3  # that name the Apache bookie
LINES = lines()


@dataclass
class Four:
    """One bookie of Apache's and three of ours."""

    metadata: str
    apache: peer.JavaBookie
    java: peer.JavaClient


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Four]:
    with (
        peer.Cluster(bookies=1) as apache,
        Bookies(tmp_path_factory.mktemp("bookies"), apache.metadata, 3),
        apache.client(password="secret", timeout=5) as java,
    ):
        wait_for_bookies(java, 4)
        yield Four(apache.metadata, apache.bookies[0], java)


async def read_only(client: Client, bookie: str) -> None:
    """Returns once it is listed so."""
    until = reactor.seconds() + READY_SECONDS_MAX
    while bookie not in (await client.store.bookies()).read_only:
        assert reactor.seconds() < until, f"{bookie} is not listed as read-only"
        await pause(reactor, 0.05)


def test_an_apache_bookie_is_emptied_while_it_is_up(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its own switch the drain copies nothing and says what to do; with it no ledger names it any more."""
    name = four.apache.id
    with Ours(four.metadata) as ours:

        def naming() -> list[int]:
            return [each for each in ours.ledger_ids() if name in ours.metadata(each).bookies()]

        def drained() -> Recovered:
            return run(lambda: drain(ours.client, name), timeout=120.0)

        while len(concerned := naming()) < LEDGERS:
            four.java.call("lines", file=TEXT)
        monkeypatch.setattr(decommission, "OBEYED_S", 1.0)
        with pytest.raises(IllegalOp, match="forceReadOnlyBookie=true"):
            drained()
        assert naming() == concerned, "nothing is copied before it is read-only"

        four.apache.stop()
        conf = four.apache.conf
        conf.write_text(f"{conf.read_text()}forceReadOnlyBookie=true\n")
        four.apache.start()
        run(lambda: read_only(ours.client, name))
        found = drained()
        assert (found.failed, list(found.ledgers)) == ((), concerned)
        assert not naming()

        four.apache.kill()  # nobody needs it any more
        for ledger in concerned:
            assert sha256(ours.read(ledger, b"secret", recover=False)) == sha256(LINES)
            assert four.java.call("read", ledger=ledger)["sha256"] == sha256(LINES)
