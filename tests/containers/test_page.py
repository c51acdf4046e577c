"""The block of docs/testing.md that needs containers runs as shown, with images of quire and of a ZooKeeper."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.tools.local_cluster.zookeeper import jars, java
from tests.containers.built import BUILDER
from tests.containers.cluster import SERVER
from tests.containers.image import removed
from tests.testing.test_page import NO_CACHE, written

# SPDX-License-Identifier: Apache-2.0

NAME = f"quire-zookeeper-{os.getpid()}"


@pytest.fixture
def zookeeper_image(base: str, tmp_path: Path) -> Iterator[str]:
    """The name of an image of a ZooKeeper that serves, as Docker's own does."""
    shutil.copytree(Path(java()).parents[1], tmp_path / "java")
    (tmp_path / "jars").mkdir()
    for jar in jars():
        shutil.copy(jar, tmp_path / "jars")
    server = SERVER.format(java="/java/bin/java", jars="'/jars/*'")
    (tmp_path / "serve").write_text(server)
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nCOPY . /\nCMD {shlex.join(['sh', '/serve'])}\n")
    words = ["docker", "build", "--quiet", "--tag", NAME, str(tmp_path)]
    subprocess.run(words, env=BUILDER, stdout=subprocess.DEVNULL, check=True)
    yield NAME
    removed(NAME)


def test_the_page_runs(tmp_path_factory: pytest.TempPathFactory, quire_image: str, zookeeper_image: str) -> None:
    """In a pytest of its own, and nothing of it is left."""
    folder = tmp_path_factory.mktemp("page")
    (name,) = written(folder, "docker")
    options = ["--quire-image", quire_image, "--quire-zookeeper-image", zookeeper_image]
    command = [sys.executable, "-m", "pytest", *NO_CACHE, "-rA", *options, name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout
    assert " 1 passed" in done.stdout
    for image in (quire_image, zookeeper_image):
        left = subprocess.run(["docker", "ps", "-aq", "--filter", f"ancestor={image}"], capture_output=True, check=True)
        assert left.stdout == b""
