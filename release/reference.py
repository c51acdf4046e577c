"""
Builds the reference of what programs call, from its docstrings: `python -m release.reference [DIR]`.

Knows: which modules are faces.  Does not know: how pages are made (pdoc does).
"""

import sys
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

FACES = (
    "quire.client",
    "quire.client.aio",
    "quire.client.api",
    "quire.log",
    "quire.log.aio",
    "quire.log.api",
    "quire.pipeline",
    "quire.pulsar",
    "quire.pulsar.aio",
    "quire.pulsar.api",
    "quire.testing.cluster",
    "quire.testing.containers",
    "quire.testing.in_process",
    "quire.testing.processes",
)
DIRECTORY = Path(__file__).resolve().parents[1] / "dist" / "reference"


def build(directory: Path = DIRECTORY) -> Path:
    """Writes the pages and returns the first of them."""
    import pdoc

    pdoc.render.configure(docformat="markdown", show_source=False)
    pdoc.pdoc(*FACES, output_directory=directory)
    return directory / "index.html"


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:])))
