"""A server of PostgreSQL in a directory of its own, reached by a socket there, for tests that need one."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.requirements import postgres_programs

# SPDX-License-Identifier: Apache-2.0

SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "",
    "fsync": "off",
    "max_replication_slots": "20",
    "shared_buffers": "16MB",
}


@contextmanager
def postgres() -> Iterator[str]:
    """The URI of its database; PostgreSQL refuses to run as root, so there it runs as Debian's user for it."""
    directory = Path(tempfile.mkdtemp(prefix="quire-postgres-", dir="/tmp"))  # a socket's path has to be short
    other = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    if other:
        shutil.chown(directory, "postgres", "postgres")
    data = directory / "data"
    settings = " ".join(f"-c {name}={value!r}" for name, value in SETTINGS.items())

    programs = postgres_programs()
    assert programs is not None, "the caller needs it"

    def run(program: str, *options: str) -> None:
        command = [*other, str(programs / program), *options]
        subprocess.run(command, cwd=directory, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-A", "trust", "-U", "postgres", "--no-sync", "-D", str(data))
        run("pg_ctl", "start", "-w", "-D", str(data), "-l", str(directory / "log"), "-o", f"-k {directory} {settings}")
        try:
            yield f"postgresql://postgres@/postgres?host={directory}"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(data))
    finally:
        shutil.rmtree(directory)
