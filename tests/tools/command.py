"""The real `quire` command, as a shell would run it."""

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 120.0  # only a command that hangs takes so long
COMMAND = [sys.executable, "-m", "quire.tools"]


class Done(NamedTuple):
    """How a command ended.  `out` and `err` are text, `raw` is standard output's bytes."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.raw)

    @property
    def rows(self) -> list[Any]:
        """The JSON documents on standard output, one a line."""
        return [json.loads(line) for line in self.raw.splitlines()]


def environment(metadata: str | None = None) -> dict[str, str]:
    """This process's environment without what would steer a command, and with a metadata store if told."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUIRE_", "BK_"))}
    kept["QUIRE_CONF"] = os.devnull  # the developer's own configuration is not the test's
    if metadata is not None:
        kept["QUIRE_METADATA"] = metadata
    return kept


def quire(*arguments: object, metadata: str | None = None, stdin: bytes = b"", timeout: float = WAIT_S) -> Done:
    """Runs one command to its end."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], input=stdin, capture_output=True, timeout=timeout, env=environment(metadata), check=False)
    return Done(done.returncode, done.stdout, done.stderr.decode())


def ok(*arguments: object, metadata: str | None = None, stdin: bytes = b"", timeout: float = WAIT_S) -> Done:
    """Runs one command that must succeed."""
    done = quire(*arguments, metadata=metadata, stdin=stdin, timeout=timeout)
    assert done.code == 0, f"quire {' '.join(map(str, arguments))} ended with {done.code}: {done.err}"
    return done


def refused(code: int, *arguments: object, metadata: str | None = None, stdin: bytes = b"", timeout: float = WAIT_S) -> str:
    """Runs one command that must fail with this status, with one line and no traceback; the line."""
    done = quire(*arguments, metadata=metadata, stdin=stdin, timeout=timeout)
    assert done.code == code, f"quire {' '.join(map(str, arguments))} ended with {done.code}: {done.err}"
    assert "Traceback" not in done.err
    assert done.raw == b"", "a failure leaves standard output empty"
    return done.err.strip().splitlines()[-1]
