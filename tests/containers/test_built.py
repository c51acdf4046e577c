"""The image that users build."""

import json

import pytest

from release.__main__ import ROOT, version_in
from tests.containers.scene import Scene, docker
from tests.tidy import PACKAGES

# SPDX-License-Identifier: Apache-2.0

pytestmark = pytest.mark.timeout(900)  # the first one builds the image


def test_the_build_is_given_every_package() -> None:
    """`.dockerignore` leaves out all but what it names."""
    named = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert set(PACKAGES) <= named, set(PACKAGES) - named


def test_the_image_says_what_it_is(quire_image: str) -> None:
    """Version and licence, a user that is not root, a health check, a signal to stop by."""
    (shown,) = json.loads(docker("image", "inspect", quire_image).stdout)
    config = shown["Config"]
    assert config["Labels"]["org.opencontainers.image.version"] == version_in(ROOT)
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert (config["User"], config["StopSignal"]) == ("10000:0", "SIGTERM")
    assert config["Healthcheck"]["Test"] == ["CMD", "healthcheck"]
    assert docker("run", "--rm", quire_image, "--version").stdout.startswith("quire ")
    assert docker("run", "--rm", quire_image).stdout.startswith("Usage: quire COMMAND")


def test_a_host_of_bookies(quire_image: str) -> None:
    """By the image's own entry: two bookies in one container, found healthy by Docker itself, and ended by SIGTERM."""
    given = {
        "QUIRE_METADATA": "sqlite:///quire/data/metadata.db",
        "BK_metadataServiceUri": "sqlite:///quire/data/metadata.db",
        "BK_journalDirectories": "/quire/data/journal",
        "BK_ledgerDirectories": "/quire/data/ledgers",
    }
    with Scene(quire_image) as scene:
        kept = ["--volume", f"{scene.name}:/quire/data"]
        environment = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
        docker("run", "--rm", *kept, *environment, quire_image, "metadata", "init")
        asked = ["--health-cmd", "healthcheck /healthz", "--health-interval", "1s"]
        started = ["host", "start", "--conf", "conf/bookkeeper.conf", "--bookies", "2"]
        host = scene.start("host", *kept, *asked, quire_image, *started, environment=given)
        state = ["inspect", "--format", "{{.State.Health.Status}}", host]
        scene.until(host, lambda: docker(*state).stdout.strip() == "healthy")
        assert docker("exec", host, "quire", "bookie", "list").stdout.count(" writable ") == 2
        docker("stop", "-t", "60", host)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", host).stdout.strip() == "0"
    docker("volume", "rm", scene.name)
