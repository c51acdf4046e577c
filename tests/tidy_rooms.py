"""
The rules of the rooms as functions: files in, breaches out.  `test_tidy_rooms.py` holds them against this checkout.

Knows: which room may import which (`tidy.ROOMS`), the faces that a room's `__init__.py` marks, the limits of size,
where a module's test is found.  Counts are those of `make sizes`.
Does not know: why an exception is one; tables of exceptions are in the test, and `beyond` keeps them from growing old.
"""

import ast
import re
from collections.abc import Iterable, Mapping

from bench import sizes
from bench.sizes import File
from tests.tidy import ROOMS, Source

# A module that says in its docstring why it is long may be: a line that begins with this word and gives the reason.
REASON = re.compile(r"^Long: \S.{20,}", re.MULTILINE)
CONSTRUCTOR_ARGUMENTS_MAX = 8  # an object that needs more of them is cut in the wrong place
READING_ORDER = re.compile(r"In reading order: (.*?)\.(?:\s|$)", re.DOTALL)
NAMED = re.compile(r"`(\w+)`(\s\(face\))?")

Breaches = Mapping[str, str]  # what a table of exceptions calls it -> the message


def beyond(breaches: Breaches, exceptions: Iterable[str]) -> list[str]:
    """Breaches that no exception covers, and exceptions without their breach: a table of exceptions only shrinks."""
    exceptions = set(exceptions)
    found = [f"{name}: {message}" for name, message in sorted(breaches.items()) if name not in exceptions]
    return found + [
        f"{name}: not needed any more, take it out of the table" for name in sorted(exceptions - set(breaches))
    ]


# ---- rooms ----------------------------------------------------------------------------------------------------------


def disordered(rooms: Mapping[str, Mapping[str, str]] = ROOMS) -> list[str]:
    """Rooms that may import one that is not named before them."""
    found = []
    for package, inner in rooms.items():
        names = list(inner)
        for place, (room, below) in enumerate(inner.items()):
            later = set(below.split()) - set(names[:place])
            found += [f"{package}/{room} may import {name}, which is not before it" for name in sorted(later)]
    return found


def homeless(files: Iterable[File], rooms: Mapping[str, Mapping[str, str]] = ROOMS) -> list[str]:
    """Modules in no room."""
    return [
        f"{file.path} is in no room of {file.package}/: put it into one, or name its room in ROOMS of tests/tidy.py"
        for file in files
        if file.room and file.room not in rooms.get(file.package, {})
    ]


def wrong_rooms(files: Iterable[File], rooms: Mapping[str, Mapping[str, str]] = ROOMS) -> dict[str, str]:
    """Imports against the order of the rooms: `bookie/index -> storage`, and which modules do so."""
    by_module = {file.module: file for file in files}
    found: dict[str, list[str]] = {}
    for module, targets in sizes.module_graph(by_module.values()).items():
        file = by_module[module]
        allowed = {file.room, *rooms[file.package].get(file.room, "").split()}
        for target in sorted(targets):
            other = by_module[target]
            if file.room and file.package == other.package and other.room not in allowed:
                arrow = f"{file.package}/{file.room} -> {other.room or '__init__'}"
                found.setdefault(arrow, []).append(f"{file.path} imports {other.path}")
    return {arrow: ", ".join(imports) for arrow, imports in found.items()}


# ---- faces ----------------------------------------------------------------------------------------------------------


def reading_order(text: str) -> dict[str, bool] | None:
    """What the docstring of an `__init__.py` lists after "In reading order": name -> whether it is marked as face."""
    listed = READING_ORDER.search(ast.get_docstring(ast.parse(text)) or "")
    return {name: bool(face) for name, face in NAMED.findall(listed.group(1))} if listed else None


def faces(files: Iterable[Source]) -> dict[str, frozenset[str]]:
    """Room -> the modules that others may import, as its `__init__.py` marks them; rooms inside rooms too."""
    inits = {file.path.removesuffix("/__init__.py"): file for file in files if file.path.endswith("/__init__.py")}
    return {
        folder: frozenset(name for name, face in (reading_order(file.text) or {}).items() if face)
        for folder, file in inits.items()
        if "/" in folder
    }


def unlisted(files: Iterable[Source]) -> list[str]:
    """Modules that the `__init__.py` of their room does not list, and listed names that are not there."""
    files = list(files)
    names = sizes.visible_names(sizes.counted(file.path, "") for file in files)
    found = []
    for file in files:
        folder = file.path.removesuffix("/__init__.py")
        if folder == file.path or "/" not in folder:
            continue
        listed = reading_order(file.text)
        if listed is None:
            found.append(f'{file.path} has no line "In reading order: `module` (face), …."')
            continue
        there = names.get(folder, ())
        found += [f"{file.path} does not list {name}" for name in there if name not in listed]
        found += [f"{file.path} lists {name}, which is not there" for name in listed if name not in there]
    return found


def inner_imports(files: Iterable[File], shown: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Modules that are imported from outside their room and are not its face, and by whom."""
    by_module = {file.module: file for file in files}
    found: dict[str, list[str]] = {}
    for module, targets in sizes.module_graph(by_module.values()).items():
        importer = by_module[module].path
        for target in targets:
            folders = by_module[target].path.removesuffix(".py").removesuffix("/__init__").split("/")
            for depth in range(2, len(folders)):
                room = "/".join(folders[:depth])
                if not importer.startswith(f"{room}/") and folders[depth] not in shown[room]:
                    found.setdefault(f"{room}/{folders[depth]}", []).append(importer)
    return {name: f"no face of its room, but imported by {', '.join(sorted(who))}" for name, who in found.items()}


# ---- sizes ----------------------------------------------------------------------------------------------------------


def too_long(files: Iterable[Source]) -> dict[str, str]:
    """Files and classes above the limits of a module that gives no reason: `path`, or `path Class`."""
    found = {}
    for file in files:
        if len(file.text.splitlines()) <= sizes.CLASS_LINES or REASON.search(ast.get_docstring(file.tree) or ""):
            continue
        counts = sizes.counted(file.path, file.text)
        hint = 'split it, or say why in its docstring: "Long: …"'
        if counts.lines > sizes.FILE_LINES:
            found[file.path] = f"{counts.lines} lines, {sizes.FILE_LINES} are allowed: {hint}"
        for one in counts.classes:
            if one.lines > sizes.CLASS_LINES:
                found[f"{file.path} {one.name}"] = f"{one.lines} lines, {sizes.CLASS_LINES} are allowed: {hint}"
    return found


def crowded_constructors(files: Iterable[Source]) -> dict[str, str]:
    """Classes whose constructor takes too many arguments: `path Class`.  Classes of plain options have none written."""
    found = {}
    for file in files:
        for node in file.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    given = method.args
                    one_by_one = [*given.posonlyargs, *given.args, *given.kwonlyargs]
                    count = len(one_by_one) - 1 + sum(some is not None for some in (given.vararg, given.kwarg))
                    if count > CONSTRUCTOR_ARGUMENTS_MAX:
                        found[f"{file.path} {node.name}"] = (
                            f"its constructor takes {count} arguments, {CONSTRUCTOR_ARGUMENTS_MAX} are allowed"
                        )
    return found


# ---- tests ----------------------------------------------------------------------------------------------------------


def mirrored(path: str) -> str:
    """Where the tests of a module are: `tests/client/core/test_read.py` for `client/core/read.py`."""
    folder, _, name = path.rpartition("/")
    return f"tests/{folder}/test_{name}"


def untested(files: Iterable[Source], present: Iterable[str]) -> dict[str, str]:
    """Modules without the test file of their path; an `__init__.py` needs none."""
    present = set(present)
    return {
        file.path: f"has no {mirrored(file.path)}"
        for file in files
        if not file.path.endswith("__init__.py") and mirrored(file.path) not in present
    }
