"""
The words of docstrings: how they begin, and whether the modules and names in them are there.

Knows: which beginnings can't be read alone in `help()`; which names a docstring may mean.
Does not know: whether a sentence is true.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from tests.tidy import Source

# SPDX-License-Identifier: Apache-2.0

BEGINNINGS = re.compile(
    r"(?:Of|It|Its|They|Them|Their|Theirs|Those|These|This|That|He|She|Who|Whom|Whose|What|Which|Whether|Whatever"
    r"|Whoever|All that|So much|So many|As much|As many|The same|Likewise|Such|Ours|Also)\b"
)
DOTTED = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)`")
BARE = re.compile(r"(?<!`)`([a-z]\w*_\w+)`")  # a single word may be any word of a format
WORD_BYTES_MAX = 80  # of a text in the code, in which a name may be
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(file: Source) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring of a file."""
    for node in file.nodes:
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) is not None:
            yield getattr(node, "lineno", 1), text


def dangling(files: Iterable[Source]) -> list[str]:
    """Docstrings that begin with a pronoun or "Of": they refer to what `help()` does not show."""
    return [
        file.at(line, f"begin with a verb or the thing's name, not with {found[0]!r}")
        for file in files
        for line, text in docstrings(file)
        if (found := BEGINNINGS.match(text))
    ]


class Names:
    """The modules of these files, what each defines, and all names and words that their code has."""

    def __init__(self, files: Collection[Source]) -> None:
        self._files = files

    @cached_property
    def modules(self) -> dict[str, frozenset[str]]:
        """Dotted name of a module -> the names that it defines."""
        return {
            file.module: frozenset(
                name
                for node in file.nodes
                for name in (
                    [node.name]
                    if isinstance(node, DOCUMENTED[1:])
                    else [node.id]
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                    else []
                )
            )
            for file in self._files
        }

    @cached_property
    def parts(self) -> frozenset[str]:
        """The names of all packages, rooms and modules."""
        return frozenset(part for module in self.modules for part in module.split("."))

    @cached_property
    def words(self) -> frozenset[str]:
        """Every name that code uses, and every short text in it."""
        found: set[str] = set()
        for file in self._files:
            said = {id(node.value) for node in file.nodes if isinstance(node, ast.Expr)}
            for node in file.nodes:
                for field in ("id", "name", "attr", "arg"):
                    if isinstance(name := getattr(node, field, None), str):
                        found.add(name)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                    found |= {node.value, *re.findall(r"[\w.]+", node.value[:WORD_BYTES_MAX])}
        return frozenset(found)

    def lead_to(self, dotted: str) -> bool:
        """True if the end of a module's name, and after it names that the module defines, make up this one."""
        names = dotted.removesuffix(".py").split(".")
        for count in range(len(names), 0, -1):
            head, rest = ".".join(names[:count]), names[count:]
            for module, defined in self.modules.items():
                if f".{module}".endswith(f".{head}") and (not rest or rest[0] in defined):
                    return True
        return False


def stale(files: Collection[Source], others: Collection[str] = ()) -> list[str]:
    """
    Names in backquotes that are not there: `room.module` or `module.name` of ours in any docstring, and in a module's
    own docstring each word with an underscore.  `others`: names of other things than ours, which look like that.
    """
    names = Names(files)
    found = []
    for file in files:
        for line, text in docstrings(file):
            told = [name for name in DOTTED.findall(text) if name.split(".")[0] in names.parts]
            found += [
                file.at(line, f"there is no `{name}`")
                for name in told
                if name not in names.words
                and name not in others
                and not names.lead_to(name)
                and not re.search(rf"(?<!`){re.escape(name)}\b", file.text)  # an attribute, as the code has it
            ]
            if line == 1:
                found += [
                    file.at(line, f"there is no `{name}`")
                    for name in BARE.findall(text)
                    if name not in names.words and name not in others and name not in names.parts
                ]
    return found
