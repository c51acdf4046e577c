"""How the interpreter was built, as its own variables say it."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.conf import interpreter
from quire.conf.interpreter import build

# SPDX-License-Identifier: Apache-2.0

USE = "-fprofile-use -fprofile-correction"


@pytest.mark.parametrize(
    ("known", "optimised"),
    [
        ({"CONFIG_ARGS": "'--prefix=/usr' '--enable-optimizations' '--with-lto'", "PGO_PROF_USE_FLAG": USE}, True),
        ({"CONFIG_ARGS": "'--prefix=/opt/python' '--enable-shared'", "PGO_PROF_USE_FLAG": USE}, False),
        ({"CONFIG_ARGS": "'--enable-shared' '--with-computed-gotos'"}, True),
        ({"CONFIG_ARGS": "'--enable-shared' '--with-computed-gotos'", "PGO_PROF_USE_FLAG": ""}, True),
        ({}, None),
    ],
    ids=["asked for", "a plain build", "Debian", "flags taken out", "nothing is said"],
)
def test_what_says_it(known: dict[str, object], optimised: bool | None) -> None:
    """An option of configure does, or a distribution that took the flags out of what it installs."""
    found = build(known)
    assert found.optimised is optimised
    assert found.words.startswith(found.version + ", ")


def test_the_makefile_asks_it_without_quire() -> None:
    """As a file, by an interpreter that has no packages."""
    command = [sys.executable, "-I", "-S", str(Path(interpreter.__file__))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == f"{sys.executable}: {build().words}\n"
    assert done.returncode == (0 if build().optimised else 1)
