"""
Every test in this folder meets the real Apache BookKeeper: it carries the marker `interop`, and needs Maven and a JDK.
"""

import pathlib

import pytest

from tests.requirements import need

HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this folder, and no others (pytest hands over all of the session)."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session", autouse=True)
def _peer_at_hand() -> None:
    need("maven")
