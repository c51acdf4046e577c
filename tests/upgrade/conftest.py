"""The two releases, once for all of these tests."""

import pytest

from tests.requirements import need
from tests.upgrade.releases import Release, before

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release]:
    """The one before, and this one."""
    need("release")
    place = tmp_path_factory.mktemp("releases")
    return before(place / "before"), Release("now", place / "now")
