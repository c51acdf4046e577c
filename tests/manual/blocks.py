"""
The blocks of the manual's pages, and how those of a page are run: in page order, Python ones in one process with one
namespace (Twisted's, which end with their reactor, in one of their own), on one cluster that `QUIRE_METADATA` names.

Knows: what the words behind ```` ```python ```` and ```` ```sh ```` mean to the tests.  Does not know: any page.

| block | is run |
|---|---|
| `python` | by `make manual-runs`, with the page |
| `python spark` | by `make spark`, with the page: all that is run of a page with such a block is run there |
| `python WORD` of `ELSEWHERE` | not with the page; the word says why |
| `sh runs` | with the page, where it stands among the others |
| `sh`, `sh WORD` | by tests of the page's own, or not at all |
"""

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\w+)([^\n`]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FACE = re.compile(r"# (?:blocking|asyncio|Twisted|any face)\b")
SPARK = "spark"
RUNS = "runs"
ELSEWHERE = {
    "pytest": "a test module; the tests of the page run it by pytest",
    "docker": "needs containers; the tests of the page run it where Docker is",
    "pulsar": "needs a Pulsar cluster; run with `make interop`",
}
SECONDS = 240


class Block(NamedTuple):
    """A block of a page.  `line`: where its text begins."""

    page: str
    line: int
    language: str
    word: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """True if it is run with its page."""
        if self.language == "python":
            return self.word not in ELSEWHERE
        return self.language == "sh" and self.word == RUNS


def blocks(path: Path) -> list[Block]:
    """All of a page, in order."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    return [
        Block(name, text.count("\n", 0, found.start(4)) + 1, found[2], found[3].strip(), unindented(found[4], found[1]))
        for found in FENCE.finditer(text)
    ]


def unindented(text: str, indent: str) -> str:
    """The block as a reader sees it, where it stands in a list."""
    return re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


def manual() -> list[Path]:
    """The pages that readers of the manual meet."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def pages(spark: bool) -> list[str]:
    """The pages with blocks that are run, those that need Spark or the others."""
    words = {path.relative_to(ROOT).as_posix(): [each.word for each in blocks(path) if each.runs] for path in manual()}
    return [page for page, found in words.items() if found and (SPARK in found) == spark]


def unclear(block: Block) -> str | None:
    """What is wrong with how a Python block is marked, if anything is."""
    if block.language != "python":
        return None
    if block.word and block.word != SPARK and block.word not in ELSEWHERE:
        return f"{block.place}: {block.word!r} is none of {SPARK}, {', '.join(ELSEWHERE)}"
    if block.runs and not block.word and not FACE.match(block.text):
        return f"{block.place}: its first line says no face: `# blocking`, `# asyncio`, `# Twisted` or `# any face`"
    return None


def run_page(page: str, uri: str, directory: Path) -> str:
    """Runs a page in a process of its own, on that cluster; what it prints.  Fails with the place of the block."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "QUIRE_METADATA": uri, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.manual.blocks", page], cwd=directory, env=environment, text=True, timeout=SECONDS,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def main(page: str) -> int:
    """Runs the blocks of a page in this process, as `python -m asyncio` would take them."""
    names: dict[str, object] = sys.modules["__main__"].__dict__
    with asyncio.Runner() as runner:
        for block in blocks(ROOT / page):
            if not block.runs:
                continue
            print(f"-- {block.place}", flush=True)
            try:
                if block.language == "sh":
                    subprocess.run(["/bin/sh", "-ec", block.text], check=True, stdin=subprocess.DEVNULL)
                elif block.text.startswith("# Twisted"):
                    subprocess.run([sys.executable, "-c", block.text], check=True, stdin=subprocess.DEVNULL)
                else:
                    run_python(runner, block, names)
            except Exception:
                traceback.print_exc()
                return 1
    return 0


def run_python(runner: asyncio.Runner, block: Block, names: dict[str, object]) -> None:
    """Runs a block; `await` may be at its top level."""
    padded = "\n" * (block.line - 1) + block.text  # so that tracebacks name lines of the page
    code = compile(padded, str(ROOT / block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    ended = eval(code, names)
    if inspect.iscoroutine(ended):
        runner.run(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
