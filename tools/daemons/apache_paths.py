"""
The paths of Apache's HTTP server that ask for more than one bookie's room: the cluster, its ledgers, files, settings.

    GET    /api/v1/config/server_config       the keys that are set, as text
    PUT    /api/v1/config/server_config       refused: options are read at the start
    GET    /api/v1/ledger/list                {"id": null}; print_metadata=true: its metadata, decode_meta=true: as an
                                              object; page=N: a hundred of them, from 1
    GET    /api/v1/ledger/metadata            ledger_id=N: {"id": {…}}
    GET    /api/v1/ledger/read                ledger_id=N, start_entry_id, end_entry_id, page=N (a thousand)
    DELETE /api/v1/ledger/delete              ledger_id=N; refused for a ledger of a named log
    GET    /api/v1/bookie/list_bookies        type=rw or ro, print_hostnames=true: {"id": host or null}
    GET    /api/v1/bookie/list_bookie_info    how full each writable bookie is
    GET    /api/v1/bookie/cluster_info        see `metadata/overview.py`
    GET    /api/v1/bookie/info                {"freeSpace", "totalSpace"}
    GET    /api/v1/bookie/last_log_mark       where the next start's replay begins, for each journal
    GET    /api/v1/bookie/list_disk_file      file_type=journal, entrylog or index; none: all
    GET    /api/v1/bookie/sanity              a ledger written to this bookie, read back and deleted
    PUT    /api/v1/bookie/expand_storage      done already: a start takes new directories in (allowStorageExpansion)

Paths, keys and texts are BookKeeper's (docs/comparison.md).
Knows: paths, and that a client is opened for those that need one, one at a time.
Does not know: who may ask (`bookie/admin/gate.py`), what this process does beside.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from quire.bookie.admin.gate import Routes
from quire.bookie.admin.http import Answer, Asked, document, refusal
from quire.bookie.admin.recovery_paths import ByStore, by_store
from quire.bookie.offline.listing import files_of, last_marks
from quire.conf.bookie import BookieOptions
from quire.conf.options import file_value, key_of
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.overview import overview
from quire.metadata.store import Versioned
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import OK, IncorrectParameter, LedgerError
from quire.protocol.log_errors import LogError
from quire.rows.files import Files

if TYPE_CHECKING:
    from quire.client.api import Client

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Connect = Callable[[], Awaitable["Client"]]
V1 = "/api/v1"
LEDGERS_A_PAGE = 100
ENTRIES_A_PAGE = 1000
SANITY_ENTRIES = 10
GIGA = 1e9


def number(asked: Asked, name: str, otherwise: int | None = None) -> int:
    """A number of the query; `IncorrectParameter`."""
    text = asked.query.get(name)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or not text.isascii() or not text.removeprefix("-").isdigit():
        raise IncorrectParameter(f"{name} is a number: ask for {asked.path}?{name}=N")
    return int(text)


def shown(metadata: LedgerMetadata) -> dict[str, Any]:
    """Metadata as an object with Apache's names; no password."""
    return {
        "metadataFormatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry,
        "ctime": metadata.ctime_ms,
        "digestType": metadata.digest.name if metadata.digest else None,
        "customMetadata": {name: value.decode("utf-8", "replace") for name, value in metadata.custom.items()},
        "allEnsembles": {str(fragment.first): list(fragment.bookies) for fragment in metadata.fragments},
    }


def space(free: int, total: int) -> str:
    """Bytes as Apache writes them here."""
    return f"{{Free: {free}({free / GIGA:.3f}GB), Total: {total}({total / GIGA:.3f}GB)}}"


class ClusterPaths:
    """Answers requests about the cluster.  `store`: None while the metadata store is not open."""

    def __init__(self, store: Callable[[], MetadataStore | None], connect: Connect) -> None:
        self._connect = connect
        self._one_at_a_time = DeferredLock()
        done: ByStore = {
            ("GET", f"{V1}/ledger/list"): self._ledgers,
            ("GET", f"{V1}/ledger/metadata"): self._metadata,
            ("GET", f"{V1}/ledger/read"): self._read,
            ("DELETE", f"{V1}/ledger/delete"): self._delete,
            ("GET", f"{V1}/bookie/list_bookies"): self._bookies,
            ("GET", f"{V1}/bookie/list_bookie_info"): self._infos,
            ("GET", f"{V1}/bookie/cluster_info"): self._overview,
        }
        self.routes = by_store(store, done)

    async def with_client(self, work: "Callable[[Client], Awaitable[T]]") -> T:
        """Does work with a client of its own."""
        await self._one_at_a_time.acquire()
        try:
            client = await self._connect()
            try:
                return await work(client)
            finally:
                await client.close()
        finally:
            self._one_at_a_time.release()

    async def _ledgers(self, store: MetadataStore, asked: Asked) -> Answer:
        found: dict[str, Any] = {}
        with_metadata = asked.query.get("print_metadata") == "true"
        page = number(asked, "page", 0) if with_metadata else 0
        skipped, after = max(page - 1, 0) * LEDGERS_A_PAGE, -1
        while some := await store.ledger_ids(after):
            after = some[-1]
            wanted = some[skipped:] if page == 0 else some[skipped : skipped + LEDGERS_A_PAGE - len(found)]
            skipped = max(0, skipped - len(some))
            for start in range(0, len(wanted), LEDGERS_A_PAGE):
                part = wanted[start : start + LEDGERS_A_PAGE]
                stored = await store.read_ledgers(part) if with_metadata else [None] * len(part)
                for ledger, each in zip(part, stored, strict=True):
                    if each is not None or not with_metadata:
                        found[str(ledger)] = None if each is None else self._stored(each, asked)
            if page and len(found) >= LEDGERS_A_PAGE:
                break
        return document(found)

    def _stored(self, found: Versioned[LedgerMetadata], asked: Asked) -> object:
        if asked.query.get("decode_meta") == "true":
            return shown(found.value)
        return ledger_codec.encode(found.value).decode("utf-8", "replace")

    async def _metadata(self, store: MetadataStore, asked: Asked) -> Answer:
        ledger = number(asked, "ledger_id")
        (found,) = await store.read_ledgers([ledger])
        if found is None:
            return refusal(404, f"there is no ledger {ledger}", f"{V1}/ledger/list has all")
        return document({str(ledger): shown(found.value)})

    async def _read(self, store: MetadataStore, asked: Asked) -> Answer:
        ledger, first = number(asked, "ledger_id"), number(asked, "start_entry_id", 0)
        last, page = number(asked, "end_entry_id", -1), number(asked, "page", 0)
        (found,) = await store.read_ledgers([ledger])
        if found is None:
            return refusal(404, f"there is no ledger {ledger}", f"{V1}/ledger/list has all")

        async def work(client: "Client") -> dict[str, str]:
            reader = await client.open_ledger(ledger, found.value.password or b"", recover=False)
            try:
                end = reader.last_entry_id if last < 0 else min(last, reader.last_entry_id)
                begin = first + max(page - 1, 0) * ENTRIES_A_PAGE
                end = min(end, begin + ENTRIES_A_PAGE - 1)  # without a page as much, too: an answer is held whole
                texts = {"Entries for page: ": str(page)} if page else {}
                if begin <= end:
                    for entry in await reader.read(begin, end):
                        texts[str(entry.entry_id)] = bytes(entry.data).decode("ascii", "replace")
                return texts
            finally:
                await reader.close()

        return document(await self.with_client(work))

    async def _delete(self, store: MetadataStore, asked: Asked) -> Answer:
        from quire.log.store.ledgers import refuse

        ledger = number(asked, "ledger_id")
        (found,) = await store.read_ledgers([ledger])
        if found is not None:
            try:
                await refuse(store.records, ledger, found.value)
            except LogError as error:
                return Answer(400, f"{error}\n".encode())
        await store.delete_ledger(ledger)
        return document(f"Deleted ledger: {ledger}")

    async def _bookies(self, store: MetadataStore, asked: Asked) -> Answer:
        listed = await store.bookies()
        with_hosts = asked.query.get("print_hostnames") == "true"
        found = listed.read_only if asked.query.get("type") == "ro" else listed.writable
        return document({bookie: info.bookie_address()[0] if with_hosts else None for bookie, info in found.items()})

    async def _infos(self, store: MetadataStore, _asked: Asked) -> Answer:
        bookies = sorted((await store.bookies()).writable)

        async def work(client: "Client") -> dict[str, str]:
            texts, free, total = {}, 0, 0
            for bookie in bookies:
                info = await client.pool.info(bookie)
                if info.code == OK:
                    free, total = free + (info.free_bytes or 0), total + (info.total_bytes or 0)
                    texts[bookie] = f": {space(info.free_bytes or 0, info.total_bytes or 0)},"
            return texts | {"ClusterInfo: ": space(free, total)}

        return document(await self.with_client(work))

    async def _overview(self, store: MetadataStore, _asked: Asked) -> Answer:
        return document(await overview(store))


class BookiePaths:
    """Answers requests about a bookie's files, settings and sanity.  `bookie`: its id, and whether it is read-only."""

    def __init__(self, options: BookieOptions, bookie: Callable[[], tuple[str, bool]], cluster: ClusterPaths) -> None:
        self._options = options
        self._bookie = bookie
        self._cluster = cluster
        self._files = Files()
        self.routes: Routes = {
            ("GET", f"{V1}/config/server_config"): self._config,
            ("PUT", f"{V1}/config/server_config"): self._refuse,
            ("GET", f"{V1}/bookie/info"): self._info,
            ("GET", f"{V1}/bookie/last_log_mark"): self._marks,
            ("GET", f"{V1}/bookie/list_disk_file"): self._list,
            ("GET", f"{V1}/bookie/sanity"): self._sanity,
            ("PUT", f"{V1}/bookie/expand_storage"): lambda _asked: Answer(200, b"Success expand storage"),
        }

    def _config(self, _asked: Asked) -> Answer:
        options = self._options
        fields = type(options).model_fields
        names = sorted(options.model_fields_set)
        return document(
            {key_of(fields[each])["names"][0]: file_value(fields[each], getattr(options, each)) for each in names}
        )

    def _refuse(self, _asked: Asked) -> Answer:
        return refusal(400, "options are read at the start", "change the file, then restart the bookie")

    def _info(self, _asked: Asked) -> Answer:
        total, free = self._files.usage_of(self._options.ledger_directories)
        return document({"freeSpace": free, "totalSpace": total})

    def _marks(self, _asked: Asked) -> Answer:
        return document(
            {
                f"LastLogMark: Journal Id - {int(file.partition('.')[0], 16)}({file})": f"Pos - {position}"
                for file, position in last_marks(self._files, self._options)
            }
        )

    def _list(self, asked: Asked) -> Answer:
        wanted, found = asked.query.get("file_type"), files_of(self._files, self._options)
        if wanted is not None and wanted not in found:
            return refusal(400, f"there are no files of type {wanted}", f"ask for one of {', '.join(found)}, or none")
        return document(
            {
                f"{kind} files": "".join(f"{path.rpartition('/')[2]}\t" for path in paths)
                for kind, paths in found.items()
                if wanted in (None, kind)
            }
        )

    def _sanity(self, _asked: Asked) -> Deferred[Answer]:
        return Deferred.fromCoroutine(self.tried()).addCallback(document)

    async def tried(self) -> dict[str, Any]:
        """Writes a ledger to this bookie alone, reads it back and deletes it: {"passed", "readOnly", "reason"}."""
        from quire.tools.trial import on_one_bookie

        bookie, read_only = self._bookie()
        try:
            if not read_only:
                await self._cluster.with_client(lambda client: on_one_bookie(client, bookie, SANITY_ENTRIES))
        except LedgerError as error:
            return {"passed": False, "readOnly": read_only, "reason": str(error)}
        return {"passed": not read_only, "readOnly": read_only}
