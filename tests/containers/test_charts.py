"""
The contract of Pulsar's chart and of Apache BookKeeper's Kubernetes files: each command line of theirs that concerns
bookies, run in the image with the variables that they set.

The tables are of apache/pulsar-helm-chart at 328846044c8e (charts/pulsar/templates) and of apache/bookkeeper at
628dfa5f0d9f (deploy/kubernetes), with a metadataPrefix of /pulsar.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.containers.scene import Scene, docker

# SPDX-License-Identifier: Apache-2.0

pytestmark = pytest.mark.timeout(900)  # the first one builds the image

ZOOKEEPER = "pulsar-zookeeper"
COMMON = {
    "zkServers": "",
    "zkLedgersRootPath": "",
    "metadataServiceUri": f"zk+hierarchical://{ZOOKEEPER}:2181/pulsar/ledgers",
    "zkTimeout": "30000",
    "httpServerEnabled": "true",
    "httpServerPort": "8000",
    "useHostNameAsBookieID": "true",
}
BOOKIE = COMMON | {
    "autoRecoveryDaemonEnabled": "false",
    "journalMaxBackups": "0",
    "journalDirectories": "/pulsar/data/bookkeeper/journal",
    "PULSAR_PREFIX_journalDirectories": "/pulsar/data/bookkeeper/journal",
    "ledgerDirectories": "/pulsar/data/bookkeeper/ledgers",
    "PULSAR_MEM": "-Xms128m\n-Xmx256m\n-XX:MaxDirectMemorySize=256m\n",
    "PULSAR_GC": "-XX:+UseZGC\n-XX:+ZGenerational\n",
    "minorCompactionThreshold": "0.2",
    "minorCompactionInterval": "360",
    "majorCompactionThreshold": "0.8",
    "majorCompactionInterval": "10800",
    "gcWaitTime": "300000",
    "isForceGCAllowWhenNoSpace": "true",
    "PULSAR_PREFIX_entryLocationCompactionInterval": "86400",
    "diskUsageLwmThreshold": "0.85",
    "diskUsageWarnThreshold": "0.9",
    "diskUsageThreshold": "0.95",
    "diskCheckInterval": "1800",
    "BOOKIE_GC": "-XX:+UseG1GC",
    "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
}
AUTORECOVERY = COMMON | {"BOOKIE_MEM": "-Xms64m -Xmx128m\n", "PULSAR_PREFIX_useV2WireProtocol": "true"}
APACHE = {
    "BK_BOOKIE_EXTRA_OPTS": '"-Xms1g -Xmx1g -XX:MaxDirectMemorySize=1g"',
    "BK_bookiePort": "3181",
    "BK_journalDirectory": "/bookkeeper/data/journal",
    "BK_ledgerDirectories": "/bookkeeper/data/ledgers",
    "BK_indexDirectories": "/bookkeeper/data/ledgers",
    "BK_zkServers": ZOOKEEPER,
    "BK_useHostNameAsBookieID": "true",
}

APPLY = "bin/apply-config-from-env.py conf/bookkeeper.conf"
ASKED = "timeout 15 bin/bookkeeper shell whatisinstanceid"
MADE = "bin/bookkeeper shell initnewcluster"
FORMATTED = "bin/bookkeeper shell bookieformat -nonInteractive -force -deleteCookie"
SHELL = f"timeout 15 bin/pulsar zookeeper-shell -r -server {ZOOKEEPER}:2181"
DIRECTORIES = "/pulsar/data/bookkeeper/journal /pulsar/data/bookkeeper/ledgers"


class Line(NamedTuple):
    """A command line of a chart: in which template, what it is, and how it ends here."""

    template: str
    script: str
    says: str
    well: bool = True


INITIALIZE, VERIFY, RECOVERY = "bookkeeper-cluster-initialize", "_bookkeeper.tpl", "_autorecovery.tpl"
# in the order in which the chart's jobs and pods run them
BEFORE = [
    Line(INITIALIZE, f"nslookup {ZOOKEEPER}", r"^\d+\.\d+\.\d+\.\d+$"),
    Line(INITIALIZE, "nslookup pulsar-zookeeper-2.nowhere", "nslookup NAME: ", well=False),
    Line(INITIALIZE, f"{SHELL} ls /", r"^\[.*zookeeper.*\]$"),
    Line(INITIALIZE, f"{SHELL} ls /pulsar", "there is no node /pulsar", well=False),
    Line(INITIALIZE, f'{APPLY}; export BOOKIE_MEM="-Xmx128M"; {ASKED}', "no cluster", well=False),
    Line(
        INITIALIZE,
        f"{APPLY}; bin/pulsar zookeeper-shell -server {ZOOKEEPER}:2181 create /pulsar && {MADE}",
        r"(?s)Created /pulsar.*\b[0-9a-f-]{36}\b",
    ),
    Line(INITIALIZE, f"{APPLY}; {ASKED}", r"\b[0-9a-f-]{36}\b"),
    Line(
        "bookkeeper-cluster-initialize, until 2024",
        f"bin/bookkeeper org.apache.zookeeper.ZooKeeperMain -server {ZOOKEEPER} create /pulsar",
        "/pulsar is there already",
    ),
    Line(VERIFY, f"set -e; {APPLY}; until {ASKED}; do sleep 3; done", r"\b[0-9a-f-]{36}\b"),
    Line(
        f"{VERIFY}, without persistence",
        f"mkdir -p {DIRECTORIES}; {APPLY}; {FORMATTED} || true",
        "Formatted",
    ),
]
AUTORECOVERY_BEFORE = Line(RECOVERY, f"{APPLY}; until {ASKED}; do sleep 3; done", r"\b[0-9a-f-]{36}\b")
# what the pods run; the first is of those who have no program for the configuration of RocksDB
PULSAR_BOOKIE = f"""
export PULSAR_PREFIX_defaultRocksdbConf=conf/non_existing_default_rocksdb.conf
export PULSAR_PREFIX_entryLocationRocksdbConf=conf/non_existing_entry_location_rocksdb.conf
export PULSAR_PREFIX_ledgerMetadataRocksdbConf=conf/non_existing_ledger_metadata_rocksdb.conf
export PULSAR_PREFIX_dbStorage_rocksDB_format_version=5
[ ! -x bin/update-rocksdb-conf-from-env.py ] || exit 9
mkdir -p {DIRECTORIES}
{APPLY};
OPTS="${{OPTS}} -Dlog4j2.formatMsgNoLookups=true" exec bin/pulsar bookie;
"""
PULSAR_AUTORECOVERY = f'{APPLY}; OPTS="${{OPTS}} -Dlog4j2.formatMsgNoLookups=true" exec bin/bookkeeper autorecovery'
PROBES = ("/api/v1/bookie/state", "/api/v1/bookie/is_ready", "/metrics")  # liveness, readiness, and prometheus.io/port


@pytest.fixture(scope="module")
def scene(quire_image: str, image: str) -> Iterator[Scene]:
    with Scene(quire_image) as made:
        made.zookeeper(ZOOKEEPER, image)
        yield made


def test_pulsars_chart(scene: Scene) -> None:
    """Job, waiting pods, bookie with its probes, AutoRecovery, stop within the grace period of 30 s."""
    for line in BEFORE:
        ended = scene.shell(line.script, BOOKIE)
        assert (ended.returncode == 0) is line.well, f"{line}\n{ended.stdout}"
        assert re.search(line.says, ended.stdout, re.MULTILINE), f"{line}\n{ended.stdout}"
    pod = ["--entrypoint", "sh", scene.image, "-c"]
    bookie = scene.start("pulsar-bookie-0", *pod, PULSAR_BOOKIE, environment=BOOKIE)
    for path in PROBES:
        scene.healthy(bookie, path)
    assert "pulsar-bookie-0:3181" in docker("exec", bookie, "bin/bookkeeper", "shell", "listbookies", "-rw").stdout

    ended = scene.shell(AUTORECOVERY_BEFORE.script, AUTORECOVERY)
    assert ended.returncode == 0, ended.stdout
    assert re.search(AUTORECOVERY_BEFORE.says, ended.stdout)
    recovery = scene.start("pulsar-recovery-0", *pod, PULSAR_AUTORECOVERY, environment=AUTORECOVERY)
    scene.healthy(recovery, "/healthz")
    stopped = docker("stop", "-t", "30", bookie, recovery)
    assert stopped.stdout.split() == [bookie, recovery]
    for made in (bookie, recovery):
        assert docker("inspect", "--format", "{{.State.ExitCode}}", made).stdout.strip() == "0", made


@pytest.mark.parametrize("words", [
    ("/bin/bash", "/opt/bookkeeper/entrypoint.sh", "/opt/bookkeeper/bin/bookkeeper"),
    ("/bin/bash", "/opt/bookkeeper/scripts/entrypoint.sh"),
], ids=["deploy/kubernetes", "the image's own"])  # fmt: skip
def test_apaches_kubernetes_files(scene: Scene, words: tuple[str, ...]) -> None:
    """A bookie and AutoRecovery, which make the cluster if there is none."""
    name = "bookie-old" if words[-1].endswith("bookkeeper") else "bookie-new"
    entry = ["--entrypoint", words[0], scene.image, *words[1:]]
    bookie = scene.start(name, *entry, "bookie", environment=APACHE)
    recovery = scene.start(f"{name}-replication", *entry, "autorecovery", environment=APACHE)
    scene.healthy(bookie)
    scene.healthy(recovery, "/healthz")
    assert f"{name}:3181" in docker("exec", bookie, "bin/bookkeeper", "shell", "listbookies", "-rw").stdout


def test_words_that_are_not_here(scene: Scene) -> None:
    """Say what is."""
    for word in ("bin/pulsar broker", "bin/bookkeeper"):
        ended = scene.shell(word, {})
        assert ended.returncode == 2
        assert "quire has bookie, autorecovery, shell and zookeeper-shell here" in ended.stdout
