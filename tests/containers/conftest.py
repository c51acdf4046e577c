"""Docker, and the image that tests run in it."""

from collections.abc import Iterator

import pytest

from tests.containers.image import imported, removed
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="session")
def docker() -> None:
    """A Docker that answers; where there is none, the test is skipped."""
    need("docker")


@pytest.fixture(scope="session")
def image(docker: None) -> Iterator[str]:
    """The name of an image that runs this checkout, with `image.mount_options()`."""
    name = imported()
    yield name
    removed(name)
