"""Docker, and the image that tests run in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.built import built, checkout, imported_base
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


@pytest.fixture(scope="session")
def base(docker: None) -> Iterator[str]:
    """The name of the base that the image is built on here."""
    name = imported_base()
    yield name
    removed(name)


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, to build in."""
    return checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def quire_image(base: str, copy: Path) -> Iterator[str]:
    """The name of the image that users build."""
    name = built(copy, base)
    yield name
    removed(name)
