"""The same job submitted, on executors of their own, on a cluster of two workers, and on the Java that pip installs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from quire.pipeline.clients import Cluster
from quire.tools.local_cluster.cluster import free_ports
from tests.pipeline.written import NAMES, log, values_of

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]
JOB = ROOT / "tests" / "spark" / "copying.py"
HOME = Path(pyspark.__file__).parent
VALUES = [b"%04d" % number for number in range(500)]


def environment(**changes: str) -> dict[str, str]:
    """Executors find the package where the driver does."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **changes}


def copied(ours: Cluster, command: list[str], *more: str, **changes: str) -> str:
    """Runs the job, and compares; what it said."""
    source, sink = log(ours, VALUES, 50), next(NAMES)
    done = subprocess.run(
        [*command, str(JOB), ours.uri, source, sink, *more],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"rows {len(VALUES)}" in done.stdout
    assert "tasks 1\n" not in done.stdout
    assert values_of(ours, sink) == VALUES
    return done.stderr


def test_submitted(ours: Cluster) -> None:
    """By `spark-submit`, which has made the settings before the job begins."""
    submit = str(Path(sys.executable).parent / "spark-submit")
    copied(ours, [submit, "--master", "local[2]"], PYSPARK_PYTHON=sys.executable)


def test_executors_of_their_own(ours: Cluster) -> None:
    """Processes that a driver starts on this machine."""
    copied(ours, [sys.executable], "local-cluster[2,1,900]")


def test_the_java_of_pip(ours: Cluster, tmp_path: Path) -> None:
    """Where the machine has none."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in folder.iterdir() if folder.is_dir() else ():
            if program.name != "java" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    place = {"PATH": str(programs), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path)}
    said = copied(ours, [sys.executable], "local[2]", **place)
    assert list(tmp_path.glob("quire/java-*/bin/java"))
    assert "incubator" not in said


@contextmanager
def workers(count: int) -> Iterator[str]:
    """A standalone master and so many workers, each at an address of its own; the master's URL."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as place:

        def started(kind: str, *arguments: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
                env=environment(SPARK_LOCAL_IP="127.0.0.1", SPARK_WORKER_DIR=place, PYSPARK_PYTHON=sys.executable),
                stderr=subprocess.PIPE,
            )

        url = f"spark://127.0.0.1:{port}"
        running = [started("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
        try:
            until(running[0], b"I have been elected leader")
            for number in range(count):
                host = f"127.0.0.{2 + number}"
                running.append(
                    started("worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", url)
                )
                until(running[-1], b"Successfully registered with master")
            yield url
        finally:
            for process in reversed(running):
                process.terminate()
                process.communicate()


def until(process: "subprocess.Popen[bytes]", words: bytes) -> None:
    """Reads what it says to these words."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    pytest.fail(b"".join(said)[-3000:].decode())


def test_a_cluster_of_two_workers(ours: Cluster) -> None:
    """Two machines, as far as Spark can tell."""
    with workers(2) as url:
        copied(ours, [sys.executable], url)
