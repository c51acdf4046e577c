"""What upkeep works with."""

from quire.log.store.context import TRIES_MAX, LogContext
from tests.log.store.test_editing import LOG, World

# SPDX-License-Identifier: Apache-2.0


def test_work_that_never_gets_through():
    """The error names the log, and says that it can be tried again."""
    context = LogContext(None, World().handle(), None, None, None, lambda _name: None)
    error = str(context.too_many_conflicts())
    assert LOG in error
    assert str(TRIES_MAX) in error
