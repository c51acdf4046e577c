"""
The house keeps its own rules.  Each rule of `tidy.py` is held against this checkout, and shown to catch a snippet that
breaks it.
"""

import configparser
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests import tidy
from tests.tidy import ROOT, Source

# Files that may do what no other may, each with the reason.  A path that ends in `/` is a folder.
REACTOR_OWNERS = {
    "tools/": "commands start the reactor",
    "client/background.py": "runs the reactor for programs that have none",
}
CLOCK_OWNERS = {
    "metadata/clock.py": "hands programs a clock that is never set, and the time of day",
    "metadata/uri.py": "hands each store the machine's clock that goes on while it sleeps",
    "rows/rocks.py": "a thread waits while RocksDB has no room in its buffers, which announces nothing",
    "tools/": "commands measure and show progress",
    "testing/containers.py": "looks at what a container says, which announces nothing",
    "client/background.py": "a blocking call waits with a deadline of the caller's clock",
}
CHANCE_OWNERS = {
    "rows/files.py": "the salt of a journal segment, which no client may guess; a simulated disk replaces it",
    "client/api.py": "a client that was given no generator takes the operating system's",
    "metadata/uri.py": "seeds the generator of each store that it opens: instance ids differ between processes",
    "pipeline/copies/places.py": "names of half-written files, which differ between processes that write the same one",
    "security/digest_md5.py": "nonces, which nobody may foresee; a test gives its own",
    "security/tokens.py": "a token that nobody may guess",
    "tools/": "commands seed the generators",
}
SLEEPERS = {
    "tests/interop/peer.py": "polls for a Java process to listen; it announces nothing",
}

SOURCES = tidy.Checkout()


@pytest.fixture(scope="module", autouse=True)
def _trees_are_dropped() -> Iterator[None]:
    """After the last rule for now: another worker may leave us one more."""
    yield
    SOURCES.drop()


def source(text: str, path: str = "client/connections/pool.py") -> Source:
    return Source(path, text)


def report(breaches: list[str]) -> str:
    return "\n" + "\n".join(breaches)


def tracked() -> dict[str, str]:
    """Every tracked text file of the checkout: path -> text."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {}
    for name in listing.split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.is_symlink() and path.suffix not in (".xz", ".gz", ".png", ".jsonl"):
            texts[name] = path.read_text(errors="replace")
    return texts


# ---- who may import whom ------------------------------------------------------------------------------------------


def test_imports_follow_the_arrows() -> None:
    """
    protocol <- conf <- metadata <- bookie | client; client <- replication; tools imports all; nothing imports tools.
    """
    breaches = tidy.wrong_arrows(SOURCES)
    assert not breaches, report(breaches)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("protocol/v2.py", "from quire.conf.client import ClientOptions"),
        ("bookie/server/service.py", "import quire.client.connections.pool"),
        ("client/connections/pool.py", "from quire.bookie.storage.storage import Storage"),
        ("metadata/store.py", "from quire import bookie"),
        ("replication/copier.py", "def late():\n    from quire.tools.commands.bench import run"),
        ("client/core/append/machine.py", "from ....bookie import storage"),
    ],
)
def test_an_import_against_the_arrows_is_found(path: str, text: str) -> None:
    """Also inside functions, relative, and by `from quire import …`."""
    assert len(tidy.wrong_arrows([source(text, path)])) == 1


def test_an_import_along_the_arrows_passes() -> None:
    """A package may import the packages before it, and itself."""
    text = "from quire.protocol.errors import Status\nfrom quire.client.connections.link import Link\nimport twisted"
    assert not tidy.wrong_arrows([source(text, "client/connections/pool.py")])


def test_no_module_circles() -> None:
    """The modules of the packages can be put in one order."""
    breaches = tidy.cycles(SOURCES)
    assert not breaches, report(breaches)


def test_a_circle_of_modules_is_found() -> None:
    """Of three modules, one through `from package import module`."""
    files = [
        source("from quire.client import b", "client/a.py"),
        source("from quire.client.c import thing", "client/b.py"),
        source("import quire.client.a", "client/c.py"),
        source("from quire.client.a import other", "client/d.py"),
    ]
    assert tidy.cycles(files) == ["quire.client.a -> quire.client.b -> quire.client.c -> quire.client.a"]
    assert not tidy.cycles(
        [
            source("from quire.client.core import b", "client/a.py"),
            source("from quire.client import x", "client/core/b.py"),
        ]
    )


def test_a_library_with_threads_or_files_of_its_own_has_one_importer() -> None:
    """kazoo, sqlite3, rocksdict and pyspark, one file each: what they may do to us is read in one place."""
    breaches = tidy.many_importers(SOURCES)
    assert not breaches, report(breaches)


def test_a_second_importer_is_found() -> None:
    """Two files of the right folder, or one of a wrong one; tests may import what they test against."""
    one = source("import sqlite3", "metadata/sqlite/file.py")
    assert not tidy.many_importers([one, source("import kazoo.client", "tests/metadata/zk/test_store.py")])
    assert len(tidy.many_importers([one, source("from sqlite3 import connect", "metadata/uri.py")])) == 1
    assert len(tidy.many_importers([source("def f():\n    import rocksdict", "metadata/uri.py")])) == 1


def test_our_folders_are_imported_as_quire() -> None:
    """`import client` finds a second copy of the module when the checkout is the working directory."""
    breaches = tidy.unprefixed(SOURCES)
    assert not breaches, report(breaches)


@pytest.mark.parametrize(
    "text", ["import protocol", "from rows.files import Files", "import client.core.append as core"]
)
def test_an_unprefixed_import_is_found(text: str) -> None:
    """In any form; a library's module of the same name is no breach."""
    assert len(tidy.unprefixed([source(text)])) == 1
    assert not tidy.unprefixed([source("from twisted.internet import protocol\nfrom quire import conf")])


# ---- purity ---------------------------------------------------------------------------------------------------------


def test_protocol_and_cores_are_pure() -> None:
    """Data tools, protobuf and crc32c only: no clock, no socket, no thread can come in."""
    breaches = tidy.impure(SOURCES)
    assert not breaches, report(breaches)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("protocol/v2.py", "import socket"),
        ("protocol/v2.py", "from twisted.internet.defer import Deferred"),
        ("client/core/append/machine.py", "import random"),
        ("client/core/append/machine.py", "import crc32c"),
        ("client/core/append/machine.py", "from quire.client.connections.pool import BookiePool"),
        ("client/core/append/machine.py", "from quire.metadata.store import MetadataStore"),
    ],
)
def test_an_impure_import_is_found(path: str, text: str) -> None:
    """Libraries, shells and standard modules that can wait or surprise."""
    assert len(tidy.impure([source(text, path)])) == 1


def test_pure_imports_pass() -> None:
    """The list of the house, the protocol and other cores; shells may import what they like."""
    assert not tidy.impure(
        [
            source(
                (
                    "import struct\nfrom collections.abc import Sequence\nfrom google.protobuf import message\nimport "
                    "crc32c"
                ),
                "protocol/v3/__init__.py",
            ),
            source(
                "from quire.protocol.errors import Status\nfrom quire.client.core.quorum import write_set\n"
                "import heapq",
                "client/core/append/machine.py",
            ),
            source("import socket", "client/connections/link.py"),
        ]
    )


# ---- the world is an argument ---------------------------------------------------------------------------------------


def test_only_named_files_know_the_global_reactor() -> None:
    """All others take it as an argument, so that a test or the simulator can hand in another."""
    breaches = tidy.global_reactors(SOURCES, REACTOR_OWNERS)
    assert not breaches, report(breaches)


def test_a_global_reactor_is_found() -> None:
    """In both spellings, and also inside a function."""
    texts = [
        "from twisted.internet import defer, reactor",
        "import twisted.internet.reactor",
        "def f():\n    from twisted.internet import reactor",
    ]
    assert len(tidy.global_reactors([source(text) for text in texts], REACTOR_OWNERS)) == 3
    assert not tidy.global_reactors(
        [source(texts[0], "tools/main.py"), source("from twisted.internet.interfaces import IReactorTime")],
        REACTOR_OWNERS,
    )


def test_only_named_files_read_a_clock_or_sleep() -> None:
    """Time comes in as an argument."""
    breaches = tidy.clocks(SOURCES, CLOCK_OWNERS)
    assert not breaches, report(breaches)


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "from time import sleep as rest\nrest(1)",
        "import time as t\nnow = t.monotonic",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "import threading\nthreading.Timer(1, print)",
    ],
)
def test_a_clock_is_found(text: str) -> None:
    """Called, renamed, or only handed on."""
    assert len(tidy.clocks([source(text)], {})) == 1
    assert not tidy.clocks([source(text)], {"client/": "for once"})


def test_a_clock_that_is_an_argument_passes() -> None:
    """`reactor.seconds()` and `clock.time()` are the caller's choice."""
    assert not tidy.clocks(
        [
            source(
                "def f(reactor, clock):\n    return reactor.seconds(), clock.time()\nfrom datetime import "
                "timedelta\n"
                "timedelta(1)"
            )
        ],
        {},
    )


def test_chance_is_seeded() -> None:
    """Every generator is seeded."""
    breaches = tidy.unseeded(SOURCES, CHANCE_OWNERS)
    assert not breaches, report(breaches)


@pytest.mark.parametrize(
    "text",
    [
        "import random\nrandom.choice([1])",
        "import random\nrandom.Random()",
        "import os\nos.urandom(8)",
        "import uuid\nuuid.uuid4()",
        "import secrets",
        "from random import shuffle\nshuffle([])",
    ],
)
def test_an_unseeded_choice_is_found(text: str) -> None:
    """The global generator, one without a seed, and the operating system's."""
    assert len(tidy.unseeded([source(text)], {})) == 1


def test_a_seeded_generator_passes() -> None:
    """A `random.Random` with a seed, or one that came in as an argument."""
    assert not tidy.unseeded(
        [source("import random\nrandom.Random(7).choice([1])\ndef f(dice: random.Random):\n    return dice.random()")],
        {},
    )


def test_no_test_sleeps() -> None:
    """A test waits for what it expects, never for a while."""
    breaches = tidy.sleeping_tests(SOURCES, SLEEPERS)
    assert not breaches, report(breaches)


def test_a_sleeping_test_is_found() -> None:
    """Also one on asyncio."""
    text = "import time, asyncio\ntime.sleep(1)\nawait_it = asyncio.sleep(1)"
    assert len(tidy.sleeping_tests([source(text, "tests/client/connections/test_pool.py")], {})) == 2


def test_one_file_of_the_bookie_calls_the_file_system() -> None:
    """So that crash points can be recorded, and a simulated disk can replace it."""
    breaches = tidy.file_calls(SOURCES)
    assert not breaches, report(breaches)


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "import os\nos.rename('a', 'b')",
        "from os import fdatasync\nfdatasync(3)",
        "import shutil",
        "import pathlib\npathlib.Path('x').read_bytes()",
        "def f(path):\n    path.unlink()",
        "from pathlib import Path\ndef f(self):\n    return Path(self.name).iterdir()",
        "import os\nos.path.exists('x')",
    ],
)
def test_a_file_call_is_found(text: str) -> None:
    """Through os, open, pathlib or shutil; the same line is free in files.py and outside bookie/."""
    assert len(tidy.file_calls([source(text, "bookie/journal/writer.py")])) == 1
    assert not tidy.file_calls([source(text, "rows/files.py"), source(text, "metadata/sqlite/file.py")])


def test_a_file_call_through_the_contract_passes() -> None:
    """`files.rename` is what everybody calls; `os.path.join` touches nothing."""
    assert not tidy.file_calls(
        [
            source(
                (
                    "import os\ndef f(files, segment):\n    files.rename('a', os.path.join('b', 'c'))\n    "
                    "segment.write(b'')"
                ),
                "bookie/journal/writer.py",
            )
        ]
    )


# ---- manners --------------------------------------------------------------------------------------------------------


def test_no_exception_is_swallowed() -> None:
    """A half-applied step is never continued."""
    breaches = tidy.swallowed(SOURCES)
    assert not breaches, report(breaches)


@pytest.mark.parametrize(
    "handler",
    [
        "except:\n    pass",
        "except Exception:\n    log.error('x')",
        "except (ValueError, Exception) as error:\n    print(error)",
        "except Exception as error:\n    self._log.warn('{why}', why=error)",
        "except BaseException:\n    result = None",
    ],
)
def test_a_swallowed_exception_is_found(handler: str) -> None:
    """Bare, broad, or broad among others."""
    assert len(tidy.swallowed([source(f"try:\n    go()\n{handler}")])) == 1


@pytest.mark.parametrize(
    "handler",
    [
        "except ValueError:\n    pass",
        "except Exception:\n    self._poison()\n    raise",
        "except Exception as error:\n    deferred.errback(error)",
        "except Exception as error:\n    self.poison(error)",
        "except Exception as error:\n    self.failure = f'broken: {error}'",
        "except Exception as error:\n    effects = [Failed(repr(error))]",
    ],
)
def test_an_exception_that_is_passed_on_is_fine(handler: str) -> None:
    """A narrow one may be handled; a broad one is raised again or poisons."""
    assert not tidy.swallowed([source(f"try:\n    go()\n{handler}")])


def test_private_names_stay_private() -> None:
    """`x._y` only on self and cls."""
    breaches = tidy.reached_in(SOURCES)
    assert not breaches, report(breaches)


@pytest.mark.parametrize(
    "text",
    [
        "link._pending",
        "self.link._pending = 1",
        "f()._x",
        "from quire.client.connections.pool import _sweep",
        "class A:\n    def __eq__(self, other):\n        return other._x",
    ],
)
def test_a_reach_into_a_private_name_is_found(text: str) -> None:
    """Read, written, imported; also on another object of the same class."""
    assert len(tidy.reached_in([source(text)])) == 1


def test_private_names_of_self_pass() -> None:
    """So do double underscores of the language and what namedtuples document."""
    text = """
class A(B):
    def f(self, pair):
        super()._f()
        self._x = cls._y
        return pair._replace(a=1), A.__name__
M = A
TABLE = {1: M._f, 2: A._g}
"""
    assert not tidy.reached_in([source(text)])


def test_nothing_is_left_unfinished() -> None:
    """No reminders, no empty methods, no tests that do not test."""
    breaches = tidy.unfinished(SOURCES)
    assert not breaches, report(breaches)


# In pieces: a search of this tree for work left undone finds only such work.
ABSENT = "Not" + "ImplementedError"


@pytest.mark.parametrize(
    "text",
    [
        f"# {'TO' + 'DO'}: later",
        f"def f():\n    raise {ABSENT}",
        f"def f():\n    raise {ABSENT}('x')",
        f"assert {True}",
        f"import pytest\npytest.{'sk' + 'ip'}('no')",
        f"import pytest\n@pytest.mark.{'x' + 'fail'}\ndef f(): ...",
    ],
)
def test_unfinished_work_is_found(text: str) -> None:
    """Each in its usual form."""
    assert len(tidy.unfinished([source(text)])) == 1


# ---- the checkout ---------------------------------------------------------------------------------------------------


def dead_links(page: pathlib.Path, text: str) -> list[str]:
    """Relative links of a Markdown page that lead nowhere."""
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    return [f"{page.name}: {link}" for link in links if not (page.parent / link).exists()]


def test_links_of_the_manual_lead_somewhere() -> None:
    """Each relative link of a Markdown page names a file of the checkout."""
    pages = [path for path in tracked() if path.endswith(".md")]
    assert len(pages) > 5
    assert not [link for path in pages for link in dead_links(ROOT / path, (ROOT / path).read_text(encoding="utf-8"))]


def test_a_dead_link_is_found() -> None:
    """Links with an anchor and links to other hosts pass."""
    assert dead_links(ROOT / "README.md", "[a](docs/nowhere.txt) [b](docs/glossary.md#x) [c](https://example.org)") == [
        "README.md: docs/nowhere.txt"
    ]


def test_no_tracked_file_knows_one_machine_or_a_registry() -> None:
    """Paths of a developer's machine, and hosts of package registries, belong into their own configuration."""
    breaches = tidy.hidden_hosts(tracked())
    assert not breaches, report(breaches)


def test_a_path_of_one_machine_or_a_host_is_found() -> None:
    """Paths that only look alike, and a home folder taken from the environment, pass."""
    registries = ["pypi", "pythonhosted", "crates"]
    bad = {"a": "see /{}/main/x".format("work"), "b": "cd /{}/alice/quire".format("home")} | {
        name: "https://{}".format(name + (".io" if name == "crates" else ".org")) for name in registries
    }
    assert len(tidy.hidden_hosts(bad)) == 5
    assert not tidy.hidden_hosts(
        {"a": "docs/work/x and net/root/ and ~/.cache/quire", "b": "see http://127.0.0.1:8000/metrics"}
    )


def listed_packages() -> dict[str, str]:
    """setup.cfg's packages: dotted name -> folder."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    folders = dict(line.split(" = ") for line in config["options"]["package_dir"].strip().splitlines())
    names = config["options"]["packages"].split()
    assert sorted(folders) == sorted(names), "packages and package_dir of setup.cfg differ"
    return {name: folders[name] for name in names}


def package_folders() -> list[str]:
    """Folders of the house that hold an `__init__.py`."""
    found = [
        path.parent.relative_to(ROOT).as_posix()
        for name in (*tidy.PACKAGES, "pipeline", "log")
        for path in sorted((ROOT / name).rglob("__init__.py"))
    ]
    return [folder for folder in found if "__pycache__" not in folder]


def test_setup_cfg_lists_every_package_and_no_other() -> None:
    """A sub-package that is not listed is missing from the wheel, which does not show in the checkout."""
    breaches = tidy.unlisted(listed_packages(), package_folders())
    assert not breaches, report(breaches)


def test_a_package_that_setup_cfg_misses_is_found() -> None:
    """In both directions."""
    assert len(tidy.unlisted({"quire.a": "a", "quire.b": "b"}, ["a", "c"])) == 2


def test_mypy_sees_every_package() -> None:
    """`.types/quire` has a link to each folder that setup.cfg maps, so strict mypy leaves none out."""
    links = {path.name: path.resolve() for path in (ROOT / ".types" / "quire").iterdir()}
    assert links == {folder: ROOT / folder for folder in listed_packages().values() if "/" not in folder}


def test_samples_are_rendered_from_the_options(tmp_path: pathlib.Path) -> None:
    """
    What an operator reads in `conf/samples/` is what the code does; `python -m quire.conf.sample_files` makes them.
    """
    from quire.conf import sample_files as samples

    samples.write_all(tmp_path)
    rendered = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert rendered
    assert rendered == {path.name: path.read_text() for path in samples.DIRECTORY.iterdir()}


def test_every_source_file_says_what_it_is() -> None:
    """Each file of the packages opens with a docstring and carries the licence line."""
    import ast

    silent = [file.path for file in tidy.packages(SOURCES) if file.text.strip() and not ast.get_docstring(file.tree)]
    unlicensed = [
        file.path
        for file in tidy.packages(SOURCES)
        if not file.path.endswith("__init__.py") and "SPDX-License-Identifier: Apache-2.0" not in file.text
    ]
    assert not silent, report(silent)
    assert not unlicensed, report(unlicensed)


def test_every_test_says_which_behaviour_it_holds() -> None:
    """Its name says which case it is, its docstring what is to be true."""
    breaches = tidy.mute(SOURCES)
    assert not breaches, report(breaches)


def test_a_test_without_a_docstring_is_found() -> None:
    """Also a coroutine or a method; functions that are no tests, and other files, need none."""
    text = "class A:\n    async def test_b(self): ...\n\ndef test_c():\n    'Says it.'\n\ndef helper(): ...\n"
    found = tidy.mute([source(text, "tests/client/test_a.py"), source(text, "tests/client/fakes/made.py")])
    assert found == ["tests/client/test_a.py:2: test_b does not say which behaviour it holds"]
