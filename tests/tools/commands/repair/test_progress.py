"""How far a run is: what its events and lines say."""

import pytest

from quire.replication.freeing.run import Failed, FreeingProgress
from quire.tools.commands.repair.progress import Shown, event

# SPDX-License-Identifier: Apache-2.0


def test_an_event_says_what_is_left() -> None:
    """By ledgers and bytes that are done, since the first copy; nothing before all ledgers were looked at."""
    looking = FreeingProgress(ledgers_total=100, ledgers_seen=60, ledgers_named=10, bytes_total=5000)
    assert event(looking, 2.0, 0.0)["seconds_left"] is None
    half = FreeingProgress(
        ledgers_total=100, ledgers_seen=100, ledgers_named=10, ledgers_done=2, bytes=8 << 16, bytes_total=10 << 16
    )
    told = event(half, 2.0, 0.0)
    assert (told["seconds_left"], told["bytes_per_second"], told["ledgers_per_second"]) == (2.0, 1 << 18, 1.0)
    assert (
        event(FreeingProgress(ledgers_total=100, ledgers_seen=100, ledgers_named=10, ledgers_done=2), 3.0, 1.0)[
            "seconds_left"
        ]
        == 8.0
    )


def test_who_is_waited_for_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A ledger is named when it comes to be waited for, and when the reason is another one; not with each look."""
    shown = Shown("drain", json_wanted=False)
    shown.waits([Failed(7, "is open", open=True), Failed(9, "is locked")])
    shown.waits([Failed(7, "is open", open=True), Failed(9, "is locked")])
    shown.waits([Failed(7, "is open", open=True), Failed(9, "has no spare")])
    assert capsys.readouterr().err.splitlines() == [
        "waits for ledger 7: is open",
        "waits for ledger 9: is locked",
        "waits for ledger 9: has no spare",
    ]


def test_the_rounds_of_a_drain_are_one_sum(capsys: pytest.CaptureFixture[str]) -> None:
    """Each counts from the beginning, and the last one finds nothing to copy."""
    with Shown("drain", json_wanted=False) as shown:
        for copied, in_all in ((0, 8_000_000), (3_000_000, 8_000_000), (8_000_000, 8_000_000)):
            shown(
                FreeingProgress(
                    ledgers_total=2,
                    ledgers_seen=2,
                    ledgers_named=1,
                    ledgers_done=copied // 8_000_000,
                    bytes=copied,
                    bytes_total=in_all,
                )
            )
        shown(FreeingProgress(3, 0))
        for copied in (0, 500_000):
            shown(FreeingProgress(ledgers_total=3, ledgers_seen=3, ledgers_named=1, bytes=copied, bytes_total=500_000))
        shown(FreeingProgress(3, 0))
        shown(FreeingProgress(3, 3))
    assert "drain: 8.5 MB in " in capsys.readouterr().err.splitlines()[-1]


def test_ledgers_that_are_tried_again_are_no_more_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Once a loss is accepted: those that had failed count as not dealt with."""
    with Shown("recover", json_wanted=False) as shown:
        for done in (0, 5, 10, 7, 10):
            shown(FreeingProgress(ledgers_total=20, ledgers_seen=20, ledgers_named=10, ledgers_done=done))
    assert "recover: 10 ledgers in " in capsys.readouterr().err.splitlines()[-1]
