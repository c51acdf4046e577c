"""
One bookie's directories go from Apache to quire, back to Apache, and to quire again; what was written in each period is
readable in every later one.
"""

import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from quire.tools.local_cluster.cluster import LocalBookie
from tests.interop import peer
from tests.interop.ours import READY_SECONDS_MAX, TEXT, Ours, lines, sha256, wait_for_bookies

PACKAGE = "org.apache.bookkeeper.bookie"
DB, SORTED = (
    {"ledgerStorageClass": f"{PACKAGE}.storage.ldb.DbLedgerStorage"},
    {"ledgerStorageClass": f"{PACKAGE}.SortedLedgerStorage"},
)
OLDER = {"journalFormatVersionToWrite": 5, "fileInfoFormatVersionToWrite": 0}
CASES: dict[str, tuple[dict[str, object], bool]] = {  # settings, and whether Apache is killed instead of stopped
    "db-stopped": (DB, False),
    "db-several-directories-killed": (DB | {"several": True}, True),
    "sorted-stopped": (SORTED, False),
    "sorted-older-formats-killed": (SORTED | OLDER, True),
}
ONE = {"ensemble": 1, "write": 1, "ack": 1}
ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
SUM = sha256(lines())


class House:
    """One bookie's directories, with an Apache bookie or ours in them, never both."""

    def __init__(self, cluster: peer.Cluster) -> None:
        self.java = cluster.add_bookie()
        self.ours = LocalBookie(self.java.folder, self.java.port)
        self.client = cluster.client(password="secret", timeout=10)
        self.metadata = cluster.metadata
        self.sums: dict[int, str] = {}
        self.fenced: list[int] = []

    def written_by_java(self, **more: object) -> int:
        wait_for_bookies(self.client, 1)
        found = self.client.call("lines", file=TEXT, **ONE, **more)
        assert found["failed"] == 0
        self.sums[found["ledger"]] = SUM
        return int(found["ledger"])

    def written_by_us(self) -> int:
        with Ours(self.metadata) as ours:
            ledger = ours.write(lines(), password=b"secret", **ALONE)
        self.sums[ledger] = SUM
        return ledger

    def left_open_by_java(self, entries: int) -> int:
        """A ledger that was not closed; recovery fences it on the bookie and closes it."""
        ledger = int(self.client.call("create", **ONE)["ledger"])
        self.client.call("append", ledger=ledger, file=TEXT, to=entries)
        return ledger

    def check(self) -> None:
        """Both clients read every ledger of every period."""
        wait_for_bookies(self.client, 1)
        for ledger, expected in self.sums.items():
            assert self.client.call("read", ledger=ledger)["sha256"] == expected, ledger
        with Ours(self.metadata) as ours:
            for ledger, expected in self.sums.items():
                assert sha256(ours.read(ledger, b"secret")) == expected, ledger

    @contextlib.contextmanager
    def quire_runs(self, kill: bool = False) -> Iterator[None]:
        self.ours.begin()
        self.ours.ready(time.monotonic() + READY_SECONDS_MAX)
        try:
            yield
        finally:
            if kill:
                self.ours.end_now()
            else:
                self.ours.ask_to_end()
                self.ours.wait_for_end(time.monotonic() + READY_SECONDS_MAX)

    def command(self, name: str) -> tuple[int, str]:
        words = [sys.executable, "-m", "quire.tools", "bookie", name, "--conf", str(self.java.conf)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=READY_SECONDS_MAX, check=False)
        return done.returncode, done.stdout + done.stderr

    def close(self) -> None:
        self.client.close()
        self.ours.end_now()


def settings_in(folder: pathlib.Path, settings: dict[str, object]) -> dict[str, object]:
    """Two directories of each kind, where several are wanted."""
    if not settings.get("several"):
        return settings
    two = {f"{kind}Directories": f"{folder}/{kind}0,{folder}/{kind}1" for kind in ("journal", "ledger", "index")}
    return {key: value for key, value in settings.items() if key != "several"} | two


@pytest.mark.parametrize("case", CASES)
def test_there_and_back_and_there_again(case: str) -> None:
    """
    Apache -> quire -> Apache -> quire -> Apache; the first two Apaches are stopped, or killed with their last writes in
    the journal only. Before an export Apache is kept out; a ledger that was left open in one period is recovered in the
    next.
    """
    settings, kill = CASES[case]
    with peer.Cluster(bookies=0) as cluster:
        cluster.settings = settings_in(cluster.directory / "java-bookie0", settings)
        house = House(cluster)
        try:
            there_and_back(house, kill)
        finally:
            house.close()


def there_and_back(house: House, kill: bool) -> None:
    house.written_by_java()
    left = house.left_open_by_java(1000)
    if kill:
        house.java.kill()
    else:
        house.java.stop()

    with house.quire_runs(kill=True):
        house.written_by_java(protocol="v3")
        house.written_by_us()
        house.check()
    code, said = house.command("export-check")
    assert (code, "start the bookie and stop it cleanly" in said) == (1, True), said
    with house.quire_runs():
        house.check()
        with Ours(house.metadata) as ours:
            assert ours.read(left, b"secret") == lines()[:1000]
        house.sums[left] = sha256(lines()[:1000])
    code, said = house.command("export-check")
    assert (code, "quire bookie export" in said) == (1, True), said
    house.java.start(wait=False)
    house.java.process.wait_for_text("missing")
    house.java.kill()

    code, said = house.command("export")
    assert code == 0, said
    code, said = house.command("export-check")
    assert code == 0, said
    house.java.start()
    house.check()
    house.written_by_java()
    if kill:
        house.java.kill()
    else:
        house.java.stop()

    with house.quire_runs():
        house.check()
        house.written_by_us()
    assert house.command("export")[0] == 0
    house.java.start()
    house.check()
    house.java.stop()
