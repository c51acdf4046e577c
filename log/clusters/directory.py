"""
A directory of clusters: small records in a metadata store, which say where clusters are and which of them holds a log.

    clusters/<name>             the metadata URI of a cluster
    places/<hh>/<log's name>    the name of the cluster that holds the log; hh as for the names of logs

They lie beside the records of the cluster whose metadata URI is that of the directory: one of the clusters, or one
without bookies.  All of it is read and changed by clients; nothing runs for it.

Knows: these records.  Does not know: logs, clients of clusters, why a log is somewhere.

Safety: a place changes only upon the version that was read.  It names a cluster that is in the directory and does not
leave it: the step that makes or changes a place checks the cluster's record, and who removes a cluster moves that
record first, then looks for places.  What a place says is never needed for safety: a cluster that does not hold a log
(any more) takes nothing for it.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from quire.log.core.places import ClusterRecord, PlaceRecord
from quire.log.store.paths import children_of, decoded, encoded, shard, sharded
from quire.metadata.records import NoRecord, RecordChanged, RecordError, RecordExists, Records, parent_of
from quire.metadata.store import Versioned, Watch
from quire.metadata.tree import Check, Create, Write
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogError, LogExists, NoSuchLog

# SPDX-License-Identifier: Apache-2.0

PREFIX = "directory+"  # of the URI of a directory, before the metadata URI of the cluster that it lies beside
CLUSTERS = "clusters"
CHANGES = 2  # of a place by a move: it is made, and settled


class KnownCluster(NamedTuple):
    """A cluster in the directory."""

    name: str
    uri: str


class Place(NamedTuple):
    """The cluster that holds a log, and the version of the record that says so.  `source`: see `PlaceRecord`."""

    cluster: str
    uri: str
    version: int
    source: str | None = None

    @property
    def settled(self) -> int:
        """The version that the record has once the log has gone from where it came from."""
        return self.version + (self.source is not None)


def is_directory(uri: str) -> bool:
    """True for the URI of a directory."""
    return uri.startswith(PREFIX)


def place_path(log: str) -> str:
    """The path of the record that says which cluster holds a log.  `ValueError` for what can't be a log's name."""
    part = encoded(log)
    return f"places/{shard(part)}/{part}"


def cluster_path(cluster: str) -> str:
    """The path of a cluster's record.  `ValueError` for what can't be a name."""
    return f"{CLUSTERS}/{encoded(cluster, 'cluster')}"


class Directory:
    """The directory in these records; `uri` is the metadata URI of their cluster."""

    def __init__(self, records: Records, uri: str) -> None:
        self.uri = uri
        self._records = records

    # -- clusters --------------------------------------------------------------------------------------------------

    async def add(self, cluster: str, uri: str) -> None:
        """A cluster, or its new URI.  `ValueError` for what can't be its name."""
        path = cluster_path(cluster)
        await self._records.folder(CLUSTERS)
        while True:
            with suppress(RecordChanged, RecordExists, NoRecord):
                try:
                    found, version = await self._read_cluster(cluster)
                except LogError:
                    await self._records.create(path, ClusterRecord(uri).encode())
                    return
                if (found.uri, found.leaving) != (uri, False):
                    await self._records.write(path, replace(found, uri=uri, leaving=False).encode(), version)
                return

    async def remove(self, cluster: str) -> None:
        """Takes a cluster out.  `LogError` while it holds a log, which is named; it then takes logs again."""
        path = cluster_path(cluster)
        found, version = await self._read_cluster(cluster)
        version = await self._records.write(path, replace(found, leaving=True).encode(), version)
        async for log in self.logs():
            with suppress(NoSuchLog):
                record = (await self._read_place(log)).value
                if cluster in (record.cluster, record.source):
                    await self._records.write(path, replace(found, leaving=False).encode(), version)
                    raise LogError(
                        f"the cluster {cluster} holds the log {log!r}, and stays: `quire log move {log} CLUSTER` takes "
                        "it elsewhere"
                    )
        await self._records.delete(path, version)

    async def clusters(self) -> list[KnownCluster]:
        """Lists the clusters, by name."""
        found: list[KnownCluster] = []
        async for page in children_of(self._records, CLUSTERS):
            for part in page:
                with suppress(LogError):  # taken out meanwhile
                    name = decoded(part)
                    found.append(KnownCluster(name, (await self._read_cluster(name)).value.uri))
        return found

    async def uri_of(self, cluster: str) -> str:
        """The metadata URI of a cluster.  `LogError` where it is not in the directory."""
        return (await self._read_cluster(cluster)).value.uri

    async def _read_cluster(self, cluster: str) -> Versioned[ClusterRecord]:
        try:
            data, version = await self._records.read(cluster_path(cluster))
        except NoRecord:
            raise LogError(
                f"there is no cluster {cluster!r} in the directory {self.uri}: `quire clusters list` shows those that "
                "there are"
            ) from None
        return Versioned(ClusterRecord.decode(data), version)

    async def _check_takes(self, cluster: str) -> Check:
        """The step that holds a cluster in the directory.  `LogError` when it is not there, or is leaving."""
        found, version = await self._read_cluster(cluster)
        if found.leaving:
            raise LogError(f"the cluster {cluster} is being taken out of the directory: it takes no log")
        return Check(cluster_path(cluster), version)

    # -- places ----------------------------------------------------------------------------------------------------

    async def find(self, log: str) -> Place:
        """The cluster that holds a log.  `NoSuchLog`."""
        record, version = await self._read_place(log)
        return Place(record.cluster, await self.uri_of(record.cluster), version, record.source)

    async def _read_place(self, log: str) -> Versioned[PlaceRecord]:
        path = place_path(log)
        for is_last in (False, True):
            try:
                data, version = await self._records.read(path)
            except NoRecord:
                if not is_last:
                    await self._records.sync()  # a server of the store may be behind
            else:
                return Versioned(PlaceRecord.decode(data), version)
        raise NoSuchLog(
            f"the directory {self.uri} has no log {log!r}: `quire clusters logs` lists those that it has, `quire "
            f"clusters place {log} CLUSTER` adds one"
        )

    async def place(self, log: str, cluster: str) -> None:
        """Says that a cluster holds a log.  `LogExists` where another one does; `LogError` for an unknown cluster."""
        path = place_path(log)
        await self._records.folder(parent_of(path))
        while True:
            takes = await self._check_takes(cluster)
            try:
                await self._records.multi([takes, Create(path, PlaceRecord(cluster).encode())])
            except RecordChanged:  # the cluster's record
                continue
            except RecordExists:
                found = await self.find(log)
                if found.cluster != cluster:
                    raise LogExists(
                        f"the cluster {found.cluster} holds a log {log!r}: `quire log move {log} {cluster}` moves it"
                    ) from None
            return

    async def moved(self, log: str, source: str, cluster: str) -> Place:
        """
        The log is in that cluster from now on, no longer in `source`, which is named until `settled`.  `LogError` when
        it was in neither.
        """
        while True:
            found = await self.find(log)
            if (found.cluster, found.source) == (cluster, source):
                return found
            if found.cluster != source:
                raise LogError(
                    f"the directory {self.uri} has the log {log!r} in the cluster {found.cluster}, not in {source}: "
                    f"`quire clusters find {log}` shows where it is"
                )
            takes = await self._check_takes(cluster)
            await self._swap(log, found, PlaceRecord(cluster, source), takes)

    async def settled(self, log: str, source: str) -> None:
        """Forgets where the log came from, once it has gone from there."""
        while True:
            found = await self.find(log)
            if found.source != source:
                return
            await self._swap(log, found, PlaceRecord(found.cluster))

    async def _swap(self, log: str, found: Place, to: PlaceRecord, *beside: Check) -> None:
        """Changes a place upon its version; another change, or one whose answer was lost, is for the caller to see."""
        try:
            await self._records.multi([*beside, Write(place_path(log), to.encode(), found.version)])
        except RecordChanged:
            return
        except RecordError:
            raise
        except MetaStore:
            await self._records.sync()
            if (await self.find(log)).version == found.version:
                raise  # it may still take effect

    async def forget(self, log: str, cluster: str) -> None:
        """The log is gone from that cluster, and with it its place.  One that is elsewhere stays."""
        with suppress(NoSuchLog, NoRecord):
            found = await self.find(log)
            if found.cluster == cluster:
                with suppress(RecordChanged):
                    await self._records.delete(place_path(log), found.version)

    async def logs(self) -> AsyncGenerator[str, None]:
        """Lists the names of the logs, by shard, then by name."""
        async for part in sharded(self._records, "places"):
            yield decoded(part)

    def watch(self, log: str, fn: Callable[[int | None], object]) -> Watch:
        """Calls `fn` with the version of a log's place, now and after changes; None while there is none."""

        def heard(found: Versioned[bytes] | None) -> None:
            fn(None if found is None else found.version)

        return self._records.watch(place_path(log), heard)
