"""Names on a command line, and the question before something is gone."""

import io

import pytest
import typer

from quire.tools.commands.log import shared

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("orders", "orders"),
        ("orders/eu", "orders/eu"),
        ("orders%2Feu", "orders/eu"),
        ("a%20b", "a b"),
        ("100%", "100%"),
        ("100%25", "100%"),
        ("a/b%2Fc", "a/b%2Fc"),
        ("a%252Fb", "a%2Fb"),
        ("%E2%82%AC", "\u20ac"),
    ],
)
def test_a_name_is_given_encoded_or_not(given: str, meant: str) -> None:
    """What is an encoded name to the letter is one; a name that only looks like one has to be encoded."""
    assert shared.name_of(given) == meant


def test_what_destroys_asks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what it will do; without a terminal to ask on it does nothing, unless it is allowed to."""
    shared.asked(True, "All will go.")
    assert "All will go." in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(typer.Exit) as refusal:
        shared.asked(False, "All will go.")
    assert refusal.value.exit_code == 1
    assert "--yes" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_the_answer_decides(monkeypatch: pytest.MonkeyPatch, answer: str, goes_on: bool) -> None:
    """Only a yes is one."""
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True  # type: ignore[method-assign]  # what a terminal says
    monkeypatch.setattr("sys.stdin", terminal)
    if goes_on:
        shared.asked(False, "All will go.")
    else:
        with pytest.raises(typer.Abort):
            shared.asked(False, "All will go.")
