"""What a test needs beyond Python is looked for, and a missing one is either reported or fails."""

import pytest

from tests import requirements
from tests.requirements import need


@pytest.fixture(autouse=True)
def _two_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "LACKING", {"present": lambda: None, "absent": lambda: "it is not there"})
    monkeypatch.delenv("QUIRE_REQUIRE", raising=False)


def test_what_is_there_lets_the_test_go_on() -> None:
    """Also when it is required."""
    need("present")


def test_what_is_missing_skips_with_the_reason() -> None:
    """So that `make test` passes on a machine without it, and says what it left out."""
    with pytest.raises(pytest.skip.Exception, match="it is not there"):
        need("absent")


def test_what_is_missing_and_required_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """`QUIRE_REQUIRE` names it, alone or among others."""
    monkeypatch.setenv("QUIRE_REQUIRE", "present, absent")
    need("present")
    with pytest.raises(pytest.fail.Exception, match="absent"):
        need("absent")


def test_an_unknown_requirement_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would require nothing, silently."""
    monkeypatch.setenv("QUIRE_REQUIRE", "mavne")
    with pytest.raises(ValueError, match=r"mavne: known are absent, present"):
        need("absent")
