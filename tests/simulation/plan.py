"""
What one history will do, drawn from its seed before it begins: a cluster, and steps at given times.

A profile says what may be drawn.  `mix` has every kind of fault and switches each on for a third of the histories, for
faults hide each other; the others are made for one danger.  Each step has a seed of its own, so leaving steps out
changes nothing in those that stay.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

Shape = tuple[int, int, int]
SHAPES: tuple[Shape, ...] = (
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 3),
    (3, 2, 2),
    (4, 2, 2),
    (4, 3, 2),
    (5, 3, 2),
    (2, 2, 1),
    (2, 2, 2),
    (3, 3, 1),
)


@dataclass(frozen=True)
class Step:
    at: float
    kind: str
    seed: int


@dataclass(frozen=True)
class Profile:
    name: str
    weights: dict[str, float]  # kind of step -> how often, relative to each other
    always: frozenset[str] = frozenset()  # kinds that no draw switches off
    shapes: tuple[Shape, ...] = SHAPES
    spares: tuple[int, int] = (0, 2)
    steps: tuple[int, int] = (8, 45)
    gap: float = 0.03  # mean seconds between steps
    writers: tuple[int, ...] = (1, 1, 1, 2)
    batch: int = 5  # most entries of one append
    jitter: tuple[float, ...] = (0.0005, 0.002, 0.01)
    fault_rates: tuple[float, ...] = (0.0, 0.0, 0.1, 0.4)
    chance_on: float = 0.35
    kinds: tuple[str, ...] = ("plain",)  # of ledgers: plain, advanced, deferred; advanced early: ids out of order
    sync: bool = True
    first_id: int = 0
    protocols: tuple[str, ...] = ("v2", "v2", "v3")
    modes: tuple[tuple[tuple[str, Any], ...], ...] = ((),)  # more options of the clients
    bookie: tuple[tuple[str, Any], ...] = ()  # more options of the bookies
    listing_lies: float = 0.0
    losses: float = 0.0  # how often what is sent is lost, and sent again by TCP some time later
    # in how many histories bookies start on any free host, and stay listed for a while after a kill
    moving: float = 0.5
    upkeep: bool = False  # every history ends with repairs and a day later; of other profiles one in `UPKEEP_EVERY`
    heals: bool = False  # processes of AutoRecovery work from the beginning
    delays: tuple[int, ...] = (0, 0, 1)  # of lost bookies, in seconds
    quiet: bool = False  # nothing goes wrong, so everything must go well
    emptied: bool = False  # in the end every ledger is deleted, and its space has to come back
    logs: bool = False  # a named log, and not ledgers alone
    messages: bool = False  # a message store, on a named log
    txns: int = 0  # of publishers
    partitioned: bool = False  # of the log, whose partitions several own
    mirrors: bool = False  # the log is copied to a second cluster, goes over to it, and back
    dedup: bool = False  # producers append, and send again what they were not told of
    late: float = 0.0  # the share of the metadata's faults by which a change takes effect after it failed
    compacts: bool = False  # the log is compacted by key
    ends: bool = False  # the log is terminated, deleted and made again, while it is used
    reads: tuple[str, ...] = ()  # the modes in which replicas are read, under leases
    points: tuple[str, ...] = ()  # procedures at whose steps processes are killed; empty: all


MODES: tuple[tuple[tuple[str, Any], ...], ...] = (
    (), (), (), (), (("delay_ensemble_change", True),), (("explicit_lac_interval_ms", 40),), (("add_quorum_timeout_ms",
    400),), (("ensemble_changes_max", 2),),
    (("speculative_read_ms", 0), ("batch_read", False)), (("delay_ensemble_change", True), ("explicit_lac_interval_ms",
    40)), (("sticky_reads", False),),
    (("disable_ensemble_change", True),),
)  # fmt: skip


WORK = {"append": 40.0, "wait": 8.0}
FAULTS = {
    "kill": 6.0, "start": 9.0, "power": 3.0, "torn": 3.0, "stop_link": 5.0, "heal": 5.0, "cut": 5.0, "slow_host": 3.0,
    "slow_disk": 3.0,
    "pause_bookie": 3.0, "pause_writer": 2.0, "sync_fault": 1.5, "flush_fault": 1.0, "wipe": 1.0, "amnesia": 2.0,
    "expire": 2.0, "jump": 1.5,
    "crash_writer": 1.5, "crash_opener": 3.0, "read_only": 1.5, "spare": 2.0, "lie": 1.0, "flush": 2.0,
}  # fmt: skip
USERS = {"look": 6.0, "poll": 10.0, "follow": 2.0, "open": 4.0, "close": 2.0, "write_lac": 2.0, "peek": 3.0}

MEND = {
    "repair": 8.0, "retire": 3.0, "crash_repair": 3.0, "pause_repair": 2.0, "refill": 4.0, "delete": 2.0,
    "collect": 6.0, "dark_collect": 2.0, "astray": 1.0,
    "surplus": 2.0, "day": 1.0,
}  # fmt: skip
UPKEEP_EVERY = 4
PACES = (0.0, 0.0, 0.0, 0.02, 0.2, 1.0)

PROFILES: dict[str, Profile] = {}


def profile(name: str, weights: dict[str, float], **changes: Any) -> Profile:
    made = PROFILES[name] = Profile(name, {**WORK, **weights}, **changes)
    return made


ALL = frozenset({*WORK, *USERS})
MIX = profile("mix", {**USERS, **FAULTS}, always=ALL, kinds=("plain",) * 6 + ("advanced",), modes=MODES)

# Profiles made for one danger: small, and full of what brings it about.
profile(
    "recovery",
    {"open": 20, "stop_link": 12, "heal": 6, "cut": 6, "slow_host": 6, "look": 4, "poll": 6, "kill": 5, "start": 5},
    chance_on=1.0, steps=(6, 25), batch=2, shapes=((3, 3, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2), (2, 2, 2)), writers=(1,),
    gap=0.004,
    jitter=(0.002, 0.01, 0.03), fault_rates=(0.0, 0.0, 0.2),
)  # fmt: skip
profile(
    "late add",
    {"open": 25, "slow_host": 6, "stop_link": 6},
    chance_on=1.0, steps=(4, 10), batch=1, shapes=((2, 2, 2),), spares=(0, 0), writers=(1,), gap=0.02, jitter=(0.0005,
    0.002), fault_rates=(0.0,),
    protocols=("v2",), losses=0.2, modes=((("batch_read", False),),),  # pieces come from who has the entry: too safe
)  # fmt: skip
profile(
    "change",
    {"kill": 10, "start": 8, "stop_link": 8, "heal": 6, "cut": 8, "slow_host": 6, "look": 3, "poll": 5, "open": 1},
    chance_on=1.0, batch=3, shapes=((3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2), (3, 3, 3)), spares=(1, 3), writers=(1,),
    gap=0.01,
    jitter=(0.002, 0.01), fault_rates=(0.0, 0.4),
)  # fmt: skip
profile(
    "new ensemble",
    {"kill": 20, "start": 4, "crash_writer": 6, "open": 4},
    chance_on=1.0, steps=(6, 20), batch=2, shapes=((2, 2, 2), (2, 2, 1)), spares=(2, 4), writers=(1,), gap=0.01,
    fault_rates=(0.0,),
)  # fmt: skip
profile(
    "power",
    {"power": 8, "torn": 10, "start": 20, "open": 4, "look": 2, "flush": 3, "slow_disk": 4, "kill": 2},
    chance_on=1.0, shapes=((3, 3, 2), (2, 2, 2)), spares=(0, 1), writers=(1,), gap=0.01,
)  # fmt: skip
profile(
    "limbo",
    {"amnesia": 10, "wipe": 4, "start": 16, "open": 8, "stop_link": 8, "heal": 6, "kill": 6},
    chance_on=1.0, shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), writers=(1,), gap=0.01,
)  # fmt: skip
profile(
    "lost files",
    {"lose_files": 8, "start": 16, "flush": 2, "power": 2, "torn": 2, "kill": 2, "open": 5, "stop_link": 2, "heal": 3},
    chance_on=1.0, shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(0, 1), writers=(1,), batch=12, gap=0.02,
    steps=(20, 60), fault_rates=(0.0,), bookie=(("journal_segment_bytes", 4096),),  # a few groups in each
)  # fmt: skip
profile(
    "counted on",
    {"open": 14, "kill": 12, "start": 6, "lose_unnamed": 14, "slow_host": 8, "crash_writer": 3, "refill": 3, "look": 2},
    chance_on=1.0, steps=(6, 20), batch=4, shapes=((3, 3, 2), (4, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(1, 2),
    writers=(1,), gap=0.01,
    jitter=(0.002, 0.01, 0.03), fault_rates=(0.0,),
)  # fmt: skip
profile(
    "restore",
    {"rot": 16, "lose_directory": 20, "amnesia": 1, "start": 20, "refill": 20, "open": 4, "close": 12, "kill": 2,
    "stop_link": 2, "heal": 3, "collect": 2},
    chance_on=1.0, shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(0, 1), writers=(2, 3), gap=0.03,
    fault_rates=(0.0,), upkeep=True,
)  # fmt: skip
profile(
    "tail",
    {"open": 8, "look": 10, "poll": 25, "follow": 6, "peek": 8, "crash_writer": 3, "stop_link": 8, "heal": 5,
    "slow_host": 6, "crash_opener": 6, "lie": 4},
    chance_on=1.0, shapes=((3, 3, 2), (3, 2, 2), (2, 2, 1), (4, 2, 2)), spares=(0, 1), writers=(1,), gap=0.006,
    jitter=(0.002, 0.01, 0.03),
)  # fmt: skip
profile(
    "store",
    {"kill": 6, "start": 6, "open": 5, "close": 4, "look": 2, "poll": 4, "stop_link": 4, "heal": 4},
    chance_on=1.0, fault_rates=(0.3, 0.7), shapes=((3, 3, 2), (3, 2, 2)), spares=(1, 3), writers=(1,), gap=0.008,
    jitter=(0.002, 0.01),
)  # fmt: skip
profile(
    "no spare",
    {"kill": 8, "start": 5, "cut": 5, "look": 2, "poll": 3, "open": 1},
    chance_on=1.0, shapes=((3, 3, 2), (4, 3, 2), (4, 2, 2), (3, 3, 3)), spares=(0, 0), writers=(1,), gap=0.02,
)  # fmt: skip
profile(
    "deferred",
    {"force": 20, "power": 3, "kill": 1, "start": 20, "cut": 2, "again": 4, "crash_writer": 1},
    chance_on=1.0, shapes=((3, 3, 2), (2, 2, 2), (2, 2, 1)), spares=(0, 1), writers=(1,), kinds=("deferred", "deferred",
    "deferred advanced"),
    sync=False, gap=0.02, fault_rates=(0.0,),
)  # fmt: skip
profile(
    "dark start",
    {"dark_start": 10, "force": 3, "kill": 1, "start": 20, "again": 2},
    chance_on=1.0, always=frozenset({"dark_start", "start"}), shapes=((3, 3, 2), (2, 2, 2)), spares=(0, 1),
    writers=(1,), kinds=("deferred",), sync=False, batch=12, gap=0.004, steps=(20, 60), fault_rates=(0.0,),
    bookie=(("journal_segment_bytes", 4096),),
)  # fmt: skip
profile(
    "large ids",
    {"kill": 4, "start": 6, "open": 3, "look": 2, "poll": 3},
    chance_on=1.0, shapes=((3, 2, 2), (5, 3, 2)), spares=(1, 2), writers=(1,), first_id=(1 << 31) - 8,
    fault_rates=(0.0,), gap=0.02,
)  # fmt: skip
# Logs that roll every few entries, and a compaction that takes whatever is not whole.
DUSTY = (
    ("entry_log_bytes_max", 3 << 10),
    ("major_compaction_threshold", 0.97),
    ("minor_compaction_threshold", 0.6),
    ("flush_interval_ms", 1000),
)
profile(
    "everything", {**USERS, **FAULTS, **MEND}, always=ALL, kinds=("plain",) * 6 + ("advanced",), modes=MODES,
    writers=(1, 2, 3), bookie=DUSTY,
    listing_lies=0.2, upkeep=True,
)  # fmt: skip
profile(
    "repair",
    {"wipe": 4, "kill": 10, "start": 5, "repair": 16, "retire": 5, "crash_repair": 4, "pause_repair": 3, "open": 3,
    "amnesia": 3, "refill": 6, "stop_link": 3,
     "heal": 4, "slow_host": 4, "crash_writer": 2, "close": 2, "spare": 5, "day": 1},
    chance_on=0.8, shapes=((3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2), (3, 3, 3), (2, 2, 2)), spares=(1, 3), writers=(1,
    1, 2), gap=0.02, jitter=(0.002, 0.01),
    fault_rates=(0.0, 0.0, 0.3), bookie=DUSTY, upkeep=True,
)  # fmt: skip
profile(
    "garbage",
    {"delete": 6, "collect": 14, "dark_collect": 6, "flush": 14, "kill": 4, "power": 3, "start": 16, "astray": 2,
    "open": 3, "close": 3, "slow_disk": 4, "stranger": 3},
    chance_on=0.85, shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(0, 1), writers=(2, 3, 4), gap=0.02, batch=12,
    fault_rates=(0.0,), bookie=DUSTY,
    listing_lies=0.3, upkeep=True,
)  # fmt: skip
profile(
    "emptied",
    {"hollow": 8, "delete": 4, "collect": 10, "dark_collect": 3, "flush": 14, "kill": 4, "power": 3, "start": 16,
    "close": 3},
    chance_on=0.85, always=frozenset({"hollow"}), shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(0, 1),
    writers=(1, 2, 3), gap=0.02, batch=12, fault_rates=(0.0,), bookie=DUSTY, upkeep=True, emptied=True,
)  # fmt: skip
profile(
    "new index",
    {"reindex": 14, "dark_reindex": 6, "delete": 3, "collect": 8, "flush": 12, "kill": 4, "power": 4, "torn": 4,
    "start": 16, "open": 4, "close": 3,
     "slow_disk": 4, "look": 3, "poll": 4},
    chance_on=0.9, shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(0, 1), writers=(1, 2, 3), gap=0.02, batch=12,
    fault_rates=(0.0,), bookie=DUSTY,
    upkeep=True,
)  # fmt: skip
profile(
    "surplus",
    {"kill": 5, "start": 12, "repair": 14, "retire": 12, "amnesia": 3, "open": 6, "close": 6, "day": 10,
    "pause_repair": 4, "slow_host": 4, "refill": 2},
    chance_on=0.9, shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2), (3, 3, 3)), spares=(2, 3), writers=(1, 2), gap=0.02,
    fault_rates=(0.0,), bookie=DUSTY, upkeep=True,
    moving=0.2,
)  # fmt: skip
profile(
    "idle writer",
    {"kill": 12, "start": 16, "day": 8, "open": 1},
    chance_on=1.0, steps=(8, 25), shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(2, 3), writers=(1,), gap=0.05,
    fault_rates=(0.0,), bookie=DUSTY,
    moving=0.2,
)  # fmt: skip
profile(
    "moves",
    {"kill": 14, "start": 24, "open": 8, "look": 3, "poll": 5, "cut": 6},
    chance_on=1.0, shapes=((3, 3, 2), (3, 2, 2), (3, 3, 3), (2, 2, 2)), spares=(0, 2), writers=(1, 2), gap=0.02,
    fault_rates=(0.0, 0.0, 0.3),
    moving=1.0,
)  # fmt: skip
profile(
    "clocks",
    {"jump": 20, "kill": 5, "start": 8, "open": 4, "look": 4, "poll": 5, "follow": 2, "stop_link": 4, "heal": 5,
    "repair": 3, "slow_host": 3, "close": 1},
    chance_on=1.0, shapes=((3, 3, 2), (3, 2, 2), (4, 3, 2)), spares=(0, 2), writers=(1, 2), gap=0.02, modes=MODES,
)  # fmt: skip
profile(
    "out of order",
    {"open": 3, "look": 12, "poll": 6, "follow": 14, "peek": 6, "close": 1, "stop_link": 4, "heal": 6, "slow_host": 2,
    "kill": 3, "start": 8, "lies": 6},
    chance_on=0.7, always=frozenset({"look", "follow"}), shapes=((3, 3, 2), (3, 2, 2), (2, 2, 1), (4, 2, 2), (5, 3, 2)),
    spares=(0, 1), writers=(1,), gap=0.03,
    kinds=("advanced early", "advanced early", "plain"), fault_rates=(0.0,),
)  # fmt: skip
RETURNS = {"return_empty": 10, "return_forgotten": 3, "return_twin": 2}
profile(
    "returns",
    {**RETURNS, "kill": 2, "start": 8, "open": 2, "look": 2, "poll": 2, "stop_link": 2, "heal": 4, "close": 1,
     "refill": 4, "flush": 2},
    chance_on=0.8, always=frozenset({"return_empty", "start"}), steps=(6, 20), batch=4,
    shapes=((2, 2, 2), (3, 3, 2), (3, 2, 2), (2, 2, 2), (2, 2, 1)), spares=(2, 3), writers=(1, 2), gap=0.05,
    fault_rates=(0.0,), bookie=DUSTY, upkeep=True,
)  # fmt: skip
HEALING = {
    "heal_begin": 6, "heal_crash": 4, "heal_pause": 4, "heal_expire": 4, "heal_stop": 2, "heal_ask": 1,
    "heal_switch": 2, "heal_break": 10, "heal_part": 4,
}  # fmt: skip
profile(
    "healing",
    {**HEALING, "kill": 10, "start": 7, "open": 3, "close": 3, "spare": 5, "crash_writer": 2, "slow_host": 3,
     "stop_link": 3, "heal": 4, "read_only": 1, "expire": 2, "pause_bookie": 2, "delete": 1},
    chance_on=0.7, always=frozenset({"heal_begin", "kill", "start"}),
    shapes=((3, 3, 2), (3, 2, 2), (4, 3, 2), (3, 3, 3), (2, 2, 2)), spares=(1, 3), writers=(1, 2, 3), gap=0.08,
    jitter=(0.002, 0.01), fault_rates=(0.0, 0.0, 0.2),
    bookie=DUSTY, upkeep=True, heals=True,
)  # fmt: skip
profile(
    "healing limbo",
    {**HEALING, "kill": 6, "start": 10, "wipe": 3, "amnesia": 5, "refill": 4, "close": 4, "spare": 4, "retire": 3,
     "repair": 3, "surplus": 3, "power": 2, "day": 1, "rebalance": 6},
    chance_on=0.7, always=frozenset({"heal_begin", "kill", "start"}),
    shapes=((3, 3, 2), (3, 2, 2), (4, 3, 2), (2, 2, 2)), spares=(1, 3), writers=(1, 2), gap=0.08,
    fault_rates=(0.0,), bookie=DUSTY, upkeep=True, heals=True,
)  # fmt: skip
profile(
    "healing unseen",
    {"heal_begin": 4, "heal_crash": 2, "heal_unseen": 8, "heal_late": 8, "kill": 2, "start": 6, "open": 2, "close": 2},
    chance_on=0.7, always=frozenset({"heal_begin", "heal_unseen", "start"}), steps=(6, 25),
    shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(0, 1), writers=(1, 2), gap=0.08,
    fault_rates=(0.0,), bookie=DUSTY, upkeep=True, heals=True,
)  # fmt: skip
profile(
    "healing restarts",
    {"heal_begin": 4, "heal_crash": 2, "heal_pause": 2, "heal_restart": 12, "kill": 3, "start": 8, "open": 2,
     "close": 2, "crash_writer": 1, "spare": 1},
    chance_on=0.7, always=frozenset({"heal_begin", "heal_restart", "start"}), steps=(6, 25),
    shapes=((3, 3, 2), (3, 2, 2), (2, 2, 2)), spares=(1, 2), writers=(1, 2), gap=0.08,
    fault_rates=(0.0, 0.2), bookie=DUSTY, upkeep=True, heals=True, delays=(1,),
)  # fmt: skip
DRAINS = {
    "drain": 10, "drain_undo": 2, "drain_crash": 3, "drain_pause": 3, "drain_read": 6, "look": 3, "poll": 3,
    "close": 2, "spare": 3,
}  # fmt: skip
profile(
    "drain", {**DRAINS, "drain_read": 20, "flush": 3, "follow": 2}, always=frozenset({"drain", "drain_read"}),
    chance_on=0.8, shapes=((3, 3, 2), (3, 2, 2), (4, 3, 2), (3, 3, 3), (2, 2, 2), (2, 1, 1), (1, 1, 1)), spares=(1, 4),
    writers=(1, 2, 3), gap=0.08, jitter=(0.0005, 0.002), fault_rates=(0.0,), bookie=DUSTY, upkeep=True, moving=0.0,
    quiet=True,
)  # fmt: skip
profile(
    "drain faults",
    {**DRAINS, **HEALING, "drain_restart": 6, "kill": 6, "start": 8, "power": 2, "cut": 4, "stop_link": 3, "heal": 4,
     "slow_host": 3, "pause_bookie": 2, "expire": 2, "read_only": 2, "open": 3, "crash_writer": 2, "repair": 3,
     "amnesia": 2, "refill": 4, "surplus": 2, "delete": 1, "collect": 2},
    chance_on=0.6, always=frozenset({"drain", "start"}),
    shapes=((3, 3, 2), (3, 2, 2), (4, 3, 2), (3, 3, 3), (2, 2, 2)), spares=(1, 4), writers=(1, 2, 3), gap=0.08,
    jitter=(0.002, 0.01), fault_rates=(0.0, 0.0, 0.2), bookie=DUSTY, upkeep=True, heals=True,
)  # fmt: skip

# Named logs
OWNERS = {
    "own": 8, "force": 2, "transfer": 2, "roll": 3, "append_large": 7, "barrier": 1, "settings": 1, "stop_owner": 2,
    "crash_owner": 2, "crash": 1, "expire": 2, "repair": 2, "read": 4, "crash_at": 2,
    "orphans": 2,
}  # fmt: skip
PUBLISHERS = {"part": 16, "zombie": 3, "commit": 12, "abort": 2, "new_run": 2, "janitor": 2, "adopt": 2}
BOOKIES = {
    "kill": 2, "start": 6, "stop_link": 2, "heal": 5, "cut": 3, "slow_host": 2, "slow_disk": 2, "pause_bookie": 2,
    "power": 1, "jump": 1, "amnesia": 0.5, "read_only": 0.5, "spare": 1,
}  # fmt: skip
LOG_SHAPES: tuple[Shape, ...] = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (4, 3, 2), (2, 2, 2), (2, 2, 1))


# Values are up to 300 bytes: what an owner sends together leaves in parts, or is more than the windows of its ledger's
# writer take.
LOG_MODES: tuple[tuple[tuple[str, Any], ...], ...] = (
    (),
    (),
    (("window_bytes_max", 500), ("batch_bytes_max", 200)),
    (("window_entries_max", 3), ("batch_entries_max", 2)),
    (("replica_backlog_bytes_max", 400), ("batch_bytes_max", 200)),
)


def log_profile(name: str, weights: dict[str, float], **changes: Any) -> Profile:
    settings: dict[str, Any] = {
        "logs": True, "gap": 0.1, "shapes": LOG_SHAPES, "spares": (1, 2), "steps": (10, 50), "writers": (0,),
        "jitter": (0.0005, 0.002, 0.01), "always": frozenset({"own", "read"}), "modes": LOG_MODES,
    }  # fmt: skip
    return profile(name, weights, **{**settings, **changes})


log_profile(
    "log mix", {**OWNERS, **PUBLISHERS, **BOOKIES}, txns=1, late=0.1, chance_on=0.5,
    always=frozenset({"own", "read", "part", "commit"}),
)  # fmt: skip
log_profile(
    "log takeover", {**OWNERS, "own": 14, "force": 8, "stop_owner": 6, "crash_owner": 5, "expire": 6, "repair": 5},
    chance_on=0.8, gap=0.06, late=0.05, points=("claim", "settle", "open", "roll", "fence", "move"),
    fault_rates=(0.0, 0.0, 0.1),
)  # fmt: skip
log_profile(
    "log publish",
    {**PUBLISHERS, "abort": 5, "new_run": 5, "janitor": 5, "zombie": 8, "own": 3, "read": 2, "stop_owner": 3,
    "crash": 2, "crash_at": 3, "roll": 1, "repair": 1, "orphans": 3},
    chance_on=0.9, always=frozenset({"part", "commit"}), txns=2, gap=0.06, late=0.05, spares=(0, 1),
    points=("part", "publish", "adopt", "abort", "janitor"), fault_rates=(0.0, 0.0, 0.15),
)  # fmt: skip
log_profile(
    "log trim",
    {**OWNERS, **PUBLISHERS, "trim": 14, "tidy": 8, "orphans": 10, "orphans_at_open": 6,
     "repair": 5, "read": 10, "crash_at": 6},
    txns=1, late=0.1, chance_on=0.6, always=frozenset({"own", "part", "commit", "trim", "tidy", "read"}),
    fault_rates=(0.0, 0.15, 0.3), points=("open", "roll", "fence", "publish", "trim", "trim", "orphan"),
)  # fmt: skip
CURSORS = {"cursor": 8, "ack": 30, "persist": 10, "close_cursor": 6, "seek_cursor": 5, "policy": 2, "delete_cursor": 1}
log_profile(
    "log cursors",
    {**OWNERS, **CURSORS, "trim": 10, "tidy": 6, "orphans": 6, "roll": 6, "crash": 4, "expire": 3, "crash_at": 8},
    late=0.1, chance_on=0.7, always=frozenset({"own", "cursor", "ack", "persist", "trim"}), steps=(20, 60),
    fault_rates=(0.0, 0.0, 0.15), points=("cursor", "cursor", "trim", "orphan", "roll"),
)  # fmt: skip
log_profile(
    "log replica",
    {"append": 2, "replica": 8, "propose": 40, "ask": 12, "snapshot": 9, "cut": 9, "close_replica": 3, "tidy": 5,
     "orphans": 3, "repair": 4, "part": 5, "commit": 5, "own": 1, "force": 1, "stop_owner": 2, "crash": 3,
     "expire": 2, "read": 2, "crash_at": 5, "kill": 2, "start": 6},
    txns=1, late=0.1, chance_on=0.6, always=frozenset({"replica", "propose", "ask", "snapshot", "cut"}),
    fault_rates=(0.0, 0.1, 0.3), points=("snapshot", "snapshot", "trim", "open", "roll"),
)  # fmt: skip
log_profile(
    "log compact",
    {**OWNERS, "append": 30, "compact": 12, "trim": 8, "tidy": 5, "orphans": 8, "orphans_at_compact": 6, "read": 8,
     "crash_at": 6, "crash": 2},
    compacts=True, late=0.1, chance_on=0.7, always=frozenset({"own", "append", "compact", "read"}),
    fault_rates=(0.0, 0.15, 0.3), points=("compact", "compact", "trim", "orphan"),
)  # fmt: skip
log_profile(
    "log merge",
    {**OWNERS, **PUBLISHERS, "append": 30, "part": 40, "commit": 30, "merge": 30, "trim": 2, "tidy": 4, "orphans": 6,
     "trim_at_merge": 4, "orphans_at_merge": 6, "roll": 20, "read": 10, "crash_at": 6},
    txns=1, late=0.1, chance_on=0.7, always=frozenset({"own", "append", "part", "commit", "merge", "roll", "read"}),
    steps=(40, 90), fault_rates=(0.0, 0.0, 0.2), points=("merge", "merge", "trim", "orphan", "publish"),
)  # fmt: skip
log_profile(
    "log settings",
    {**OWNERS, "append": 30, "switch_compaction": 12, "settings_of_two": 10, "compact_overtaken": 8, "compact": 16,
     "trim": 8, "roll": 6, "tidy": 5, "read": 4, "crash_at": 4},
    compacts=True, late=0.1, chance_on=0.5, always=frozenset({"own", "append", "compact", "switch_compaction", "read"}),
    steps=(20, 60), fault_rates=(0.0, 0.0, 0.2), points=("compact", "trim"),
)  # fmt: skip
log_profile(
    "log producers",
    {**OWNERS, "produce": 40, "append": 6, "force": 6, "stop_owner": 5, "crash_owner": 5, "expire": 4, "repair": 5,
    "commit": 3, "part": 4},
    txns=1, late=0.1, chance_on=0.7, always=frozenset({"own", "produce"}), gap=0.06, dedup=True,
    fault_rates=(0.0, 0.1, 0.2), points=("claim", "settle", "open", "roll", "fence", "move"),
)  # fmt: skip
log_profile(
    "log partitions",
    {**BOOKIES, "append": 0, "stand": 14, "spread": 45, "leave": 5, "crash_stand": 6, "crash": 2, "expire": 4,
     "grow": 2, "crash_at": 3},
    partitioned=True, late=0.1, chance_on=0.7, always=frozenset({"stand", "spread", "crash_stand"}), gap=0.08,
    fault_rates=(0.0, 0.1, 0.2), points=("claim", "settle", "open", "roll", "fence", "move"),
)  # fmt: skip
log_profile(
    "log mirror",
    {**BOOKIES, "cut": 0, "append": 30, "own": 6, "force": 3, "roll": 4, "append_large": 4, "crash_owner": 3,
     "expire": 2, "read": 4, "mirror": 14, "mirror_crash": 5, "mirror_crash_at": 5, "mirror_switch": 5,
     "mirror_promote": 2, "mirror_back": 3},
    mirrors=True, chance_on=0.7, always=frozenset({"own", "mirror", "mirror_switch"}), gap=0.12, steps=(10, 40),
    fault_rates=(0.0, 0.0, 0.1), points=("claim", "settle", "open", "roll", "move", "mirror", "create"),
)  # fmt: skip
log_profile(
    "log end", {**OWNERS, **PUBLISHERS}, txns=1, late=0.2, chance_on=0.5, steps=(6, 20), ends=True,
    always=frozenset({"own", "part", "commit"}), fault_rates=(0.0, 0.1, 0.3), points=("adopt", "publish", "roll"),
)  # fmt: skip
log_profile(
    "log lease",
    {"read_stand": 14, "read_watch": 5, "read_write": 60, "read_ask": 80, "own": 2, "force": 5, "roll": 3,
     "stop_owner": 6, "crash_owner": 3, "expire": 5, "repair": 6, "read_leases": 2, "jump": 3, "crash_at": 2,
     "read_usurp": 5, "read_repair": 4, "read_group": 6, "transfer": 1, "read": 1, "stop_link": 2, "heal": 5,
     "slow_host": 2, "kill": 1, "start": 4, "append": 10},
    chance_on=0.7, always=frozenset({"read_stand", "read_watch", "read_write", "read_ask"}), steps=(40, 160),
    gap=0.05, late=0.1,
    points=("claim", "settle", "open", "roll", "fence", "move", "lease"), fault_rates=(0.0, 0.0, 0.1),
    reads=("index", "index", "lease", "lease", "barrier", "bounded"),
)  # fmt: skip
MESSAGES = {
    "append": 0, "stand": 10, "watch": 3, "put": 40, "put_group": 12, "put_fitting": 8, "put_early": 5, "fence": 6,
    "takeover": 7, "lose_rows": 5, "trim": 4, "tidy": 2, "look": 14, "close_store": 1, "commit_offset": 2,
    "stop_owner": 2, "crash": 2, "expire": 2, "crash_at": 2, "orphans": 1,
}  # fmt: skip
log_profile(
    "messages", {**MESSAGES, **BOOKIES}, messages=True, late=0.1, chance_on=0.6, gap=0.06, batch=6, steps=(15, 60),
    always=frozenset({"stand", "put", "put_group", "fence", "takeover", "look"}), fault_rates=(0.0, 0.0, 0.1, 0.3),
    points=("claim", "settle", "open", "fence", "snapshot", "dispatch", "rebuild", "trim"),
)  # fmt: skip
log_profile(
    "messages import", {**MESSAGES, **BOOKIES, "import": 16, "kill_import": 12, "put": 20, "takeover": 4},
    messages=True, late=0.1, chance_on=0.5, gap=0.08, steps=(10, 40),
    always=frozenset({"stand", "put", "import", "kill_import"}), fault_rates=(0.0, 0.0, 0.1, 0.3),
    points=("import", "import", "part", "publish", "dispatch"),
)  # fmt: skip
log_profile(
    "log late", {**OWNERS, **PUBLISHERS}, txns=1, late=0.6, chance_on=0.7, always=frozenset({"own", "part", "commit"}),
    fault_rates=(0.1, 0.3),
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Everything that decides a history."""

    profile: Profile
    seed: int
    shape: Shape = (3, 3, 2)
    bookies: int = 3
    ledgers: tuple[str, ...] = ("plain",)
    latency: float = 0.0005
    jitter: float = 0.002
    fragmenting: float = 0.0
    fault_rate: float = 0.0
    protocol: str = "v2"
    modes: tuple[tuple[str, Any], ...] = ()
    directories: tuple[int, int] = (1, 1)  # of journals and of ledgers, of each bookie
    upkeep: bool = False
    moving: bool = False
    pace: float = 0.0  # most seconds that news of the metadata take, each for itself: beside answers, as etcd's are
    steps: tuple[Step, ...] = field(default=())

    def with_steps(self, steps: tuple[Step, ...]) -> "Plan":
        return replace(self, steps=steps)

    def __str__(self) -> str:
        e, w, a = self.shape
        kinds = ", ".join(self.ledgers)
        modes = "".join(f", {name}={value}" for name, value in self.modes)
        return (
            f"profile {self.profile.name!r} seed {self.seed}: E={e} WQ={w} AQ={a}, {self.bookies} bookies, ledgers: "
            f"{kinds}, {self.protocol}, "
            f"latency {self.latency * 1000:g} ms + {self.jitter * 1000:g} ms, metadata faults {self.fault_rate:g}, "
            f"{self.directories[0]} journals, {self.directories[1]} ledger directories{modes}, "
            f"{'bookies move, ' if self.moving else ''}{f'news take {self.pace:g} s, ' if self.pace else ''}"
            f"{len(self.steps)} steps"
        )


def draw(profile: Profile, seed: int) -> Plan:
    rng = Random(f"{profile.name}/{seed}")
    shape = rng.choice(profile.shapes)
    weights = {
        kind: weight
        for kind, weight in profile.weights.items()
        if kind in WORK or kind in profile.always or rng.random() < profile.chance_on
    }
    kinds, odds = list(weights), list(weights.values())
    at, steps = 0.0, []
    for number in range(rng.randint(*profile.steps)):
        steps.append(Step(at, rng.choices(kinds, odds)[0], seed * 1000 + number))
        at += rng.expovariate(1 / profile.gap) if rng.random() < 0.7 else 0.0
    return Plan(
        profile,
        seed,
        shape,
        shape[0] + rng.randint(*profile.spares),
        tuple(rng.choice(profile.kinds) for _ in range(rng.choice(profile.writers))),
        rng.choice((0.0002, 0.001)),
        rng.choice(profile.jitter),
        rng.choice((0.0, 0.0, 0.1)),
        rng.choice(profile.fault_rates),
        rng.choice(profile.protocols),
        rng.choice(profile.modes),
        rng.choice(((1, 1), (1, 2), (1, 3), (2, 2), (2, 3))),
        profile.upkeep or (seed % UPKEEP_EVERY == 0 and not profile.logs),
        rng.random() < profile.moving,
        Random(f"pace {profile.name}/{seed}").choice(PACES),
        tuple(steps),
    )
