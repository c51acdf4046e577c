"""The table of a lease's states, and the arithmetic of its end."""

import json

import pytest

from quire.log.core.machine.lease import FirstSight, Lease, end_of, new_lease, over_at
from quire.protocol.log_errors import LogDamaged

STATES = ("off", "free", "held", "revoked")


def lease(state, epoch=7):
    return Lease(epoch, "t", state, 900, "e0")


@pytest.mark.parametrize(
    ("state", "epoch", "again", "wanted"),
    [
        ("off", 7, False, None),
        ("off", 7, True, None),
        ("free", 7, False, "held"),
        ("free", 6, False, None),
        ("free", 8, False, None),
        ("held", 7, False, "held"),
        ("held", 8, False, None),
        ("revoked", 7, False, None),
        ("revoked", 7, True, "held"),
        ("revoked", 8, True, None),
    ],
)
def test_who_may_hold_it(state, epoch, again, wanted):
    """The owner of its epoch, unless there are none, and a revoked one only later."""
    found = lease(state).held(epoch, "mine", 600, "e1", again)
    assert (None if found is None else found.state) == wanted
    if found is not None:
        assert (found.epoch, found.token, found.ms, found.edit) == (7, "mine", 600, "e1")


@pytest.mark.parametrize("state", STATES)
def test_who_ends_it_waits_where_one_may_answer_by_it(state):
    """A held one is waited for, and a revoked one, for who revoked it may have died in between."""
    assert lease(state).lasts == (state in ("held", "revoked"))
    assert lease(state).revoked("e1").state == "revoked"
    assert (lease(state).freed(8, True, "e1").state, lease(state).freed(8, False, "e1").state) == ("free", "off")
    assert lease(state).freed(8, True, "e1").epoch == 8


def test_a_lease_ends_for_its_owner_before_it_ends_for_others():
    """Also where the owner's clock runs 1 % slow and the other's 1 % fast, and the write was seen at once."""
    for ms in (1, 100, 1000, 60_000):
        owners = (end_of(0.0, ms) - 0.0) * 1.0099  # how long it takes, by a right clock
        others = (over_at(0.0, ms) - 0.0) / 1.0099
        assert owners < others


def test_a_version_is_first_seen_once():
    """Looking again does not begin anew; another version does; who replaced one has seen what was before it."""
    sight = FirstSight()
    assert [sight.of(3, 10.0), sight.of(3, 11.0), sight.of(4, 12.0), sight.of(4, 13.0)] == [10.0, 10.0, 12.0, 12.0]
    sight.replaced(5)
    assert sight.of(5, 20.0) == 12.0


def test_the_record():
    """It comes back as it was written, with members that this version does not know."""
    made = new_lease(True, "e0")
    assert Lease.decode(made.encode()) == made
    assert json.loads(made.encode()) == {"epoch": 0, "token": "", "state": "free", "ms": 0, "edit": "e0"}
    assert new_lease(False, "e0").state == "off"
    data = b'{"epoch":7,"token":"t","state":"held","ms":900,"edit":"e0","more":[1]}'
    assert Lease.decode(data).encode() == data


@pytest.mark.parametrize(
    "data",
    [b"", b"7", b"[]", b"{}", b'{"epoch":"7","token":"t","state":"held","ms":900,"edit":"e0"}',
     b'{"epoch":7,"token":"t","state":"lost","ms":900,"edit":"e0"}',
     b'{"epoch":7,"token":"t","state":"held","ms":-1,"edit":"e0"}', b"[" * 100_000],
)  # fmt: skip
def test_a_record_that_is_none(data):
    """It is refused by name."""
    with pytest.raises(LogDamaged):
        Lease.decode(data)
