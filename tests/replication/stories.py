"""Ledgers for repair stories, on the clients' fake cluster."""

from collections.abc import Sequence

from quire.client.api import Client
from quire.metadata.store import NEW
from quire.protocol.digest import HEADER, Digest, DigestType
from tests.client.fakes.cluster import FakeCluster

DIGEST = Digest(DigestType.CRC32C, b"")


def payload(entry: int) -> bytes:
    return b"entry %d " % entry + b"x" * (entry % 7)


def closed(cluster: FakeCluster, fragments: dict[int, Sequence[str]], last: int, write: int = 3) -> int:
    """A closed ledger as a writer left it, its entries on their write sets."""
    ledger = left_open(cluster, fragments, last, write)
    stored = cluster.succeed(cluster.store.read_ledger(ledger))
    length = sum(len(payload(entry)) for entry in range(last + 1))
    cluster.succeed(cluster.store.write_ledger(ledger, stored.value.closed(last, length), stored.version))
    return ledger


def left_open(cluster: FakeCluster, fragments: dict[int, Sequence[str]], last: int, write: int = 3) -> int:
    """The same, but its writer is only gone."""
    ledger = cluster.ledger(fragments, write, min(write, 2))
    length = 0
    for entry in range(last + 1):
        length += len(payload(entry))
        bookies = fragments[max(first for first in fragments if first <= entry)]
        names = [bookies[(entry + step) % len(bookies)] for step in range(write)]
        cluster.put(ledger, entry, payload(entry), entry - 1, length, *names)
    return ledger


def bodies(cluster: FakeCluster, bookie: str, ledger: int) -> dict[int, bytes]:
    found = cluster.bookies[bookie].ledgers.get(ledger)
    return dict(found.entries) if found is not None else {}


def damage(cluster: FakeCluster, bookie: str, ledger: int, entry: int) -> None:
    """Flips a bit of the payload."""
    stored = cluster.bookies[bookie].ledgers[ledger].entries
    stored[entry] = stored[entry][:-1] + bytes([stored[entry][-1] ^ 1])


def cookie(cluster: FakeCluster, bookie: str) -> None:
    cluster.succeed(cluster.store.write_cookie(bookie, b"cookie", NEW))


def is_whole(cluster: FakeCluster, client: Client, ledger: int, first: int = 0) -> bool:
    """
    Whether every bookie that the metadata names holds what it should; looked up in the bookies, not through the code
    under test.
    """
    metadata = cluster.metadata(ledger)
    for start, last, names in metadata.fragment_ranges():
        for entry in range(max(start, first), (last if last is not None else start - 1) + 1):
            for step in range(metadata.write_quorum):
                name = names[(entry + step) % len(names)]
                body = bodies(cluster, name, ledger).get(entry)
                if body is None or DIGEST.open(ledger, entry, body) != payload(entry):
                    return False
    return True


__all__ = ["HEADER", "bodies", "closed", "cookie", "damage", "is_whole", "left_open", "payload"]
