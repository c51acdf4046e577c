"""
The rules of the house as functions: sources in, one line for each breach out.  `test_tidy.py` holds them against this
checkout.

Knows: architecture (who may import whom, who alone may touch files, clocks and the reactor) as it shows in the syntax
tree.
Does not know: whether the code is right.  Anything that ruff or mypy already finds is left to them.
"""

import ast
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What each folder may import of the others (CONTRIBUTING.md).  Only testing and console import tools; bookie
# and client never meet.
ARROWS: dict[str, frozenset[str]] = {
    "protocol": frozenset(),
    "conf": frozenset({"protocol"}),
    "security": frozenset({"protocol", "conf"}),
    "metrics": frozenset(),
    "rows": frozenset({"protocol"}),
    "metadata": frozenset({"protocol", "conf", "security", "metrics"}),
    "bookie": frozenset({"protocol", "conf", "security", "metrics", "rows", "metadata"}),
    "client": frozenset({"protocol", "conf", "security", "metadata", "metrics"}),
    "replication": frozenset({"protocol", "conf", "metadata", "metrics", "client"}),
    "log": frozenset({"protocol", "conf", "metadata", "client"}),
    "messages": frozenset({"protocol", "conf", "rows", "metadata", "client", "log"}),
    "pulsar": frozenset({"protocol", "conf", "metadata", "client"}),
    "pipeline": frozenset({"protocol", "conf", "rows", "metadata", "bookie", "client", "replication", "log", "pulsar"}),
    "tools": frozenset(
        {
            *("protocol", "conf", "security", "metrics", "rows", "metadata"),
            *("bookie", "client", "replication", "log", "messages", "pulsar", "pipeline"),
        }
    ),
    "testing": frozenset({"protocol", "conf", "metadata", "bookie", "client", "tools"}),
    "console": frozenset({"protocol", "conf", "metadata", "bookie", "client", "replication", "log", "tools"}),
}
PACKAGES = tuple(ARROWS)


def rows(*rooms: str) -> dict[str, str]:
    """Rooms in rows, lowest first: each may import all rooms of the rows before its own."""
    found: dict[str, str] = {}
    for row in rooms:
        below = " ".join(found)
        found |= dict.fromkeys(row.split(), below)
    return found


# Inside each package: its rooms (modules and sub-packages) in order, lowest first, and what each may import of the
# others. A package's own `__init__.py` is in no room and may import any.
ROOMS: dict[str, dict[str, str]] = {
    "protocol": rows(
        "errors varint",
        "log_errors message_errors pulsar_errors availability digest frames messages packets schema",
        "batch",
        "v2 v3",
        "wire",
    ),
    "conf": rows(
        "extras interpreter known_keys options version",
        "parts placement treatment",
        "properties",
        "autorecovery bookie client log pipeline pulsar",
        "messages",
        "sample_files shared_file",
    ),
    "security": rows(
        "refusals exchange jaas tokens watched",
        "context digest_md5 rights",
        "etcd stream zookeeper",
        "credentials",
        "authentication opening",
    ),
    "metrics": rows("histogram", "operations", "families job_file text"),
    "rows": rows("files", "contract rocks_check", "rocks"),
    "metadata": rows(
        *[
            "address clock counters ledger position readiness worker",
            "metrics store",
            "formats tree",
            "watches",
            "auditing cookies repair_queue",
        ],
        *[
            "repairs",
            "records",
            "bookies",
            "ledgers",
            "tree_store",
            "etcd memory overview retired_ids sqlite zk",
            "backup uri",
        ],
    ),
    "bookie": {
        "layout": "",
        "journal": "layout",
        "logs": "layout",
        "index": "layout logs",
        "apache": "layout logs index",
        "directory": "layout logs index apache",
        "storage": "layout journal index apache directory",
        "offline": "layout journal logs index apache directory",
        "upkeep": "layout logs index directory storage",
        "server": "layout storage upkeep",
        "admin": "layout server upkeep",
        "lifecycle": "layout journal server index directory storage upkeep admin",
    },
    "client": {
        "core": "",
        "counters": "",
        "metrics": "counters",
        "connections": "core counters",
        "placement": "core connections",
        "handles": "core counters connections placement",
        "api": "core counters metrics connections placement handles",
        "background": "connections",
        "gathering": "background",
        "known": "api",
        "threads": "api background gathering",
        "loops": "api background gathering",
        "aio": "core connections placement handles api background gathering known loops",
        "blocking": "core connections placement handles api background gathering known threads loops aio",
    },
    "replication": rows(
        "core",
        "concurrently replicas",
        "scrub",
        "checker",
        "copier",
        "freeing",
        "lost_bookies own_copies",
        "decommission mending renaming",
        "autorecovery",
    ),
    "log": rows(
        *["core", "store", "owner", "publish reader", "streams", "checks upkeep", "machine partitions", "api"],
        *["handles mirror", "clusters", "aio", "blocking"],
    ),
    "messages": rows(
        *[
            "core",
            "descriptor message metrics",
            "drafting progress",
            "check consumption known standing",
            "derived rocketmq",
            "store",
        ],
        *["api", "attributes putting", "aio", "blocking"],
    ),
    "pulsar": rows(
        *["core", "arrow codecs", "nodes", "reading", "planning schemas", "topics", "api documents", "aio exporting"],
        "blocking",
    ),
    "pipeline": rows(
        *["core spark columns", "copies", "clients", "reading writing", "offload", "sources"],
        *["each_batch session discovered", "jobs"],
    ),
    "tools": rows(
        "process_reactor stopping trial",
        "daemons load terminal",
        "local_cluster",
        "commands",
        "host",
        "failures",
        "main",
        "__main__ manual faces watching",
    ),
    "testing": rows("cluster", "containers in_process processes", "plugin"),
    "console": rows("history rounds", "cluster ledgers entries charts", "views", "pages", "daemon", "command"),
}

# A library that only one file may import, and the folder in which that file lies.
SINGLE_IMPORTERS = {
    "kazoo": "metadata",
    "grpc": "metadata",
    "sqlite3": "metadata",
    "rocksdict": "rows",
    "pyspark": "pipeline",
}

# The list of the style, and four that neither wait nor vary either: abc, functools, operator, re.
PURE_STANDARD = frozenset(
    {
        "__future__",
        "abc",
        "functools",
        "operator",
        "re",
        "dataclasses",
        "enum",
        "typing",
        "collections",
        "struct",
        "hashlib",
        "hmac",
        "zlib",
        "bisect",
        "heapq",
        "itertools",
        "array",
        "json",
        "binascii",
        "types",
    }
)
PURE_LIBRARIES = {"protocol": frozenset({"google", "crc32c"}), "core": frozenset[str]()}
# the last two are values and their invariants only
PURE_NEIGHBOURS = (
    *("quire.protocol", "quire.client.core", "quire.replication.core", "quire.log.core", "quire.pipeline.core"),
    "quire.messages.core",
    "quire.pulsar.core",
    "quire.metadata.ledger",
    "quire.metadata.formats.json_text",
)

CLOCKS = {
    "time": {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "clock_gettime",
        "clock_gettime_ns",
        "sleep",
        "localtime",
        "gmtime",
    },
    "datetime": {"now", "utcnow", "today"},
    "threading": {"Timer"},
}
RANDOM_UNSEEDED = {"os": {"urandom"}, "uuid": {"uuid1", "uuid4"}}
FILE_CALLS = frozenset(
    {
        "open",
        "close",
        "read",
        "write",
        "pread",
        "preadv",
        "pwrite",
        "pwritev",
        "fsync",
        "fdatasync",
        "sync",
        "ftruncate",
        "truncate",
        "posix_fallocate",
        "posix_fadvise",
        "rename",
        "replace",
        "unlink",
        "remove",
        "link",
        "symlink",
        "mkdir",
        "makedirs",
        "rmdir",
        "removedirs",
        "listdir",
        "scandir",
        "walk",
        "stat",
        "lstat",
        "fstat",
        "statvfs",
        "fstatvfs",
        "utime",
        "chmod",
        "access",
    }
)
FILE_QUESTIONS = frozenset({"os.path.exists", "os.path.isdir", "os.path.isfile", "os.path.getsize", "os.path.getmtime"})
PATH_CALLS = frozenset(
    {
        "read_text",
        "write_text",
        "read_bytes",
        "write_bytes",
        "iterdir",
        "rglob",
        "is_dir",
        "is_file",
        "unlink",
        "mkdir",
        "rmdir",
        "touch",
        "rename",
        "symlink_to",
        "hardlink_to",
    }
)
FILE_MODULES = frozenset({"shutil", "mmap", "tempfile", "fcntl", "glob", "fileinput"})

PUBLIC_UNDERSCORES = frozenset(
    {"_replace", "_asdict", "_fields", "_make", "_field_defaults", "_exit", "_value_", "_name_"}
)  # documented in the standard library
# To poison is to end the thing in which the step was left half done: a deferred, a handle, a connection.
POISON_VERBS = frozenset({"poison", "errback", "fail", "failed", "set_exception", "close", "abort", "loseConnection"})
TELLING = re.compile(r"(?:^|[._])log(?:ger)?[.]|^print$|^warnings[.]")

MACHINE_PATHS = re.compile(r"(?<![\w./-])/(?:work|root|home/\w+|Users/\w+)/")
REGISTRIES = re.compile(
    r"pypi[.]org|pythonhosted[.]org|repo1?[.]maven|central[.]sonatype|maven[.]google|registry[.]npmjs|proxy[.]golang"
    r"|index[.]docker|registry-1[.]docker|hub[.]docker|ghcr[.]io|crates[.]io|rubygems[.]org|anaconda[.]org"
)
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")
# What `unfinished` looks for in every file, this one included: in pieces, so that only what is really left out or
# undone bears these names.
SKIP, FAIL, ABSENT = "sk" + "ip", "x" + "fail", "Not" + "ImplementedError"
SKIPS = frozenset(
    {
        *(f"pytest.{way}" for way in (SKIP, FAIL, f"importor{SKIP}", f"mark.{SKIP}", f"mark.{SKIP}if", f"mark.{FAIL}")),
        f"unittest.{SKIP}",
    }
)


@dataclass(frozen=True)
class Source:
    """One Python file: its path below the root with `/`, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def folder(self) -> str:
        return self.path.split("/")[0]

    @property
    def module(self) -> str:
        """The dotted name, `quire.protocol.frames`; a package's own name for its `__init__.py`."""
        return ("quire/" + self.path.removesuffix(".py").removesuffix("/__init__")).replace("/", ".")

    @property
    def pure(self) -> str:
        """Which purity binds this file: "protocol", "core" or none."""
        if self.folder == "protocol":
            return "protocol"
        return "core" if self.folder in PACKAGES and "core" in self.path.split("/")[1:-1] else ""

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Of the whole tree, which is walked once: nearly every rule looks at all of them."""
        return walked(self.tree)

    @cached_property
    def imports(self) -> list[tuple[int, str, list[str]]]:
        """(line, module, names) of each import, wherever in the file it is; relative ones are made absolute."""
        return list(self._imports())

    def _imports(self) -> Iterator[tuple[int, str, list[str]]]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name, []
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                if node.level:
                    base = self.module.split(".") if self.path.endswith("__init__.py") else self.module.split(".")[:-1]
                    module = ".".join([*base[: len(base) - node.level + 1], *([module] if module else [])])
                yield node.lineno, module, [alias.name for alias in node.names]

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in self.nodes if isinstance(node, ast.Call))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Local name -> dotted origin, for each thing imported: {"sleep": "time.sleep", "clock": "time"}."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

    def at(self, line: int, what: str) -> str:
        return f"{self.path}:{line}: {what}"


def walked(tree: ast.AST) -> list[ast.AST]:
    """What `ast.walk` finds, in its order and in half its time; without the contexts `Load`, `Store` and `Del`."""
    nodes = [tree]
    for node in nodes:
        for value in vars(node).values():
            if isinstance(value, list):
                nodes += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                nodes.append(value)
    return nodes


def dotted(node: ast.expr, aliases: Mapping[str, str]) -> str:
    """
    The origin of a name or attribute chain, through the file's imports: `t.sleep` after `import time as t` is
    "time.sleep".
    """
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, aliases)}.{node.attr}"
    return "?"


def looks_like_a_path(node: ast.expr, aliases: Mapping[str, str]) -> bool:
    """Whether an expression is made by pathlib, or its name says that it is a path."""
    if isinstance(node, ast.Call):
        node = node.func
    name = dotted(node, aliases)
    return name.startswith("pathlib.") or name.split(".")[-1].split("_")[-1] == "path"


class Checkout(Sequence[Source]):
    """
    Every Python file of these folders of the checkout, in order: read when they are first looked at, and again after
    `drop`, so that whoever comes then sees them all.
    """

    def __init__(self, folders: Iterable[str] = (*PACKAGES, "tests", "bench")) -> None:
        self._folders = tuple(folders)

    @cached_property
    def _files(self) -> list[Source]:
        return [
            Source(path.relative_to(ROOT).as_posix(), path.read_text())
            for folder in self._folders
            for path in sorted((ROOT / folder).rglob("*.py"))
        ]

    def drop(self) -> None:
        """Forgets them, and their trees, through which the collector would go in all tests that follow."""
        vars(self).pop("_files", None)

    @overload
    def __getitem__(self, at: int) -> Source: ...

    @overload
    def __getitem__(self, at: slice) -> list[Source]: ...

    def __getitem__(self, at: int | slice) -> Source | list[Source]:
        return self._files[at]

    def __iter__(self) -> Iterator[Source]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def packages(files: Iterable[Source]) -> list[Source]:
    return [file for file in files if file.folder in PACKAGES]


# ---- imports ------------------------------------------------------------------------------------------------------


def wrong_arrows(files: Iterable[Source]) -> list[str]:
    """Imports against the arrows of the house."""
    found = []
    for file in packages(files):
        for line, module, names in file.imports:
            targets = [f"quire.{name}" for name in names] if module == "quire" else [module]
            for target in targets:
                parts = target.split(".")
                if parts[0] != "quire" or len(parts) < 2 or parts[1] == file.folder:
                    continue
                if parts[1] not in ARROWS[file.folder]:
                    found.append(file.at(line, f"{file.folder}/ must not import quire.{parts[1]}"))
    return found


def many_importers(files: Iterable[Source]) -> list[str]:
    """Libraries that more than one file imports, or one in the wrong folder."""
    found = []
    importers: dict[str, set[str]] = {}
    for file in files:
        if file.folder in ("tests", "bench"):
            continue
        for line, module, _names in file.imports:
            library = module.split(".")[0]
            if library in SINGLE_IMPORTERS:
                importers.setdefault(library, set()).add(file.path)
                if file.folder != SINGLE_IMPORTERS[library]:
                    found.append(file.at(line, f"only a file of {SINGLE_IMPORTERS[library]}/ may import {library}"))
    return found + [
        f"{library} has {len(paths)} importers: {', '.join(sorted(paths))}"
        for library, paths in sorted(importers.items())
        if len(paths) > 1
    ]


def unprefixed(files: Iterable[Source]) -> list[str]:
    """Imports of our own folders without `quire.`: a second copy of the same module."""
    return [
        file.at(line, f"write quire.{module}")
        for file in files
        for line, module, _names in file.imports
        if module.split(".")[0] in (*PACKAGES, "pipeline", "log")
    ]


def cycles(files: Iterable[Source]) -> list[str]:
    """Circles of modules that import each other, each named once."""
    by_name = {file.module: file for file in packages(files)}
    graph: dict[str, set[str]] = {name: set() for name in by_name}
    for name, file in by_name.items():
        for _line, module, names in file.imports:
            inside = {f"{module}.{inner}" for inner in names} & set(by_name)
            graph[name] |= inside if len(inside) == len(names) > 0 else inside | ({module} & set(by_name))
            graph[name].discard(name)
    found, done = [], set[str]()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            found.append(" -> ".join([*path[path.index(name) :], name]))
            return
        if name in done:
            return
        for target in sorted(graph[name]):
            visit(target, [*path, name])
        done.add(name)

    for name in sorted(graph):
        visit(name, [])
    return found


def impure(files: Iterable[Source]) -> list[str]:
    """What protocol/ and the cores import beyond the data tools."""
    found = []
    for file in files:
        if not file.pure:
            continue
        for line, module, _names in file.imports:
            first = module.split(".")[0]
            if first == "quire":
                allowed = (
                    module.startswith("quire.protocol")
                    if file.pure == "protocol"
                    else module.startswith(PURE_NEIGHBOURS)
                )
            else:
                allowed = first in PURE_STANDARD | PURE_LIBRARIES[file.pure]
            if not allowed:
                found.append(
                    file.at(
                        line,
                        f"{module} is not for {'protocol/' if file.pure == 'protocol' else 'a core'}: "
                        "it must stay pure",
                    )
                )
    return found


# ---- the world is an argument ---------------------------------------------------------------------------------------


def global_reactors(files: Iterable[Source], allowed: Mapping[str, str]) -> list[str]:
    """Imports of the global reactor, or its installation."""
    found = []
    for file in packages(files):
        if any(file.path.startswith(prefix) for prefix in allowed):
            continue
        for line, module, names in file.imports:
            if module == "twisted.internet.reactor" or (module == "twisted.internet" and "reactor" in names):
                found.append(file.at(line, "the global reactor: take it as an argument"))
    return found


def _named(file: Source, banned: Mapping[str, Iterable[str]], why: str) -> list[str]:
    if not any(name in file.text for names in banned.values() for name in names):
        return []
    aliases, found = file.aliases, []
    for node in file.nodes:
        if not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        name = dotted(node, aliases)
        first, _, last = name.partition(".")
        if first in banned and last.split(".")[-1] in banned[first]:
            found.append(file.at(node.lineno, f"{name}: {why}"))
    return found


def clocks(files: Iterable[Source], allowed: Mapping[str, str]) -> list[str]:
    """Clocks that are read and sleeps that are slept directly."""
    return [
        line
        for file in packages(files)
        if not any(file.path.startswith(prefix) for prefix in allowed)
        for line in _named(file, CLOCKS, "time is an argument (reactor.seconds)")
    ]


def sleeping_tests(files: Iterable[Source], allowed: Mapping[str, str]) -> list[str]:
    """Tests that sleep: they are slow when they pass and wrong when the machine is busy."""
    return [
        line
        for file in files
        if file.folder == "tests" and not any(file.path.startswith(prefix) for prefix in allowed)
        for line in _named(
            file, {"time": {"sleep"}, "asyncio": {"sleep"}}, "a test waits for what it expects, never for a while"
        )
    ]


def unseeded(files: Iterable[Source], allowed: Mapping[str, str]) -> list[str]:
    """Random numbers from a generator that is not seeded."""
    found = []
    for file in packages(files):
        if any(file.path.startswith(prefix) for prefix in allowed):
            continue
        found += _named(file, RANDOM_UNSEEDED, "randomness is an argument")
        aliases = file.aliases
        found += [
            file.at(line, "secrets: randomness is an argument")
            for line, module, _names in file.imports
            if module == "secrets"
        ]
        for call in file.calls():
            name = dotted(call.func, aliases)
            if name in ("random.Random", "random.SystemRandom"):
                if not call.args or name.endswith("SystemRandom"):
                    found.append(file.at(call.lineno, f"{name} without a seed"))
            elif (
                name.startswith("random.")
                and name.count(".") == 1
                and any(origin.split(".")[0] == "random" for origin in aliases.values())
            ):
                found.append(file.at(call.lineno, f"{name}: draws from the global generator"))
    return found


def file_calls(files: Iterable[Source]) -> list[str]:
    """Calls of the file system in bookie/ and rows/ outside rows/files.py."""
    found = []
    for file in files:
        if file.folder not in ("bookie", "rows") or file.path == "rows/files.py":
            continue
        aliases = file.aliases
        found += [
            file.at(line, f"{module}: only rows/files.py touches the file system")
            for line, module, _names in file.imports
            if module in FILE_MODULES
        ]
        for call in file.calls():
            name = dotted(call.func, aliases)
            direct = name == "open" or name in FILE_QUESTIONS or (name.startswith("os.") and name[3:] in FILE_CALLS)
            if direct or (
                isinstance(call.func, ast.Attribute)
                and call.func.attr in PATH_CALLS
                and looks_like_a_path(call.func.value, aliases)
            ):
                found.append(file.at(call.lineno, f"{name}: only rows/files.py touches the file system"))
    return found


# ---- manners --------------------------------------------------------------------------------------------------------


def passed_on(handler: ast.ExceptHandler) -> bool:
    """
    Whether a handler raises, ends the object to which it belongs, or hands the error on as a value; logging is none of
    these.
    """
    inner = [below for statement in handler.body for below in ast.walk(statement)]
    if any(isinstance(below, ast.Raise) for below in inner):
        return True
    verbs = {ast.unparse(below.func).split(".")[-1].lstrip("_") for below in inner if isinstance(below, ast.Call)}
    logged = {
        id(name)
        for below in inner
        if isinstance(below, ast.Call) and TELLING.search(ast.unparse(below.func))
        for name in ast.walk(below)
    }
    handed = any(
        isinstance(below, ast.Name) and below.id == handler.name and id(below) not in logged for below in inner
    )
    return handed or bool(verbs & POISON_VERBS)


def swallowed(files: Iterable[Source]) -> list[str]:
    """Bare excepts, and `except Exception` that neither re-raises nor poisons."""
    found = []
    for file in packages(files):
        for node in file.nodes:
            if not isinstance(node, ast.ExceptHandler):
                continue
            if node.type is None:
                found.append(file.at(node.lineno, "bare except"))
                continue
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if not any(isinstance(one, ast.Name) and one.id in ("Exception", "BaseException") for one in caught):
                continue
            if not passed_on(node):
                found.append(file.at(node.lineno, "except Exception neither re-raises nor poisons"))
    return found


def own_classes(tree: ast.Module) -> set[str]:
    """
    The classes that a file defines, and short names it gives them (`M = Machine`), whose private methods its tables may
    list.
    """
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = (
                    zip(target.elts, node.value.elts, strict=False)
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    else [(target, node.value)]
                )
                names |= {
                    left.id
                    for left, right in pairs
                    if isinstance(left, ast.Name) and isinstance(right, ast.Name) and right.id in names
                }
    return names


def reached_in(files: Iterable[Source]) -> list[str]:
    """`x._y` on anything but self, cls and a class of the same file: a private name is private to its object."""
    found = []
    for file in files:
        own = own_classes(file.tree) | {"self", "cls"}
        for node in file.nodes:
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr in PUBLIC_UNDERSCORES:
                continue
            if node.attr.startswith("__") and node.attr.endswith("__"):
                continue
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id in own:
                continue
            if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
                continue
            found.append(file.at(node.lineno, f"{ast.unparse(node)} reaches into a private name"))
        for line, module, names in file.imports:
            if module.startswith(("quire.", "tests.")):
                found += [
                    file.at(line, f"{module}.{name} is private")
                    for name in names
                    if name.startswith("_") and not name.startswith("__")
                ]
    return found


def unfinished(files: Iterable[Source]) -> list[str]:
    """Marks of work left undone, tests that do not test."""
    found = []
    for file in files:
        found += [
            file.at(number, "unfinished: do it or drop it")
            for number, line in enumerate(file.text.splitlines() if UNFINISHED.search(file.text) else (), 1)
            if UNFINISHED.search(line)
        ]
        aliases = file.aliases
        named = {id(node.value) for node in file.nodes if isinstance(node, ast.Attribute) and node.attr == "Exception"}
        for node in file.nodes:
            if isinstance(node, ast.Raise) and node.exc is not None:
                name = dotted(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, aliases)
                if name == ABSENT:
                    found.append(file.at(node.lineno, f"{ABSENT}: an abstract method is marked @abstractmethod"))
            elif isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value:
                found.append(file.at(node.lineno, "an assertion that cannot fail"))
            elif (
                isinstance(node, ast.Attribute)
                and id(node) not in named
                and dotted(node, aliases) in SKIPS
                and file.path != "tests/requirements.py"
            ):
                found.append(
                    file.at(node.lineno, f"{ast.unparse(node)}: what a test needs goes through tests/requirements.py")
                )
    return found


def hidden_hosts(texts: Mapping[str, str]) -> list[str]:
    """Paths of one machine, and hosts of package registries, in any tracked file (path -> text)."""
    found = []
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what in (
                (MACHINE_PATHS, "a path of one machine"),
                (REGISTRIES, "a host of a package registry"),
            ):
                hit = pattern.search(line)
                if hit:
                    found.append(f"{path}:{number}: {what}: {hit.group()}")
    return found


def unlisted(listed: Mapping[str, str], folders: Iterable[str]) -> list[str]:
    """
    Packages of setup.cfg (dotted name -> folder) without a folder, and folders with an `__init__.py` that it does not
    list.
    """
    present = set(folders)
    return [
        f"setup.cfg names {name}, but {folder}/__init__.py is not there"
        for name, folder in listed.items()
        if folder not in present
    ] + [f"{folder}/ is a package that setup.cfg does not list" for folder in sorted(present - set(listed.values()))]


def mute(files: Iterable[Source]) -> list[str]:
    """Test functions, and test methods of classes, without a docstring."""
    found = []
    for file in files:
        if file.folder != "tests" or not file.path.rpartition("/")[2].startswith("test_"):
            continue
        nodes = [*file.tree.body]
        nodes += [inner for node in nodes if isinstance(node, ast.ClassDef) for inner in node.body]
        found += [
            file.at(node.lineno, f"{node.name} does not say which behaviour it holds")
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
            and not ast.get_docstring(node)
        ]
    return found
