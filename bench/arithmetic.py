"""
`python -m bench.arithmetic`: what a large cluster asks of its metadata store, by arithmetic from measured costs.

    python -m bench.arithmetic            prints the tables of docs/scale.md, "Arithmetic"
    python -m bench.arithmetic --write    and puts them there

Each line is a formula of the costs in docs/performance/store-costs.json (`bench.store_costs` measures them; a test
counts those again that are the same everywhere) and of a cluster's size.  What a store can give is a limit with a name
and a reason.

Knows: the formulas, the limits, the page's section.  Does not know: how costs are measured.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bench.store_costs import BOOKIE, FIGURES
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.log import LogSettings

# SPDX-License-Identifier: Apache-2.0

PAGE = FIGURES.parents[1] / "scale.md"
BEGIN, END = "<!-- made by python -m bench.arithmetic -->\n", "<!-- end of what python -m bench.arithmetic made -->\n"
DAY_S = 86_400
NAME_BYTES = 4 + len("L0000")  # of a ledger in a listing: a length and the name
ID_BYTES = 4 + len(BOOKIE.format(0, 0))  # of a bookie in a listing
GIB = 1 << 30

GC_S = BookieOptions.model_fields["gc_interval_ms"].default / 1000
PASS_PER_SECOND = AutoRecoveryOptions.model_fields["ledgers_per_second"].default
SEGMENT_BYTES = LogSettings.model_fields["roll_bytes"].default


@dataclass(frozen=True, slots=True)
class Cluster:
    """The size of a cluster.  `life_days`: of a ledger, which is a log's segment; `restarts`: of each bookie, a day."""

    bookies: int
    ledgers: int
    clients: int
    life_days: float = 30.0
    restarts: float = 1.0

    @property
    def ledgers_per_second(self) -> float:
        """Ledgers that come, and as many go."""
        return self.ledgers / (self.life_days * DAY_S)

    def part(self, clusters: int) -> "Cluster":
        """One of so many among which it is divided."""
        return replace(
            self, bookies=self.bookies // clusters, ledgers=self.ledgers // clusters, clients=self.clients // clusters
        )


Costs = Mapping[str, Any]
Asks = Callable[[Cluster, Costs], float]


def nodes(cluster: Cluster, _costs: Costs) -> float:
    """A ledger's, the directories above ledgers (2-4-4 digits), a bookie's registration and its cookie."""
    return cluster.ledgers * (1 + 1e-4 + 1e-8) + 2 * cluster.bookies


def value_bytes(cluster: Cluster, costs: Costs) -> float:
    return float(cluster.ledgers * costs["bytes"]["segment of a log"])


def writes(cluster: Cluster, costs: Costs) -> float:
    """Each second: of a segment that begins and ends, and of a ledger that is deleted with its edit."""
    one = costs["log"]["roll write"] + costs["life"]["delete write"] + 1
    return cluster.ledgers_per_second * float(one)


def watches(cluster: Cluster, costs: Costs) -> float:
    """Counts those of bookies, and of clients that read: each of these watches every bookie."""
    mine, tail = costs["watches"]["bookies"], costs["watches"]["tail"]
    per_client = tail["base"] + tail["per_bookie"] * cluster.bookies
    return float(cluster.bookies * mine["per_bookie"] + cluster.clients * per_client)


def restart_bytes(cluster: Cluster, _costs: Costs) -> float:
    """Each second: a bookie that goes or comes changes the list, which every client then reads."""
    return 2 * cluster.bookies * cluster.restarts / DAY_S * cluster.clients * cluster.bookies * ID_BYTES


def collected_ids(cluster: Cluster, _costs: Costs) -> float:
    """Each second: every bookie lists all ledgers in each round of its garbage collection."""
    return cluster.bookies * cluster.ledgers / GC_S


def pass_s(cluster: Cluster, _costs: Costs) -> float:
    """The auditor reads every ledger's metadata after a loss, at the rate that it is allowed."""
    return cluster.ledgers / PASS_PER_SECOND


def memory(store: str) -> Asks:
    return lambda cluster, costs: cluster.ledgers * float(costs["stores"][store]["memory"])


def disk(store: str) -> Asks:
    return lambda cluster, costs: cluster.ledgers * float(costs["stores"][store]["disk"])


class Limit(NamedTuple):
    """The most that a demand may be, and why that."""

    demand: str
    asks: Asks
    most: float
    why: str


def limits(costs: Costs) -> list[Limit]:
    """The limits of one store, the same order as the lines of the tables."""
    listed = costs["stores"]["zookeeper"]["listed_per_second"]
    return [
        Limit("memory of ZooKeeper", memory("zookeeper"), 32 * GIB, "a heap of 32 GiB, which a full collection stops"),
        Limit("database of etcd", disk("etcd"), 8 * GIB, "8 GiB, the most that etcd's documentation advises"),
        Limit("writes/s", writes, 10_000, "10,000 synced transactions/s of an ensemble"),
        Limit("watches", watches, 1e7, "10 million, of about 100 bytes each in a server of ZooKeeper"),
        Limit("lists of bookies, bytes/s", restart_bytes, 1e8, "100 MB/s, a tenth of a server's network"),
        Limit(
            "ids listed by bookies/s",
            collected_ids,
            5 * listed,
            f"five servers, each with what one gave here to one client: {listed:,.0f}/s",
        ),
        Limit("auditor's pass, s", pass_s, 6 * 3600, "6 hours in which a lost bookie's ledgers wait for their mark"),
    ]


def ends_at(limit: Limit, like: Cluster, costs: Costs) -> Cluster:
    """The largest cluster of the same shape (ledgers and clients in proportion to bookies) within the limit."""
    low, high = 1, 1 << 40
    while low < high:
        middle = (low + high + 1) // 2
        if limit.asks(scaled(like, middle), costs) <= limit.most:
            low = middle
        else:
            high = middle - 1
    return scaled(like, low)


def scaled(like: Cluster, bookies: int) -> Cluster:
    """A cluster of the same shape, of so many bookies."""
    share = bookies / like.bookies
    return replace(like, bookies=bookies, ledgers=int(like.ledgers * share), clients=int(like.clients * share))


# -- the page --------------------------------------------------------------------------------------------------------

SIZES = (Cluster(100, 10**7, 100), Cluster(1_000, 10**8, 1_000), Cluster(10_000, 10**9, 10_000))
INTERNET = SIZES[-1]
SPLITS = (1, 10, 100)


def short(number: float) -> str:
    """A number of three digits at most."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


LINES: tuple[tuple[str, Asks], ...] = (
    ("ledgers that come, and go, /s", lambda cluster, _costs: cluster.ledgers_per_second),
    ("bytes of users, /s", lambda cluster, _costs: cluster.ledgers_per_second * SEGMENT_BYTES),
    ("nodes", nodes),
    ("bytes of values", value_bytes),
    ("heap of ZooKeeper", memory("zookeeper")),
    ("database of etcd", disk("etcd")),
    ("file of SQLite", disk("sqlite")),
    ("writes/s", writes),
    ("watches", watches),
    ("lists of bookies that clients read, bytes/s", restart_bytes),
    ("ids that bookies list, /s", collected_ids),
    ("a pass of the auditor, s", pass_s),
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = [f"| {' | '.join(line)} |\n" for line in (head, *rows)]
    return "".join((lines[0], f"|{'---|' * len(head)}\n", *lines[1:]))


def section(costs: Costs) -> str:
    """Makes the tables of the page."""
    sizes = [f"{each.bookies:,} bookies, {short(each.ledgers)} ledgers" for each in SIZES]
    asked = table(
        ["asked of the store", *sizes],
        [[name, *(short(asks(each, costs)) for each in SIZES)] for name, asks in LINES],
    )
    ends = table(
        ["limit", "reason", "reached with", "of the largest"],
        [
            [
                limit.demand,
                limit.why,
                of_cluster(ends_at(limit, INTERNET, costs)),
                f"{limit.asks(INTERNET, costs) / limit.most:,.3g} ×",
            ]
            for limit in limits(costs)
        ],
    )
    splits = table(
        ["", *(f"{count} cluster{'s' if count > 1 else ''}" for count in SPLITS)],
        [
            [
                limit.demand,
                *(f"{limit.asks(INTERNET.part(count), costs) / limit.most:,.3g} ×" for count in SPLITS),
            ]
            for limit in limits(costs)
        ],
    )
    one = table(
        ["one ledger", "ZooKeeper", "etcd", "SQLite"],
        [
            [
                name,
                *(
                    short(costs["stores"][store][key]) if key in costs["stores"][store] else ""
                    for store in ("zookeeper", "etcd", "sqlite")
                ),
            ]
            for name, key in (
                ("memory, bytes", "memory"),
                ("disk, bytes", "disk"),
                ("made by one client, /s", "made_per_second"),
                ("listed by one client, /s", "listed_per_second"),
                ("read by one client, /s", "read_per_second"),
            )
        ],
    )
    return f"""{one}
{asked}
{ends}
{splits}"""


def of_cluster(cluster: Cluster) -> str:
    return f"{short(cluster.bookies)} bookies, {short(cluster.ledgers)} ledgers"


def page(text: str, costs: Costs) -> str:
    """The page with the section made again."""
    before, begin, rest = text.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{BEGIN}\n{section(costs)}\n{END}{after}"


def main() -> None:
    """Prints the tables, or puts them into the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.arithmetic")
    parser.add_argument("--write", action="store_true", help=f"put them into {PAGE.name}")
    given = parser.parse_args()
    costs = json.loads(FIGURES.read_text())
    if given.write:
        PAGE.write_text(page(PAGE.read_text(), costs))
    print(section(costs))


if __name__ == "__main__":
    main()
