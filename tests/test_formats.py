"""The table of versions in docs/formats.md says what the code writes."""

import re
from importlib import import_module
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

PAGE = Path(__file__).parents[1] / "docs" / "formats.md"
ROW = re.compile(r"^\| [^|]+ \| [^|]+ \| (\d+) \| `([a-z_.]+)\.([A-Z_]+)` \|$", re.MULTILINE)


def test_versions() -> None:
    """A version is raised on the page and in the code together: from the first release on, formats are kept."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == 12
    for version, module, constant in rows:
        assert getattr(import_module(f"quire.{module}"), constant) == int(version), f"{module}.{constant}"
