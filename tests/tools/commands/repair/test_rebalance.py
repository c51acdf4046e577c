"""`quire rebalance` on real bookies, two of which are new."""

import json
from collections.abc import Iterator

import pytest

from quire.client import Client, connect
from quire.replication.core.balance import bytes_on
from quire.tools.commands.repair.rebalance import bytes_in, capacity_in
from quire.tools.local_cluster.cluster import LocalCluster
from quire.tools.terminal.options import Usage
from tests.tools.command import ok, quire, refused
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, LocalCluster, Client, list[int]]]:
    """Four bookies with sixty ledgers of several shapes, and two that came after these were written."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 4, options=SMALL) as old, connect(old.uri) as bk:
        ledgers = []
        for number in range(60):
            copies = 2 + number % 2
            with bk.create_ledger(ensemble_size=3, write_quorum=copies, ack_quorum=2) as writer:
                writer.append_many(text(number))
                ledgers.append(writer.id)
        with LocalCluster(old.directory / "more", 2, options={**SMALL, "metadataServiceUri": old.uri}) as new:
            yield old, new, bk, ledgers


def text(number: int) -> list[bytes]:
    return [b"ledger %d, line %d " % (number, line) + b"." * (number % 50) for line in range(20 + 3 * number)]


def held(bk: Client, bookies: list[str], ledgers: list[int]) -> dict[str, int]:
    """Bytes by bookie, as the metadata says."""
    found = dict.fromkeys(bookies, 0)
    for ledger in ledgers:
        for bookie, size in bytes_on(bk.metadata(ledger)).items():
            found[bookie] += size
    return found


def test_a_bookie_that_takes_nothing(uneven: tuple[LocalCluster, LocalCluster, Client, list[int]]) -> None:
    """
    A read-only one gets nothing, so that there is still something to do after it; the levels are printed; a mistyped
    capacity is refused.
    """
    old, new, bk, ledgers = uneven
    ok("bookie", "readonly", new.ids[0], "on", metadata=old.uri)
    done = ok("rebalance", "--rate", "20M", "--under-way", "1M", metadata=old.uri)
    ok("bookie", "readonly", new.ids[0], "off", metadata=old.uri)
    after = held(bk, [*old.ids, *new.ids], ledgers)
    assert after[new.ids[0]] == 0 < after[new.ids[1]]
    assert f"{new.ids[1]}: " in done.out
    assert "moved; 60 were looked at" in done.out
    assert "127.0.0.1:1" in refused(1, "rebalance", "--capacity", "127.0.0.1:1=5G", metadata=old.uri)
    assert quire("rebalance", "--within", "0", metadata=old.uri).code == 2


def test_levels_are_even_after_it(uneven: tuple[LocalCluster, LocalCluster, Client, list[int]]) -> None:
    """
    Within a tenth of each other, with at most 1.2 times the bytes that have to be moved; a dry run said so and moved
    nothing; every copy of every entry is where the metadata says, and an open ledger keeps its writer.
    """
    old, new, bk, ledgers = uneven
    bookies = [*old.ids, *new.ids]
    opened = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    opened.append_many(text(1))
    before = held(bk, bookies, ledgers)
    would = ok("rebalance", "--dry-run", "--json", metadata=old.uri).document
    assert held(bk, bookies, ledgers) == before

    run = ok("rebalance", "--json", metadata=old.uri)
    done = run.document
    after = held(bk, bookies, ledgers)
    assert max(after.values()) <= 1.1 * min(after.values())
    assert {each["bookie"]: (each["before"], each["after"]) for each in done["bookies"]} == {
        bookie: (before[bookie], after[bookie]) for bookie in bookies
    }
    mean = sum(before.values()) / 6
    assert done["bytes"] <= 1.2 * sum(max(0, size - mean) for size in before.values())
    assert (done["bytes"], done["moves"]) == (would["bytes"], would["moves"])
    assert done["ledgers_unclosed"] == 1
    last = json.loads(run.err.splitlines()[-1])
    assert (last["event"], last["ledgers_done"]) == ("progress", done["ledgers"])

    assert opened.append(b"and here") == len(text(1))
    opened.close()
    checked = ok("ledger", "check", *ledgers, "--json", metadata=old.uri).rows
    assert all(row["good"] == row["copies"] for row in checked)
    for number, ledger in enumerate(ledgers):
        with bk.open_ledger(ledger, recover=False) as reader:
            assert [entry.data for entry in reader] == text(number)

    again = ok("rebalance", metadata=old.uri)
    assert "0 B of 0 ledgers moved" in again.out


def test_bytes_on_the_command_line() -> None:
    """With a letter for a power of 1000, or none."""
    assert [bytes_in(text, "--rate") for text in ("7", "2k", "64M", "5G", "1T")] == [
        *(7, 2000, 64_000_000, 5_000_000_000, 1_000_000_000_000)
    ]
    assert capacity_in("10.0.0.5:3181=500G") == ("10.0.0.5:3181", 500_000_000_000)
    for wrong in ("", "0", "-1", "5 M", "1.5G", "M"):
        with pytest.raises(Usage):
            bytes_in(wrong, "--rate")
