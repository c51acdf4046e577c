"""A whole scrub on the clients' fake cluster, and faults for it."""

from collections.abc import Callable
from typing import Any

from quire.client.api import Client
from quire.client.core.quorum import Quorums
from quire.protocol.digest import HEADER
from quire.replication.scrub.examine import Manner
from quire.replication.scrub.judge import Finding, suspicions
from quire.replication.scrub.ledgers import known, planned
from quire.replication.scrub.plan import everything, lanes, shares_of
from quire.replication.scrub.whole import Scrubbing, first_look, second_looks
from tests.client.fakes.cluster import FakeCluster, Request
from tests.metadata import stored
from tests.replication.stories import DIGEST

# SPDX-License-Identifier: Apache-2.0


async def scrub(
    client: Client,
    by_lists: bool = False,
    between: Callable[[], Any] = lambda: None,
    wanted: Callable[[int, int], bool] = everything,
) -> list[Finding]:
    """All that is wrong with all ledgers; `between` is called between the two looks."""
    plans, found = await planned(client, await client.ledger_ids(-1, 1000), await known(client))
    shares = [share for plan in plans for share in shares_of(plan.ledger, plan.metadata, plan.last, wanted)]
    how = Scrubbing("presence" if by_lists else "full")
    seen = [each for lane in lanes(shares, 2) for each in await first_look(client, how, lane, Manner())]
    between()
    suspected = suspicions({plan.ledger: (Quorums.of(plan.metadata), plan.last) for plan in plans}, seen)
    return found + await second_looks(client, how, suspected)


def changing(cluster: FakeCluster, ledger: int) -> None:
    """From now on the metadata is another one after each reading of entries."""

    def judge(request: Request) -> str:
        if request.op == "batch":
            now = stored.Ledgers(cluster.shared)[ledger]
            stored.Ledgers(cluster.shared)[ledger] = now._replace(version=now.version + 1)
        return "pass"

    cluster.judge = judge


def scrubbed(cluster: FakeCluster, **how: Any) -> list[tuple[str, str, int, int, int]]:
    """(kind, bookie, first, last, entries) of each finding."""
    found = cluster.succeed(_story(cluster.client(), how))
    return [(each.kind, each.bookie, each.first, each.last, each.entries) for each in found]


async def _story(client: Client, how: dict[str, Any]) -> list[Finding]:
    return await scrub(client, **how)


def rewrite(
    cluster: FakeCluster, bookie: str, ledger: int, entry: int, *, lac: int | None = None, payload: bytes | None = None
) -> None:
    """Another last add confirmed or payload, with a digest that holds."""
    stored = cluster.bookies[bookie].ledgers[ledger].entries
    _ledger, _entry, had, length = HEADER.unpack_from(stored[entry])
    body = stored[entry][DIGEST.overhead :] if payload is None else payload
    stored[entry] = DIGEST.entry(ledger, entry, had if lac is None else lac, length, body)
