"""
The request of an offload, its result, and the runner of its tasks.

Knows: values only.  Does not know: how anything is done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from quire.pipeline.core.selection import Selection

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
DELETION_LAG_S = 4 * 3600.0
Item = TypeVar("Item")
Result = TypeVar("Result")
Reached = Callable[[str], None]


class Spread(Protocol):
    """Does each item's work in a task of its own, on whichever machine; the results in the order of the items."""

    def __call__(self, work: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]: ...


def here(work: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
    """Does the work of all items in this process, one after the other."""
    return [work(item) for item in items]


def nothing(_step: str) -> None:
    """Ignores a step."""


@dataclass(frozen=True, slots=True)
class OffloadRequest:
    """
    `to`: where copies lie.  Of the `ledgers` (as `7,9-20` or `all`), or of the `log`, those that are closed and older
    than `older_than_s`.  `delete`: bookies lose what was marked at least `deletion_lag_s` ago, by another run.
    """

    metadata: str
    to: str
    ledgers: str | None = None
    log: str | None = None
    older_than_s: float = 0.0
    delete: bool = False
    deletion_lag_s: float = DELETION_LAG_S
    dry_run: bool = False
    split_bytes: int = 256 * MIB  # of a task
    round_bytes: int = 8192 * MIB  # copied before the next are begun

    def __post_init__(self) -> None:
        if (self.ledgers is None) == (self.log is None):
            raise ValueError("name what is offloaded: either ledgers or a log")
        if self.ledgers is not None:
            Selection.parse(self.ledgers)
        if self.deletion_lag_s < 0 or self.older_than_s < 0:
            raise ValueError("an age is 0 or more")

    @property
    def selection(self) -> Selection:
        """The ledgers that are meant; none where they are a log's."""
        return Selection([]) if self.ledgers is None else Selection.parse(self.ledgers)


class Problem(NamedTuple):
    """The reason why one ledger was not offloaded or restored; its entries are where they were."""

    ledger: int
    what: str


@dataclass
class OffloadResult:
    """
    The result of one run.  `offloaded`, `deleted`: ledgers; `waiting`: offloaded ones that bookies still have; `left`:
    why others were left alone, with how many.  With a dry run what would be done.
    """

    offloaded: list[int] = field(default_factory=list)
    entries: int = 0
    bytes: int = 0
    deleted: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def leave(self, why: str) -> None:
        """Counts one more ledger that is left alone."""
        self.left[why] = self.left.get(why, 0) + 1
