"""
A guard that is taken away: a change of a few words in the source of a function, made while histories run and taken back
afterwards.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True)
class Edit:
    """In the function `where` (module:name) the text `old`, which is there once, becomes `new`."""

    where: str
    old: str
    new: str

    def function(self) -> FunctionType:
        module, name = self.where.split(":")
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = inspect.getattr_static(found, part)
        return inspect.unwrap(found.fget if isinstance(found, property) else found)


@contextmanager
def applied_to(function: FunctionType, edits: Sequence[Edit]) -> Iterator[None]:
    """The function's code after the edits, and after the block what it was."""
    source = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        assert source.count(edit.old) == 1, f"{edit.where}: {edit.old!r} stands there {source.count(edit.old)} times"
        source = source.replace(edit.old, edit.new)
    tree = ast.parse(source)
    tree.body[0].decorator_list.clear()  # type: ignore[attr-defined]
    made: dict[str, Any] = {}
    exec(compile(tree, edits[0].where, "exec"), function.__globals__, made)
    original = function.__code__
    function.__code__ = made[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = original


@dataclass(frozen=True)
class Mutant:
    name: str
    guard: str  # where docs/design or another page has the rule
    profile: str
    edits: tuple[Edit, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for where in dict.fromkeys(edit.where for edit in self.edits):
                edits = [edit for edit in self.edits if edit.where == where]
                stack.enter_context(applied_to(edits[0].function(), edits))
            yield


def mutant(name: str, guard: str, profile: str, *edits: tuple[str, str, str]) -> Mutant:
    return Mutant(name, guard, profile, tuple(Edit(*edit) for edit in edits))
