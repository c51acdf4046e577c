"""The walk of docs/containers.md: from a checkout to a cluster on a machine with Docker alone, command by command."""

import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from quire.tools.local_cluster.zookeeper import jars, java
from release.__main__ import ROOT
from tests.containers.built import BUILDER, substitutes
from tests.containers.cluster import SERVER
from tests.containers.image import mounts, removed
from tests.manual.blocks import blocks
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

pytestmark = pytest.mark.timeout(900)  # the first one builds the image

PAGE = ROOT / "docs" / "containers.md"
FILE = "deploy/compose/compose.yaml"
CONTROL = re.compile(r"\r|\x1b\[\d*[A-Za-z]")  # what moves about on a terminal, and colours
OBJECT = re.compile(r"\{.*\}")
MARK = "---------- the next block"
SERVES = "exec 3<>/dev/tcp/127.0.0.1/2181 && echo srvr >&3 && grep -q 'Zookeeper version' <&3"


def instead_of_what_cannot_be_pulled(image: str) -> dict[str, object]:
    """
    Of the compose file, with the image that runs this machine's programs: ZooKeeper of pyspark's jars, Debian's
    Prometheus.  There is no Grafana.
    """
    mounted = [f"{path}:{path}:ro" for path in mounts()]
    server = SERVER.format(java=java(), jars=os.pathsep.join(map(str, jars())))
    return {
        "services": {
            "zookeeper": {
                "image": image,
                "command": ["sh", "-c", server.replace("$", "$$")],
                "volumes": mounted,
                "healthcheck": {"test": ["CMD", "bash", "-c", SERVES]},
            },
            "prometheus": {
                "image": image,
                "command": "prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus",
                "volumes": mounted,
            },
            "grafana": {"profiles": ["not-to-be-had"]},
        }
    }


@pytest.fixture
def walked(base: str, copy: Path, image: str, quire_image: str, tmp_path: Path) -> Iterator[list[str]]:
    """
    What is seen of each block of the page, run one after the other at one terminal; in the place of what can't be had
    here is what can.  `quire_image`: so that the image is built of what the builder remembers.
    """
    for what in ("compose", "prometheus", "curl"):
        need(what)
    name = f"quire-walk-{secrets.token_hex(4)}"
    override = tmp_path / "here.yaml"
    override.write_text(yaml.safe_dump(instead_of_what_cannot_be_pulled(image)))
    instead = {
        "docker build --tag quire .": f"docker build --tag {name} {' '.join(substitutes(base))} .",
        f"COMPOSE_FILE={FILE}": f"COMPOSE_FILE={FILE}:{override}",
        "client doctor\n": "client doctor || true\n",  # a busy machine is a warning, and its status
        "docker compose": "docker-compose",
    }
    text = f"\necho {MARK}\n".join(block.text for block in blocks(PAGE) if block.word == "docker")
    for said, meant in instead.items():
        assert said in text
        text = text.replace(said, meant)
    script = tmp_path / "walk.sh"
    script.write_text(f"set -eo pipefail\n{text}")
    environment = BUILDER | {"COMPOSE_PROJECT_NAME": name, "QUIRE_IMAGE": name}
    try:
        ended = subprocess.run(
            ["script", "--quiet", "--return", "--command", f"bash {script}", "/dev/null"],
            cwd=copy, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seen = CONTROL.sub("", ended.stdout)
        assert ended.returncode == 0, seen[-5000:] + ended.stderr
        yield seen.split(f"{MARK}\n")
    finally:
        files = ["--file", FILE, "--file", str(override)]
        down = ["docker-compose", *files, "down", "--volumes", "--remove-orphans"]
        subprocess.run(down, cwd=copy, env=environment, capture_output=True, check=True)
        removed(name)


def test_a_machine_with_only_docker(walked: list[str]) -> None:
    """Image built, compose up, a ledger written and read, a bookie killed and healed, all of it seen."""
    begun, written, healed, looked = walked
    assert [f"bookie{number}:3181" in begun for number in (1, 2, 3)] == [True] * 3
    assert "\n1000\n" in written
    assert "  0 to 999: bookie" in written
    assert "\n1000\n" in healed
    assert "2,000 of 2,000 copies are good" in healed.replace("\n", " ")
    assert "errors: 0" in looked
    assert "<title>" in looked
    found = OBJECT.search(looked)
    assert found is not None
    values = [row["value"][1] for row in json.loads(found[0])["data"]["result"]]
    assert values in (["1", "1"], ["1", "1", "1"])  # the one that began again may not have been asked yet
