"""
Two releases of quire in folders of their own, and processes that run one of them.

Knows: how a release is made of a commit.  Does not know: what a cluster does.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.requirements import BEFORE
from tests.spark.installed import ROOT, installed
from tests.tools.forked import ForkedPopen

# SPDX-License-Identifier: Apache-2.0

COMMAND_S = 120


class Release:
    """One release: a wheel's content in a folder, where the processes find it that are started while it is `used`."""

    def __init__(self, name: str, place: Path, source: Path = ROOT) -> None:
        self.name = name
        self._site = str(place / "site")
        self._environment = installed(place, source)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Each process that is started meanwhile runs this release."""
        before = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # by which turns of reactors are watched
        kept = [path for path in before if path and not path.endswith("/site")]
        environment = {**self._environment, "PYTHONPATH": os.pathsep.join([self._site, *kept])}
        # none is forked from a process that has modules of this checkout
        with patch.dict("os.environ", environment), patch.object(subprocess, "Popen", ForkedPopen.__base__):
            yield

    def runs(self, pid: int | None) -> bool:
        """True for a process of this release."""
        assert pid is not None, "it has ended"
        return f"={self._site}".encode() in Path(f"/proc/{pid}/environ").read_bytes()

    def python(self, *words: object, given: bytes = b"") -> bytes:
        """What a program prints that runs with this release; it ends with status 0."""
        command = [sys.executable, *map(str, words)]
        with self.used():
            done = subprocess.run(command, cwd="/", input=given, capture_output=True, timeout=COMMAND_S, check=False)
        assert done.returncode == 0, f"{self.name}: {words} ended with {done.returncode}:\n{done.stderr.decode()}"
        return done.stdout

    def quire(self, *words: object, given: bytes = b"") -> bytes:
        """What a command prints."""
        return self.python("-m", "quire.tools", *words, given=given)


def before(place: Path) -> Release:
    """The release before this one."""
    place.mkdir(parents=True)
    archive, source = place / "source.tar", place / "commit"
    subprocess.run(["git", "archive", f"--output={archive}", BEFORE], cwd=ROOT, check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(source, filter="data")
    return Release("before", place, source)
