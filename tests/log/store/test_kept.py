"""What upkeep works with."""

from quire.log.store.kept import TRIES_MAX, Kept
from tests.log.store.test_editing import LOG, World

# SPDX-License-Identifier: Apache-2.0


def test_work_that_never_gets_through():
    """The error names the log, and says that it can be tried again."""
    kept = Kept(None, World().handle(), None, None, None, lambda _name: None)
    error = str(kept.beaten())
    assert LOG in error
    assert str(TRIES_MAX) in error
