"""
`make sizes`: the shape of the code in numbers: files, functions, classes, imports, rooms, docstrings, tests.

    python bench/sizes.py [--long 60] [--root ../before] [--json]

Knows: how to count; the tests of rooms take the same counts for their limits.
Does not judge: a long function that reads well stays.
A room is what is visible in a package's folder: a module, or a sub-package with all that is inside it.
"""

import argparse
import ast
import json
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = (
    *("protocol", "conf", "metadata", "metrics", "bookie", "client", "replication", "log", "pipeline", "tools"),
    "testing",
)
FUNCTION_LINES = 70  # the share of functions above it is printed
CLASS_LINES = 350
FILE_LINES = 450
COLUMNS = 120
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Graph = Mapping[str, frozenset[str]]  # name -> the names that it imports


@dataclass(frozen=True)
class Function:
    path: str
    name: str
    lines: int


@dataclass(frozen=True)
class Class:
    path: str
    name: str
    lines: int
    methods: int
    parameters: int  # of the constructor, without `self`; fields of a dataclass are not counted


@dataclass(frozen=True)
class File:
    """One Python file, counted.  Code lines are neither blank nor comment nor docstring."""

    path: str
    lines: int
    code_lines: int
    prose_lines: int  # docstrings and whole-line comments
    wide_lines: int
    module_docstring: bool
    public: int  # public functions, methods and classes
    documented: int  # those of them with a docstring
    functions: tuple[Function, ...]
    classes: tuple[Class, ...]
    imported: frozenset[str]  # dotted names, of modules or of names in modules

    @property
    def module(self) -> str:
        return module_name(self.path)

    @property
    def package(self) -> str:
        return self.path.split("/")[0]

    @property
    def room(self) -> str:
        """The name under which it is visible in its package; empty for the `__init__.py` of the package itself."""
        return (
            self.path.removesuffix(".py").removesuffix("/__init__").removeprefix(self.package).strip("/").split("/")[0]
        )


def module_name(path: str) -> str:
    """`quire.protocol.frames` for `protocol/frames.py`; a package's own name for its `__init__.py`."""
    return ("quire/" + path.removesuffix(".py").removesuffix("/__init__")).replace("/", ".")


def imported_names(path: str, nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Lists all that a file imports, also inside functions: `a.b` for `import a.b`, `a.b.c` for `from a.b import c`."""
    here = module_name(path).split(".")
    base = here if path.endswith("__init__.py") else here[:-1]
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = base[: len(base) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def length(node: Definition) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def counted_class(path: str, node: ast.ClassDef) -> Class:
    methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)]
    constructors = [method.args for method in methods if method.name == "__init__"]
    widths = [len(args.posonlyargs + args.args + args.kwonlyargs) - 1 for args in constructors]
    return Class(path, node.name, length(node), len(methods), max(widths, default=0))


def counted(path: str, text: str) -> File:
    """The counts of one file; `path` is relative to the root."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    docstrings: set[int] = set()
    functions: list[Function] = []
    classes: list[Class] = []
    public, documented = 0, 0
    for node in nodes:
        if not isinstance(node, ast.Module | Definition):
            continue
        if ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        if isinstance(node, ast.Module):
            continue
        if not node.name.startswith("_"):
            public += 1
            documented += ast.get_docstring(node) is not None
        if isinstance(node, ast.ClassDef):
            classes.append(counted_class(path, node))
        else:
            functions.append(Function(path, node.name, length(node)))
    lines = text.splitlines()
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    prose = [number for number in filled if number in docstrings or lines[number - 1].lstrip().startswith("#")]
    return File(
        path,
        len(lines),
        len(filled) - len(prose),
        len(prose),
        sum(len(line) > COLUMNS for line in lines),
        ast.get_docstring(tree) is not None,
        public,
        documented,
        tuple(functions),
        tuple(classes),
        imported_names(path, nodes),
    )


def files_of(root: pathlib.Path, folder: str) -> list[File]:
    paths = sorted(path for path in (root / folder).rglob("*.py") if "__pycache__" not in path.parts)
    return [counted(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


# ---- imports --------------------------------------------------------------------------------------------------------


def module_graph(files: Iterable[File]) -> dict[str, frozenset[str]]:
    """Module -> the modules of these files that it imports, by their own name or for a name in them."""
    files = list(files)
    known = {file.module for file in files}

    def targets(file: File) -> Iterator[str]:
        for name in file.imported:
            if name in known:
                yield name
            elif name.rpartition(".")[0] in known:
                yield name.rpartition(".")[0]

    return {file.module: frozenset(targets(file)) - {file.module} for file in files}


def room_graph(files: Iterable[File]) -> dict[str, frozenset[str]]:
    """Room -> the rooms that it imports, of one package's files; its own `__init__.py` is no room."""
    files = list(files)
    rooms = {file.module: file.room for file in files}
    found: dict[str, set[str]] = {room: set() for room in rooms.values() if room}
    for module, targets in module_graph(files).items():
        if rooms[module]:
            found[rooms[module]] |= {rooms[target] for target in targets} - {"", rooms[module]}
    return {room: frozenset(targets) for room, targets in found.items()}


def circles(graph: Graph) -> list[frozenset[str]]:
    """Groups of names that import each other, directly or through others."""
    reached = {name: reachable(graph, name) for name in graph}
    groups = {frozenset({name} | {other for other in reached[name] if name in reached[other]}) for name in graph}
    return sorted((group for group in groups if len(group) > 1), key=sorted)


def reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        fresh = graph[ahead.pop()] - found
        found |= fresh
        ahead += fresh
    return found


def floors(graph: Graph) -> int:
    """Rows of a drawing in which each arrow points downwards; the names of a circle share one row."""
    group_of = {name: min(group) for group in circles(graph) for name in group}
    heights: dict[str, int] = {}

    def height(group: str) -> int:
        if group not in heights:
            members = [name for name in graph if group_of.get(name, name) == group]
            below = {group_of.get(target, target) for name in members for target in graph[name]} - {group}
            heights[group] = 1 + max((height(one) for one in below), default=0)
        return heights[group]

    return max((height(group_of.get(name, name)) for name in graph), default=0)


def visible_names(files: Iterable[File]) -> dict[str, list[str]]:
    """Folder -> the modules and sub-packages in it, without `__init__`."""
    found: dict[str, set[str]] = {}
    for file in files:
        *folders, name = file.path.removesuffix(".py").split("/")
        for depth in range(1, len(folders)):
            found.setdefault("/".join(folders[:depth]), set()).add(folders[depth])
        if name != "__init__":
            found.setdefault("/".join(folders), set()).add(name)
    return {folder: sorted(names) for folder, names in sorted(found.items())}


# ---- summaries ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    median: float
    p90: int
    max: int

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Spread":
        ordered = sorted(numbers) or [0]
        return cls(statistics.median(ordered), ordered[-(-9 * len(ordered) // 10) - 1], ordered[-1])

    def __str__(self) -> str:
        return f"{self.median:g} / {self.p90} / {self.max}"


def percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def summary(folder: str, files: Iterable[File], imports: Graph) -> dict[str, Any]:
    """One folder, or all packages together.  Files without code count as lines and names, not in medians."""
    found = [file for file in files if file.code_lines]
    functions = [function.lines for file in found for function in file.functions]
    classes = [one for file in found for one in file.classes]
    lines, prose = sum(file.lines for file in found), sum(file.prose_lines for file in found)
    wide = sum(file.wide_lines for file in found)
    return {
        "folder": folder,
        "files": len(found),
        "lines": lines,
        "code_lines": code(found),
        "file_lines": Spread.of(file.lines for file in found),
        "functions": len(functions),
        "function_median": statistics.median(functions) if functions else 0,
        "long_functions_percent": percent(sum(one > FUNCTION_LINES for one in functions), len(functions)),
        "classes": len(classes),
        "largest_class": max((one.lines for one in classes), default=0),
        "most_methods": max((one.methods for one in classes), default=0),
        "widest_constructor": max((one.parameters for one in classes), default=0),
        "imports": Spread.of(len(imports.get(file.module, ())) for file in found),
        "wide_lines": wide,
        "wide_lines_percent": percent(wide, lines),
        "module_docstrings_percent": percent(sum(file.module_docstring for file in found), len(found)),
        "docstrings_percent": percent(sum(file.documented for file in found), sum(file.public for file in found)),
        "prose_percent": percent(prose, prose + code(found)),
    }


def rooms(package: str, files: Iterable[File]) -> dict[str, Any]:
    """How one package is divided."""
    graph = room_graph(files)
    arrows, groups = sum(map(len, graph.values())), [sorted(group) for group in circles(graph)]
    return {"package": package, "rooms": len(graph), "arrows": arrows, "floors": floors(graph), "circles": groups}


def report(root: pathlib.Path, long: int) -> dict[str, Any]:
    """All figures of a checkout."""
    packages = {folder: files for folder in PACKAGES if (files := files_of(root, folder))}
    source = [file for files in packages.values() for file in files]
    tests = files_of(root, "tests")
    imports = module_graph(source)
    rows = [summary(folder, files, imports) for folder, files in packages.items()]
    rows.append(summary("source", source, imports))
    rows += [
        summary(name, files, {}) for name, files in (("bench", files_of(root, "bench")), ("tests", tests)) if files
    ]
    tested = {folder: [file for file in tests if file.path.startswith(f"tests/{folder}/")] for folder in packages}
    ratios = {folder: code(tested[folder]) / code(files) for folder, files in packages.items()}
    ratios["source"] = code(tests) / code(source)
    functions = [function for file in source for function in file.functions if function.lines > long]
    classes = [one for file in source for one in file.classes if one.lines > CLASS_LINES]
    largest = [file for file in sorted(source, key=lambda file: -file.lines) if file.lines > FILE_LINES]
    widest = sorted(source, key=lambda file: -len(imports[file.module]))[:10]
    return {
        "folders": rows,
        "test_to_code": {folder: round(ratio, 2) for folder, ratio in ratios.items()},
        "rooms": [rooms(folder, files) for folder, files in packages.items()],
        "visible_names": {folder: len(names) for folder, names in visible_names(source).items()},
        "import_circles": [sorted(group) for group in circles(imports)],
        "long_functions": sorted(functions, key=lambda function: -function.lines),
        "large_classes": sorted(classes, key=lambda one: -one.lines),
        "long_files": {file.path: file.lines for file in largest},
        "widest_imports": {file.path: len(imports[file.module]) for file in widest},
    }


def code(files: Iterable[File]) -> int:
    return sum(file.code_lines for file in files)


# ---- the table ------------------------------------------------------------------------------------------------------


def table(heads: list[str], rows: Iterable[list[object]]) -> str:
    """Columns as wide as what is in them; the first is aligned to the left."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = []
    for first, *others in cells:
        right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]).rstrip())
    return "\n".join(lines)


def tables(found: dict[str, Any], long: int) -> Iterator[str]:
    ratios = found["test_to_code"]
    heads = ["folder", "files", "lines", "code", "lines a file: median / p90 / max", f"above {COLUMNS} columns"]
    heads += ["modules with docstring", "public names with docstring", "prose", "test : code"]
    shares = ("module_docstrings_percent", "docstrings_percent", "prose_percent")
    rows = []
    for r in found["folders"]:
        row = [r[key] for key in ("folder", "files", "lines", "code_lines", "file_lines")]
        row.append(f"{r['wide_lines']} = {r['wide_lines_percent']} %")
        rows.append([*row, *(f"{r[share]} %" for share in shares), ratios.get(r["folder"], "")])
    yield table(heads, rows)
    heads = ["folder", "functions", "median", f"above {FUNCTION_LINES} lines", "classes", "largest", "most methods"]
    heads += ["widest constructor", "own imports a module: median / p90 / max"]
    rows = []
    for r in found["folders"]:
        functions = [r["functions"], f"{r['function_median']:g}", f"{r['long_functions_percent']} %"]
        classes = [r[key] for key in ("classes", "largest_class", "most_methods", "widest_constructor")]
        rows.append([r["folder"], *functions, *classes, r["imports"] if r["folder"] in ratios else ""])
    yield table(heads, rows)
    yield table(
        ["package", "visible names", "arrows between them", "floors", "circles"],
        ([r["package"], r["rooms"], r["arrows"], r["floors"], named(r["circles"])] for r in found["rooms"]),
    )
    inner = [f"{folder} {names}" for folder, names in found["visible_names"].items() if "/" in folder]
    yield f"visible names inside rooms: {', '.join(inner) or 'none'}"
    yield f"circles of modules: {named(found['import_circles'])}"
    yield listed(f"functions above {long} lines", ((f.lines, f"{f.path} {f.name}") for f in found["long_functions"]))
    large = ((c.lines, f"{c.path} {c.name}, {c.methods} methods") for c in found["large_classes"])
    yield listed(f"classes above {CLASS_LINES} lines", large)
    for title, counts in (
        (f"files above {FILE_LINES} lines", found["long_files"]),
        ("modules that import most of ours", found["widest_imports"]),
    ):
        yield listed(title, ((count, path) for path, count in counts.items()))


def named(groups: list[list[str]]) -> str:
    return "; ".join(", ".join(group) for group in groups) or "none"


def listed(title: str, rows: Iterable[tuple[int, str]]) -> str:
    return "\n".join([f"{title}:", *(f"  {number:>4}  {what}" for number, what in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", type=int, default=60, help="functions of more lines are listed (default 60)")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="count another checkout")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = report(options.root.resolve(), options.long)
    print(json.dumps(found, default=asdict) if options.json else "\n\n".join(tables(found, options.long)))


if __name__ == "__main__":
    main()
