"""What a process is called: a bookie and AutoRecovery beside it read the same keys into the same fields."""

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.options import key_of
from quire.conf.parts.identity import IdentityOptions

# SPDX-License-Identifier: Apache-2.0


def test_both_kinds_of_process_have_the_same_fields() -> None:
    """Key and default of each field of the identity are the same in both."""
    for name, field in IdentityOptions.model_fields.items():
        for model in (BookieOptions, AutoRecoveryOptions):
            there = model.model_fields[name]
            assert key_of(there) == key_of(field)
            assert there.default == field.default
