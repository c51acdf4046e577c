"""
The figures of one job that has ended, in a file that Prometheus' node_exporter reads (its textfile collector).

    quire_pipeline_succeeded{command,of}              1 if it came to its end, else 0
    quire_pipeline_seconds{command,of}                how long it took
    quire_pipeline_ended_time_seconds{command,of}     when, since 1970
    quire_pipeline_rows{command,of}, …                what it has done, as its summary says; none if it failed

Knows: names, labels, that a reader never sees half a file.  Does not know: what the figures are.
"""

from collections.abc import Mapping
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

PREFIX = "quire_pipeline_"
ENDING = ".prom"  # files that end otherwise are not read


def write(path: Path, command: str, of: str, figures: Mapping[str, float] | None, took_s: float, now_s: float) -> None:
    """Replaces the file.  `figures`: None of a job that failed; `now_s`: seconds since 1970.  `OSError`."""
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

    registry = CollectorRegistry()
    shown = {
        "succeeded": ("1 if the job came to its end", float(figures is not None)),
        "seconds": ("how long the job took", took_s),
        "ended_time_seconds": ("when the job ended, since 1970", now_s),
        **{name: (f"{name} of the job", value) for name, value in (figures or {}).items()},
    }
    for name, (meaning, value) in shown.items():
        Gauge(PREFIX + name, meaning, ["command", "of"], registry=registry).labels(command, of).set(value)
    write_to_textfile(str(path), registry)
