"""
`quire demo`: the tour.  A real file goes into a ledger line by line while a bookie is killed, and comes back the same.

Knows: the steps of the tour and when it may call itself a success: equal digests and at least one ensemble change.
Does not know: how a ledger survives; that is the client's.  Nothing here is simulated: four bookie processes, SIGKILL.
"""

import hashlib
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.local_cluster.cluster import LocalCluster, store_kind
from quire.tools.terminal import output
from quire.tools.terminal.input import PAYLOAD_BYTES_MAX, Appender
from quire.tools.terminal.options import Json, Protocol, Usage, client_options, command, single
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from quire.client.api import Client, Writer
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

BOOKIES = 4  # three for the ensemble, one to step in
BATCH_ENTRIES = 1000
PARTS = 8  # even a small file goes in that many
ENTRIES_MIN = 4  # the smallest work: two before the kill, two after it
CHANGE_WAIT_S = 20.0  # how long a writer may take to notice a killed bookie

app = single()


@command(app, "quire demo", "quire demo access.log --metadata zookeeper --protocol v3")
def demo(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="any file; the source of Python's standard library if not given"),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="sqlite|zookeeper|etcd", help="the kind of store; sqlite if not given"),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="an empty place for the cluster's files; a temporary one if not given"
        ),
    ] = None,
    protocol: Protocol = None,
    json_wanted: Json = False,
) -> None:
    """
    Appends a real file to a ledger, kills a bookie midway with SIGKILL, reads everything back and compares.

    Four bookies and a metadata store are started on this machine for it, and stopped after. Exit status 0 means that
    the digests of input and output are equal and that the ledger changed its ensemble at least once.
    """
    kind = store_kind(metadata)
    files = [file] if file is not None else standard_library()
    line_max = max(1, min(PAYLOAD_BYTES_MAX, sum(path.stat().st_size for path in files) // PARTS))
    entries, size = count(files, line_max)
    if entries < ENTRIES_MIN:
        raise Usage(f"{file} has {size} bytes, {ENTRIES_MIN} are needed to kill a bookie in the middle")
    options = client_options(protocol)
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise Usage(f"{directory} is not empty; the demo starts a new cluster")
    with tempfile.TemporaryDirectory(prefix="quire-demo-") as temporary:
        place = directory.expanduser() if directory is not None else Path(temporary)
        output.note(f"starting {BOOKIES} bookies and a metadata store ({kind or 'sqlite'}) in {place}")
        with LocalCluster(place, BOOKIES, kind) as cluster:

            async def work(reactor: "ProcessReactor", client: "Client") -> dict[str, Any]:
                return await Tour(reactor, client, cluster, files, entries, line_max).run()

            done = with_client(cluster.uri, work, options)
    done["protocol"] = options.protocol
    done["input_bytes"] = size
    failure = verdict(done)
    output.document(json_wanted, done, summary(done))
    if failure:
        output.note(f"quire: the demo failed: {failure}")
        raise typer.Exit(1)


class Tour:
    """One tour: append, kill, append, close, read, compare."""

    def __init__(
        self,
        reactor: "ProcessReactor",
        client: "Client",
        cluster: LocalCluster,
        files: Sequence[Path],
        entries: int,
        line_max: int,
    ) -> None:
        self.reactor = reactor
        self.client = client
        self.cluster = cluster
        self.files = files
        self.entries = entries
        self.line_max = line_max
        self.killed = ""

    async def run(self) -> dict[str, Any]:
        writer = await self.client.create_ledger(
            ensemble_size=3, write_quorum=3, ack_quorum=2, custom_metadata={"app": b"quire demo"}
        )
        sent, append_s = await self.append(writer)
        metadata = await self.client.metadata(writer.id)
        back, count_back, read_s = await self.read_back(writer.id, metadata.last_entry)
        megabytes = metadata.length / 1e6
        return {
            "ledger": writer.id,
            "entries": metadata.last_entry + 1,
            "megabytes": round(megabytes, 1),
            "append_seconds": round(append_s, 2),
            "append_entries_per_second": round(self.entries / append_s),
            "append_megabytes_per_second": round(megabytes / append_s, 1),
            "read_entries": count_back,
            "read_seconds": round(read_s, 2),
            "read_entries_per_second": round(count_back / read_s),
            "read_megabytes_per_second": round(megabytes / read_s, 1),
            "killed": self.killed,
            "ensemble_changes": len(metadata.fragments) - 1,
            "fragments": [
                {"first": first, "last": last, "bookies": list(bookies)}
                for first, last, bookies in metadata.fragment_ranges()
            ],
            "sha256_in": sent,
            "sha256_out": back,
        }

    async def append(self, writer: "Writer") -> tuple[str, float]:
        """Appends all, kills a bookie at the middle; (digest of what was sent, seconds to the close)."""
        digest = hashlib.sha256()
        appender = Appender(writer)
        with output.ProgressBar(f"append to ledger {writer.id}", self.entries) as progress:
            for batch in batches(self.files, min(BATCH_ENTRIES, max(1, self.entries // PARTS)), self.line_max):
                if not self.killed and progress.done + len(batch) > self.entries // 2:
                    await appender.drain()
                    self.killed = writer.metadata.last_fragment.bookies[1]
                    pid = self.cluster.bookie(self.killed).pid
                    self.cluster.kill(self.killed)
                    progress.note(f"kill -9 {pid}: bookie {self.killed} is gone, after {progress.done:,} entries")
                if progress.done + len(batch) == self.entries:
                    # the last batch finds the loss noticed, so that even a small file sees the change
                    await appender.drain()
                digest.update(b"".join(batch))
                await appender.send(batch)
                progress.advance(len(batch))
            await appender.flush()
            await appender.ensemble_changed(self.reactor, CHANGE_WAIT_S)
            await writer.close()
            seconds = progress.elapsed
        return digest.hexdigest(), seconds

    async def read_back(self, ledger: int, last: int) -> tuple[str, int, float]:
        """Reads the whole ledger; (digest of the payloads joined, their number, seconds)."""
        digest = hashlib.sha256()
        reader = await self.client.open_ledger(ledger, recover=False)
        with output.ProgressBar(f"read ledger {ledger} back", last + 1) as progress:
            async for entries in reader.stream():
                digest.update(b"".join([entry.data for entry in entries]))
                progress.advance(len(entries))
            seconds = progress.elapsed
        await reader.close()
        return digest.hexdigest(), progress.done, seconds


def standard_library() -> list[Path]:
    """The source files of Python's standard library, without what was installed beside it."""
    root = Path(sysconfig.get_path("stdlib"))
    return sorted(
        path
        for path in root.rglob("*.py")
        if path.is_file() and not {"site-packages", "dist-packages"} & set(path.relative_to(root).parts)
    )


def lines(files: Sequence[Path], line_max: int) -> Iterator[bytes]:
    """Every line of the files, its line end included; one longer than `line_max` bytes comes in pieces."""
    for path in files:
        with path.open("rb") as source:
            while line := source.readline(line_max):
                yield line


def count(files: Sequence[Path], line_max: int) -> tuple[int, int]:
    """(entries, bytes) of the files."""
    entries = size = 0
    for line in lines(files, line_max):
        entries += 1
        size += len(line)
    return entries, size


def batches(files: Sequence[Path], size: int, line_max: int) -> Iterator[list[bytes]]:
    """The lines, `size` at a time."""
    source = lines(files, line_max)
    while batch := list(islice(source, size)):
        yield batch


def verdict(done: dict[str, Any]) -> str:
    """Returns what went wrong, "" when nothing did."""
    if done["sha256_in"] != done["sha256_out"]:
        return "what came back is not what went in"
    if done["entries"] != done["read_entries"]:
        return f"{done['entries']} entries went in and {done['read_entries']} came back"
    if done["ensemble_changes"] < 1:
        return "the ensemble did not change although a bookie was killed"
    return ""


def summary(done: dict[str, Any]) -> list[str]:
    """The summary for people."""
    fragments = [
        f"    {part['first']:>9,} to {part['last']:>9,}  {', '.join(part['bookies'])}" for part in done["fragments"]
    ]
    equal = done["sha256_in"] == done["sha256_out"]
    return [
        "",
        (
            f"ledger {done['ledger']}: {done['entries']:,} entries, {done['megabytes']} MB, three copies each, two on "
            "disk before each acknowledgement"
        ),
        (
            f"  appended    {done['append_seconds']:.1f} s   {done['append_entries_per_second']:,} entries/s   "
            f"{done['append_megabytes_per_second']} MB/s"
        ),
        (
            f"  read back   {done['read_seconds']:.1f} s   {done['read_entries_per_second']:,} entries/s   "
            f"{done['read_megabytes_per_second']} MB/s"
        ),
        f"  killed      {done['killed']}, with SIGKILL, in the middle",
        f"  ensemble changes: {done['ensemble_changes']}",
        *fragments,
        f"  SHA-256 in  {done['sha256_in']}",
        f"  SHA-256 out {done['sha256_out']}  {'equal' if equal else 'DIFFERENT'}",
    ]
