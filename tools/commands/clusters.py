"""
`quire clusters`: a directory of clusters, which says which of them holds a log.

Knows: what an operator asks and is told.  Does not know: how it is kept.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from quire.tools.commands.log.shared import Name, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, command, group, metadata_uri

if TYPE_CHECKING:
    from quire.log.api import Logs
    from quire.log.clusters.directory import Directory

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

app = group(
    "A directory of clusters: which there are, and which of them holds a log.",
    "quire clusters add eu sqlite:///var/lib/quire/eu.db",
)

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="its name in the directory")]


def with_directory(metadata: str | None, work: "Callable[[Directory], Awaitable[T]]") -> T:
    """Runs `work(directory)` with the directory beside the cluster at `metadata`, with or without `directory+`."""

    async def whole(logs: "Logs") -> T:
        from quire.log.clusters.logs import DirectoryLogs

        assert isinstance(logs, DirectoryLogs)
        return await work(logs.directory)

    uri = metadata_uri(metadata)
    return with_logs(uri if uri.startswith("directory+") else f"directory+{uri}", whole)


@command(app, "quire clusters add eu sqlite:///var/lib/quire/eu.db")
def add(
    cluster: Cluster,
    uri: Annotated[str, typer.Argument(metavar="URI", help="its metadata URI, as its clients reach it")],
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Adds a cluster to the directory, or gives one another address."""

    async def work(directory: "Directory") -> dict[str, Any]:
        await directory.add(cluster, uri)
        return {"cluster": cluster, "uri": uri}

    output.document(json_wanted, with_directory(metadata, work), f"{cluster} is {uri}")


@command(app, "quire clusters list", name="list")
def list_(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Lists the clusters."""
    table = output.Table(json_wanted, {"cluster": 20, "uri": 0})

    async def work(directory: "Directory") -> None:
        for each in await directory.clusters():
            table.row({"cluster": each.name, "uri": each.uri})

    with_directory(metadata, work)
    table.end("the directory has no clusters; `quire clusters add NAME URI` adds one")


@command(app, "quire clusters remove eu")
def remove(cluster: Cluster, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Takes a cluster out of the directory; refuses while it holds a log. The cluster itself stays as it is."""
    with_directory(metadata, lambda directory: directory.remove(cluster))
    output.document(json_wanted, {"removed": cluster}, f"removed {cluster}")


@command(app, "quire clusters place orders home")
def place(log: Name, cluster: Cluster, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Says that a cluster holds a log, which is there already. `quire log create --set cluster=NAME` by a directory makes
    a new one, and `quire log move` moves one.
    """

    async def work(logs: "Logs") -> dict[str, Any]:
        from quire.log.clusters.logs import DirectoryLogs

        assert isinstance(logs, DirectoryLogs)
        await (await logs.in_cluster(await logs.directory.uri_of(cluster))).info(log)
        await logs.directory.place(log, cluster)
        return {"log": log, "cluster": cluster}

    uri = metadata_uri(metadata)
    found = with_logs(uri if uri.startswith("directory+") else f"directory+{uri}", work)
    output.document(json_wanted, found, f"{log} is in {cluster}")


@command(app, "quire clusters find orders")
def find(log: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Shows which cluster holds a log, and since when the directory says so."""

    async def work(directory: "Directory") -> dict[str, Any]:
        found = await directory.find(log)
        return {"log": log, "cluster": found.cluster, "uri": found.uri, "leaving": found.source}

    output.document(json_wanted, with_directory(metadata, work))


@command(app, "quire clusters logs", "quire clusters logs --cluster eu")
def logs(
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="only those that it holds")] = "",
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Lists the logs of the directory, and which cluster holds each."""
    table = output.Table(json_wanted, {"log": 30, "cluster": 0})

    async def work(directory: "Directory") -> None:
        async for name in directory.logs():
            found = await directory.find(name)
            if cluster in ("", found.cluster):
                table.row({"log": name, "cluster": found.cluster})

    with_directory(metadata, work)
    table.end("the directory has no such logs; `quire clusters place LOG CLUSTER` adds one")
