"""
The packages keep the rooms that they are divided into.  Each rule of `tidy_rooms.py` is held against this checkout,
and shown to catch a snippet that breaks it.  The tables below name what still breaks a rule; they may only shrink.
"""

from collections.abc import Iterator
from functools import cache

import pytest

from bench import sizes
from bench.sizes import File
from tests import tidy, tidy_rooms
from tests.tidy import ROOT, Source

# Imports against the order of the rooms.
EXCEPTIONS: dict[str, str] = {}
# Modules that are imported from outside their room and are not its face.
INNER_IMPORTS = {}
# Files and classes above the limit that do not say why in their docstring.
TOO_LONG: dict[str, str] = {}
PULSAR_COMMANDS = ("exporting", "listing", "reading", "shared")
# Modules without the test file of their path: the test that covers each, and why it is there.
COVERED = {
    "conf/known_keys.py": ("tests/conf/test_treatment.py", "each name has an option or an entry there"),
    "client/counters.py": ("tests/client/test_metrics.py", "each number is counted and shown there"),
    "metadata/counters.py": ("tests/metadata/test_metrics.py", "each call is counted and shown there"),
    "replication/autorecovery/measures.py": (
        "tests/tools/daemons/test_recovery_metrics.py",
        "numbers that others raise: a story there reads each by its metric",
    ),
    "client/known.py": ("tests/client/test_aio.py", "attributes of handles: each face has them by inheritance"),
    "log/core/places.py": ("tests/log/clusters/test_directory.py", "a directory reads its records there"),
    "log/clusters/following.py": ("tests/log/clusters/test_logs.py", "where a log went is asked there"),
    "tools/commands/clusters.py": ("tests/processes/test_moving.py", "a directory of two clusters of processes"),
    "tools/commands/log/moving.py": ("tests/processes/test_moving.py", "moves between them"),
    "log/core/uses.py": (
        "tests/log/upkeep/test_use.py",
        "each way to change a log is refused there; copies in tests/log/core/test_mirroring.py",
    ),
    "log/handles/known.py": (
        "tests/log/handles/test_aio.py",
        "attributes of handles: each face has them by inheritance",
    ),
    "log/handles/partitions/known.py": (
        "tests/log/handles/partitions/test_aio.py",
        "attributes of handles: each face has them by inheritance",
    ),
    "log/handles/loops.py": ("tests/log/test_aio.py", "logs are watched there, up to the close"),
    "log/handles/threads.py": ("tests/log/test_blocking.py", "logs are watched there, up to the close of a watch"),
    "metadata/sqlite/nodes.py": (
        "tests/metadata/test_tree.py",
        "each statement is one of the contract's operations, which is held there",
    ),
    "metadata/etcd/messages.py": ("tests/metadata/etcd/test_client.py", "a table: a real etcd understands it there"),
    "metadata/etcd/nodes.py": ("tests/metadata/etcd/test_plan.py", "keys and values, as transactions leave them"),
    "metadata/etcd/store.py": ("tests/metadata/etcd/test_client.py", "each handle of a test is opened by it"),
    "conf/parts/stores.py": ("tests/metadata/etcd/test_client.py", "two parts in one, by which each store is opened"),
    "tools/local_cluster/guarded.py": (
        "tests/tools/local_cluster/test_zookeeper.py",
        "what holds for each server is shown with a ZooKeeper",
    ),
    "metadata/bookies/registry.py": (
        "tests/metadata/zk/test_registry.py",
        "its races are those of ZooKeeper's watches, played there",
    ),
    "metadata/ledgers/store.py": (
        "tests/metadata/test_store.py",
        "each operation is one of the contract's, which is held there",
    ),
    "metadata/memory/cluster.py": (
        "tests/metadata/memory/test_store.py",
        "values that handles share: every handle of a test has them",
    ),
    "metadata/ledgers/cluster.py": (
        "tests/metadata/zk/test_cluster.py",
        "what other programs see of it is held there, and the contract in test_store",
    ),
    "log/upkeep/known_logs.py": (
        "tests/log/test_api.py",
        "a log's life is told there; each kind of upkeep has its own test",
    ),
    "protocol/messages.py": ("tests/protocol/test_wire.py", "values only: both protocols carry them"),
    **dict.fromkeys(
        [
            f"tools/commands/shell/{name}.py"
            for name in ["names", "context", "cluster", "bookies", "cookies", "ledgers", "directories"]
        ],
        ("tests/tools/commands/shell/test_app.py", "each name of the shell is run there as a command"),
    ),
    "metadata/overview.py": ("tests/tools/daemons/test_apache_paths.py", "beside Apache's answer to the same question"),
    "tools/host/page.py": ("tests/tools/host/test_daemon.py", "whole hosts are started, asked and stopped there"),
    "tools/host/commands.py": ("tests/tools/host/test_daemon.py", "each command is run on a real host"),
    "security/exchange.py": ("tests/security/test_digest_md5.py", "types only: DIGEST-MD5 and fakes satisfy them"),
    "bookie/upkeep/deletions.py": (
        "tests/bookie/upkeep/test_garbage.py",
        "rounds of garbage collection are tested as a whole, with what they delete",
    ),
    "client/connections/answers.py": ("tests/client/connections/test_pool.py", "values only: the pool returns them"),
    "client/connections/network.py": (
        "tests/client/connections/test_pool.py",
        "types only: reactors of tests satisfy them",
    ),
    "client/core/append/messages.py": (
        "tests/client/core/append/test_machine.py",
        "values only: inputs and effects of the machine",
    ),
    "client/core/recovery_messages.py": (
        "tests/client/core/test_recovery.py",
        "values only: the machine takes and returns them",
    ),
    "log/core/ownership_messages.py": (
        "tests/log/core/test_ownership.py",
        "values only: inputs and effects of the machine",
    ),
    "log/core/machine/applying_messages.py": (
        "tests/log/core/machine/test_applying.py",
        "values only: inputs and effects of the machine",
    ),
    "log/machine/driver.py": ("tests/log/machine/test_replica.py", "it is what a replica does"),
    "log/machine/standing.py": ("tests/log/machine/test_replica.py", "who leads, and who does next, is seen there"),
    **dict.fromkeys(
        [f"messages/{name}.py" for name in ["aio", "api", "attributes", "known", "putting"]],
        ("tests/messages/test_blocking.py", "a store's life is told there, by both faces"),
    ),
    **dict.fromkeys(
        [f"tools/commands/messages/{name}.py" for name in ["shared", "stores", "reading", "putting", "directories"]],
        ("tests/tools/commands/messages/test_group.py", "a store's life is told there, command by command"),
    ),
    **dict.fromkeys(
        ["pulsar/aio.py", "pulsar/api.py"],
        ("tests/pulsar/test_blocking.py", "topics are found and read there, by both faces"),
    ),
    **dict.fromkeys(
        [
            "pulsar/exporting.py",
            *(f"tools/commands/pulsar/{name}.py" for name in ["exporting", "listing", "reading", "shared"]),
        ],
        ("tests/tools/commands/pulsar/test_group.py", "topics are listed, read and exported there"),
    ),
    "pipeline/jobs/running.py": ("tests/spark/test_jobs.py", "needs a Spark session"),
    "replication/freeing/ledger.py": ("tests/replication/test_lost_bookies.py", "a run is its ledgers, one by one"),
    "replication/freeing/run.py": ("tests/replication/test_lost_bookies.py", "values only: what a run says of itself"),
    "replication/scrub/whole.py": ("tests/pipeline/jobs/test_scrub.py", "its steps are a scrub of real bookies"),
    "pipeline/offload/requests.py": ("tests/pipeline/offload/test_running.py", "values: each is used by whole runs"),
    "pipeline/offload/marks.py": (
        "tests/pipeline/offload/test_deleting.py",
        "marks are put and compared by whole runs, also two at once",
    ),
    "testing/containers.py": ("tests/containers/test_cluster.py", "needs Docker, which those tests start"),
    "console/command.py": ("tests/console/test_daemon.py", "every console there is started by the command"),
    "tools/__main__.py": ("tests/tools/test_main.py", "one line: calls main"),
    "tools/process_reactor.py": ("tests/tools/terminal/test_running.py", "types only: the reactor of a command"),
}

SOURCES = tidy.Checkout()


@cache
def counted() -> list[File]:
    """The packages of this checkout, counted when the first rule needs it."""
    return [sizes.counted(file.path, file.text) for file in tidy.packages(SOURCES)]


@pytest.fixture(scope="module", autouse=True)
def _trees_are_dropped() -> Iterator[None]:
    """After the last rule for now: another worker may leave us one more."""
    yield
    SOURCES.drop()
    counted.cache_clear()


def report(breaches: list[str]) -> str:
    return "\n" + "\n".join(breaches)


def files(texts: dict[str, str]) -> list[File]:
    return [sizes.counted(path, text) for path, text in texts.items()]


def sources(texts: dict[str, str]) -> list[Source]:
    return [Source(path, text) for path, text in texts.items()]


def test_an_exception_that_is_not_needed_is_found() -> None:
    """As a breach that no exception covers is."""
    assert tidy_rooms.beyond({"a": "is wrong", "b": "is wrong"}, ["a"]) == ["b: is wrong"]
    assert len(tidy_rooms.beyond({"a": "is wrong"}, ["a", "c"])) == 1
    assert not tidy_rooms.beyond({"a": "is wrong"}, ["a"])


# ---- rooms ----------------------------------------------------------------------------------------------------------


def test_rooms_are_in_order() -> None:
    """A room may import only rooms that are named before it, so there is no circle of rooms."""
    assert list(tidy.ROOMS) == list(tidy.PACKAGES)
    breaches = tidy_rooms.disordered()
    assert not breaches, report(breaches)


def test_a_room_that_may_import_a_later_one_is_found() -> None:
    """Or one that has no row, or itself."""
    assert len(tidy_rooms.disordered({"client": {"core": "api", "api": "core", "aio": "aio nowhere"}})) == 3


def test_every_module_is_in_a_room() -> None:
    """A new module goes into a room; a new room needs its row, with what it may import."""
    breaches = tidy_rooms.homeless(counted())
    assert not breaches, report(breaches)


def test_a_module_in_no_room_is_found() -> None:
    """As module of the package, or in a folder that has no row; the package's own `__init__.py` needs none."""
    paths = ["client/__init__.py", "client/core/read.py", "client/stray.py", "client/other/stray.py"]
    assert len(tidy_rooms.homeless(files(dict.fromkeys(paths, "")))) == 2


def test_imports_follow_the_order_of_the_rooms() -> None:
    """A module imports its own room and those that its row names."""
    breaches = tidy_rooms.beyond(tidy_rooms.wrong_rooms(counted()), EXCEPTIONS)
    assert not breaches, report(breaches)


def test_an_import_against_the_order_of_the_rooms_is_found() -> None:
    """Also inside a function, and of the package itself, which shows the highest rooms to users."""
    texts = {
        "client/__init__.py": "from quire.client.api import Client",
        "client/api.py": "from quire.client.core.read import x",
        "client/core/read.py": "def late():\n    from quire.client.connections import pool",
        "client/core/quorum.py": "from quire.client.core import read\nfrom quire.client import VERSION",
        "client/connections/pool.py": "from quire.client.core.read import x\nfrom quire.metadata import uri",
        "metadata/uri.py": "",
    }
    assert set(tidy_rooms.wrong_rooms(files(texts))) == {"client/core -> connections", "client/core -> __init__"}


# ---- faces ----------------------------------------------------------------------------------------------------------


def test_every_room_lists_its_modules() -> None:
    """In reading order, in the docstring of its `__init__.py`; each module is listed, and nothing else."""
    breaches = tidy_rooms.unlisted(tidy.packages(SOURCES))
    assert not breaches, report(breaches)


def test_a_module_that_its_room_does_not_list_is_found() -> None:
    """So are a name that is not there, and a room without a list."""
    listed = '"""A room.\n\nIn reading order: `a` (face),\n`b`, `gone`.  More: `text`.\n"""'
    texts = {"client/core/__init__.py": listed, "client/handles/__init__.py": '"""A room."""'}
    texts |= {"client/__init__.py": '"""No room."""'}
    texts |= dict.fromkeys(["client/core/a.py", "client/core/b.py", "client/core/c.py", "client/handles/x.py"], "")
    found = tidy_rooms.unlisted(sources(texts))
    assert len(found) == 3
    assert any("does not list c" in line for line in found)
    assert any("lists gone" in line for line in found)
    assert tidy_rooms.faces(sources(texts)) == {"client/core": {"a"}, "client/handles": frozenset()}


def test_only_the_face_of_a_room_is_imported() -> None:
    """What is not marked as face may change without a look at other rooms."""
    breaches = tidy_rooms.beyond(
        tidy_rooms.inner_imports(counted(), tidy_rooms.faces(tidy.packages(SOURCES))), INNER_IMPORTS
    )
    assert not breaches, report(breaches)


def test_an_import_of_an_inner_module_is_found() -> None:
    """Of a room, and of a room inside a room; inside a room all may be imported, and the room itself from anywhere."""
    texts = {
        "client/core/__init__.py": "",
        "client/core/quorum.py": "from quire.client.core.read import x",
        "client/core/read.py": "from quire.client.core.append import window",
        "client/core/append/__init__.py": "",
        "client/core/append/machine.py": "from quire.client.core.append import window",
        "client/core/append/window.py": "",
        "client/api.py": "from quire.client import core\nfrom quire.client.core import quorum",
        "tools/main.py": "from quire.client.core import quorum, read",
    }
    shown = {"client/core": frozenset({"quorum", "append"}), "client/core/append": frozenset({"machine"})}
    found = tidy_rooms.inner_imports(files(texts), shown)
    assert set(found) == {"client/core/read", "client/core/append/window"}
    assert found["client/core/read"].endswith("imported by tools/main.py")


# ---- sizes ----------------------------------------------------------------------------------------------------------


def test_no_file_or_class_is_too_long() -> None:
    """Above 450 lines a file, above 350 a class gives its reason in the file's docstring."""
    breaches = tidy_rooms.beyond(tidy_rooms.too_long(tidy.packages(SOURCES)), TOO_LONG)
    assert not breaches, report(breaches)


def test_a_file_or_class_that_is_too_long_is_found() -> None:
    """Unless a line of the docstring begins with "Long:" and gives a reason."""
    lines = "class A:\n" + "    x = 1\n" * 350 + "\n" * 100
    found = tidy_rooms.too_long(sources({"client/a.py": lines, "client/b.py": "x = 1\n" * 450}))
    assert set(found) == {"client/a.py", "client/a.py A"}
    assert not tidy_rooms.too_long(
        sources({"client/a.py": '"""\nA.\n\nLong: table and steps belong together.\n"""\n' + lines})
    )
    assert tidy_rooms.too_long(sources({"client/a.py": '"""\nA.\n\nLong: yes.\n"""\n' + lines}))


def test_no_constructor_takes_many_arguments() -> None:
    """At most eight."""
    breaches = tidy_rooms.crowded_constructors(tidy.packages(SOURCES))
    assert not breaches, report(tidy_rooms.beyond(breaches, ()))


def test_a_constructor_with_many_arguments_is_found() -> None:
    """By position, by name or as a rest; `self` does not count, nor do the fields of a dataclass."""
    many = "a, b, c, d, /, e, f, *, g, h"
    text = "class A:\n    def __init__(self, {}): ...\n"
    found = tidy_rooms.crowded_constructors(
        sources(
            {
                "client/a.py": text.format(many),
                "client/b.py": text.format(f"{many}, i"),
                "client/c.py": text.format(f"{many}, **rest"),
                "client/d.py": "@dataclass\nclass A:\n" + "".join(f"    m{number}: int\n" for number in range(9)),
            }
        )
    )
    assert set(found) == {"client/b.py A", "client/c.py A"}


# ---- tests ----------------------------------------------------------------------------------------------------------


def test_every_module_has_its_test_file() -> None:
    """`tests/<path of the module>/test_<module>.py`, or a row that names the test that covers it."""
    breaches = tidy_rooms.beyond(tidy_rooms.untested(tidy.packages(SOURCES), [file.path for file in SOURCES]), COVERED)
    assert not breaches, report(breaches)


def test_rows_of_covered_modules_name_a_test_and_a_reason() -> None:
    """The test file is there, and the reason is more than a word."""
    wrong = [path for path, (test, reason) in COVERED.items() if not (ROOT / test).is_file() or len(reason.split()) < 3]
    assert not wrong, report(wrong)


def test_a_module_without_its_test_file_is_found() -> None:
    """An `__init__.py` needs none; a test of the same name elsewhere does not count."""
    paths = ["client/__init__.py", "client/api.py", "client/core/read.py"]
    present = ["tests/client/test_api.py", "tests/client/test_read.py"]
    assert set(tidy_rooms.untested(sources(dict.fromkeys(paths, "")), present)) == {"client/core/read.py"}
