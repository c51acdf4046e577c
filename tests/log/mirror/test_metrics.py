"""The metrics of a mirror."""

from quire.log.mirror.metrics import MirrorMetrics, MirrorProgress

# SPDX-License-Identifier: Apache-2.0


def test_a_mirror_s_metrics():
    """Names, units, and the copy as label."""
    progress = MirrorProgress(0, 7, 9, 2, 1500, 250, 7, 70, False, "")
    found = {
        sample.name: (sample.labels, sample.value)
        for family in MirrorMetrics(lambda: [("orders", progress)]).collect()
        for sample in family.samples
    }
    assert found["quire_log_mirror_lag_seconds"] == ({"log": "orders"}, 1.5)
    assert found["quire_log_mirror_silent_seconds"] == ({"log": "orders"}, 0.25)
    assert found["quire_log_mirror_lag_records"][1] == 2
    assert found["quire_log_mirror_records_total"][1] == 7
    assert set(found) == {
        f"quire_log_mirror_{name}"
        for name in ("lag_records", "lag_seconds", "silent_seconds", "end", "records_total", "bytes_total")
    }
