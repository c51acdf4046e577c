"""
Looks at a cluster by a table of checks, at the same time and each for a limited time.

Knows: what a finding is and how bad it can be, how long a check may take, that one which could not be made is a finding
too.  Does not know: any check.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime

from quire.metadata.store import BookieList, at_once
from quire.protocol.errors import LedgerError

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.conf.client import ClientOptions
    from quire.metadata.clock import Clock

# SPDX-License-Identifier: Apache-2.0

DAY_MS = 86_400_000


class Severity(IntEnum):
    """How bad a finding is; from WARNING on something is wrong."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Finding(NamedTuple):
    """
    One result of a check: the thing and the problem, in words, and the next command or step.  `made`: False where the
    check could not be made, or not to its end.
    """

    severity: Severity
    about: str
    problem: str
    next: str
    made: bool = True
    check: str = ""  # set by whoever runs it


class Limits(NamedTuple):
    """From where on something is a finding, and how long a look may take."""

    store_s: float = 1.0  # an answer of the metadata store
    clocks_ms: int = 2000  # between its clock and ours
    disk: float = 0.9  # in use
    disk_full: float = 0.95  # BookKeeper's diskUsageThreshold: read-only
    files: float = 0.9  # open, of those that a process may open
    files_min: int = 1024  # that this process may open
    certificate_ms: int = 14 * DAY_MS  # until its end
    cursor_ms: int = DAY_MS  # since the first record that is not done was written
    bookie_s: float = 6.0  # one question to a bookie
    check_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The things that checks of this machine alone look at."""

    clock: "Clock"
    options: "ClientOptions"
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class Scene(Machine):
    """
    The things that checks of the cluster look at: an open client, and the lists of bookies as they were at first.
    `draining`: those that are to be emptied; None where that can't be read.  `metrics`: names of bookies' metrics that
    the caller looks at besides the checks.
    """

    client: "Client"
    bookies: BookieList
    known: frozenset[str]
    draining: frozenset[str] | None
    token_file: Path | None = None
    metrics: frozenset[str] = frozenset()


Where = TypeVar("Where", bound=Machine)


class Check(NamedTuple, Generic[Where]):
    """`about` is what is looked at, for people."""

    about: str
    findings: Callable[[Where], AsyncIterator[Finding]]


async def within(clock: "Clock", seconds: float, work: "Deferred[Any]") -> Any:
    """Waits for some work; `DeferredTimeout` when that takes longer."""
    return await work.addTimeout(seconds, cast(IReactorTime, clock))


async def examine(checks: Mapping[str, Check[Where]], where: Where) -> list[Finding]:
    """Makes all checks at the same time; returns what they found, the worst first."""
    found = await at_once([_made(name, check, where) for name, check in checks.items()])
    return worst_first([each for some in found for each in some])


def worst_first(found: list[Finding]) -> list[Finding]:
    """Sorts; those that are as bad stay in their order."""
    return sorted(found, key=lambda each: -each.severity)


async def _made(name: str, check: Check[Where], where: Where) -> list[Finding]:
    found: list[Finding] = []

    async def whole() -> None:
        async for each in check.findings(where):
            found.append(each)

    try:
        await within(where.clock, where.limits.check_s, Deferred.fromCoroutine(whole()))
    except DeferredTimeout:
        why = f"not looked at to the end: it took more than {where.limits.check_s:g} s"
        found.append(unmade(check.about, why))
    except (LedgerError, OSError, ValueError) as error:
        found.append(unmade(check.about, f"not looked at: {said(error)}"))
    return [each._replace(check=name) for each in found]


def said(error: BaseException) -> str:
    """Returns the text of an error, or its name where it has none."""
    return str(error) or type(error).__name__


def unmade(
    about: str, why: str, severity: Severity = Severity.WARNING, step: str = "run `quire doctor` again"
) -> Finding:
    """Makes the finding of a check that could not be made."""
    return Finding(severity, about, why, step, made=False)


def not_made(checks: Mapping[str, Check[Any]], why: str) -> list[Finding]:
    """One finding that stands for checks which were not begun."""
    about = "; ".join(check.about for check in checks.values())
    return [unmade("the rest", f"not looked at, {why}: {about}", Severity.NOTE)]
