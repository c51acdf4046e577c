"""The image that users build."""

import json
import subprocess

from release.__main__ import ROOT, version_in
from tests.tidy import PACKAGES

# SPDX-License-Identifier: Apache-2.0


def docker(*words: str) -> str:
    ended = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_build_is_given_every_package() -> None:
    """`.dockerignore` leaves out all but what it names."""
    named = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert set(PACKAGES) <= named, set(PACKAGES) - named


def test_the_image_says_what_it_is(quire_image: str) -> None:
    """Version and licence, a user that is not root, a health check, a signal to stop by."""
    (shown,) = json.loads(docker("image", "inspect", quire_image))
    config = shown["Config"]
    assert config["Labels"]["org.opencontainers.image.version"] == version_in(ROOT)
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert (config["User"], config["StopSignal"]) == ("10000:0", "SIGTERM")
    assert config["Healthcheck"]["Test"] == ["CMD", "healthcheck"]
    assert docker("run", "--rm", quire_image, "--version").startswith("quire ")
    assert docker("run", "--rm", quire_image).startswith("Usage: quire COMMAND")
