"""
`quire metadata`: the cluster as the metadata store knows it.

Knows: how to create, show and destroy it.  Does not know: how a store keeps it.
"""

from typing import Annotated, Any

import typer

from quire.metadata.store import ClusterExists, MetadataStore, WrongCluster
from quire.tools import output
from quire.tools.options import Json, Metadata, group, metadata_uri
from quire.tools.running import with_store

# SPDX-License-Identifier: Apache-2.0

app = group("Create, show, destroy the cluster's metadata.", "quire metadata init --metadata zk://127.0.0.1:2181/ledgers")


@app.command()
def init(
    metadata: Metadata = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="do nothing when there is a cluster already")] = False,
    json_wanted: Json = False,
) -> None:
    """
    Creates an empty cluster; once per cluster, before its first bookie.

    \b
    Example:
      quire metadata init --metadata zk://127.0.0.1:2181/ledgers
    """
    uri = metadata_uri(metadata)

    async def story(store: MetadataStore) -> dict[str, Any]:
        try:
            return {"metadata": store.uri, "cluster": await store.init_cluster(), "created": True}
        except ClusterExists as error:
            there = (await store.cluster()).instance_id
            if not if_missing:
                raise ClusterExists(f"{store.uri} holds cluster {there} already; `quire metadata show` shows it") from error
            return {"metadata": store.uri, "cluster": there, "created": False}

    output.document(json_wanted, with_store(uri, story))


@app.command()
def show(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Shows the cluster's id, its layout, and how many bookies and ledgers it has.

    \b
    Example:
      quire metadata show --metadata sqlite:///var/lib/quire/metadata.db
    """

    async def story(store: MetadataStore) -> dict[str, Any]:
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

    output.document(json_wanted, with_store(metadata_uri(metadata), story))


@app.command()
def destroy(
    metadata: Metadata = None,
    cluster: Annotated[str | None, typer.Option("--cluster", metavar="ID", help="its id, as `quire metadata show` prints it; asked for if not given")] = None,
    json_wanted: Json = False,
) -> None:
    """
    Removes all metadata: every ledger is gone for good. Asks for the cluster's id; refuses while a bookie is registered.

    \b
    Example:
      quire metadata destroy --cluster 2c0c8f33-7f2b-4d8c-9d2e-5b6f0a1e7f10
    """
    uri = metadata_uri(metadata)
    named = cluster if cluster is not None else typer.prompt(f"This removes every ledger of {uri}. The cluster's id", err=True)

    async def story(store: MetadataStore) -> dict[str, Any]:
        there = (await store.cluster()).instance_id
        if named.strip().lower() != there:
            raise WrongCluster(f"{store.uri} holds another cluster than {named.strip()!r}; nothing was removed. `quire metadata show` prints its id")
        ledgers = await count_ledgers(store)
        await store.destroy_cluster(there)
        return {"metadata": store.uri, "cluster": there, "ledgers": ledgers, "destroyed": True}

    output.document(json_wanted, with_store(uri, story))


async def count_ledgers(store: MetadataStore) -> int:
    """How many ledgers the metadata names."""
    count, after = 0, -1
    while page := await store.ledger_ids(after):
        count += len(page)
        after = page[-1]
    return count
