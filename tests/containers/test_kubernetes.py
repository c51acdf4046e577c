"""
The files of deploy/kubernetes: held against Kubernetes' schemas, quire's options and one another; and their pods run,
as far as a Docker can: with their variables, rights, volumes and probes.
"""

from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import kubernetes_validate
import pytest
import yaml

from quire.bookie.admin.gate import PATHS
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.properties import load
from quire.conf.shared_file import READERS
from release.__main__ import ROOT, version_in
from tests.containers.scene import Scene, docker

# SPDX-License-Identifier: Apache-2.0

pytestmark = pytest.mark.timeout(900)  # the first one builds the image

FOLDER = ROOT / "deploy" / "kubernetes"
DOCUMENTS: list[dict[str, Any]] = [
    document for path in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())
]
NAMED = {(document["kind"], document["metadata"]["name"]): document for document in DOCUMENTS}
WITH_PODS = [document for document in DOCUMENTS if "template" in document.get("spec", {})]
ADDRESS = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
VERSIONS = ("1.27", "1.37")  # the first that has all of it, and the newest whose schemas are known
MODELS: dict[str, type[BookieOptions] | type[AutoRecoveryOptions]] = {
    "bookie": BookieOptions,
    "autorecovery": AutoRecoveryOptions,
}


def containers(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pod = document["spec"]["template"]["spec"]
    yield from [*pod.get("initContainers", []), *pod["containers"]]


def variables(container: dict[str, Any], pod: str) -> dict[str, str]:
    """The environment of a container in the pod of that name."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= NAMED["ConfigMap", source["configMapRef"]["name"]]["data"]
    fields = {"metadata.name": pod, "metadata.namespace": "default"}
    for entry in container.get("env", []):
        value = entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for name, meant in found.items():
            value = value.replace(f"$({name})", meant)
        found[entry["name"]] = value
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_it_is_of_kubernetes_schema(document: dict[str, Any], version: str) -> None:
    """Without a property that the schema does not know."""
    kubernetes_validate.validate(document, version, strict=True)


def test_selectors_find_the_pods() -> None:
    """Of sets, services and budgets; and a set's own service is there."""
    labels = [document["spec"]["template"]["metadata"]["labels"].items() for document in WITH_PODS]
    for (kind, name), document in NAMED.items():
        wanted = document.get("spec", {}).get("selector")
        if wanted is not None:
            found = wanted.get("matchLabels", wanted)
            assert [each for each in labels if found.items() <= each] != [], (kind, name)
    stateful = NAMED["StatefulSet", "quire-bookie"]
    assert ("Service", stateful["spec"]["serviceName"]) in NAMED
    assert NAMED["PodDisruptionBudget", "quire-bookie"]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("document", WITH_PODS, ids=lambda each: each["metadata"]["name"])
def test_pods_say_what_quire_takes(document: dict[str, Any]) -> None:
    """Options without a warning, the image of this version, probes that need no token at the port that is open."""
    for container in containers(document):
        assert container["image"] == f"quire:{version_in(ROOT)}"
        model = MODELS.get(container["name"])
        given = variables(container, "quire-bookie-0")
        assert given["QUIRE_METADATA"] == given["BK_metadataServiceUri"]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        probes = [container[name]["httpGet"] for name in container if name.endswith("Probe")]
        assert (len(probes) >= 2) is bool(ports)
        for probe in probes:
            assert (probe["port"], probe["path"] in PATHS["health"]) == ("http", True)
        model = MODELS.get(container["name"])
        if model is not None:
            options, warnings = load(model, None, given | {"BK_httpServerEnabled": "true"}, (), READERS)
            assert warnings == []
            assert ports["http"] == options.http_address.port
            annotated = document["spec"]["template"]["metadata"]["annotations"]
            assert annotated["prometheus.io/port"] == str(ports["http"])


def test_each_directory_has_a_volume_of_its_own() -> None:
    """Those of journal, ledgers and index."""
    stateful = NAMED["StatefulSet", "quire-bookie"]
    (bookie,) = stateful["spec"]["template"]["spec"]["containers"]
    given = variables(bookie, "quire-bookie-0")
    options = load(BookieOptions, None, given, (), READERS)[0]
    mounted = {mount["mountPath"]: mount["name"] for mount in bookie["volumeMounts"]}
    claimed = {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    directories = [*options.journal_directories, *options.ledger_directories, *(options.index_directories or ())]
    assert {mounted[directory] for directory in directories} == claimed == {"journal", "ledgers", "index"}
    assert (options.bookie_id, options.advertised_address) == (
        "quire-bookie-0",
        "quire-bookie-0.quire-bookie.default.svc",
    )


def answers(url: str) -> bool:
    """True if there is a good answer."""
    try:
        with urlopen(url, timeout=5):
            return True
    except OSError:
        return False


class Cluster(Scene):
    """
    Pods of the files as containers: rights, variables, volumes and names as they have them there.  The secret is a
    volume, too.
    """

    def secret(self) -> None:
        """Makes the secret that the files ask for."""
        made = "umask 077; echo 0123456789abcdef0123456789abcdef > /quire/secret/admin.token"
        volume = ["--volume", f"{self.name}-secret:/quire/secret"]
        docker("run", "--rm", *volume, "--entrypoint", "sh", self.image, "-c", made)

    def pod(self, document: dict[str, Any], name: str, *more: str) -> str:
        """Starts it; `more`: words that are added to its arguments."""
        (container,) = document["spec"]["template"]["spec"]["containers"]
        rights = container["securityContext"]
        assert rights == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        options = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        for mount in container.get("volumeMounts", []):
            where = mount["mountPath"]
            if mount.get("readOnly"):
                options += ["--volume", f"{self.name}-{mount['name']}:{where}:ro"]
                continue
            options += (
                ["--tmpfs", where]
                if mount["name"] == "tmp"
                else ["--volume", f"{self.name}-{name}-{mount['name']}:{where}"]
            )
        given = variables(container, name)
        if "BK_advertisedAddress" in given:
            options += ["--network-alias", given["BK_advertisedAddress"]]
        return self.start(name, *options, self.image, *container["args"], *more, environment=given)

    def __exit__(self, *unused: object) -> None:
        super().__exit__()
        volumes = docker("volume", "ls", "--quiet", "--filter", f"name={self.name}").stdout.split()
        if volumes:
            docker("volume", "rm", *volumes)


def test_pods_run(quire_image: str, image: str) -> None:
    """The job makes the cluster; bookies serve under the ids of their pods; a pod that goes is drained first."""
    stateful, job = NAMED["StatefulSet", "quire-bookie"], NAMED["Job", "quire-metadata"]
    with Cluster(quire_image) as cluster:
        cluster.zookeeper("zookeeper", image)
        cluster.secret()
        made = cluster.pod(job, "quire-metadata")
        assert docker("wait", made).stdout == "0\n", docker("logs", made).stdout
        pods = [cluster.pod(stateful, f"quire-bookie-{number}") for number in range(3)]
        recovery = cluster.pod(NAMED["Deployment", "quire-autorecovery"], "quire-autorecovery-x")
        for pod in pods:
            cluster.healthy(pod)
        cluster.healthy(recovery, "/healthz")
        console = cluster.pod(NAMED["Deployment", "quire-console"], "quire-console-x")
        address = docker("inspect", "--format", ADDRESS, console).stdout.strip()
        cluster.until(console, lambda: answers(f"http://{address}:8480/healthz"))
        given = variables(next(containers(job)), "client")

        def said(script: str) -> str:
            ended = cluster.shell(script, given)
            assert ended.returncode == 0, ended.stdout
            return ended.stdout

        ledger = said("seq 100 | quire ledger write --lines --ensemble 2 --write 2 --ack 2 2> /dev/null").strip()
        docker("exec", pods[2], "quire", "decommission", "--drain", "quire-bookie-2")
        assert docker("stop", "-t", "60", pods[2]).stdout
        said("quire decommission quire-bookie-2")
        assert "100 entries, 200 of 200 copies are good" in said(f"quire ledger check {ledger}")
        assert "quire-bookie-2" not in said("quire bookie list")

        # more of them again: the id was taken out, and a bookie that has lost nothing may be started the same way
        for number in (2, 1):
            docker("stop", "-t", "60", pods[number])
            docker("rm", "--volumes", pods[number])
        docker("volume", "rm", *(f"{cluster.name}-quire-bookie-2-{kind}" for kind in ("journal", "ledgers", "index")))
        for number in (2, 1):
            cluster.healthy(cluster.pod(stateful, f"quire-bookie-{number}", "--restore"))
        assert "100 entries, 200 of 200 copies are good" in said(f"quire ledger check {ledger}")
