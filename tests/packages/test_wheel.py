"""What a release consists of, and the wheel in an environment of its own, far from the checkout."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from release.__main__ import ROOT, dependencies, packages, version_in
from tests.manual.blocks import blocks
from tests.tidy import PACKAGES

# SPDX-License-Identifier: Apache-2.0

SPARKS = {"bookiefiles", "ledger", "log", "pulsar"}  # folders of pipeline/discovered, modules that Spark finds by name
VERSION = version_in(ROOT)
README = ROOT / "README.md"
(PROGRAM,) = (block.text for block in blocks(README) if block.language == "python")


def tracked(*folders: str) -> set[str]:
    """The files of the last commit in these folders."""
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", *folders]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return set(said.stdout.decode().split("\n")) - {""}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with wheel and sdist."""
    to = tmp_path_factory.mktemp("dist")
    packages(to)
    return to


@pytest.fixture(scope="module")
def wheel(made: Path) -> Path:
    return made / f"quire-{VERSION}-py3-none-any.whl"


def test_the_wheel_holds_all_that_its_packages_have(wheel: Path) -> None:
    """Sources, samples, units, dashboards, alert rules, types, the licence; no tests."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {f"quire/{name}" for name in tracked(*PACKAGES) if "pipeline/discovered/" not in name}
    expected |= {f"pyspark_{name}/__init__.py" for name in SPARKS}
    assert expected <= names, sorted(expected - names)
    assert f"quire-{VERSION}.dist-info/licenses/LICENSE" in names
    assert {name.partition("/")[0] for name in names} == {
        "quire", f"quire-{VERSION}.dist-info", *(f"pyspark_{name}" for name in SPARKS),
    }  # fmt: skip


def test_the_sdist_holds_the_commit(made: Path) -> None:
    """What is needed to test and to build again, and the changes, joined by kind."""
    with tarfile.open(made / f"quire-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        changes = archive.extractfile(f"quire-{VERSION}/CHANGES.md")
        assert changes is not None
        text = changes.read().decode()
    missing = {name for name in tracked() if not name.startswith((".ci/", ".types/", ".gitignore"))} - names
    assert not missing, sorted(missing)
    assert text.startswith(f"# quire {VERSION} (")
    assert all(f"\n## {kind}\n" in text for kind in ("New", "Different", "Mended", "Formats: who can read what"))


def test_two_builds_are_the_same_bytes(made: Path, tmp_path: Path) -> None:
    """Bit by bit, whenever and wherever."""
    again = packages(tmp_path)
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in again}
    assert len(sums) == 3
    assert sums == {name: hashlib.sha256((made / name).read_bytes()).hexdigest() for name in sums}


class Installed:
    """An environment of its own with the wheel, and a home of its own."""

    def __init__(self, folder: Path, wheel: Path, extras: str) -> None:
        self.folder, self.wheel = folder, wheel
        self.bin = folder / "env" / "bin"
        venv.create(folder / "env", with_pip=True, symlinks=True)
        self.run(self.bin / "python", "-m", "pip", "install", "--quiet", f"{wheel}[{extras}]", seconds=600)

    def environment(self) -> dict[str, str]:
        """Without anything that leads to the checkout."""
        kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "LANG", "SSL_", "REQUESTS_"))}
        path = f"{self.bin}:/usr/bin:/bin"
        return {**kept, "PATH": path, "HOME": str(self.folder), "TMPDIR": str(self.folder), "COLUMNS": "200"}

    def run(self, *words: object, seconds: float = 120, status: int = 0) -> str:
        """Its output and what it says besides; fails for another exit status."""
        done = subprocess.run(
            [*map(str, words)], cwd=self.folder, env=self.environment(), text=True, timeout=seconds, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == status, f"{words} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def quire(self, *words: object, seconds: float = 120, status: int = 0) -> str:
        """The command."""
        return self.run(self.bin / "quire", *words, seconds=seconds, status=status)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), wheel, "tls,zstd,testing")


@contextmanager
def running(installed: Installed, *words: object) -> Iterator[str]:
    """The first line that a daemon says, while it runs."""
    daemon = subprocess.Popen(
        [installed.bin / "quire", *map(str, words)],
        cwd=installed.folder, env=installed.environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert daemon.stdout is not None
        yield daemon.stdout.readline()
    finally:
        daemon.terminate()
        daemon.wait(60)


@pytest.fixture(scope="module")
def cluster(installed: Installed) -> Iterator[str]:
    """The metadata URI of a running `quire local`."""
    with running(installed, "local", "--dir", installed.folder / "quire", "--json") as line:
        (uri,) = re.findall(r'"(sqlite:[^"]+)"', line)
        yield uri


def test_all_that_runs_is_of_the_wheel(installed: Installed) -> None:
    """No module comes from a checkout, and the version is the wheel's."""
    assert installed.quire("--version").split()[-1] == VERSION
    text = (
        "import importlib, pkgutil, quire, sys\n"
        "for found in pkgutil.walk_packages(quire.__path__, 'quire.', onerror=lambda name: None):\n"
        "    extras = ('quire.pipeline.', 'quire.pulsar.arrow', 'quire.metadata.etcd.')\n"  # `pipeline` and `etcd`
        "    if not found.name.startswith(extras) and '__main__' not in found.name:\n"
        "        importlib.import_module(found.name)\n"
        "ours = [each for name, each in sys.modules.items() if name.startswith('quire')]\n"
        "files = [getattr(each, '__file__', None) or sys.prefix for each in ours]\n"
        "assert len(files) > 300, len(files)\n"
        "assert not [path for path in files if not path.startswith(sys.prefix)]\n"
    )
    installed.run(installed.bin / "python", "-c", text)


def test_a_missing_extra_names_the_wheel(installed: Installed) -> None:
    """By its path, so that the command that is shown works."""
    said = installed.quire("pipeline", "report", installed.folder, status=1)
    assert f"pip install '{installed.wheel}[pipeline]'" in said, said


def test_the_first_program_and_the_commands(installed: Installed, cluster: str) -> None:
    """As README shows them; the place of the cluster is that of this one."""
    shells = {block.text.partition("=")[0]: block.text for block in blocks(README) if block.language == "sh"}
    told, commands = shells["export PATH"].removesuffix("python\n"), shells["id"]
    (installed.folder / "first.py").write_text(PROGRAM)
    assert f"sqlite://{installed.folder}/quire/metadata.db" == cluster, "as with HOME on the page"
    said = installed.run("/bin/sh", "-ec", f"{told}python first.py\n{commands}", seconds=300)
    assert "0 b'one'" in said
    assert "2 b'three'" in said
    assert "entries/s" in said


def test_the_demo(installed: Installed) -> None:
    """A bookie killed in the middle of a real file."""
    (installed.folder / "some.txt").write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)))
    assert installed.quire("demo", "some.txt", seconds=300).rstrip().endswith("equal")


def test_a_cluster_with_tls(installed: Installed) -> None:
    """The extra is enough for it: an authority, certificates, a ledger written and read."""
    folder = installed.folder / "secured"
    with running(installed, "local", "--tls", "--dir", folder, "--json") as line:
        assert "sqlite:" in line
        assert "secret" in written_and_read(installed, f"{folder}/client.conf", "secret")


def written_and_read(installed: Installed, conf: object, line: str, *more: str) -> str:
    """A line that went through a ledger."""
    command = f"echo {line} | QUIRE_CONF={conf} quire ledger write --lines {' '.join(more)}"
    ledger = installed.run("/bin/sh", "-c", command).split()[-1]
    return installed.run("/bin/sh", "-c", f"QUIRE_CONF={conf} quire ledger read {ledger}")


def test_a_bookie_with_sasl(installed: Installed) -> None:
    """With the users and options that the page on security shows; a client without them is refused."""
    folder, page = installed.folder / "sasl", (ROOT / "docs" / "security.md").read_text()
    folder.mkdir()
    blocks = dict(re.findall(r"^ *```\w+ (users|introduced|asking)\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE))
    installed.run("/bin/sh", "-ec", f"cd {folder}\n{blocks['users']}")
    uri = f"metadataServiceUri=sqlite://{folder}/metadata.db\n"
    installed.quire("metadata", "init", "--metadata", f"sqlite://{folder}/metadata.db")
    keys = "bookiePort=0\nallowLoopback=true\nlisteningInterface=127.0.0.1\nadvertisedAddress=127.0.0.1\nbookieId=one\n"
    keys += f"journalDirectories={folder}/journal\nledgerDirectories={folder}/ledgers\ndiskUsageThreshold=0.99\n"
    for name, text in (("bookie", blocks["asking"] + keys), ("client", blocks["introduced"]), ("stranger", "")):
        lines = [line.strip() for line in text.replace("/etc/quire", str(folder)).split("\n")]
        (folder / f"{name}.conf").write_text(uri + "\n".join(lines))
    one = ("--ensemble", "1", "--write", "1", "--ack", "1")
    with running(installed, "bookie", "start", "--conf", folder / "bookie.conf") as line:
        assert "one" in line
        assert "known" in written_and_read(installed, folder / "client.conf", "known", *one)
        command = f"echo x | QUIRE_CONF={folder}/stranger.conf quire ledger write {' '.join(one)}"
        said = installed.run("/bin/sh", "-c", command, status=1)
        assert "authenti" in said, said


@pytest.fixture(scope="module")
def with_pipeline(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("pipeline"), wheel, "pipeline")


def test_the_pipeline(with_pipeline: Installed) -> None:
    """A log to Parquet and back, with the extra and nothing else: Spark finds both tables, and the Java of pip."""
    installed = with_pipeline
    (installed.folder / "lines").write_bytes(b"".join(b"line %d\n" % number for number in range(1000)))
    with running(installed, "local", "--dir", installed.folder / "quire", "--json") as line:
        (uri,) = re.findall(r'"(sqlite:[^"]+)"', line)
        there = ("--metadata", uri)
        for name in ("orders", "again"):
            installed.quire("log", "create", name, *there)
        installed.quire("log", "append", "orders", "--lines", "-f", "lines", *there)
        spark = (*there, "--master", "local[2]", "--json")
        done = installed.quire("pipeline", "export", "out", "--log", "orders", *spark, seconds=300)
        assert '"rows": 1000' in done, done
        installed.quire("pipeline", "import", "out", "--log", "again", *spark, seconds=300)
        assert installed.quire("log", "read", "again", "--values", *there) == (installed.folder / "lines").read_text()


def test_units_and_samples_come_with_it(installed: Installed) -> None:
    """The unit starts this command."""
    assert f"ExecStart={installed.bin}/quire bookie start" in installed.quire("conf", "unit", "bookie")
    assert "bookiePort=3181" in installed.quire("conf", "sample", "bookie")
    assert "hostBookies=2" in installed.quire("conf", "sample", "host")
    (where,) = installed.run(installed.bin / "python", "-c", "import quire.metrics as m; print(*m.__path__)").split()
    assert {path.name for path in Path(where, "watching").iterdir()} >= {"alerts.yml", "bookie.json", "cluster.json"}


def test_the_plugin_of_pytest(installed: Installed) -> None:
    """It is found by itself, and starts a cluster."""
    text = """
    def test_it(quire_cluster):
        with quire_cluster.connect() as bk, bk.create_ledger() as writer:
            assert writer.append(b"one") == 0
    """
    (installed.folder / "test_it.py").write_text(dedent(text))
    assert "1 passed" in installed.run(installed.bin / "python", "-m", "pytest", "test_it.py")


def test_a_program_that_uses_it_is_checked(installed: Installed) -> None:
    """Strict mypy finds its types, and a wrong call."""
    good = installed.folder / "good.py"
    good.write_text(PROGRAM)
    bad = installed.folder / "bad.py"
    bad.write_text(PROGRAM.replace('writer.append(b"one")', 'writer.append("one")'))
    checked = (sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.bin / "python")
    assert "Success" in installed.run(*checked, good, seconds=300)
    assert "incompatible type" in installed.run(*checked, bad, seconds=300, status=1)


def test_the_lock_and_the_sbom(tmp_path: Path) -> None:
    """Each dependency has a version and hashes, and nothing of the machine that made them is in either."""
    lock, sbom = dependencies(tmp_path)
    text = lock.read_text()
    pinned = set(re.findall(r"^([\w.-]+)==\S+ \\$", text, re.MULTILINE))
    assert pinned >= {"twisted", "kazoo", "protobuf", "pyopenssl", "pyarrow", "pyspark", "zstandard"}
    assert not re.findall(r"^(?!#|\s)(?![\w.-]+==\S+ \\$).+", text, re.MULTILINE), "no option, none without a hash"
    assert text.count("--hash=sha256:") >= len(pinned)
    document = json.loads(sbom.read_text())
    assert (document["metadata"]["component"]["name"], document["bomFormat"]) == ("quire", "CycloneDX")
    assert {each["name"].lower() for each in document["components"]} == pinned
    assert str(tmp_path) not in sbom.read_text()
