"""Reads of replicas in histories: each proof stands, and the judge finds out what has none."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.log_history import LogHistory
from tests.simulation.plan import PROFILES, draw
from tests.simulation.truth import Violation

LEASE = PROFILES["log lease"]
MINUTE_S = 60.0
LONG = replace(LEASE, steps=(1400, 1400), gap=0.06)
MANY = pytest.param(range(100), marks=[pytest.mark.long, pytest.mark.timeout(1800)])


def test_reads_with_a_proof_are_linearizable():
    """In each mode, with takeovers, stops, repairs and changes of leases; leases are waited out."""
    seen = Counter()
    for seed in range(12):
        history = LogHistory(draw(LEASE, seed))
        history.run()
        seen += history.seen
    assert {"index read", "lease read", "barrier read", "bounded read", "lease held", "reached claim.waited"} <= set(
        seen
    )


@pytest.mark.parametrize("seeds", [range(1), MANY])
def test_reads_of_a_minute_are_linearizable(seeds):
    """Of virtual time, in each mode: a register that was written and read hundreds of times."""
    seen = Counter()
    for seed in seeds:
        history = LogHistory(draw(LONG, seed))
        history.run()
        assert history.world.timeline.now >= MINUTE_S
        seen += history.seen
    assert min(seen[f"{mode} read"] for mode in ("index", "lease", "bounded")) >= 10 * len(seeds)


def test_reads_without_a_proof_are_found_out():
    """Within ten histories, so that the judge can be believed."""

    def run():
        for seed in range(10):
            LogHistory(draw(replace(LEASE, reads=("unsafe",)), seed)).run()

    with pytest.raises(Violation, match="linearizable"):
        run()
