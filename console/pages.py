"""
The pages of the console: which there are, and what is on each.

    GET  /                  the cluster at a glance
    GET  /bookie?id=        one bookie
    GET  /ledgers           ledgers, ?after= an id, ?find= an id, a key or key=value of custom metadata
    GET  /ledger?id=        one ledger: its metadata, its fragments over bookies
    POST /ledger?id=        the same with entries; form: first, count, form, password
    GET  /repair            ledgers that lack copies, and what was tried; ?after=
    GET  /logs              named logs, ?after= a name; /log?name= one of them
    POST /bookie?id=        with --allow-changes; form: readonly, on or off
    POST /repair            with --allow-changes; form: repair, on or off
    GET  /charts            the last hours; /chart.svg?of=&bookie= one picture of them
    GET  /healthz           200 while the process serves

Knows: paths, their parameters, what is read for each.  Does not know: who may ask (the gate does), how it looks.

Safety: nothing is changed unless the console was begun so; then by forms alone, which no other site can send.  What is
read for a page is bounded in size and, by `ANSWER_S`, in time; what many requests
would ask of bookies is looked at in the background (`cluster`).
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout

from quire.bookie.admin.gate import Routes
from quire.bookie.admin.http import Answer, Asked
from quire.conf.version import own_version
from quire.console import charts
from quire.console.cluster import Cluster
from quire.console.entries import COUNT_MAX, FORMS, some_of
from quire.console.history import BY_KEY, QUANTITIES, Curve
from quire.console.ledgers import PAGE, drawing, listed, searched
from quire.console.views import STATIC, Views, link
from quire.metadata.ledger import INT64_MAX
from quire.protocol.errors import IncorrectParameter, LedgerError, MetaStore, NoSuchLedger, UnauthorizedAccess
from quire.protocol.log_errors import NoSuchLog
from quire.tools.commands.doctor.examining import said, within
from quire.tools.commands.doctor.logs import LogState, state_of
from quire.tools.commands.repair.underreplicated import looked_at
from quire.tools.terminal.ledger_text import as_document

if TYPE_CHECKING:
    from quire.client.api import Client

# SPDX-License-Identifier: Apache-2.0

ANSWER_S = 5.0
SEGMENTS_MAX = 100
CHARTS_MAX = 100  # that are kept until the next look
GLANCE = ("adds", "bytes", "latency")  # charts of the first page
NAVIGATION = (
    ("/", "Cluster"),
    ("/ledgers", "Ledgers"),
    ("/repair", "Repair"),
    ("/logs", "Logs"),
    ("/charts", "Charts"),
)
Page = Callable[[Asked], Coroutine[Deferred[Any], Any, Answer]]


class NoPage(Exception):
    """A request for something that is not there, or with parameters that mean nothing; the text says so."""


class Charted(NamedTuple):
    """Curves and pictures of one look, by quantity and bookie."""

    look: int
    curves: dict[tuple[str, str | None], list[Curve]]
    pictures: dict[tuple[str, str | None], str]


class Pages:
    """Answers requests.  `changes`: forms that change something are shown, and taken."""

    def __init__(self, cluster: Cluster, views: Views, changes: bool = False) -> None:
        self._cluster = cluster
        self._views = views
        self._changes = changes
        self._charted = Charted(0, {}, {})
        pages: dict[tuple[str, str], Page] = {
            ("GET", "/"): self._glance,
            ("GET", "/bookie"): self._bookie,
            ("GET", "/ledgers"): self._ledgers,
            ("GET", "/ledger"): self._ledger,
            ("POST", "/ledger"): self._entries,
            ("GET", "/repair"): self._repair,
            ("GET", "/logs"): self._logs,
            ("GET", "/log"): self._log,
            ("GET", "/charts"): self._charts,
        }
        if changes:
            pages |= {("POST", "/bookie"): self._order, ("POST", "/repair"): self._switch}
        self.routes: Routes = {
            **{route: self._guarded(page) for route, page in pages.items()},
            **{("GET", path): lambda asked: self._views.file(asked.path) for path in STATIC},
            ("GET", "/chart.svg"): self._chart,
            ("GET", "/healthz"): lambda _: Answer(200, b"OK\n"),
        }

    @property
    def _client(self) -> "Client":
        return self._cluster.client

    # -- what all have ---------------------------------------------------------------------------------------------

    def _guarded(self, page: Page) -> Callable[[Asked], Deferred[Answer]]:
        """Makes pages of errors, and bounds the time."""

        async def answered(asked: Asked) -> Answer:
            try:
                answer = await within(self._client.reactor, ANSWER_S, Deferred.fromCoroutine(page(asked)))
                assert isinstance(answer, Answer)
                return answer
            except NoPage as error:
                return self._failed(404, str(error))
            except (NoSuchLedger, NoSuchLog, IncorrectParameter) as error:
                return self._failed(404, said(error))
            except DeferredTimeout:
                return self._failed(504, f"the cluster did not answer within {ANSWER_S:g} s: try again")
            except (LedgerError, ValueError) as error:
                return self._failed(503, said(error))

        return lambda asked: Deferred.fromCoroutine(answered(asked))

    def _failed(self, status: int, why: str) -> Answer:
        return self._page("failed", "", {"title": "Not to be shown", "why": why}, status)

    def _page(self, name: str, path: str, values: Mapping[str, Any], status: int = 200) -> Answer:
        common = {
            "version": own_version(),
            "store": self._client.store.uri,
            "navigation": NAVIGATION,
            "here": path,
            "care": len([each for each in self._cluster.findings if each.severity]),
            "states": self._states,
            "changes": self._changes,
        }
        return self._views.page(name, common | dict(values), status)

    @property
    def _states(self) -> dict[str, str]:
        found = self._cluster.bookies.value
        return found.states if found is not None else {}

    # -- bookies ---------------------------------------------------------------------------------------------------

    async def _glance(self, _: Asked) -> Answer:
        cluster = self._cluster
        found = cluster.bookies.value
        values = {
            "title": "Cluster",
            "bookies": found,
            "rounds": {"bookies": cluster.bookies, "checks": cluster.care, "logs": cluster.logs},
            "findings": cluster.findings,
            "ledgers": cluster.ledgers.value,
            "ledgers_age": cluster.ledgers.age,
            "charts": self._drawn(GLANCE, None),
        }
        return self._page("glance", "/", values)

    async def _bookie(self, asked: Asked) -> Answer:
        wanted, found = asked.query.get("id", ""), self._cluster.bookies.value
        row = next((each for each in found.rows if each.bookie == wanted), None) if found is not None else None
        if row is None:
            raise NoPage(f"no bookie {wanted!r} is known: the first page lists those that are")
        values = {
            "title": f"Bookie {wanted}",
            "row": row,
            "age": self._cluster.bookies.age,
            "findings": [each for each in self._cluster.findings if each.about == wanted],
            "quantities": QUANTITIES,
            "charts": self._drawn([each.key for each in QUANTITIES], wanted),
        }
        return self._page("bookie", "/", values)

    async def _order(self, asked: Asked) -> Answer:
        wanted, bookie = form_of(asked).get("readonly"), asked.query.get("id", "")
        if wanted not in ("on", "off"):
            raise NoPage(f"readonly={wanted} is neither on nor off")
        refused = await self._cluster.order_read_only(bookie, wanted == "on")
        if refused:
            return self._failed(502, f"{bookie} was not asked to: {refused}")
        return Answer(303, b"", headers=(("Location", link("/bookie", id=bookie)),))

    # -- ledgers ---------------------------------------------------------------------------------------------------

    async def _ledgers(self, asked: Asked) -> Answer:
        store, wanted = self._client.store, asked.query.get("find", "").strip()
        after = number(asked.query, "after", -1)
        if wanted.isdecimal():
            return await self._one_ledger(int(wanted), {})
        if wanted:
            listing = await searched(store, self._client.reactor, wanted, after)
        else:
            await store.cluster()
            listing = await listed(store, after)
        counted = self._cluster.ledgers.value
        newest = counted.newest[-PAGE - 1] if counted is not None and len(counted.newest) > PAGE else None
        values = {
            "title": "Ledgers",
            "find": wanted,
            "after": after,
            "listing": listing,
            "counted": counted,
            "counted_age": self._cluster.ledgers.age,
            "newest": newest,
        }
        return self._page("ledgers", "/ledgers", values)

    async def _ledger(self, asked: Asked) -> Answer:
        return await self._one_ledger(number(asked.query, "id"), {})

    async def _entries(self, asked: Asked) -> Answer:
        ledger = number(asked.query, "id")
        given = form_of(asked)
        first, count, form = number(given, "first", 0), number(given, "count", 10), given.get("form", "text")
        if form not in FORMS or not 1 <= count <= COUNT_MAX or first < 0:
            raise NoPage(f"1 to {COUNT_MAX} entries from 0 on are shown, as one of {', '.join(FORMS)}")
        values: dict[str, Any] = {"first": first, "count": count, "form": form}
        try:
            values["some"] = await some_of(self._client, ledger, given.get("password", "").encode(), first, count, form)
        except UnauthorizedAccess:
            values["refused"] = "this is not the password that the ledger was created with"
        except (MetaStore, NoSuchLedger):
            raise
        except LedgerError as error:
            values["refused"] = f"they can't be read: {said(error)}"
        return await self._one_ledger(ledger, values)

    async def _one_ledger(self, ledger: int, entries: dict[str, Any]) -> Answer:
        metadata = (await self._client.store.read_ledger(ledger)).value
        values = {
            "title": f"Ledger {ledger}",
            "ledger": as_document(ledger, metadata),
            "drawing": drawing(metadata),
            "asked": {"first": 0, "count": 10, "form": "text", "refused": "", "some": None, **entries},
            "forms": FORMS,
            "count_max": COUNT_MAX,
        }
        return self._page("ledger", "/ledgers", values)

    # -- repair ----------------------------------------------------------------------------------------------------

    async def _repair(self, asked: Asked) -> Answer:
        from quire.replication.autorecovery.notes import Notes

        store, after = self._client.store, number(asked.query, "after", -1)
        await store.cluster()
        page = await store.repairs.shortages(after, PAGE)
        values = {
            "title": "Repair",
            "rows": await looked_at(store, Notes(store.records), page),
            "after": after,
            "more": page[-1].ledger if len(page) == PAGE else None,
            "auditor": (await store.auditing.election()).auditor,
            "enabled": await store.repairs.enabled(),
            "delay": await store.auditing.delay(),
            "findings": [each for each in self._cluster.findings if each.about in ("repair", "repair queue")],
        }
        return self._page("repair", "/repair", values)

    async def _switch(self, asked: Asked) -> Answer:
        wanted = form_of(asked).get("repair")
        if wanted not in ("on", "off"):
            raise NoPage(f"repair={wanted} is neither on nor off")
        await self._client.store.repairs.set_enabled(wanted == "on")
        return Answer(303, b"", headers=(("Location", "/repair"),))

    # -- named logs ------------------------------------------------------------------------------------------------

    async def _logs(self, asked: Asked) -> Answer:
        cluster, after = self._cluster, asked.query.get("after", "")
        found = cluster.logs.value.states if cluster.logs.value is not None else {}
        names = [name for name in found if name > after]
        values = {
            "title": "Named logs",
            "round": cluster.logs,
            "count": len(found),
            "states": self._states,
            "rows": [found[name] for name in names[:PAGE]],
            "after": after,
            "more": names[PAGE - 1] if len(names) > PAGE else None,
            "takeovers": list(cluster.takeovers)[::-1],
            "findings": cluster.logs.value.findings if cluster.logs.value is not None else [],
        }
        return self._page("logs", "/logs", values)

    async def _log(self, asked: Asked) -> Answer:
        from quire.conf.log import LogOptions
        from quire.log.api import Logs, Segment

        name, known = asked.query.get("name", ""), self._cluster.logs.value
        seen: LogState | None = known.states.get(name) if known is not None else None
        first, more = number(asked.query, "from", 0), None
        logs, segments = Logs(self._client, LogOptions()), list[Segment]()
        try:
            state = seen or await state_of(logs, name)
            info = await logs.info(name)
            async for segment in logs.segments(name, max(0, first)):
                if len(segments) == SEGMENTS_MAX:
                    more = segment.first
                    break
                segments.append(segment)
            values = {
                "title": f"Log {name}",
                "info": info,
                "state": state,
                "age": self._cluster.logs.age if seen is not None else 0.0,
                "candidates": [each async for each in logs.candidates(name)],
                "segments": segments,
                "first": first,
                "more": more,
                "snapshots": await logs.snapshots(name),
                "takeovers": [each for each in self._cluster.takeovers if each.log == name][::-1],
            }
        finally:
            await logs.close()
        return self._page("log", "/logs", values)

    # -- charts ----------------------------------------------------------------------------------------------------

    async def _charts(self, asked: Asked) -> Answer:
        values = {
            "title": "The last hours",
            "charts": self._drawn([each.key for each in QUANTITIES], None),
            "age": self._cluster.bookies.age,
        }
        return self._page("charts", "/charts", values)

    def _drawn(self, keys: Sequence[str], bookie: str | None) -> list[dict[str, Any]]:
        """Says of charts what they show, in words, and where the pictures are: at another address after each look."""
        look, made = self._cluster.history.looks, []
        for key in keys:
            quantity = BY_KEY[key]
            address = {"of": key, "bookie": bookie, "look": look}
            made.append(
                {"quantity": quantity, "address": address, "told": charts.told(quantity, self._curves(key, bookie))}
            )
        return made

    def _curves(self, key: str, bookie: str | None) -> list[Curve]:
        """The curves of a chart, made once after each look."""
        history, wanted = self._cluster.history, (key, bookie)
        if self._charted.look != history.looks or len(self._charted.curves) >= CHARTS_MAX:
            self._charted = Charted(history.looks, {}, {})
        if wanted not in self._charted.curves:
            names = list(self._states) if bookie is None else [bookie]
            self._charted.curves[wanted] = charts.curves(history, BY_KEY[key], names)
        return self._charted.curves[wanted]

    def _chart(self, asked: Asked) -> Answer:
        key, bookie = asked.query.get("of", ""), asked.query.get("bookie")
        if key not in BY_KEY:
            return self._failed(404, f"there is no such chart: there is {', '.join(BY_KEY)}")
        shown = self._curves(key, bookie)
        pictures = self._charted.pictures
        if (key, bookie) not in pictures:
            pictures[key, bookie] = charts.picture(BY_KEY[key], self._cluster.history.times, shown)
        return self._views.picture(pictures[key, bookie])


def form_of(asked: Asked) -> dict[str, str]:
    """Returns the fields of a form that have a value."""
    return {key: some[-1] for key, some in parse_qs(asked.body.decode(errors="replace")).items()}


def number(query: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    """Reads a whole number among parameters; `NoPage`."""
    text = query.get(name, "")
    if not text and otherwise is not None:
        return otherwise
    if text.removeprefix("-").isdecimal() and len(text) <= 20 and -1 <= int(text) <= INT64_MAX:
        return int(text)
    raise NoPage(f"{name}={text} is no number that there can be here")
