"""What `make sizes` counts."""

import json
import pathlib
import subprocess
import sys

from bench import sizes
from bench.sizes import ROOT, File, Spread, counted, summary

TEXT = '''"""A module."""

# a comment
import os


class Shelf:
    """Holds books."""

    def add(self):
        """Puts one there."""
        return os.sep

    def _sort(self):
        pass


async def read():
    return 1
'''


def test_code_lines_leave_out_blanks_comments_and_docstrings() -> None:
    """Eight lines of the sample do something."""
    file = counted("x.py", TEXT)
    assert file.lines == len(TEXT.splitlines())
    assert file.code_lines == 8


def test_docstrings_are_counted_over_public_names() -> None:
    """Shelf, add and read are public; read says nothing; what begins with an underscore does not count."""
    file = counted("x.py", TEXT)
    assert (file.module_docstring, file.public, file.documented) == (True, 3, 2)


def test_functions_have_their_length() -> None:
    """Methods and coroutines too."""
    assert [(function.name, function.lines) for function in counted("x.py", TEXT).functions] == [
        ("read", 2),
        ("add", 3),
        ("_sort", 2),
    ]


def test_prose_and_wide_lines_are_counted() -> None:
    """Docstrings and whole-line comments are prose; a line of 121 columns is wide, one of 120 is not."""
    assert counted("x.py", TEXT).prose_lines == 4
    assert counted("x.py", f"# {'a' * 118}\n# {'b' * 119}\nx = 1  # not prose\n").wide_lines == 1


def test_classes_have_lines_methods_and_the_width_of_their_constructor() -> None:
    """Neither `self` nor a function inside a method counts."""
    text = (
        "class A:\n    def __init__(self, a, /, b, *, c=1):\n        def inner(): ...\n\n    async def go(self): "
        "...\n\n"
    )
    text += "class B: ...\n"
    found = counted("x.py", text).classes
    assert [(one.name, one.lines, one.methods, one.parameters) for one in found] == [("A", 5, 2, 3), ("B", 1, 0, 0)]


def test_a_spread_is_median_ninth_decile_and_maximum() -> None:
    """The ninth decile is the lowest number that at least nine of ten do not exceed; of nothing all are zero."""
    assert Spread.of([3, 1, 2, 10, 4, 5, 6, 7, 8, 9]) == Spread(5.5, 9, 10)
    assert Spread.of([]) == Spread(0, 0, 0)


def files(texts: dict[str, str]) -> list[File]:
    return [counted(path, text) for path, text in texts.items()]


def test_imports_of_own_modules_are_followed_to_the_module() -> None:
    """`from package import module`, a name of a module, relative, inside a function; libraries do not count."""
    graph = sizes.module_graph(
        files(
            {
                "client/a.py": "from quire.client import b\nimport os",
                "client/b.py": "from .inner.c import name, other",
                "client/inner/c.py": "def late():\n    import quire.client.inner.d",
                "client/inner/d.py": "from ..a import x",
            }
        )
    )
    inner = "quire.client.inner"
    assert graph == {
        "quire.client.a": {"quire.client.b"},
        "quire.client.b": {f"{inner}.c"},
        f"{inner}.c": {f"{inner}.d"},
        f"{inner}.d": {"quire.client.a"},
    }
    assert sizes.circles(graph) == [frozenset(graph)]


def test_arrows_between_rooms_are_counted_once() -> None:
    """Imports inside a room and those of the package's own `__init__.py` are no arrows."""
    graph = sizes.room_graph(
        files(
            {
                "client/__init__.py": "from quire.client.top import x",
                "client/top.py": "from quire.client.low.a import x\nfrom quire.client.low.b import y",
                "client/low/a.py": "from quire.client.low import b\nfrom quire.client import base",
                "client/low/b.py": "",
                "client/base.py": "",
            }
        )
    )
    assert graph == {"top": {"low"}, "low": {"base"}, "base": set()}
    assert sizes.floors(graph) == 3


def test_rooms_that_import_each_other_share_a_floor() -> None:
    """Such a circle is reported by its names."""
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("bd"), "d": frozenset[str]()}
    assert sizes.circles(graph) == [frozenset("bc")]
    assert sizes.floors(graph) == 3


def test_visible_names_are_modules_and_sub_packages() -> None:
    """At each level, without `__init__`."""
    inner = ["client/core/__init__.py", "client/core/append/machine.py", "client/core/read.py"]
    paths = ["client/__init__.py", "client/api.py", *inner]
    found = sizes.visible_names(files(dict.fromkeys(paths, "")))
    assert found == {"client": ["api", "core"], "client/core": ["append", "read"], "client/core/append": ["machine"]}


def test_a_folder_is_summed_up() -> None:
    """Empty files do not count."""
    found = summary(
        "shelf",
        [counted("a.py", TEXT), counted("b.py", "x = 1\n"), counted("c.py", "")],
        {"quire.b": frozenset({"quire.a"})},
    )
    assert (found["files"], found["code_lines"], found["file_lines"].max) == (2, 9, len(TEXT.splitlines()))
    assert found["imports"] == Spread(0.5, 1, 1)
    shares = [found[f"{part}_percent"] for part in ("module_docstrings", "docstrings", "prose")]
    assert shares == [50.0, 66.7, 30.8]


def run(*options: str) -> str:
    command = [sys.executable, "bench/sizes.py", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def checkout(root: pathlib.Path) -> None:
    """A checkout of one module and its test."""
    (root / "client" / "core").mkdir(parents=True)
    (root / "client" / "core" / "api.py").write_text('"""Long."""\n\n\ndef f():\n    x = 1\n    return x\n')
    (root / "tests" / "client").mkdir(parents=True)
    (root / "tests" / "client" / "test_api.py").write_text("def test():\n    a = 1\n    assert a\n")


def test_the_command_prints_tables(tmp_path: pathlib.Path) -> None:
    """Folders with their ratio of test to code, rooms with their arrows, and lists of what is long."""
    checkout(tmp_path)
    output = run("--root", str(tmp_path), "--long", "2")
    for part in (
        "test : code",
        "arrows between them",
        "visible names inside rooms: client/core 1",
        "3  client/core/api.py f",
    ):
        assert part in output


def test_the_command_counts_another_checkout(tmp_path: pathlib.Path) -> None:
    """As JSON; packages that it does not have are left out."""
    checkout(tmp_path)
    report = json.loads(run("--root", str(tmp_path), "--json", "--long", "2"))
    assert [row["folder"] for row in report["folders"]] == ["client", "source", "tests"]
    assert report["test_to_code"] == {"client": 1.0, "source": 1.0}
    assert report["visible_names"] == {"client": 1, "client/core": 1}
    assert [function["name"] for function in report["long_functions"]] == ["f"]
