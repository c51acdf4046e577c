"""The judge of a soak's logs: a good history passes, and each fault in it is found, while it goes on or at its end."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.soak.truth import Truth, chained, runs_of, seen_runs

# SPDX-License-Identifier: Apache-2.0

NAMES = ["a:0", "a:1", "p-w:7", "a:2", "b:0", "b:1", "b:2"]


def state_of(records: int) -> str:
    state = ""
    for name in NAMES[:records]:
        state = chained(state, name)
    return state


def events() -> list[dict[str, Any]]:
    """What is said of a log that goes well, by workers whose lines are heard in another order than they came."""
    return [
        {"acked": [["a", 0, 0, 2]], "t": [1, 2]},
        {"opened": 0},
        {"saw": 0, "names": NAMES[:3]},
        {"kept": 2},
        {"acked": [["p-w", 7, -1, 1]], "t": [2, 3]},
        {"failed": "AppendUnknown", "handle": "a", "first": 2, "records": 1},
        {"failed": "LogFenced", "handle": "a", "first": 3, "records": 2},
        {"acked": [["b", 0, 4, 3]], "t": [5, 6]},
        {"opened": 2},
        {"saw": 2, "names": NAMES[2:]},
        {"read": [7, state_of(7)], "t": [7, 8]},
    ]


def heard(said: list[dict[str, Any]]) -> Truth:
    truth = Truth({"log": True})
    for event in said:
        truth.hear({"log": "log", **event})
    truth.close()
    return truth


def test_a_good_history_is_not_broken() -> None:
    """Resends, records that come again after a kill, and calls of unknown end included."""
    truth = heard(events())
    assert not truth.broken
    assert truth.counts() == {"acked": 6, "seen": 7, "pending": 0, "denied": 2, "reads": 1}
    assert truth.failures == {"append AppendUnknown": 1, "append LogFenced": 1}


Said = list[dict[str, Any]]


def lose(said: Said) -> None:
    said[9]["names"].pop()


def replace(said: Said) -> None:
    said[9]["names"][3] = "c:0"


def double(said: Said) -> None:
    said[9]["names"].append("a:1")


def skip(said: Said) -> None:
    said[9].update(saw=4, names=NAMES[4:])


def change(said: Said) -> None:
    said[9]["names"][0] = "p-w:8"


def deny(said: Said) -> None:
    said[5]["failed"] = "NotOwner"


def forget(said: Said) -> None:
    said[4]["acked"] = [["p-w", 6, -1, 1]]


def go_back(said: Said) -> None:
    said[8]["opened"] = 1


def go_ahead(said: Said) -> None:
    said[8]["opened"] = 4


def mistake_state(said: Said) -> None:
    said[10]["read"] = [7, "another"]


def read_old(said: Said) -> None:
    said[10]["read"] = [6, state_of(6)]


SPOILED: dict[Callable[[Said], None], str] = {
    lose: "and the log ends at 6",
    replace: "where c:0 is",
    double: "twice, or out of order",
    skip: "passed over",
    change: "record 2 was",
    deny: "never sent",
    forget: "is nowhere",
    go_back: "had stored 2",
    go_ahead: "had been given 3",
    mistake_state: "is not the log's",
    read_old: "knows 6 records of 7",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_each_fault_is_found(spoil: Callable[[Said], None]) -> None:
    """One fault in a good history is told in its own words."""
    said = events()
    spoil(said)
    assert SPOILED[spoil] in heard(said).broken[0]


def test_runs_are_joined_where_they_are_dense() -> None:
    """Indexes of a call, and names that a reader was given."""
    assert runs_of("h", 5, [1, 2, 4, -1, -1]) == [("h", 5, 1, 2), ("h", 7, 4, 1), ("h", 8, -1, 1), ("h", 9, -1, 1)]
    assert seen_runs(3, ["h:1", "h:2", "g:3", "g:5"]) == [("h", 1, 3, 2), ("g", 3, 5, 1), ("g", 5, 6, 1)]
