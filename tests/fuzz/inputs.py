"""
Reads and writes the corpus: of each target a JSON object in `tests/fuzz/corpus`, with an input in base64 a line.  An
input is named by its SHA-1, or by a word where a test asks for it or its reason is to be known.
"""

import base64
import hashlib
import json
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

CORPUS = Path(__file__).parent / "corpus"


def inputs(target: str) -> dict[str, bytes]:
    """Returns the corpus of a target by name; empty if it has none."""
    path = CORPUS / f"{target}.json"
    rows = json.loads(path.read_text(encoding="ascii")) if path.exists() else {}
    return {name: base64.b64decode(text) for name, text in rows.items()}


def add_inputs(target: str, found: list[bytes]) -> int:
    """Writes the corpus with these inputs added; returns how many of them are new."""
    kept = inputs(target)
    new = {hashlib.sha1(data).hexdigest()[:12]: data for data in set(found) - set(kept.values())}
    rows = {name: base64.b64encode(data).decode() for name, data in {**kept, **new}.items()}
    path = CORPUS / f"{target}.json"
    path.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n", encoding="ascii")
    return len(new)
