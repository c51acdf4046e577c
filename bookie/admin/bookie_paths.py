"""
The paths that a bookie serves over HTTP.

    GET /metrics                         Prometheus text
    GET /healthz                         200 while the bookie serves, else 503; the reason in the body
    GET /api/v1/bookie/is_ready          200 OK, or 503 (BookKeeper's readiness probe)
    GET /api/v1/bookie/state             {"running", "readOnly", "shuttingDown", "availableForHighPriorityWrites"}, and
                                         our own "readOnlyReasons", "ledgersInLimbo", "directoriesLost",
                                         "metadataStore", "version"
    GET /api/v1/bookie/state/readonly    {"readOnly": bool}
    PUT /api/v1/bookie/state/readonly    the same as a request
    PUT /api/v1/bookie/gc                a round of garbage collection now; body {"forceMajor": bool, "forceMinor":
                                         bool}, both true if not given
    GET /api/v1/bookie/gc                {"is_in_force_gc": "true" or "false"} and our own status
    GET /api/v1/bookie/gc_details        a list: for each ledger directory the compactions so far
    PUT …/gc/suspend_compaction          {"suspendMajor": bool, "suspendMinor": bool}; a restart forgets it
    GET …/gc/suspend_compaction          {"isMajorGcSuspended": "true" or "false", "isMinorGcSuspended": …}
    PUT …/gc/resume_compaction           {"resumeMajor": bool, "resumeMinor": bool}
    PUT /api/v1/bookie/rebuild_index     begins an index rebuild, and answers as GET; 409 while one is under way
    GET /api/v1/bookie/rebuild_index     {"running", "problem", "directories": [{"path", "logs", "logs_read",
                                         "entries", "taken_over", "limbo", "problems", "done"}]} of the last run since
                                         the start
    PUT …/bookie/entry_location_compact  compacts the stores of the index; body {"entryLocationRocksDBCompact": true,
                                         "entryLocations": "store,store"}, all if none is named
    GET …/bookie/entry_location_compact  {store: bool}: whether it is being compacted
    …   /api/v1/autorecovery/…           see `recovery_paths`

Paths and keys are BookKeeper's, but for rebuild_index: BookKeeper knows no such thing of a running bookie.
Knows: paths.  Does not know: how a bookie does what they ask.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from quire.bookie.admin.gate import METRICS, Gate, Keys, Routes
from quire.bookie.admin.http import Answer, Asked, HttpServer, document, given, in_turns, refusal
from quire.bookie.upkeep.garbage import Garbage
from quire.metadata.clock import Clock
from quire.metadata.formats.json_text import parse_json
from quire.metrics.text import Collector, Metrics, content_type

if TYPE_CHECKING:
    from quire.bookie.upkeep.rebuild import Upkeep
    from quire.security.credentials import Credentials

# SPDX-License-Identifier: Apache-2.0

STATE, READONLY = "/api/v1/bookie/state", "/api/v1/bookie/state/readonly"
HEALTH = ("/healthz", "/heartbeat", "/api/v1/bookie/is_ready")
GC, DETAILS = "/api/v1/bookie/gc", "/api/v1/bookie/gc_details"
SUSPEND, RESUME = f"{GC}/suspend_compaction", f"{GC}/resume_compaction"
REBUILD_INDEX, COMPACT_INDEX = "/api/v1/bookie/rebuild_index", "/api/v1/bookie/entry_location_compact"


class Administered(Protocol):
    """A bookie as the paths see it."""

    @property
    def serving(self) -> bool: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def read_only_reasons(self) -> list[str]: ...

    def state(self) -> dict[str, Any]:
        """Returns what the path of the state shows."""
        ...

    @property
    def metrics(self) -> Metrics: ...

    def operator_read_only(self, on: bool) -> str | None:
        """Carries the request out; the text says why it can't be."""
        ...


class Shown(NamedTuple):
    """Paths and metrics of other parts of a process that its bookie's HTTP server shows, too."""

    paths: Sequence[Routes] = ()
    collectors: Sequence[Collector] = ()


class Admin:
    """Answers requests for one bookie."""

    def __init__(self, clock: Clock, bookie: Administered) -> None:
        self._bookie = bookie
        self.routes: Routes = {
            **{("GET", path): self._health for path in HEALTH},
            ("GET", METRICS): lambda asked: in_turns(
                clock, bookie.metrics.parts(asked.accept), content_type(asked.accept)
            ),
            ("GET", STATE): lambda _: document(bookie.state()),
            ("GET", READONLY): self._read_only,
            ("PUT", READONLY): self._switch,
        }

    def _health(self, asked: Asked) -> Answer:
        if not self._bookie.serving:
            return Answer(503, b"stopping\n" if self._bookie.stopping else b"not serving\n")
        return Answer(200, b"OK\n")

    def _read_only(self, asked: Asked) -> Answer:
        return document({"readOnly": self._bookie.read_only, "reasons": self._bookie.read_only_reasons})

    def _switch(self, asked: Asked) -> Answer:
        wanted = given(asked).get("readOnly")
        if not isinstance(wanted, bool):
            return Answer(400, b'the body must be {"readOnly": true} or {"readOnly": false}\n')
        refused = self._bookie.operator_read_only(wanted)
        if refused is not None:
            return Answer(400, refused.encode() + b"\n")
        return self._read_only(asked)


class GcPaths:
    """Answers requests for the garbage collection of one bookie."""

    def __init__(self, garbage: Garbage, bookie: str) -> None:
        self._garbage = garbage
        self._bookie = bookie
        self.routes: Routes = {
            **{("GET", path): self._show for path in (GC, DETAILS, SUSPEND)},
            **{("PUT", path): self._change for path in (GC, SUSPEND, RESUME)},
        }

    def _show(self, asked: Asked) -> Answer:
        return document(self._get(asked.path))

    def _change(self, asked: Asked) -> Answer:
        names = {
            GC: ("forceMajor", "forceMinor"),
            SUSPEND: ("suspendMajor", "suspendMinor"),
            RESUME: ("resumeMajor", "resumeMinor"),
        }[asked.path]
        wanted = flags(asked.body, names, asked.path == GC)
        if wanted is None:
            return Answer(
                400, f"the body must be a JSON object of {names[0]} and {names[1]}, each true or false\n".encode()
            )
        major, minor = wanted
        if asked.path == GC:
            self._garbage.force(minor=minor, major=major)
            return document(f"Triggered GC on BookieServer: {self._bookie}")
        if major:
            self._garbage.major.suspended = asked.path == SUSPEND
        if minor:
            self._garbage.minor.suspended = asked.path == SUSPEND
        return document(self._get(SUSPEND))

    def _get(self, path: str) -> object:
        garbage = self._garbage
        if path == GC:
            return {"is_in_force_gc": text(garbage.forced), **garbage.status()}
        if path == SUSPEND:
            return {
                "isMajorGcSuspended": text(garbage.major.suspended),
                "isMinorGcSuspended": text(garbage.minor.suspended),
            }
        status = garbage.status()
        return [
            {
                "forceCompacting": garbage.forced,
                "majorCompacting": status["running"],
                "minorCompacting": status["running"],
                "majorCompactionCounter": garbage.major.count,
                "minorCompactionCounter": garbage.minor.count,
                **directory,
            }
            for directory in status["directories"]
        ]


def flags(body: bytes, names: tuple[str, str], otherwise: bool) -> tuple[bool, bool] | None:
    """Returns both truth values of a JSON object; an empty body means `otherwise` for both.  None: no such object."""
    try:
        given: Any = parse_json(body) if body.strip() else {}
    except ValueError:
        return None
    if not isinstance(given, dict):
        return None
    first, second = (given.get(name, otherwise if not given else False) for name in names)
    return (first, second) if isinstance(first, bool) and isinstance(second, bool) else None


def text(value: bool) -> str:
    """A truth value as BookKeeper writes it here."""
    return "true" if value else "false"


class IndexPaths:
    """Answers requests for the index of one bookie."""

    def __init__(self, upkeep: "Upkeep", bookie: str) -> None:
        self._rebuild = upkeep.rebuild
        self._compaction = upkeep.compaction
        self._bookie = bookie
        self.routes: Routes = {
            ("GET", REBUILD_INDEX): self._show,
            ("PUT", REBUILD_INDEX): self._begin,
            ("GET", COMPACT_INDEX): lambda _: document(self._compaction.status()),
            ("PUT", COMPACT_INDEX): self._compact,
        }

    def _show(self, asked: Asked) -> Answer:
        return document(self._rebuild.status())

    def _begin(self, asked: Asked) -> Answer:
        if not self._rebuild.start():
            return Answer(409, b"it is being rebuilt already, or the bookie stops\n")
        return self._show(asked)

    def _compact(self, asked: Asked) -> Answer:
        wanted, stores = given(asked), self._compaction.status()
        begins, names = wanted.get("entryLocationRocksDBCompact", False), wanted.get("entryLocations", "")
        if not wanted or not isinstance(begins, bool) or not isinstance(names, str):
            return refusal(
                400,
                "the body is no such JSON object",
                f'send {{"entryLocationRocksDBCompact": true}}, and with "entryLocations" some of {", ".join(stores)}',
            )
        if not begins:
            return document("Not trigger Entry Location RocksDB compact.")
        chosen = {name.strip() for name in names.split(",")} if names.strip() else set(stores)
        if unknown := sorted(chosen.difference(stores)):
            return refusal(400, f"no index is at {', '.join(unknown)}", f"name some of {', '.join(stores)}")
        self._compaction.start(chosen)
        if not names.strip():
            return document(f"Triggered entry Location RocksDB compact on bookie:{self._bookie}")
        return document(f"Triggered entry Location RocksDB: {names} compact on bookie:{self._bookie}.")


def site(
    clock: Clock,
    name: str,
    hosts: Collection[str],
    keys: Keys,
    bookie: Administered,
    garbage: Garbage,
    upkeep: "Upkeep",
    others: Sequence[Routes] = (),
    credentials: "Credentials | None" = None,
) -> HttpServer:
    """
    Puts all paths of a bookie into one server.  `name`: the bookie's id; requests that name another one are refused.
    `hosts`: names that it may be called by.  `others`: paths of other parts of its process.
    """
    routes = [Admin(clock, bookie).routes, GcPaths(garbage, name).routes, IndexPaths(upkeep, name).routes, *others]
    return HttpServer(clock, Gate(routes, keys, hosts, name), credentials)
