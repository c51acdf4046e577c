"""
`make sizes`: what style aims at and no test enforces: lines per file and function, docstring coverage, test to code ratio.

    python bench/sizes.py [--long 60] [--json]

Knows: how to count.  Does not judge: a long function that reads well stays.
"""

import argparse
import ast
import json
import pathlib
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "conf", "metadata", "bookie", "client", "replication", "log", "pipeline", "tools")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Function:
    path: str
    name: str
    lines: int


@dataclass(frozen=True)
class File:
    """One Python file, counted.  Code lines are neither blank nor comment nor docstring."""

    path: str
    lines: int
    code_lines: int
    public: int  # public functions, methods, classes, and the module itself
    documented: int  # those of them with a docstring
    functions: tuple[Function, ...]


def counted(path: str, text: str) -> File:
    """The counts of one file; `path` is only carried along."""
    tree = ast.parse(text)
    prose: set[int] = set()
    functions: list[Function] = []
    public, documented = 1, int(ast.get_docstring(tree) is not None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node) is not None:
            prose.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        if not isinstance(node, Definition):
            continue
        if not node.name.startswith("_"):
            public += 1
            documented += ast.get_docstring(node) is not None
        if not isinstance(node, ast.ClassDef):
            functions.append(Function(path, node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
    lines = text.splitlines()
    code = sum(1 for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#") and number not in prose)
    return File(path, len(lines), code, public, documented, tuple(functions))


def files_of(folder: str) -> list[File]:
    paths = sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)
    return [counted(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]


@dataclass(frozen=True)
class Summary:
    folder: str
    files: int
    lines: int
    code_lines: int
    median_file: int
    longest_file: str
    median_function: int
    documented_percent: int

    @classmethod
    def of(cls, folder: str, files: Iterable[File]) -> "Summary":
        found = [file for file in files if file.code_lines]
        functions = [function.lines for file in found for function in file.functions]
        longest = max(found, key=lambda file: file.lines)
        return cls(
            folder,
            len(found),
            sum(file.lines for file in found),
            sum(file.code_lines for file in found),
            int(statistics.median(file.lines for file in found)),
            f"{longest.lines} {longest.path}",
            int(statistics.median(functions)) if functions else 0,
            100 * sum(file.documented for file in found) // sum(file.public for file in found),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", type=int, default=60, help="functions of more lines are listed (default 60)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    source = {folder: files_of(folder) for folder in PACKAGES}
    everything = [file for files in source.values() for file in files]
    rows = [Summary.of(folder, files) for folder, files in source.items() if any(file.code_lines for file in files)]
    rows += [Summary.of("source", everything), Summary.of("bench", files_of("bench")), Summary.of("tests", files_of("tests"))]
    ratio = rows[-1].code_lines / rows[-3].code_lines
    functions = [function for file in everything for function in file.functions]
    long = sorted((function for function in functions if function.lines > options.long), key=lambda function: -function.lines)
    if options.json:
        print(json.dumps({"folders": [asdict(row) for row in rows], "test_to_code": round(ratio, 2), "long_functions": [asdict(one) for one in long]}))
        return
    print(f"{'folder':<14}{'files':>6}{'lines':>8}{'code':>8}{'median file':>13}{'median function':>17}{'docstrings':>12}   longest file")
    for row in rows:
        counts = f"{row.files:>6}{row.lines:>8}{row.code_lines:>8}{row.median_file:>13}{row.median_function:>17}{row.documented_percent:>10} %"
        print(f"{row.folder:<14}{counts}   {row.longest_file}")
    print(f"\ntest to code: {ratio:.2f} (lines of code, without comments and docstrings)")
    if long:
        print(f"functions of more than {options.long} lines:")
        for function in long:
            print(f"  {function.lines:>4}  {function.path} {function.name}")


if __name__ == "__main__":
    main()
