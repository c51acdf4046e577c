"""The owner's process of the rows beside DLedger: what it reports, and what it says when it waits and when it owns."""

import contextlib
from argparse import Namespace

from bench.dledger import Owner, cluster, owning
from bench.owned import append
from tests.log.fakes.cluster import cluster as fake_cluster
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

FIGURES = {"entries_per_second", "p50_ms", "p99_ms", "client_cpu_us_per_entry"}


def test_a_load_has_its_figures_and_its_records(tmp_path):
    """Every list is in the log, also where fewer are asked for than may be under way; no time is below none."""

    async def story():
        async with fake_cluster(tmp_path) as world:
            found = await append(reactor, world.uri, 10, 50, 10, 8)
            logs = await world.logs()
            names = [name async for name in logs.names()]
            return found, [(await logs.info(name)).end for name in names]

    found, ends = run(story)
    assert set(found) == FIGURES
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert ends == [1 + 8 * 10]


def test_one_that_waits_owns_after_a_kill(tmp_path):
    """It says first that it waits, so that a kill meets a candidate."""
    with (
        cluster(Namespace(store="sqlite", sync="yes", directory=str(tmp_path))) as bookies,
        contextlib.ExitStack() as stack,
    ):
        first = Owner(owning(bookies.uri, 2000), "owns")
        stack.callback(first.kill)
        second = Owner(owning(bookies.uri, 2000), "waits")
        stack.callback(second.kill)
        first.kill()
        second.said("owns")
