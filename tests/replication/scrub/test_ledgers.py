"""Metadata that can't be, bookies that nobody knows, promises that are not kept."""

from typing import Any

import pytest

from quire.client.core.quorum import Domains
from quire.metadata.ledger import Fragment, LedgerMetadata
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import LedgerError, MetadataSerialization, MetaStoreRefused
from quire.replication.scrub.ledgers import Known, copies_bytes, known, planned, wrong_metadata
from tests.client.fakes.cluster import FakeCluster
from tests.replication.scrub.scrubbing import scrubbed
from tests.replication.stories import closed, cookie, left_open

# SPDX-License-Identifier: Apache-2.0

ALL = Known(frozenset(f"b{index}" for index in range(5)), None)


def metadata(*fragments: tuple[int, str], last: int = 50) -> LedgerMetadata:
    """A closed ledger; bookies with spaces between."""
    made = LedgerMetadata.new(3, 3, 2, ["b0", "b1", "b2"])
    parts = tuple(Fragment(first, tuple(names.split())) for first, names in fragments)
    return LedgerMetadata(3, 3, 2, made.state, -1, 0, parts, made.digest, b"").closed(last, 10)


def kinds(*fragments: tuple[int, str], about: Known = ALL, last: int = 50) -> list[tuple[str, int, str]]:
    return [
        (each.kind, each.fragment, each.bookie) for each in wrong_metadata(7, metadata(*fragments, last=last), about)
    ]


def test_metadata_that_is_in_order() -> None:
    """Also with a last fragment that got no entry."""
    assert kinds((0, "b0 b1 b2")) == []
    assert kinds((0, "b0 b1 b2"), (30, "b0 b1 b3"), (51, "b0 b1 b4")) == []


def test_metadata_that_cannot_be() -> None:
    """Entries before the first fragment, two fragments after the end, a bookie twice, one that nobody knows."""
    assert kinds((1, "b0 b1 b2")) == [("metadata", 0, "")]
    assert kinds((0, "b0 b1 b2"), (51, "b0 b1 b3"), (52, "b0 b1 b4")) == [("metadata", 51, "")]
    assert kinds((0, "b0 b1 b1")) == [("duplicate", 0, "b1")]
    assert kinds((0, "b0 b1 b9")) == [("unknown", 0, "b9")]


def test_placement() -> None:
    """Write sets in too few racks, where there are racks enough."""
    racks = Known(ALL.bookies, Domains(lambda bookie: "/r1" if bookie < "b3" else "/r2", 2))
    assert kinds((0, "b0 b1 b2"), (30, "b0 b1 b3"), about=racks) == [("placement", 0, "")]


def test_known() -> None:
    """Registered bookies and those with a cookie; domains only where the policy has some and they can be kept."""
    cluster = FakeCluster(3)
    cookie(cluster, "b9")

    async def story(client: Any) -> Known:
        return await known(client)

    found = cluster.succeed(story(cluster.client(placement="rack-aware")))
    assert found == Known(frozenset({"b0", "b1", "b2", "b9"}), None)


@pytest.mark.parametrize("lost", ["b0 b1 b2", ""])
def test_open_and_unreadable_ledgers(lost: str) -> None:
    """One that is written is looked at up to its last add confirmed; where that can't be had, that is what is found."""
    cluster = FakeCluster(3)
    for bookie in ("b0", "b1", "b2"):
        cookie(cluster, bookie)
    ledger = left_open(cluster, {0: ["b0", "b1", "b2"]}, 20)
    if lost:
        cluster.kill(*lost.split())
        assert scrubbed(cluster) == [("unreachable", "", -1, -1, 0)]
        return

    async def story(client: Any) -> Any:
        return await planned(client, [ledger, 99], await known(client))

    (plan,), found = cluster.succeed(story(cluster.client()))
    assert (plan.ledger, plan.last, found) == (ledger, 19, [])


@pytest.mark.parametrize("error", [MetadataSerialization("fragments overlap"), MetaStoreRefused("its access list")])
def test_metadata_that_cannot_be_read(error: LedgerError) -> None:
    """It is a finding, and the other ledgers are looked at; but a store that gives nobody an answer is none."""
    cluster = FakeCluster(3)
    broken, whole = (closed(cluster, {0: ["b0", "b1", "b2"]}, 5) for _ in range(2))
    client = cluster.client()
    fault = Fault(error=error)
    cluster.store_fault = lambda name, arguments: fault if (name, *arguments) == ("read_ledger", broken) else None
    sizes = cluster.succeed(copies_bytes(client, [broken, whole]))
    assert (sizes[0], sizes[1] > 0) == (0, True)

    async def story(about: Known) -> Any:
        return await planned(client, [broken, whole], about)

    about = cluster.succeed(known(client))
    plans, (found,) = cluster.succeed(story(about))
    assert [plan.ledger for plan in plans] == [whole]
    assert (found.kind, found.detail) == ("metadata", str(error))
    cluster.store_fault = lambda _name, _arguments: Fault(error=MetaStoreRefused("who are you?"))
    assert isinstance(cluster.fails(story(about)), MetaStoreRefused)
    assert isinstance(cluster.fails(copies_bytes(client, [broken, whole])), MetaStoreRefused)
