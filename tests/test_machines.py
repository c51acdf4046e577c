"""Every machine without input and output keeps to one discipline: each pair of a state and an input is decided."""

from itertools import product

import pytest

from quire.client.core.append.machine import AppendMachine
from quire.client.core.append.messages import Limits
from quire.client.core.machine import IllegalInput
from quire.client.core.quorum import Quorums
from quire.client.core.read import RangeRead, ReadLimits
from quire.client.core.recovery import RecoveryMachine
from quire.log.core.machine.applying import Applying
from quire.log.core.ownership import Ownership
from quire.protocol.digest import Digest, DigestType

# SPDX-License-Identifier: Apache-2.0

QUORUMS, DIGEST, BOOKIES = Quorums(3, 3, 2), Digest(DigestType.CRC32C, b""), ("b0", "b1", "b2")
MACHINES = {
    "append": lambda: AppendMachine(7, QUORUMS, DIGEST, BOOKIES, Limits()),
    "read": lambda: RangeRead(7, QUORUMS, DIGEST, [(0, None, BOOKIES)], 0, 9, ReadLimits()),
    "recovery": lambda: RecoveryMachine(7, QUORUMS, DIGEST, Limits()),
    "replica": Applying,
    "owner": Ownership,
}

every_machine = pytest.mark.parametrize("make", MACHINES.values(), ids=MACHINES)


@every_machine
def test_every_pair_is_decided(make):
    """Each (state, input) has a row, is listed as without effect, or can't be; never two of these."""
    table = make().table
    decided = [*table.rows, *table.ignored, *table.illegal]
    assert set(decided) == set(product(table.states, table.inputs))
    assert len(decided) == len(table.states) * len(table.inputs)


@every_machine
def test_what_is_without_effect_changes_nothing(make):
    """Not even what the input says is looked at."""
    for state, kind in make().table.ignored:
        machine = make()
        machine.state = state
        before = repr(vars(machine))
        assert machine.handle(kind.__new__(kind)) == []
        assert repr(vars(machine)) == before


@every_machine
def test_what_cannot_be_ends_the_machine(make):
    """It raises `IllegalInput`, and the machine goes to its last state."""
    for state, kind in make().table.illegal:
        machine = make()
        machine.state = state
        with pytest.raises(IllegalInput, match=f"{kind.__name__} in {state.name}"):
            machine.handle(kind.__new__(kind))
        assert machine.state is machine.ruined
