"""Reads of replicas in histories: each proof stands, and the judge finds out what has none."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.log_history import LogHistory
from tests.simulation.plan import PROFILES, draw
from tests.simulation.truth import Violation

LEASE = PROFILES["log lease"]


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


def test_reads_without_a_proof_are_found_out():
    """Within ten histories, so that the judge can be believed."""

    def run():
        for seed in range(10):
            LogHistory(draw(replace(LEASE, reads=("unsafe",)), seed)).run()

    with pytest.raises(Violation, match="linearizable"):
        run()
