"""
The examples of `docs/commands.md`, and the cluster on which they run in page order.

Knows: what the names in examples stand for (a bookie's id, a file of the reader's), what a reader has before some of
them, which of them go on until they are interrupted, and which are not run, each with its reason.
Does not know: what a command does.
"""

import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from quire.client import connect
from quire.client.api import Client
from quire.client.api import connect as open_client
from quire.client.threads import reactor_thread
from quire.log import connect as connect_logs
from quire.tools.local_cluster.cluster import LocalCluster
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.manual.blocks import ROOT
from tests.messages import archives
from tests.pulsar import made
from tests.pulsar.broker import Broker
from tests.tools.command import COMMAND, environment, warm
from tests.tools.host.process import HostProcess

# SPDX-License-Identifier: Apache-2.0

PAGE = ROOT / "docs" / "commands.md"
LISTED = re.compile(r"^  Examples?:\n((?:    .+\n)+)|^Examples:\n((?:  .+\n)+)", re.MULTILINE)
CLUSTER_ID = "2c0c8f33-7f2b-4d8c-9d2e-5b6f0a1e7f10"
BOOKIES = 6
SAYS_S, SPARK_S = 120.0, 400.0  # only what hangs takes so long

SECOND = "needs a second cluster"
NOT_RUN = {
    "quire demo": "run by `make demo`, and by the tests of the packages with a file",
    "export QUIRE_METADATA=sqlite://$HOME/quire/metadata.db": "the cluster of the test is named already",
    "quire console --host 0.0.0.0 --port 8480 --token-file /etc/quire/admin.token": "listens on all addresses",
    "quire log tail orders": "goes on until it is interrupted; the example after it has an end",
    "quire metadata set-back --accept --cluster 2c0c8f33-7f2b-4d8c-9d2e-5b6f0a1e7f10": "needs a store from a backup",
    "quire pipeline offload --log orders --to s3://cold/ledgers --older-than 7d --delete": "needs an object store",
    "quire log transfer orders --to 10.0.0.6:7100": "needs a program that waits for the log at that address",
    "quire log give-up orders 17 --yes": "needs a segment whose ledger is lost",
    "quire log mirror orders --to zk://east:2181/ledgers": SECOND,
    "quire log mirror orders --to zk://east:2181/ledgers --switch": SECOND,
    "quire log mirror orders --to zk://east:2181/ledgers --promote": SECOND,
    "quire log mirror orders --from zk://east:2181/ledgers --to zk://west:2181/ledgers --fail-back": SECOND,
    "quire log move orders eu --metadata directory+zk://home:2181/ledgers": SECOND,
    "quire log move orders eu --abort --metadata directory+zk://home:2181/ledgers": SECOND,
    "quire clusters place orders home": "needs the cluster's own name in a directory",
    "quire clusters find orders": "needs a log in a directory",
    "quire log purge --of 6f1c2a9e-0d53-4d9c-8f5e-2f6f1f0a7c11 --yes": "needs logs of a cluster that was formatted",
}
SPARK = "quire pipeline "  # run by `make spark`, behind what makes the ledger and the log that they are of
BEFORE_SPARK = (
    "quire ledger write --lines -f access.log",
    "quire log create orders",
    "quire log append orders --lines -f orders.txt",
)
# They go on until they are interrupted, and end then with that status, once they have said something.
ENDLESS = {
    "quire local": 0,
    "quire console": 0,
    "quire host start --conf /etc/quire/host.conf\n": 0,
    "quire log own orders --force --hold": 0,
}
WRONG = {  # status 1
    "quire doctor": "it names the bookies that are down",
    "quire pipeline scrub": "it finds that copies on the bookies that are down can't be read",
}


class Example(NamedTuple):
    line: int
    text: str

    def among(self, starts: dict[str, object]) -> str | None:
        """The one of these beginnings that it has; one with a line end is the whole."""
        return next((start for start in starts if f"{self.text}\n".startswith(start)), None)


def examples() -> list[Example]:
    """All of the page, in order."""
    text = PAGE.read_text(encoding="utf-8")
    found = []
    for each in LISTED.finditer(text):
        first = text.count("\n", 0, each.start()) + 2
        whole = re.sub(r" \\\n +", " ", each[1] or each[2])  # one that is too wide goes on in the next line
        for number, line in enumerate(whole.splitlines()):
            words = re.split(r" {3,}", line.strip())[0]  # what it does may be said beside it
            found.append(Example(first + number, words))
    return found


class Reader:
    """
    The reader of the page: a directory, a cluster of six bookies, and two of them, those of `/etc/quire/bookie.conf`
    and `/etc/quire/old.conf`, that are stopped and hold copies of ledger 0.
    """

    def __init__(self, directory: Path, cluster: LocalCluster, zookeeper: ZooKeeper) -> None:
        self.directory, self.cluster = directory, cluster
        self.here = directory / "here"
        self.places = {
            "zk://127.0.0.1:2181/ledgers": f"zk://127.0.0.1:{zookeeper.port}/ledgers",
            "10.0.0.5:3181": cluster.ids[0],
            "10.0.0.6:3181": cluster.ids[1],
            "10.0.0.7:3181": cluster.ids[2],
            "/etc/quire": str(directory / "etc"),
            "/etc/bookkeeper": str(directory / "etc"),
            "/run/": f"{directory / 'run'}/",
            "/backup": str(directory / "backup"),
            "/var/rocketmq": str(directory / "rocketmq"),
            "/var/scrub": str(directory / "scrub"),
            "/var/lib/quire/journal/bookie-1": str(directory / "host" / "journal" / "bookie-1"),
            "/var/lib/quire": str(cluster.bookies[2].directory),
            "quire console": "quire console --port 0",
            "tail -f access.log": "tail access.log",  # it would end by Ctrl-C
        }
        for name in ("here", "etc", "run", "backup", "scrub", "rocketmq"):
            (directory / name).mkdir()
        self.files()

    def files(self) -> None:
        """What the examples read."""
        lines = [b"10.1.%d.%d GET /index.html %d\n" % (n >> 8, n & 255, n) for n in range(2500)]
        for name in ("access.log", "orders.txt"):
            (self.here / name).write_bytes(b"".join(lines))
        (self.here / "prices.txt").write_bytes(b"pears 5\nplums 6\npears 7\n")
        (self.here / "photos").mkdir()
        (self.here / "photos" / "one.jpg").write_bytes(bytes(range(256)) * 1000)
        store = archives.unpack("plain-clean", self.directory / "rocketmq")
        store.rename(store.with_name("store"))
        for name, archive in (("n1", "dledger-killed-leader"), ("n2", "dledger-new-leader")):
            archives.unpack(archive, self.here).rename(self.here / name)
        etc = self.directory / "etc"
        for name, bookie in (("bookie.conf", 2), ("old.conf", 3)):
            shutil.copy(self.cluster.bookies[bookie].directory / "bookie.conf", etc / name)
        (etc / "bk_server.conf").write_text("bookiePort=3181\nallowLoopback=true\njournalMaxSizeMB=2048\n")
        shutil.copy(HostProcess(self.directory / "host", self.cluster.uri, "host").conf, etc)
        token = etc / "admin.token"
        token.write_text("a-token-that-no-bookie-has-0123456789\n")
        token.chmod(0o600)

    def ledger_on_both(self) -> None:
        """Writes ledger 0, of which the bookies that are stopped then have copies."""
        others = [*self.cluster.ids[:2], self.cluster.ids[5]]
        for bookie in others:
            self.cluster.stop_bookie(bookie)
        with connect(self.cluster.uri) as bk, bk.create_ledger() as writer:
            assert writer.id == 0
            writer.append_many([b"entry %d" % number for number in range(1000)])
        for bookie in others:
            self.cluster.restart(bookie)
        for bookie in self.cluster.ids[2:4]:
            self.cluster.stop_bookie(bookie)

    def cursor(self) -> None:
        """Consumes some of the log, as a program of the reader's does."""
        with connect_logs(self.cluster.uri) as logs, logs.cursor("orders", "billing") as cursor:
            cursor.persist()

    def topic(self) -> None:
        """Has a topic of Pulsar in the cluster, as a broker leaves one."""

        async def write(client: Client) -> None:
            broker = Broker(client)
            entries = [made.batch([made.single(b"%d" % n, sequence=n) for n in range(5)]) for _ in range(9)]
            first = await broker.topic("public/default/persistent/orders", entries)
            await broker.cursor("public/default/persistent/orders", "billing", made.place(first, 3))

        thread = reactor_thread()
        client = thread.wait(lambda: open_client(thread.reactor, self.cluster.uri))
        thread.wait(lambda: write(client))
        thread.wait(client.close)

    def recovered(self) -> None:
        """Has what the formatted bookie held copied, for a scrub would find it."""
        done = warm().run(["recover", self.cluster.ids[3]], b"", self.environment())
        assert done.code == 0, done.err

    def read(self, text: str) -> str:
        """An example with what it stands for."""
        for name, meant in self.places.items():
            text = text.replace(name, meant)
        if CLUSTER_ID in text:
            store = re.search(r"--metadata \S+", text)
            asked = f"quire metadata show --json {store[0] if store else ''} | jq -r .cluster"
            text = text.replace(CLUSTER_ID, f"$({asked})")
        return text

    def run(self, example: Example) -> str | None:
        """Runs it as a reader would; what is wrong, if anything is."""
        before: dict[str, Callable[[], None]] = {
            "quire log cursors": self.cursor,
            "quire pulsar topics\n": self.topic,
            "quire scrub --rate": self.recovered,
        }
        prepare = example.among(dict(before))
        if prepare is not None:
            before[prepare]()
        endless = example.among(dict(ENDLESS))
        if endless is not None:
            return self.interrupted(example, ENDLESS[endless])
        said = self.directory / "said"  # any bytes
        script = f"cd {self.here}\n{{ {self.read(example.text)}\n}} > {said} 2>&1"
        done = warm().shell(script, self.environment(), SPARK_S if example.text.startswith(SPARK) else SAYS_S)
        if done.returncode == int(example.among(dict(WRONG)) is not None):
            return None
        text = said.read_bytes().decode(errors="replace")
        return f"{example.line}: {example.text}\n{text[-1000:]}(status {done.returncode})"

    def environment(self) -> dict[str, str]:
        return {**environment(self.cluster.uri), "HOME": str(self.directory / "here")}

    def interrupted(self, example: Example, status: int) -> str | None:
        """Ends it once it has printed its first line."""
        words = self.read(example.text).replace("~", str(self.here)).split()[1:]
        process = subprocess.Popen(
            [*COMMAND, *words], env={**self.environment(), "PYTHONPATH": str(ROOT)}, cwd=self.here,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        said = process.stdout.readline() if select.select([process.stdout], [], [], SAYS_S)[0] else ""
        process.terminate()
        rest = process.communicate(timeout=60)[0]
        if said and process.returncode == status:
            return None
        return f"{example.line}: {example.text}\n{said}{rest}(status {process.returncode})"


def main() -> int:
    """Prints the examples, and which of them are run where."""
    for example in examples():
        reason = NOT_RUN.get(example.text) or ("by make spark" if example.text.startswith(SPARK) else "")
        print(f"{example.line:>5} {example.text}" + (f"   ({reason})" if reason else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
