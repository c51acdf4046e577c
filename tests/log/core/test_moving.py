"""The edits of a move to another cluster, and when a log may go for its copy."""

from dataclasses import replace

import pytest

from quire.log.core.manifest import TERMINATED, new_manifest
from quire.log.core.moving import has_all
from quire.log.core.values import Origin

# SPDX-License-Identifier: Apache-2.0


def of(log, start=0, end=None):
    return Origin("cluster", log, log, "sqlite:///x.db", start, end)


def log(id_, *origins, **more):
    return replace(new_manifest(id_, id_, "edit", {}, origins=origins), **more)


@pytest.mark.parametrize(
    ("source", "copy", "wanted"),
    [
        (log("a", of("b", 20)), log("b", of("a", 0, 20)), True),
        (log("a", of("b", 20)), log("b", of("a", 0, 30)), True),  # it was fenced again, further on
        (log("a", of("b", 20)), log("b", of("a")), False),  # not promoted yet
        (log("a", of("b", 20)), log("b", of("a", 0, 10)), False),  # promoted by hand before all was copied
        (log("a", of("c", 20)), log("b", of("a", 0, 20)), False),  # it went on as another one
        (log("a"), log("b", of("a", 0, 20)), False),  # it takes appends
        (log("a", of("b", 20, 20)), log("b", of("a", 0, 20)), False),  # again
        (log("a", state=TERMINATED, end=20), log("b", of("a", 0, 20)), True),
        (log("a", state=TERMINATED, end=20), log("b", of("a", 0, 10)), False),
        (log("a", state=TERMINATED, end=20), log("b", of("a", 0, 20), of("c")), True),
        (log("a", state=TERMINATED, end=20), log("b", of("a")), False),
        (log("a", state=TERMINATED, end=20), log("b"), False),
    ],
)
def test_a_copy_that_has_all_of_a_log(source, copy, wanted):
    """Only what was promoted with the log's last record, as a copy of this very log."""
    assert has_all(source, copy) is wanted
