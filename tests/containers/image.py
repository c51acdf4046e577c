"""
An image of half a megabyte that runs what this machine has: Python, the virtual environment, Java, this checkout.

Knows: that an image needs little when all large directories are mounted read-only from the machine: links of a merged
`/usr`, an `/etc` with users and the cache of the loader, and empty places for the rest.  A container of it starts in
less than a second, and what it runs is this checkout as it stands.
Does not know: the image that users get, which `Dockerfile` makes.
"""

import io
import os
import secrets
import subprocess
import sys
import tarfile
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).resolve().parents[2]
NOBODY_HOME = "/nonexistent"
PASSWD_ROOT = "root:x:0:0:root:/root:/bin/sh\n"
PASSWD = f"{PASSWD_ROOT}quire:x:10001:10001::{NOBODY_HOME}:/bin/sh\n"
EMPTY = ("dev", "proc", "sys", "run", "root", "tmp", "var/lib", "var/tmp", "etc")
COPIED = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl")
VIRTUAL = Path(sys.prefix)  # not resolved: its interpreter is a link


def mounts() -> list[str]:
    """Directories that a container of the image needs, each to be mounted read-only at its own path, parents first."""
    wanted = {Path("/usr"), Path(sys.base_prefix), VIRTUAL, ROOT}
    return sorted(str(path) for path in wanted if not any(other in path.parents for other in wanted))


def mount_options() -> list[str]:
    """The same as options of `docker run`."""
    return [word for path in mounts() for word in ("--volume", f"{path}:{path}:ro")]


def _archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:

        def add(name: str, kind: bytes, **fields: object) -> None:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            for field, value in fields.items():
                setattr(entry, field, value)
            archive.addfile(entry)

        for name in EMPTY:
            add(name, tarfile.DIRTYPE, mode=0o1777 if name.endswith("tmp") else 0o755)
        for link in ("bin", "sbin", "lib", "lib64"):
            if Path("/", link).is_symlink():
                add(link, tarfile.SYMTYPE, linkname=f"usr/{link}")
        for name, text in (("etc/passwd", PASSWD), ("etc/group", "root:x:0:\nquire:x:10001:\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
        for path in COPIED:
            if os.path.exists(path):
                archive.add(path)
    return packed.getvalue()


def imported() -> str:
    """Makes the image and returns its name, which is drawn."""
    name = f"quire-test-{secrets.token_hex(4)}"
    changes = (
        f"ENV PATH={VIRTUAL}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 LANG=C.UTF-8",
        f"WORKDIR {ROOT}",
    )
    options = [word for change in changes for word in ("--change", change)]
    subprocess.run(["docker", "import", *options, "-", name], input=_archive(), stdout=subprocess.DEVNULL, check=True)
    return name


def removed(name: str) -> None:
    """Removes an image, and containers of it that are left."""
    subprocess.run(["docker", "image", "rm", "--force", name], stdout=subprocess.DEVNULL, check=False)
