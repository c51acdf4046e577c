"""
Reads and writes the corpus: of each target a file of JSON lines in `tests/fuzz/corpus`, each the name and the base64 of
an input.  It is named by its SHA-1, or by words where a test asks for it or its reason is to be known.
"""

import base64
import hashlib
import json
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

CORPUS = Path(__file__).parent / "corpus"


def inputs(target: str) -> dict[str, bytes]:
    """Returns the corpus of a target by name; empty if it has none."""
    path = CORPUS / f"{target}.jsonl"
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return {name: base64.b64decode(text) for name, text in map(json.loads, lines)}


def add_inputs(target: str, found: list[bytes]) -> int:
    """Writes the corpus with these inputs added; returns how many of them are new."""
    kept = inputs(target)
    new = {hashlib.sha1(data).hexdigest()[:12]: data for data in set(found) - set(kept.values())}
    lines = [json.dumps([name, base64.b64encode(data).decode()]) for name, data in sorted({**kept, **new}.items())]
    (CORPUS / f"{target}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return len(new)
