"""
`quire metadata`: the cluster as the metadata store knows it.

Knows: how to create, show, destroy, dump, restore it, and to accept that it was set back.
Does not know: how a store keeps it.
"""

import os
import shutil
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.metadata.store import ClusterExists, WrongCluster
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import MetaStore
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, command, group, metadata_uri, refused
from quire.tools.terminal.running import with_store

# SPDX-License-Identifier: Apache-2.0

ACCEPTS_MAX = 10  # tries while bookies report what changes nothing

app = group(
    "Create, show, destroy, dump, restore the cluster's metadata; go on with an old backup of it.",
    "quire metadata init --metadata zk://127.0.0.1:2181/ledgers",
)

ClusterId = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ID", help="its id, as `quire metadata show` prints it; asked for if not given"),
]


@command(app, "quire metadata init --metadata zk://127.0.0.1:2181/ledgers")
def init(
    metadata: Metadata = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="do nothing when there is a cluster already")
    ] = False,
    json_wanted: Json = False,
) -> None:
    """Creates an empty cluster; once per cluster, before its first bookie."""
    uri = metadata_uri(metadata)

    async def work(store: MetadataStore) -> dict[str, Any]:
        try:
            return {"metadata": store.uri, "cluster": await store.init_cluster(), "created": True}
        except ClusterExists as error:
            there = (await store.cluster()).instance_id
            if not if_missing:
                raise ClusterExists(
                    f"{store.uri} holds cluster {there} already; `quire metadata show` shows it"
                ) from error
            return {"metadata": store.uri, "cluster": there, "created": False}

    output.document(json_wanted, with_store(uri, work))


@command(app, "quire metadata show --metadata zk://127.0.0.1:2181/ledgers")
def show(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Shows the cluster's id, its layout, and how many bookies and ledgers it has."""

    async def work(store: MetadataStore) -> dict[str, Any]:
        cluster = await store.cluster()
        bookies = await store.bookies()
        return {
            "metadata": store.uri,
            "cluster": cluster.instance_id,
            "layout": cluster.layout,
            "writable": len(bookies.writable),
            "read_only": len(set(bookies.read_only) - set(bookies.writable)),
            "known": len(await store.cookies()),
            "ledgers": await count_ledgers(store),
        }

    output.document(json_wanted, with_store(metadata_uri(metadata), work))


@command(
    app,
    "quire metadata destroy --metadata zk://127.0.0.1:2181/ledgers --cluster 2c0c8f33-7f2b-4d8c-9d2e-5b6f0a1e7f10",
)
def destroy(
    metadata: Metadata = None,
    cluster: ClusterId = None,
    with_logs: Annotated[bool, typer.Option("--with-logs", help="although there are named logs")] = False,
    json_wanted: Json = False,
) -> None:
    """
    Removes all metadata: every ledger is gone for good. Asks for the cluster's id; refuses while a bookie is
    registered, and while there are named logs.
    """
    uri = metadata_uri(metadata)
    named = (
        cluster
        if cluster is not None
        else typer.prompt(f"This removes every ledger of {uri}. The cluster's id", err=True)
    )

    async def work(store: MetadataStore) -> dict[str, Any]:
        there = (await store.cluster()).instance_id
        if named.strip().lower() != there:
            raise WrongCluster(
                f"{store.uri} holds another cluster than {named.strip()!r}; nothing was removed. `quire metadata "
                "show` prints its id"
            )
        if not with_logs:
            await refuse_with_logs(store)
        ledgers = await count_ledgers(store)
        await store.destroy_cluster(there)
        return {"metadata": store.uri, "cluster": there, "ledgers": ledgers, "destroyed": True}

    output.document(json_wanted, with_store(uri, work))


async def refuse_with_logs(store: MetadataStore) -> None:
    """`LogError` while a log has a name."""
    from quire.log.store import paths

    with suppress(WrongCluster):  # those of a former cluster are gone already
        await paths.refuse(store.records)


@command(
    app,
    "quire metadata set-back",
    "quire metadata set-back --accept --cluster 2c0c8f33-7f2b-4d8c-9d2e-5b6f0a1e7f10",
    name="set-back",
)
def set_back(
    accept: Annotated[
        bool, typer.Option("--accept", help="the store's state is the truth now: bookies delete what it does not know")
    ] = False,
    cluster: ClusterId = None,
    unheard: Annotated[
        bool, typer.Option("--unheard", help="accept although some bookies did not say what they saw and hold")
    ] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Shows whether bookies have seen more of the metadata store than it has now, as after an old backup was put back, and
    accepts that.

    While they have, they delete nothing. Without --accept nothing is changed: shown are what each bookie has seen, how
    many ledgers it holds that the store does not know (`?`: it still counts), and the bookies that were not heard, for
    they are down or not quire's; under `doubts` single bookies with ledgers whose ids the store never gave, as a client
    of another cluster leaves them: these bookies alone delete nothing. With --accept the store first goes on above
    every ledger id that was seen, those of doubts left out; then, within 10 s, the bookies take its state for the
    truth, and their next garbage collection deletes what it does not know.
    """
    uri = metadata_uri(metadata)
    named = cluster
    if accept and named is None:
        named = typer.prompt(
            f"Bookies will delete the ledgers that {uri} does not know; without --accept they are counted. The "
            "cluster's id",
            err=True,
        )

    async def work(store: MetadataStore) -> dict[str, Any]:
        if named is None or not accept:
            return (await look_back(store))[1]
        return await accept_state(store, named.strip(), unheard)

    found = with_store(uri, work)
    lines = {
        **found,
        "bookies": "; ".join(f"{bookie} has {of_bookie(seen)}" for bookie, seen in found["bookies"].items()) or "-",
        "doubts": "; ".join(f"{bookie} has {', '.join(map(str, some))}" for bookie, some in found["doubts"].items())
        or "-",
    }
    output.document(json_wanted, found if json_wanted else {**lines, "unheard": ", ".join(found["unheard"]) or "-"})


async def look_back(store: MetadataStore) -> tuple[bytes, dict[str, Any]]:
    """The note of what bookies have seen of the store as it is kept there; and it as a document, beside what is now."""
    from quire.bookie.upkeep.store_notes import note_of, position_of

    cluster = (await store.cluster()).instance_id
    noted = await store.read_set_back()
    note = note_of(noted)
    listed = await store.bookies()
    bookies = note["bookies"]
    heard_of = set() if note["accepted"] else {*await store.cookies(), *listed.writable, *listed.read_only}
    return noted, {
        "metadata": store.uri,
        "cluster": cluster,
        "set_back": not note["accepted"],
        "next_ledger": (await store.progress()).next_ledger,
        "ledgers_seen": max(position_of(note["ledgers"])),
        "bookies": {
            bookie: {"ledgers_seen": max(position_of(seen["ledgers"])), "unknown_ledgers": seen["unknown"]}
            for bookie, seen in sorted(bookies.items())
        },
        "unheard": sorted(heard_of - set(bookies)),
        "doubts": dict(sorted(note["doubts"].items())),
        "accepted": False,
    }


async def accept_state(store: MetadataStore, cluster: str, unheard: bool) -> dict[str, Any]:
    """Accepts the store's state if it is `cluster`'s and, unless `unheard`, every bookie said what it lacks."""
    from quire.bookie.upkeep.store_notes import accepted, bytes_of, note_of, position_of

    noted, shown = await look_back(store)
    if cluster.lower() != shown["cluster"]:
        raise WrongCluster(
            f"{store.uri} holds another cluster than {cluster!r}; nothing was accepted. `quire metadata "
            "show` prints its id"
        )
    if not (shown["set_back"] or shown["doubts"]):
        raise MetaStore(
            f"no bookie has found {store.uri} to be behind what it saw: there is nothing to accept; `quire metadata "
            "set-back` shows it when one has"
        )
    counting = [bookie for bookie, seen in shown["bookies"].items() if seen["unknown_ledgers"] is None]
    if (shown["unheard"] or counting) and not unheard:
        raise MetaStore(
            f"{', '.join(shown['unheard'] + counting)} did not say yet what {store.uri} lacks; nothing was accepted. "
            "Start those that are down (`quire bookie list`) and try again in 10 s; with --unheard they are left out"
        )
    for _ in range(ACCEPTS_MAX):
        note = note_of(noted)
        await store.raise_ledger_ids(position_of(note["ledgers"]))
        if await store.swap_set_back(noted, bytes_of(accepted(note))):
            return {**shown, "next_ledger": (await store.progress()).next_ledger, "accepted": True}
        before = shown
        noted, shown = await look_back(store)
        if not (shown["set_back"] or shown["doubts"]) or lacks(shown) != lacks(before):
            break
    raise MetaStore(
        f"a bookie reported something new to {store.uri} just now; nothing was accepted. See `quire metadata "
        "set-back`, then try again"
    )


def lacks(shown: dict[str, Any]) -> tuple[list[str], dict[str, int | None], dict[str, list[int]]]:
    """Returns what an operator accepts: what each bookie has that the store does not know, and who did not say."""
    unknown = {bookie: seen["unknown_ledgers"] for bookie, seen in shown["bookies"].items()}
    return shown["unheard"], unknown, shown["doubts"]


def of_bookie(seen: dict[str, Any]) -> str:
    unknown = seen["unknown_ledgers"]
    return (
        f"{'?' if unknown is None else unknown} ledgers that the store does not know, and has seen ids below "
        f"{seen['ledgers_seen']}"
    )


@command(app, "quire metadata dump metadata.jsonl", "quire metadata dump | gzip > metadata.jsonl.gz")
def dump(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="where to; standard output if not given")
    ] = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Writes the cluster's metadata to a file, as it was at one moment: ledgers, cookies, the cluster's id and layout, the
    repair queue, named logs with their cursors. Also while bookies and writers run: it reads again until nothing has
    changed meanwhile, and fails where that does not come.

    The file has the ledgers' passwords, so only its owner may read it. Registrations, locks and owners of logs are not
    in it: they go with their sessions. `quire metadata restore` makes the cluster again, in any kind of store.
    """
    from quire.metadata import backup

    if file is None and json_wanted:
        raise Usage("the dump itself goes to standard output: name a file with --json")
    if file is not None and file.exists():
        raise refused(f"{file} is there already: name another file")
    descriptor, name = tempfile.mkstemp(dir=None if file is None else file.absolute().parent)  # for its owner only
    with ExitStack() as opened:
        opened.callback(Path(name).unlink, missing_ok=True)
        written = opened.enter_context(os.fdopen(descriptor, "w+b"))

        async def work(store: MetadataStore) -> int:
            with output.ProgressBar("dump the metadata", None, "nodes") as progress:
                return await backup.dump(store, written, progress.advance)

        count = with_store(metadata_uri(metadata), work)
        written.flush()
        os.fsync(written.fileno())
        if file is not None:
            Path(name).replace(file)
            size = file.stat().st_size
            text = f"{count:,} nodes, {output.size_text(size)}"
            output.document(json_wanted, {"file": str(file), "nodes": count, "bytes": size}, text)
            return
        written.seek(0)
        shutil.copyfileobj(written, sys.stdout.buffer)


@command(app, "quire metadata restore metadata.jsonl --metadata zk://127.0.0.1:2181/ledgers")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="of `quire metadata dump`", exists=True, dir_okay=False)],
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Makes a cluster from a dump of its metadata, in any kind of store. Refuses an address that holds a cluster.

    One that was cut off is no cluster yet: run it again with the same file. Ids that were given before the dump are not
    given again. Stop who used the store before, or there are two of one cluster; then give the bookies the new
    metadataServiceUri and start them: they compare what they have seen with it, and delete nothing before `quire
    metadata set-back --accept` where it seems to be behind.
    """
    from quire.metadata import backup
    from quire.metadata.uri import entropy

    with file.open("rb") as opened:
        try:
            found = backup.checked(opened)
        except backup.BadDump as error:
            raise Usage(f"{file}: {error}") from None

        async def work(store: MetadataStore) -> str:
            with output.ProgressBar("restore the metadata", found.nodes, "nodes") as progress:
                await backup.restore(store, opened, found, entropy(), progress.advance)
            return store.uri

        uri = with_store(metadata_uri(metadata), work)
    document = {"metadata": uri, "cluster": found.cluster, "nodes": found.nodes, "next_ledger": found.next_ledger}
    output.document(json_wanted, document)


async def count_ledgers(store: MetadataStore) -> int:
    """How many ledgers the metadata names."""
    count, after = 0, -1
    while page := await store.ledger_ids(after):
        count += len(page)
        after = page[-1]
    return count
