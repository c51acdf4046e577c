"""
`quire bench`: throughput and latency of a cluster.

Knows: the options and the report; its keys are those of the yardstick in `bench/`, plus `syncs`.
Does not know: how the load is made or measured (`tools.load`).  It runs on the Twisted face of
the client, in one process, so the client's own cost is part of what it shows.
"""

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThreadPool

from quire.conf.interpreter import build
from quire.tools.load import (
    ClosedLoop,
    Counters,
    Latencies,
    Load,
    OpenLoop,
    Streaming,
    appending,
    look,
    random_reads,
)
from quire.tools.terminal import output
from quire.tools.terminal.bookie_http import metrics_texts
from quire.tools.terminal.options import Json, Metadata, Protocol, Usage, client_options, command, group, metadata_uri
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from quire.client.api import Client, Writer
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

SYNCS = "quire_journal_syncs_total"
PROGRESS_S = 0.2
SHARES = (0.5, 0.99, 0.999)

app = group("Throughput and latency percentiles of a cluster.", "quire bench write --size 1024 --entries 200000")

Size = Annotated[int, typer.Option("--size", min=1, max=4 << 20, metavar="BYTES", help="payload bytes of an entry")]
Entries = Annotated[int, typer.Option("--entries", min=1, metavar="N", help="how many entries")]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate", min=1, metavar="R", help="entries a second, in ticks of 1 ms; without it as fast as it goes"
    ),
]
Window = Annotated[int, typer.Option("--window", min=1, metavar="N", help="entries under way at most (closed loop)")]
Batch = Annotated[int, typer.Option("--batch", min=1, metavar="N", help="entries per call (closed loop)")]
Ensemble = Annotated[int, typer.Option("--ensemble", min=1, metavar="N", help="bookies of the ledger")]
WriteQuorum = Annotated[int, typer.Option("--write", min=1, metavar="N", help="copies of each entry")]
AckQuorum = Annotated[int, typer.Option("--ack", min=1, metavar="N", help="copies on disk before an acknowledgement")]
DigestName = Annotated[str, typer.Option("--digest", metavar="NAME", help="CRC32C, CRC32, MAC or DUMMY")]
Pids = Annotated[
    str,
    typer.Option(
        "--pids",
        metavar="PID,…",
        help="the bookies' processes on this machine, for their CPU; from their /metrics if not given",
    ),
]
Keep = Annotated[bool, typer.Option("--keep", help="do not delete the ledger at the end")]


@command(
    app,
    "quire bench write --size 100 --entries 100000",
    "quire bench write --rate 5000 --entries 10000",
    "quire bench write --window 1 --batch 1 --entries 1000",
)
def write(
    size: Size = 1024,
    entries: Entries = 200_000,
    rate: Rate = None,
    window: Window = 1000,
    batch: Batch = 50,
    protocol: Protocol = None,
    ensemble: Ensemble = 3,
    write_quorum: WriteQuorum = 3,
    ack_quorum: AckQuorum = 2,
    digest: DigestName = "CRC32C",
    pids: Pids = "",
    keep: Keep = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Appends entries to a new ledger, each acknowledged when it is on disk on --ack bookies.

    Latency is that of a batch, from the call (with --rate: from the tick it was due in) to its last acknowledgement.
    """
    check_quorums(ensemble, write_quorum, ack_quorum)
    processes = numbers(pids)
    options = client_options(protocol)
    options = options.model_copy(update={"window_entries_max": max(window, options.window_entries_max)})

    async def work(reactor: "ProcessReactor", client: "Client") -> tuple[dict[str, Any], Latencies]:
        writer = await new_writer(client, ensemble, write_quorum, ack_quorum, digest)
        operate = appending(writer, size)
        await operate(batch)  # connects; not measured
        load: Load
        if rate is None:
            load = ClosedLoop(reactor, operate, entries, window, batch)
        else:
            load = OpenLoop(reactor, operate, entries, rate)
        before, seconds, after = await measured(
            reactor, client, load, processes, f"append to ledger {writer.id}", entries
        )
        await writer.close()
        if not keep:
            await client.delete_ledger(writer.id)
        shape = {"size": size, "entries": entries, "window": window, "batch": batch}
        return report(load.latencies, seconds, shape, before, after, write_quorum) | {
            "rate": rate,
            "ledger": writer.id if keep else None,
        }, load.latencies

    show("write", *with_client(metadata_uri(metadata), work, options), json_wanted)


@command(
    app,
    "quire bench read --size 100 --entries 100000",
    "quire bench read --random --window 1 --entries 2000",
    "quire bench read --random --rate 2000 --entries 10000",
)
def read(
    ledger: Annotated[
        int | None,
        typer.Option(
            "--ledger", min=0, metavar="ID", help="which ledger; without it one is written first and deleted after"
        ),
    ] = None,
    size: Size = 1024,
    entries: Entries = 200_000,
    random_places: Annotated[
        bool, typer.Option("--random", help="single entries from random places instead of all in order")
    ] = False,
    rate: Rate = None,
    window: Window = 1,
    batch: Batch = 1,
    protocol: Protocol = None,
    ensemble: Ensemble = 3,
    write_quorum: WriteQuorum = 3,
    ack_quorum: AckQuorum = 2,
    digest: DigestName = "CRC32C",
    pids: Pids = "",
    keep: Keep = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Reads a ledger: in order, in large batches; or with --random entries from random places, --batch at a time and
    --window under way.
    """
    check_quorums(ensemble, write_quorum, ack_quorum)
    processes = numbers(pids)
    if rate is not None and not random_places:
        raise Usage("--rate is for reads from random places: add --random")

    async def work(reactor: "ProcessReactor", client: "Client") -> tuple[dict[str, Any], Latencies]:
        target = ledger
        if target is None:
            writer = await new_writer(client, ensemble, write_quorum, ack_quorum, digest)
            await ClosedLoop(reactor, appending(writer, size), entries, 10_000, 500).run()
            await writer.close()
            target = writer.id
        reader = await client.open_ledger(target, recover=False)
        last = reader.last_entry_id
        if last < 0:
            raise Usage(f"ledger {target} is empty; give another --ledger")
        load: Load
        if not random_places:
            wanted = min(entries, last + 1)
            load = Streaming(reactor, lambda: reader.stream(0, wanted - 1), wanted)
        elif rate is None:
            load = ClosedLoop(reactor, random_reads(reader, last, random.Random(1)), entries, window, batch)
        else:
            load = OpenLoop(reactor, random_reads(reader, last, random.Random(1)), entries, rate, single=True)
        before, seconds, after = await measured(reactor, client, load, processes, f"read ledger {target}", entries)
        mean = reader.length / (last + 1)
        await reader.close()
        if ledger is None and not keep:
            await client.delete_ledger(target)
        shape = {"size": round(mean), "entries": load.ended, "window": window, "batch": batch}
        return report(load.latencies, seconds, shape, before, after, 1) | {
            "rate": rate,
            "random": random_places,
        }, load.latencies

    show("read", *with_client(metadata_uri(metadata), work, client_options(protocol)), json_wanted)


async def new_writer(client: "Client", ensemble: int, write_quorum: int, ack_quorum: int, digest: str) -> "Writer":
    return await client.create_ledger(
        ensemble_size=ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest=digest,
        custom_metadata={"app": b"quire bench"},
    )


async def measured(
    reactor: "ProcessReactor", client: "Client", load: Load, pids: list[int], title: str, entries: int
) -> tuple[Counters, float, Counters]:
    """Runs the load between two looks at the counters, with a progress bar; (before, seconds, after)."""
    texts = metrics_texts(await client.store.bookies())
    with output.ProgressBar(title, entries) as progress:
        before = await deferToThreadPool(cast(IReactorFromThreads, reactor), reactor.getThreadPool(), look, texts, pids)
        shown = LoopingCall(lambda: progress.advance(load.ended - progress.done))
        shown.clock = cast(IReactorTime, reactor)
        shown.start(PROGRESS_S, now=False)
        try:
            seconds = await load.run()
        finally:
            shown.stop()
        after = await deferToThreadPool(cast(IReactorFromThreads, reactor), reactor.getThreadPool(), look, texts, pids)
        progress.advance(load.ended - progress.done)
    return before, seconds, after


def report(
    latencies: Latencies, seconds: float, shape: Mapping[str, int], before: Counters, after: Counters, copies: int
) -> dict[str, Any]:
    """The yardstick's keys: rates a second, latencies in ms, CPU in us an entry (of bookies: an entry and copy)."""
    entries = shape["entries"]
    p50, p99, p999 = (round(value * 1e3, 3) for value in latencies.percentiles(SHARES))
    syncs = delta(before, after, SYNCS)
    bookie_cpu = (
        None if before.bookie_cpu_s is None or after.bookie_cpu_s is None else after.bookie_cpu_s - before.bookie_cpu_s
    )
    return {
        "entries_per_second": round(entries / seconds),
        "megabytes_per_second": round(entries * shape["size"] / seconds / 1e6, 1),
        "p50_ms": p50,
        "p99_ms": p99,
        "p999_ms": p999,
        "client_cpu_us_per_entry": round((after.client_cpu_s - before.client_cpu_s) / entries * 1e6, 2),
        "bookie_cpu_us_per_entry": None if bookie_cpu is None else round(bookie_cpu / entries / copies * 1e6, 2),
        **shape,
        "seconds": round(seconds, 3),
        "syncs": None if syncs is None else round(syncs),
    }


def delta(before: Counters, after: Counters, name: str) -> float | None:
    """How much a metric of the bookies grew; None when none of them has it."""
    if name not in after.metrics:
        return None
    return after.metrics[name] - before.metrics.get(name, 0.0)


def show(kind: str, found: dict[str, Any], latencies: Latencies, json_wanted: bool) -> None:
    lines = [
        f"{kind}: {found['entries']:,} entries of {found['size']} bytes in {found['seconds']} s",
        f"  {found['entries_per_second']:,} entries/s, {found['megabytes_per_second']} MB/s",
        f"  latency p50 {found['p50_ms']} ms, p99 {found['p99_ms']} ms, p999 {found['p999_ms']} ms",
        (
            f"  CPU per entry: client {found['client_cpu_us_per_entry']} us, each bookie "
            f"{value(found['bookie_cpu_us_per_entry'])} us"
        ),
        f"  syncs of all bookies: {value(found['syncs'])}",
        *latencies.histogram(),
    ]
    here = build()
    if here.optimised is False:
        lines.append(f"  this client's Python is {here.words}: the same code takes 0.6 to 0.9 of the CPU with it")
    output.document(json_wanted, found | {"python": here.words}, lines)


def value(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def numbers(text: str) -> list[int]:
    """Process ids from --pids."""
    try:
        return [int(part) for part in text.replace(" ", ",").split(",") if part]
    except ValueError:
        raise Usage(f"--pids takes process ids parted by commas, not {text!r}") from None


def check_quorums(ensemble: int, write_quorum: int, ack_quorum: int) -> None:
    if not ack_quorum <= write_quorum <= ensemble:
        raise Usage(f"--ack {ack_quorum} <= --write {write_quorum} <= --ensemble {ensemble} must hold")
