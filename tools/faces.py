"""
Makes the blocking faces from the asyncio ones: `python -m quire.tools.faces`.

Knows: the words in which the two differ in code; what differs otherwise has the same names in `loops` and `threads`,
which are written by hand.  Operations have no docstrings there: `threads.documented` gives them those of the asyncio
face, in other words.
Does not know: any operation.

It is this way round because `await` can be left out by rule; where it belongs is not in the text of a blocking face.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

from quire.client.threads import DOCUMENTED

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).resolve().parent.parent
FACES = {  # source -> what is made
    "client/aio.py": "client/blocking.py",
    "log/aio.py": "log/blocking.py",
    "log/handles/aio.py": "log/handles/blocking.py",
    "log/handles/partitions/aio.py": "log/handles/partitions/blocking.py",
    "messages/aio.py": "messages/blocking.py",
    "pulsar/aio.py": "pulsar/blocking.py",
}
HEAD = "# Made from {source} by `make manual`: edit that file, not this one.\n"
WORDS = DOCUMENTED | {
    "Connecting[Client]": "Client",
    "Connecting[Logs]": "Logs",
    "Connecting[Stores]": "Stores",
    "Connecting[Topics]": "Topics",
    "Connecting(opened)": "opened()",
    "async def": "def",
    "AsyncIterator": "Iterator",
    "aclosing": "closing",
    "__aiter__": "__iter__",
    "from asyncio": "from concurrent.futures",
    ".aio": ".blocking",
    ".loops": ".threads",
    "asyncio face": "blocking face",
    """\
Cancelling a task cancels the operation it waits for, and what came of it all the same is ended; an append that was sent
stays sent.
""": """\
Handles may be used from several threads at a time.  An interrupt while a call waits cancels its operation; an append
that was sent stays sent.  A call on the reactor's own thread, or in a forked child, raises `RuntimeError` instead of
waiting for ever.
""",
}
CLASS = re.compile(r"^class (\w+)\(?.*:$", re.MULTILINE)
IMPORTS = "from {package} import aio\nfrom quire.client.threads import documented\n"
RUFF = (sys.executable, "-m", "ruff")
DIFFERENT = re.compile("|".join(map(re.escape, WORDS)))


def blocking(source: str) -> str:
    """Makes the text of the blocking face of `source`, an asyncio face."""
    text = DIFFERENT.sub(lambda found: WORDS[found.group()], (ROOT / source).read_text(encoding="utf-8"))
    text = CLASS.sub(r"@documented(aio.\1)\n\g<0>", undocumented(text))
    package = "quire." + source.rpartition("/")[0].replace("/", ".")
    text = text.replace("\nfrom ", f"\n{IMPORTS.format(package=package)}from ", 1)
    return ruff(
        "format",
        ruff(
            "check",
            "--quiet",
            "--fix-only",
            "--unsafe-fixes",
            "--select=I,F401,UP028",
            HEAD.format(source=source) + text,
        ),
    )


def undocumented(text: str) -> str:
    """Leaves out the docstrings of all methods."""
    lines = text.splitlines(keepends=True)
    kinds = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    for method in [node for kind in kinds for node in kind.body if isinstance(node, ast.FunctionDef)]:
        if ast.get_docstring(method) is not None:
            first, last = method.body[0].lineno, method.body[0].end_lineno or 0
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "".join(lines)


def ruff(*arguments: str) -> str:
    """Runs ruff on the text that is the last argument."""
    *command, text = arguments
    return subprocess.run(
        (*RUFF, *command, "-"), input=text, check=True, stdout=subprocess.PIPE, cwd=ROOT, encoding="utf-8"
    ).stdout


if __name__ == "__main__":
    for source, made in FACES.items():
        (ROOT / made).write_text(blocking(source), encoding="utf-8")
