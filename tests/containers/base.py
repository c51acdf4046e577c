"""
A base for `Dockerfile` where no image can be pulled: this machine's Python and what it and a shell need of the system.

Knows: files and the libraries that they ask the loader for; where Python's own modules are.
Does not know: what is built on it.  It has no package tool, no headers and no virtual environment of this checkout:
what the image runs, `Dockerfile` has put there.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path

from tests.containers.image import PASSWD_ROOT

# SPDX-License-Identifier: Apache-2.0

COMMANDS = """
    basename bash cat chgrp chmod chown cp date dirname env false find grep head id kill ln ls mkdir mktemp mv readlink
    rm sed seq sh sleep sort tail timeout touch tr true uname wc
"""
# What wheels may ask for, and names: all of the C library, and C++'s.
LIBRARIES = """
    libdl.so.2 libgcc_s.so.1 libm.so.6 libnss_dns.so.2 libnss_files.so.2 libpthread.so.0 libresolv.so.2 librt.so.1
    libstdc++.so.6 libutil.so.1
"""
LEFT_OUT = {"test", "site-packages", "idlelib", "turtledemo", "tkinter", "lib2to3"}
EMPTY = ("dev", "proc", "sys", "run", "root", "tmp", "var/tmp", "var/lib")
NEEDS = re.compile(r"(?:=> )?(/\S+) \(0x")


def libraries(files: Iterable[Path]) -> set[Path]:
    """What the loader loads for these files."""
    said = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in NEEDS.findall(said)}


def python_files() -> list[Path]:
    """Python with its own modules."""
    prefix = Path(sys.base_prefix)
    modules = Path(sysconfig.get_path("stdlib", vars={"installed_base": str(prefix)}))
    found = [Path(os.path.realpath(sys.executable)), *prefix.glob("lib/libpython*.so*")]
    for directory, inner, names in os.walk(modules):
        inner[:] = [name for name in inner if name not in LEFT_OUT and not name.startswith("config-")]
        # with what is compiled already, for a container can't keep it
        found += [Path(directory, name) for name in names if ".opt-" not in name]
    return found


def archive() -> bytes:
    """The base as a tar file, for `docker import`."""
    commands = [Path(path) for path in map(shutil.which, COMMANDS.split()) if path is not None]
    files = [*python_files(), *commands]
    named = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = {Path(path) for path in re.findall(r"=> (\S+)", named) if Path(path).name in LIBRARIES.split()}
    files += sorted(found | libraries([*files_with_code(files), *found]))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as made:

        def link(name: str, to: str) -> None:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            made.addfile(entry)

        for name in EMPTY:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            made.addfile(entry)
        merged = {name for name in ("bin", "sbin", "lib", "lib64") if Path("/", name).is_symlink()}
        for name in sorted(merged):
            link(name, f"usr/{name}")
        for path in dict.fromkeys(files):
            name = str(path).lstrip("/")
            if name.split("/")[0] in merged:
                name = f"usr/{name}"
            made.add(os.path.realpath(path), name)
        link("usr/local/bin/python3", os.path.realpath(sys.executable))
        for name, text in (("etc/passwd", PASSWD_ROOT), ("etc/group", "root:x:0:\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text.encode()))
        made.add("/etc/ld.so.cache")
    return packed.getvalue()


def files_with_code(files: Iterable[Path]) -> list[Path]:
    """Those of the files that the loader reads."""
    found = []
    for path in files:
        with path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                found.append(path)
    return found
