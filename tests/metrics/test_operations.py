"""Operations by name: times of what succeeded, errors of what failed."""

import pytest

from quire.metrics.operations import Operations
from tests.clock import Clock

# SPDX-License-Identifier: Apache-2.0


def test_a_block_is_timed_if_it_succeeds_and_else_counted_by_its_error() -> None:
    """The error goes on; what was never done is not there."""
    clock = Clock()
    operations = Operations(clock.seconds)
    with operations.timing("open"):
        clock.advance(0.25)
    with pytest.raises(KeyError), operations.timing("open"):
        raise KeyError
    operations["open"].fail("KeyError", 2)
    operations["open"].fail("OSError")
    (found,) = operations.named().values()
    assert (found.times.count, found.times.sum) == (1, 0.25)
    assert found.failed == {"KeyError": 3, "OSError": 1}
    assert found.failures == 4
