"""The version of the program that runs."""

from importlib import metadata

import pytest

from quire.conf import version

# SPDX-License-Identifier: Apache-2.0


def test_it_is_the_one_that_the_process_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer one that is installed meanwhile is not what runs."""
    assert version.own_version() == metadata.version("quire")
    monkeypatch.setattr(version, "version", lambda name: "99.9")
    assert version.own_version() == metadata.version("quire")
    assert version.own_version.__wrapped__() == "99.9"


def test_a_checkout_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no number, and no traceback."""

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", absent)
    assert version.own_version.__wrapped__() == "from a checkout that is not installed"
