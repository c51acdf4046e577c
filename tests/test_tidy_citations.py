"""
Nothing is cited that a reader cannot open.  The rule of `tidy_citations.py` is held against this checkout, and shown to
catch texts that break it.
"""

import pytest

from tests import tidy_citations
from tests.test_tidy import report, tracked

PAGES = {"docs/design/wire.md": frozenset({"1", "1.2", "2"}), "docs/design/decisions.md": frozenset({"D1"})}
PRESENT = (*PAGES, "docs/formats.md", "tests/scenarios/README.md", "README.md")
# In pieces: this file is held against the rule too.
MD = "." + "md"
SPEC = "sp" + "ec"


def breaches(text: str, path: str = "client/api.py") -> list[str]:
    return tidy_citations.unopenable({path: text}, PAGES, PRESENT)


def test_every_citation_can_be_opened() -> None:
    """Pages by name, their sections, and rules by number, in code, tests, bench and documentation."""
    texts = tracked()
    data = ("tests/vectors/", "changes/")
    cited = {path: text for path, text in texts.items() if not path.startswith(data) and not path.endswith(".json")}
    found = tidy_citations.unopenable(cited, tidy_citations.shelf(), texts)
    assert not found, report(found)


def test_every_page_of_the_design_is_listed() -> None:
    """The README links each of them."""
    readme = (tidy_citations.ROOT / "README.md").read_text(encoding="utf-8")
    assert [page for page in tidy_citations.shelf() if f"({page})" not in readme] == []


@pytest.mark.parametrize(
    "text",
    [
        f"(architecture{MD} 3)",
        f"{SPEC} client-protocol{MD} 2.5",
        f"see docs/interface{MD}",
        f"rooms{MD}, 5.8",
        f"wire{MD} 1.3",
        f"docs/design/wire{MD} 7",
        f"wire{MD} 1.2 to\n# 1.4",
        f"wire{MD} 1, 4",
        "D" + "2",
        f"({SPEC} 4.3)",
        f"as the {SPEC} has it",
        f"wire {SPEC} 6.6",
        "architecture" + " 3",
    ],
)
def test_a_citation_that_leads_nowhere_is_found(text: str) -> None:
    """Pages outside, sections that are not there, rules that no page defines; with the line."""
    found = breaches(f"# first line\n{text}\n")
    assert found
    assert all(line.startswith("client/api.py:2: ") for line in found)


def test_what_can_be_opened_passes() -> None:
    """By name alone, by path, relative to the citing text, over a line break; a page elsewhere in the web."""
    passing = [
        f"wire{MD} 1.2",
        f"docs/design/wire{MD} 1, 1.2 and 2",
        f"wire{MD} 1 to\n    # 2, and more",
        f"formats{MD}, order on disk",
        f"README{MD}",
        f"(wire{MD} 1.2; D1)",
        f"wire{MD}.",
        f"see https://example.org/other{MD} 9",
        "find_" + SPEC,
    ]
    assert [text for text in passing if breaches(text)] == []
    assert not breaches(f"[a](../../docs/formats{MD}#x)", "tests/scenarios/story.txt")


def test_sections_are_headings_and_rows() -> None:
    """Numbers of headings, and rules in headings or in the first column of a table."""
    page = "# Title\n\n## 1 One\n\n### 1.1 Two\n\n## D7 Three\n\n| # | x |\n|---|---|\n| S8 | y D9 |\n"
    assert tidy_citations.sections(page) == {"1", "1.1", "D7", "S8"}
