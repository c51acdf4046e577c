"""
A mirror between two clusters of processes that is killed with SIGKILL under load, again and again: the copy has the
records of the log, each once, at the same indexes.  `ROUNDS=50` in the environment kills so often.
"""

import json
import os
import subprocess
import threading
from itertools import count
from random import Random

from quire.log import connect
from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.command import COMMAND, environment, ok
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("ROUNDS", "6"))
FRESH = Random()  # each run of the suite draws other rounds, and says which
NAMES = (f"mirrored {number}" for number in count())


class Load(threading.Thread):
    """Appends to a log until `stop`; `appended` are the values that were acknowledged, in order."""

    def __init__(self, owner):
        super().__init__(daemon=True)
        self.appended = []
        self._owner = owner
        self._stopped = threading.Event()

    def run(self):
        for number in count():
            if self._stopped.is_set():
                return
            some = [b"%d %d" % (number, each) for each in range(number % 7 + 1)]
            self._owner.append_many(some, keys=some, headers=[(("n", b"%d" % number),)] * len(some))
            self.appended += some

    def stop(self):
        self._stopped.set()
        self.join(60)


def content(logs, name):
    """All records, whole."""
    with logs.read(name) as reader:
        return list(reader)


def mirror(name, source, copy, *options):
    """The process."""
    words = ["log", "mirror", name, "--from", source, "--to", copy, "--every", "0.1", "--json", *options]
    return subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())


def killed_at(process, end):
    """It is killed once the copy is that long; how long it was."""
    with process:
        for line in process.stdout:
            found = json.loads(line)["end"]
            if found >= end:
                process.kill()
                return found
        raise AssertionError(process.stderr.read().decode())


def test_a_mirror_that_is_killed_again_and_again(cluster, tmp_path):
    """While an owner appends; then the log goes over to its copy, which has all that was acknowledged."""
    seed, name = FRESH.randrange(1 << 30), next(NAMES)
    print(f"seed {seed}")
    dice = Random(seed)
    with (
        LocalCluster(tmp_path / "there", 1, options=SMALL) as there,
        connect(cluster.uri) as logs,
        connect(there.uri) as copies,
    ):
        logs.create(name, ensemble=1, write=1, ack=1, roll_records=500)
        with logs.own(name) as owner:
            load = Load(owner)
            load.start()
            end = 0
            for _ in range(ROUNDS):
                end = killed_at(mirror(name, cluster.uri, there.uri), end + dice.randrange(1, 400))
            load.stop()
        words = ["log", "mirror", name, "--from", cluster.uri, "--to", there.uri, "--switch", "--json"]
        switched = ok(*words).rows[-1]["switched"]
        found = content(copies, name)
        assert [record.value for record in found] == load.appended
        assert found == content(logs, name)
        assert switched == len(found)
        with copies.own(name) as owner:
            assert owner.append(b"on").index == switched
