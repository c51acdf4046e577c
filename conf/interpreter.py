"""
How the interpreter that runs was built: with the compiler's profile of itself, or in a third to two thirds more CPU.

    python conf/interpreter.py     says so; exit status 0: with optimisations, 1: without, or not known

Knows: what `configure` and the installed Makefile say.  Does not know: who asks; the Makefile does, without quire.
"""

import platform
import sys
import sysconfig
from collections.abc import Mapping
from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0

ASKED = "--enable-optimizations"


class Build(NamedTuple):
    """How an interpreter was built; `optimised` is None where nothing says it."""

    version: str
    optimised: bool | None

    @property
    def words(self) -> str:
        """The version, and how it was built."""
        how = {True: "built with optimisations", False: f"built without {ASKED}", None: "nothing says how it was built"}
        return f"{self.version}, {how[self.optimised]}"


def build(known: Mapping[str, object] | None = None) -> Build:
    """
    Returns the build of this interpreter, or of one whose `sysconfig` variables are given.  Distributions that profile
    by a target of their own leave the option out, and take the flags of it out of what they install (Debian).
    """
    found = sysconfig.get_config_vars() if known is None else known
    asked = str(found.get("CONFIG_ARGS") or "")
    optimised = ASKED in asked or not found.get("PGO_PROF_USE_FLAG") if asked else None
    return Build(platform.python_version(), optimised)


if __name__ == "__main__":
    here = build()
    sys.stdout.write(f"{sys.executable}: {here.words}\n")
    sys.exit(0 if here.optimised else 1)
