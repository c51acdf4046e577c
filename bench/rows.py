"""
The rows of `make bench`: what is measured on which sides, and what is wanted of it.

A row is a verb of the sides with its words (`bench.sides`), or a module of this folder that measures by itself.  Its
first side is ours.  What is wanted is a bound of a figure: of the median ratio to another side in the same run, or of
the ratio to what the same run of ours says or a number.

Knows: all rows.  Does not know: how one is measured, or printed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.ratios import Comparison
from bench.sides import Run

# SPDX-License-Identifier: Apache-2.0

UNITS = {
    "_per_second": "/s",
    "_per_ledger": "/ledger",
    "_ms": "ms",
    "_us_per_entry": "us/entry",
    "_mb": "MB",
    "_s": "s",
    "seconds": "s",
}
SCALED = ("entries", "written", "rounds", "count", "ledgers", "mb")  # words of which a short run has a tenth
JAVA = "java"
TUNED = "java, journalFlushWhenQueueEmpty"
ON_QUIRE = "java on quire"
TLS, JAVA_TLS = "quire, tls", "java, tls"  # certificates on both sides
DLEDGER = "java dledger"
ROCKETMQ = "java rocketmq"  # in DLedger mode
CHECKOUT_CPU_RATIO_MAX = 1.03
PAIRS, P99_PAIRS = 5, 9  # of a row that has nothing else to say; a p99 scatters more than a rate


@dataclass(frozen=True)
class Wanted:
    """A bound of `figure` in ours / theirs, where theirs is side `beside`, or, named so, `limit` of our own run."""

    figure: str
    bound: float
    beside: str
    at_most: bool
    limit: Callable[[Run], float] | None = None
    by_interval: bool = False

    @property
    def unit(self) -> str:
        return next(unit for ending, unit in UNITS.items() if self.figure.endswith(ending))

    def comparison(self, row: str, ours: Sequence[Run], theirs: Sequence[Run]) -> Comparison:
        limit, figure = self.limit, self.figure
        return Comparison(
            f"{row}: {figure} / {self.beside}",
            [float(run[figure]) for run in ours],
            [limit(run) for run in ours] if limit else [float(run[figure]) for run in theirs],
            self.bound,
            at_most=self.at_most,
            by_interval=self.by_interval,
            unit=self.unit,
        )


@dataclass(frozen=True)
class Row:
    name: str
    verb: str
    words: Mapping[str, int | str]
    sides: tuple[str, ...]
    wanted: tuple[Wanted, ...]
    bookies: int = 3
    own_pairs: int | None = None
    module: bool = False  # `verb` is a module of this folder

    @property
    def pairs(self) -> int:
        """If --pairs says nothing."""
        p99 = any(wanted.figure.startswith("p99") for wanted in self.wanted)
        return self.own_pairs or (P99_PAIRS if p99 else PAIRS)

    def scaled(self, quick: bool) -> dict[str, int | str]:
        """The words; a tenth of the work when little is asked for."""
        words = dict(self.words)
        for name in SCALED if quick else ():
            if words.get(name):
                words[name] = max(int(words.get("batch", 1)), int(words[name]) // 10)
        return words


def at_least(figure: str, bound: float, beside: str = JAVA, by_interval: bool = False) -> Wanted:
    return Wanted(figure, bound, beside, False, by_interval=by_interval)


def at_most(figure: str, bound: float, beside: str = JAVA, by_interval: bool = False) -> Wanted:
    return Wanted(figure, bound, beside, True, by_interval=by_interval)


def within(figure: str, said: str, limit: Callable[[Run], float]) -> Wanted:
    return Wanted(figure, 1.0, said, True, limit)


RATE, CPU = "entries_per_second", "cpu_us_per_entry"


def load(size: int, entries: int, batch: int = 50, window: int = 1000, **more: int) -> dict[str, int | str]:
    return {"size": size, "entries": entries, "window": window, "batch": batch, **more}


ALL = ("quire", "bare", JAVA)
BESIDE = ("quire", JAVA)


def row(name: str, verb: str, words: Mapping[str, int | str], *wanted: Wanted, **more: Any) -> Row:
    """Makes a row beside Apache's, if `sides` says nothing else."""
    return Row(name, verb, words, **{"sides": BESIDE, "wanted": wanted, **more})


def open_loop(name: str, rate: int, size: int, *wanted: Wanted) -> Row:
    """Four seconds; nothing but the rate holds the appends back."""
    words = load(size, 4 * rate, window=100_000, rate=rate)
    return row(name, "append", words, at_most("p50_ms", 0.5), at_most("p99_ms", 0.3), *wanted)


def reading(size: int, entries: int) -> dict[str, int | str]:
    return {"size": size, "written": entries, "entries": entries, "how": "batch"}


def by_module(name: str, module: str, words: Mapping[str, int | str], *wanted: Wanted, **more: Any) -> Row:
    """Measured by a module of this folder."""
    return row(name, module, words, *wanted, module=True, **more)


def beside_dledger(name: str, rate: float | None, **words: int | str) -> Row:
    """Appends of a log's owner, at least so many times DLedger's; without a rate: failovers, no longer than its own."""
    wanted = at_most("failover_s", 1.0, DLEDGER) if rate is None else at_least(RATE, rate, DLEDGER)
    return by_module(f"dledger {name}", "dledger", words, wanted, sides=("log", DLEDGER))


def beside_rocketmq(name: str, *wanted: Wanted, **words: int | str) -> Row:
    """Messages of a store's master beside three brokers of a DLedger group."""
    return by_module(f"messages {name}, beside RocketMQ", "rocketmq", words, *wanted, sides=("messages", ROCKETMQ))


SLOWER = at_least(RATE, 0.45, "bare"), at_most("p99_ms", 0.7), at_most("p99_ms", 1.2, "bare")  # of small entries
AT_RANDOM = {"size": 1024, "window": 1, "batch": 1}
MANY = {"size": 1024, "count": 1000, "entries": 50_000, "ensemble": 5, "write": 3, "ack": 2, "protocol": "v3"}

ROWS = (
    # First: before anything was appended.
    row(
        "memory after start", "memory", {"entries": 0}, within("resident_mb", "80 MB", lambda _: 80.0), sides=("quire",)
    ),
    row(
        *("append 100 B", "append", load(100, 300_000), at_least(RATE, 3.5), *SLOWER, at_most(CPU, 0.35)),
        at_most("client_cpu_us_per_entry", 2.0, "bare"),
        sides=ALL,
    ),
    row(
        *("append 1 KiB", "append", load(1024, 150_000), at_least(RATE, 2.3), *SLOWER, at_most(CPU, 0.45)),
        sides=ALL,
    ),
    row(
        *("append 64 KiB", "append", load(65_536, 5_000)),
        *(at_least(RATE, 1.8), at_least(RATE, 0.9, "bare"), at_most(CPU, 0.5)),
        sides=ALL,
    ),
    row("append 100 B, one a call", "append", load(100, 150_000, batch=1), at_least(RATE, 2.2), sides=ALL),
    row(
        *("append 1 KiB over TLS", "append", load(1024, 150_000)),
        *(at_least(RATE, 0.75, "quire"), at_least(RATE, 1.3, JAVA_TLS)),
        sides=(TLS, "quire", JAVA_TLS),
    ),
    open_loop("open loop, 25,000/s of 1 KiB", 25_000, 1024),
    open_loop("open loop, 50,000/s of 100 B", 50_000, 100),
    open_loop("open loop, 5,000/s of 1 KiB", 5_000, 1024, at_most(CPU, 0.9)),
    row("java client 100 B on quire", "append", load(100, 200_000), at_least(RATE, 0.6), sides=(ON_QUIRE, JAVA)),
    row("java client 1 KiB on quire", "append", load(1024, 100_000), at_least(RATE, 0.6), sides=(ON_QUIRE, JAVA)),
    row("read 1 KiB in order", "read", reading(1024, 200_000), at_least(RATE, 3.0)),
    row("read 100 B in order", "read", reading(100, 500_000), at_least(RATE, 3.0)),
    row("read at random", "random", AT_RANDOM | {"written": 200_000, "entries": 5_000}, at_most("p50_ms", 0.4)),
    row(
        *("tail at 5,000/s of 1 KiB", "tail", {"size": 1024, "entries": 20_000, "rate": 5_000}),
        within("p50_ms", "its append p50 + 1 ms", lambda run: run["append_p50_ms"] + 1),
        within("p99_ms", "its append p99 + 2 ms", lambda run: run["append_p99_ms"] + 2),
    ),
    row(
        *("recover 1,000 in flight", "recoveries", {"size": 1024, "inflight": 1000, "rounds": 20}),
        at_most("p50_ms", 0.2),
    ),
    row("recover none in flight", "recoveries", {"size": 1024, "inflight": 0, "rounds": 50}, at_most("p50_ms", 0.5)),
    row(
        *("create, append, close; delete", "ledgers", {"size": 100, "count": 500}),
        *(at_least("made_per_second", 2.0), at_least("deleted_per_second", 2.0)),
    ),
    row("memory after load", "memory", load(1024, 300_000), within("resident_mb", "200 MB", lambda _: 200.0)),
    row(
        *("one outstanding append", "append", load(1024, 3000, batch=1, window=1)),
        *(at_most("p50_ms", 0.9, TUNED), at_most("p50_ms", 1.15, "bare")),
        sides=(*ALL, TUNED),
    ),
    row(
        *("1,000 ledgers, E5/W3/A2, appends and reads, V3", "many", MANY, at_least(RATE, 1.0), at_most("p99_ms", 1.0)),
        bookies=5,
    ),
    by_module(
        *("append beside flush, compaction and catch-up reads", "interference", {"seconds": 4}),
        *(at_most("p50_ms", 1.2, "alone"), at_most("p99_ms", 1.5, "alone")),
        sides=("busy", "alone"),
    ),
    by_module(
        *("restart with 1 GB", "restart", {"mb": 1000}),
        *(at_most("killed_s", 1.0), within("clean_s", "0.5 s", lambda _: 0.5)),
        own_pairs=3,
    ),
    by_module(
        *("repair of small ledgers", "repair", {"ledgers": 2000}),
        *(at_least("ledgers_per_second", 1.5), within("operations_per_ledger", "4", lambda _: 4.0)),
    ),
    by_module(
        *("append beside a repair", "repair_beside", {"mb": 1000}),
        *(at_most(part, 1.2, "alone", by_interval=True) for part in ("p50_ms", "p99_ms")),
        sides=("beside", "alone"),
    ),
    by_module(
        *("repair of a large ledger", "repair_large", {"mb": 500}, at_least("mb_per_second", 0.5, "copy")),
        sides=("quire", "copy"),
        own_pairs=3,
    ),
    beside_dledger("100 B in batches, on disk", 1.0, size=100, entries=50_000),
    beside_dledger("100 B in batches, no sync", 1.5, size=100, entries=50_000, sync="no"),
    beside_dledger("1 KiB in batches, on disk", 1.0, size=1024, entries=50_000),
    beside_dledger("1 KiB in batches, no sync", 1.5, size=1024, entries=50_000, sync="no"),
    beside_dledger("100 B, a batch is one entry, on disk", 1.0, size=100, entries=500_000, whole="yes"),
    beside_dledger("100 B, a batch is one entry, no sync", 1.5, size=100, entries=500_000, whole="yes", sync="no"),
    beside_dledger("1 KiB, a batch is one entry, on disk", 1.0, size=1024, entries=100_000, whole="yes"),
    beside_dledger("1 KiB, a batch is one entry, no sync", 1.5, size=1024, entries=100_000, whole="yes", sync="no"),
    beside_dledger("100 B, one a call, on disk", 1.0, size=100, entries=30_000, batch=1, calls=1000),
    beside_dledger("1 KiB, one a call, on disk", 1.0, size=1024, entries=30_000, batch=1, calls=1000),
    beside_dledger("failover, a session of 4 s", None, failover="yes", session=4000),
    beside_dledger("failover, settings as they come", None, failover="yes"),
    beside_rocketmq(
        "of 1 KiB, one a call",
        at_least(RATE, 1.0, ROCKETMQ),
        at_most("p99_ms", 1.0, ROCKETMQ),
        size=1024,
        entries=20_000,
    ),
    beside_rocketmq("after SIGKILL of the master", at_most("failover_s", 0.5, ROCKETMQ), failover="yes", session=4000),
)

# Both clients on both kinds of bookies would mix what is compared: each checkout is measured as a whole.
OF_CHECKOUTS = "this", "before"
COST = (
    at_least(RATE, 1.0, "before", by_interval=True),
    at_most("p50_ms", 1.0, "before", by_interval=True),
    at_most(CPU, CHECKOUT_CPU_RATIO_MAX, "before"),
)
FLUSH = (at_most("cpu_us_per_entry", CHECKOUT_CPU_RATIO_MAX, "before"),)
NO_SLOWER = tuple(
    at_least(f"{figure}_per_second", 1.0, "before", by_interval=True) for figure in ("made", "listed", "deleted")
)
CHECKOUT_ROWS = tuple(
    row(name, verb, words, *wanted, sides=OF_CHECKOUTS, bookies=0 if verb == "flush" else 3)
    for name, verb, words, wanted in (
        ("append 100 B", "append", load(100, 300_000), COST),
        ("append 1 KiB", "append", load(1024, 150_000), COST),
        ("append 100 B, one a call", "append", load(100, 100_000, batch=1), COST),
        ("one outstanding append", "append", load(1024, 3000, batch=1, window=1), COST),
        ("read 100 B in order", "read", reading(100, 1_000_000), COST),
        ("read 1 KiB at random", "random", AT_RANDOM | {"written": 10_000, "entries": 10_000}, COST),
        # The CPU of the flush alone: the rows above have it only when a flush falls into a run.
        ("flush 100 B", "flush", {"entries": 100_000, "ledgers": 10, "run": 50}, FLUSH),
        ("flush 100 B, many ledgers", "flush", {"entries": 20_000, "ledgers": 20_000, "run": 1}, FLUSH),
        ("create, append, close; delete", "ledgers", {"size": 100, "count": 500}, (NO_SLOWER[0], NO_SLOWER[2])),
        ("metadata of many: make, list, delete", "stored", {"count": 5000}, NO_SLOWER),
        ("recover 1,000 in flight", "recoveries", {"size": 1024, "inflight": 1000, "rounds": 20}, COST[1:2]),
        ("take over a log", "takeovers", {"size": 1024, "rounds": 30}, COST[1:2]),
    )
)
