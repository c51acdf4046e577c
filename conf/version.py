"""
The version of the program that runs.

Knows: where it is installed says it.  Does not know: who asks.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

# SPDX-License-Identifier: Apache-2.0


@cache
def own_version() -> str:
    """Returns quire's version, as it was when it was first asked: another may be installed while a process runs."""
    try:
        return version("quire")
    except PackageNotFoundError:
        return "from a checkout that is not installed"
