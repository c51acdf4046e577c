"""
The image of `Dockerfile`, built here as a user builds it, from a copy of this checkout's files.

Knows: what takes the place of what can't be had where a Docker of our own has no network: the base (`base.py`), and
wheels that `make containers` has put into `build/containers/wheels`, in place of an index.
Does not know: whether the machine can reach an index; where those wheels are missing pip is left to find out.
"""

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from tests.containers import base
from tests.containers.image import ROOT

# SPDX-License-Identifier: Apache-2.0

WHEELS = ROOT / "build" / "containers" / "wheels"
BUILDER = os.environ | {"DOCKER_BUILDKIT": "0"}  # Debian's Docker has no other


def checkout(to: Path) -> Path:
    """A copy of this checkout's files, as git sees them, with the wheels."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if name.partition("/")[0] not in ("tests", "docs", "changes") and os.path.lexists(ROOT / name):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name, follow_symlinks=False)
    if WHEELS.is_dir():
        shutil.copytree(WHEELS, to / "wheels")
    return to


def substitutes(base_image: str) -> list[str]:
    """Options of `docker build` for what can't be had here."""
    given = {"BASE": base_image}
    if WHEELS.is_dir():
        given |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/src/wheels"}
    return [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]


def imported_base() -> str:
    """The base as an image, under a name that is drawn."""
    name = f"quire-base-{secrets.token_hex(4)}"
    words = ["docker", "import", "--change", "ENV LANG=C.UTF-8", "-", name]
    subprocess.run(words, input=base.archive(), stdout=subprocess.DEVNULL, check=True)
    return name


def built(context: Path, base_image: str) -> str:
    """Builds the image under a name that is drawn."""
    name = f"quire-built-{secrets.token_hex(4)}"
    words = ["docker", "build", "--tag", name, *substitutes(base_image), "."]
    ended = subprocess.run(words, cwd=context, env=BUILDER, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return name
