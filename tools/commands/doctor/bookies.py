"""
The checks of `quire doctor` that ask each bookie which is up: its disk over the wire, its state and metrics over HTTP.

Knows: which answer is a finding; that a bookie which says nothing over HTTP, or not to us, is one.
Does not know: how tokens are found (`terminal.bookie_http`).
"""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.threads import deferToThreadPool

from quire.bookie.admin.bookie_paths import STATE
from quire.bookie.admin.gate import METRICS
from quire.client.connections.answers import InfoAnswer
from quire.metadata.clock import time_of_day
from quire.metadata.store import ServiceInfo
from quire.protocol.errors import OK, Timeout, error_of
from quire.tools.commands.doctor.examining import Check, Finding, Scene, Severity, said, unmade, within
from quire.tools.terminal.bookie_http import asked_of, said_by
from quire.tools.terminal.output import size_text

# SPDX-License-Identifier: Apache-2.0

TOGETHER = 10  # bookies that are asked at the same time
NOTE, WARNING, ERROR = Severity
NAME_END = re.compile(r"[{\s]")
Samples = dict[str, list[tuple[Mapping[str, str], float]]]


class Visit(NamedTuple):
    """
    The answers of one bookie.  `state`, `samples`: None where they can't be had, for which `why` is the reason.
    """

    bookie: str
    info: InfoAnswer
    state: dict[str, Any] | None
    samples: Samples | None
    why: str = ""

    def value(self, name: str, **labels: str) -> float | None:
        """The value of a metric with these labels among its own."""
        for own, value in (self.samples or {}).get(name, []):
            if labels.items() <= own.items():
                return value
        return None


class Alarm(NamedTuple):
    """A metric of a bookie that is wrong above `above`, with these labels."""

    name: str
    severity: Severity
    problem: str
    next: str
    labels: Mapping[str, str] = {}
    above: float = 0.0


DAMAGE = "`quire bookie check --conf FILE` on its machine, when it is stopped; its log names the files"
ALARMS = (
    Alarm(
        "quire_metadata_store_behind",
        ERROR,
        "it has seen more of the metadata store than that has now, and deletes nothing",
        "quire metadata set-back",
    ),
    Alarm(
        "quire_metadata_store_silent_seconds",
        ERROR,
        "the metadata store has not answered it for {value:.0f} s",
        "see whether the store is up and reached from there: `quire metadata show` on its machine",
        above=60,
    ),
    Alarm("quire_read_errors_total", WARNING, "{value:.0f} reads failed since its start", DAMAGE),
    Alarm("quire_entry_logs_left_alone", WARNING, "{value:.0f} entry logs are damaged, and left alone", DAMAGE),
    Alarm(
        "quire_directories_lost_total",
        ERROR,
        "{value:.0f} ledger directories failed since its start",
        "`quire bookie info {bookie}` names them; replace the disk (docs/disks.md, Disks)",
    ),
    Alarm(
        "quire_ledgers_in_limbo",
        NOTE,
        "{value:.0f} ledgers may lack entries here, and wait for copies",
        "if it stays so for hours: its log names them; `quire ledger recover ID` where a writer is gone",
    ),
    Alarm(
        "quire_autorecovery_parked",
        ERROR,
        "{value:.0f} ledgers that it would repair have entries without any copy",
        "quire underreplicated list",
        {"outlook": "gone"},
    ),
    *(
        Alarm(
            f"quire_{kind}_files_broken",
            WARNING,
            f"new files of {of} can't be used; the old ones serve",
            "its log says why",
        )
        for kind, of in (("tls", "certificates"), ("access", "rights"))
    ),
)


def silent(visit: Visit, scene: Scene) -> Iterator[Finding]:
    """Finds one that is listed, and does not answer."""
    if visit.info.code != OK:
        why = said(error_of(visit.info.code, ""))
        step = "see whether it is reached from here, and its log; `quire bookie list` has its address"
        yield Finding(ERROR, visit.bookie, f"it is listed, and does not answer: {why}", step)


def unheard(visit: Visit, scene: Scene) -> Iterator[Finding]:
    """Finds one that can't be asked over HTTP, or does not let us in."""
    if visit.why:
        yield unmade(
            visit.bookie,
            f"its state and metrics were not looked at: {visit.why}",
            NOTE,
            "run `quire doctor` on its machine, or with --token-file",
        )


def takes_nothing(visit: Visit, scene: Scene) -> Iterator[Finding]:
    """Finds one that is read-only."""
    if visit.bookie not in scene.bookies.writable:
        reasons = "; ".join((visit.state or {}).get("readOnlyReasons") or []) or "it does not say why"
        bookie = visit.bookie
        step = f"`quire bookie info {bookie}` says more; by an operator: `quire bookie readonly {bookie} off`"
        severity = NOTE if bookie in (scene.draining or ()) else WARNING
        yield Finding(severity, visit.bookie, f"it is read-only: {reasons}", step)


def disks(visit: Visit, scene: Scene) -> Iterator[Finding]:
    """Finds full disks: of ledgers as all bookies say, of journals as ours do."""
    journals = [visit.value(name, of="journals") for name in ("quire_disk_bytes", "quire_disk_free_bytes")]
    ledgers: list[float | None] = [visit.info.total_bytes, visit.info.free_bytes]
    for kind, (total, free) in (("ledgers", ledgers), ("journals", journals)):
        if not total or free is None:
            continue
        used = 1 - free / total
        if used >= scene.limits.disk:
            yield Finding(
                ERROR if used >= scene.limits.disk_full else WARNING,
                visit.bookie,
                f"the disks of its {kind} are {used:.1%} full, {size_text(free)} are free",
                f"delete ledgers and run `quire bookie gc {visit.bookie}`, or add a bookie and run `quire rebalance`",
            )


def files(visit: Visit, scene: Scene) -> Iterator[Finding]:
    """Finds one that has few file descriptors left."""
    count, most = visit.value("process_open_fds"), visit.value("process_max_fds")
    if count is not None and most and count >= scene.limits.files * most:
        yield Finding(
            WARNING,
            visit.bookie,
            f"{count:.0f} of {most:.0f} files that it may open are open: clients will be turned away",
            "raise LimitNOFILE of its unit (`ulimit -n`), and start it again",
        )


def certificate(visit: Visit, scene: Scene) -> Iterator[Finding]:
    end = visit.value("quire_tls_certificate_expires")
    if end and 1000 * (end - time_of_day()) < scene.limits.certificate_ms:
        left = (end - time_of_day()) / 86_400
        yield Finding(
            WARNING if left > 0 else ERROR,
            visit.bookie,
            f"its certificate ends in {left:.1f} days" if left > 0 else f"its certificate ended {-left:.1f} days ago",
            "put a new one in its place (docs/security.md, 4)",
        )


def alarms(visit: Visit, scene: Scene) -> Iterator[Finding]:
    for each in ALARMS:
        value = visit.value(each.name, **each.labels)
        if value is not None and value > each.above:
            text = each.problem.format(value=value)
            yield Finding(each.severity, visit.bookie, text, each.next.format(bookie=visit.bookie))


# The metrics that the checks above look at.
LOOKED_AT = frozenset(
    {
        *(each.name for each in ALARMS),
        *("quire_disk_bytes", "quire_disk_free_bytes", "process_open_fds", "process_max_fds"),
        "quire_tls_certificate_expires",
    }
)

OF_A_BOOKIE: tuple[Callable[[Visit, Scene], Iterator[Finding]], ...] = (
    silent,
    unheard,
    takes_nothing,
    disks,
    files,
    certificate,
    alarms,
)


async def visits(scene: Scene) -> AsyncIterator[Finding]:
    """Asks all that are up."""
    versions: dict[str, list[str]] = {}
    async for visit in answers(scene):
        if version := (visit.state or {}).get("version"):
            versions.setdefault(str(version), []).append(visit.bookie)
        for each in of_a_bookie(visit, scene):
            yield each
    for each in differing(versions):
        yield each


async def answers(scene: Scene) -> AsyncIterator[Visit]:
    """Asks all that are up, some at a time, and gives their answers."""
    every = sorted({*scene.bookies.writable, *scene.bookies.read_only})
    turn = DeferredSemaphore(TOGETHER)
    coming = [turn.run(_visit, scene, bookie) for bookie in every]
    try:
        for each in coming:
            yield await each
    finally:
        for each in coming:  # nobody waits for the rest
            each.addErrback(lambda _: None)
            each.cancel()


def of_a_bookie(visit: Visit, scene: Scene) -> Iterator[Finding]:
    """Finds what is wrong with one, by its answers."""
    for look in OF_A_BOOKIE:
        yield from look(visit, scene)


def differing(versions: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Finds versions that differ among bookies that say theirs, which Apache's do not."""
    if len(versions) > 1:
        text = "; ".join(f"{version} on {', '.join(bookies)}" for version, bookies in sorted(versions.items()))
        step = "update those that are left: docs/deploying.md says in which order"
        yield Finding(NOTE, "bookies", f"they run different versions: {text}", step)


async def _visit(scene: Scene, bookie: str) -> Visit:
    """Asks over the wire and over HTTP at the same time."""
    answer = Deferred.fromCoroutine(_info(scene, bookie))
    found = scene.bookies.find(bookie)
    samples: Samples | None = None
    state, why = await _asked(scene, STATE, partial(said_by, bookie, found, STATE, scene.token_file))
    if not why:
        samples, why = await _asked(scene, METRICS, partial(metrics_of, bookie, found, scene))
    return Visit(bookie, await answer, state, samples, why)


async def _info(scene: Scene, bookie: str) -> InfoAnswer:
    try:
        return cast(InfoAnswer, await within(scene.clock, scene.limits.bookie_s, scene.client.pool.info(bookie)))
    except DeferredTimeout:
        return InfoAnswer(Timeout.code)


async def _asked(scene: Scene, path: str, ask: Callable[[], Any]) -> tuple[Any, str]:
    """Returns what a request in a thread does, or the text of why it has no answer."""
    reactor: Any = scene.client.reactor
    try:
        answer = await within(
            scene.clock, scene.limits.bookie_s, deferToThreadPool(reactor, reactor.getThreadPool(), ask)
        )
    except DeferredTimeout:
        return None, f"{path} took more than {scene.limits.bookie_s:g} s"
    return (None, answer) if isinstance(answer, str) else (answer, "")


def metrics_of(bookie: str, found: ServiceInfo | None, scene: Scene) -> Samples | str:
    """Asks for the metrics of one bookie that are looked at; why they can't be had."""
    answer = asked_of(bookie, found, METRICS, scene.token_file)
    if isinstance(answer, str):
        return answer
    try:
        return samples_in(answer, LOOKED_AT | scene.metrics)
    except ValueError as error:
        return f"{METRICS} gave something else than metrics ({error})"


def samples_in(body: bytes, wanted: Collection[str] = ()) -> Samples:
    """Returns the values in Prometheus text by their names, of those that are wanted or of all; `ValueError`."""
    from prometheus_client.parser import text_string_to_metric_families

    text = body.decode(errors="replace")
    if wanted:  # most of them are Apache's names for the same, and reading a line takes 10 µs
        lines = [line for line in text.splitlines(keepends=True) if NAME_END.split(line, maxsplit=1)[0] in wanted]
        text = "".join(lines) or text  # nothing of them: is it metrics at all?
    found: Samples = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    except (LookupError, TypeError, AttributeError) as error:  # of the parser, for text that is none
        raise ValueError(f"line without sense: {error!r}") from None
    return found


BOOKIES: dict[str, Check[Scene]] = {"bookies": Check("what each bookie says of itself", visits)}
