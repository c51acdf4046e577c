"""How the limit of open files is divided."""

import resource

import pytest

from quire.bookie.layout import OPEN_LOGS_MAX
from quire.rows.files import StorageError
from quire.rows.rocks import FILES_MAX
from quire.tools.daemons.serving import CONNECTIONS_MIN, LOGS_MIN, STORE_MIN, UNLIMITED, divided, raised
from tests.bookie.fakes.wires import options

# SPDX-License-Identifier: Apache-2.0


def test_a_large_limit_bounds_nothing() -> None:
    """Every part has its maximum, and connections what the configuration says."""
    assert divided(1 << 20, options()) == (1 << 20, options().connections_max, FILES_MAX, OPEN_LOGS_MAX)


def test_what_is_given_out_is_never_more_than_there_is() -> None:
    """
    For any limit and number of directories; no part gets less than it needs, and a limit below that is refused with the
    number that is enough.
    """
    for directories in (1, 2, 12):
        several = options().model_copy(
            update={"ledger_directories": tuple(f"/l{number}" for number in range(directories))}
        )
        refused = 0
        for limit in range(0, 20_000, 37):
            try:
                parts = divided(limit, several)
            except StorageError:
                refused = limit
                continue
            assert parts.connections >= CONNECTIONS_MIN
            assert parts.store >= STORE_MIN
            assert parts.logs >= LOGS_MIN
            assert parts.connections + (2 * parts.store + parts.logs) * directories < limit - 48
        assert 0 < refused < 2000


def test_the_usual_soft_limit() -> None:
    """1,024 with one directory leaves more than 400 connections; 256 is enough for two directories."""
    assert divided(1024, options()).connections > 400
    two = options().model_copy(update={"ledger_directories": ("/a", "/b")})
    assert divided(256, two).connections >= CONNECTIONS_MIN
    with pytest.raises(StorageError, match=r"may have 200 files open.* LimitNOFILE"):
        divided(200, two)


@pytest.mark.parametrize(
    ("limits", "allowed", "expected"),
    [
        ((1024, 4096), True, 4096),
        ((1024, resource.RLIM_INFINITY), True, UNLIMITED),
        ((1024, resource.RLIM_INFINITY), False, 1024),
        ((1024, 4096), False, 1024),
    ],
)
def test_the_limit_that_there_is_when_it_was_raised(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], allowed: bool, expected: int
) -> None:
    """None at all is a large number; where the system refuses to raise it, it is the one that there was."""

    def change(which: int, wanted: tuple[int, int]) -> None:
        if not allowed:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", change)
    assert raised() == expected
