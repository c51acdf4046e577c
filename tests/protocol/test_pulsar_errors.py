"""Errors of Pulsar's topics."""

from quire.protocol.errors import BY_CODE
from quire.protocol.pulsar_errors import LedgerOffloaded, MessageDamaged, PulsarError

# SPDX-License-Identifier: Apache-2.0


def test_codes():
    """Each class has its own number, in one range."""
    assert sorted(code for code in BY_CODE if -360 < code <= -350) == list(range(-356, -349))
    assert (PulsarError.code, LedgerOffloaded.driver) == (-350, "")
    assert MessageDamaged.position == (-1, -1)
