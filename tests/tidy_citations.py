"""
The rule of citations as a function: every page, section and numbered rule that a text names is in this repository.

Knows: the forms of CONTRIBUTING.md, "How to cite": a page by name, with sections, and `D15`; which pages and sections
there are.
Does not know: whether a cited section says what the citing text claims.
"""

import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent
DESIGN = "docs/design"

# Where a page may be that is cited by its name alone, besides the folder of the text that cites it.
SHELVES = ("", "docs", DESIGN)

NUMBER = r"\d+(?:\.\d+)*"
BREAK = r"\s+(?:# )?"  # a citation may go on in the next line, of a comment too
ENDING = re.compile(r"\.md\b")  # found first: the name before it is looked for from there
NAME = re.compile(r"(?:^|[^\w/.:+*>}-])((?:\.\./)*(?:[\w.-]+/)*[\w-][\w.-]*)$")
MADE = "CHANGES.md"  # by `make release`, from the fragments
NAME_CHARS_MAX = 120
SECTIONS = re.compile(rf"[`)]?{BREAK}({NUMBER}(?:(?:,|{BREAK}and|{BREAK}to){BREAK}{NUMBER})*)(?![\w%])")
RULE = re.compile(r"\b[DSIBR][1-9]\d?\b")
# Names of what lies outside: a specification has no page here.
OUTSIDE = re.compile(
    r"\b[Ss]pec(?:ification)?(?:'s)?\s+(?=\d)|\b[Ww]ire spec\b|\b[Tt]he spec(?:ification)?\b"
    r"|\barchitecture,? (?:section )?\d|\bmetadata layout \d|\bbookie storage \d"
)

HEADING = re.compile(rf"^#+ (?:({NUMBER})|([DSIBR]\d+)) ", re.MULTILINE)
ROW = re.compile(r"^\| ([DSIBR]\d+) \|", re.MULTILINE)


def sections(page: str) -> frozenset[str]:
    """The numbers of a page's headings, and the numbered rules that it defines by a heading or a row of a table."""
    named = {number or rule for number, rule in HEADING.findall(page)}
    return frozenset(named | set(ROW.findall(page)))


def shelf(root: pathlib.Path = ROOT) -> dict[str, frozenset[str]]:
    """Every page of the design: path -> its sections."""
    found = sorted((root / DESIGN).glob("*.md"))
    return {path.relative_to(root).as_posix(): sections(path.read_text(encoding="utf-8")) for path in found}


def _resolved(page: str, citing: str, present: frozenset[str]) -> str | None:
    """The path of the page that `citing` means, or None when there is none."""
    folder = pathlib.PurePosixPath(citing).parent
    for base in (folder, *map(pathlib.PurePosixPath, SHELVES)):
        parts: list[str] = []
        for part in (base / page).parts:
            if part == "..":
                del parts[-1:]
            else:
                parts.append(part)
        if "/".join(parts) in present:
            return "/".join(parts)
    return None


def _citations(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """(where, page, sections) of each page that a text names."""
    for ending in ENDING.finditer(text):
        name = NAME.search(text[max(0, ending.start() - NAME_CHARS_MAX) : ending.start()])
        if name is not None:
            numbers = SECTIONS.match(text, ending.end())
            yield ending.start(), f"{name[1]}.md", re.findall(NUMBER, numbers[1]) if numbers else []


def _breaches(
    text: str, citing: str, pages: Mapping[str, frozenset[str]], present: frozenset[str]
) -> Iterator[tuple[int, str]]:
    for start, page, numbers in _citations(text):
        if page == MADE:
            continue
        path = _resolved(page, citing, present)
        if path is None:
            yield start, f"{page} is not a page of this repository"
        elif path in pages:
            yield from ((start, f"{path} has no section {number}") for number in numbers if number not in pages[path])
    rules = frozenset[str]().union(*pages.values())
    for cited in RULE.finditer(text):
        if cited.group() not in rules:
            yield cited.start(), f"no page of {DESIGN} defines {cited.group()}"
    for cited in OUTSIDE.finditer(text):
        yield cited.start(), f"{cited.group().strip()!r}: cite a page of {DESIGN} by its name"


def unopenable(texts: Mapping[str, str], pages: Mapping[str, frozenset[str]], present: Iterable[str]) -> list[str]:
    """
    Citations of pages, sections and rules that a reader cannot open.

    `texts`: path -> text.  `pages`: `shelf()`.  `present`: every path of the repository.
    """
    known = frozenset(present)
    found = []
    for path, text in texts.items():
        for start, what in sorted(_breaches(text, path, pages, known)):
            found.append(f"{path}:{text.count(chr(10), 0, start) + 1}: {what}")
    return found
