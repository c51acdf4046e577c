"""When offsets are given, and who hears of the role."""

from types import SimpleNamespace

import pytest

from quire.log.api import Role
from quire.messages.core.assign import Draft
from quire.messages.core.record import Host, pack, store_time_at, unpack
from quire.messages.descriptor import Descriptor, Region
from quire.messages.metrics import StoreCounters
from quire.messages.standing import Standing
from quire.protocol.message_errors import NotReady

# SPDX-License-Identifier: Apache-2.0

HOST = Host(b"\x7f\0\0\1", 10911)
SETTINGS = {"file_bytes": 16384, "address": "127.0.0.1:10911", "progress": "p"}


def standing(heard):
    descriptor = Descriptor((), "ready", SETTINGS, (Region(0, "plain"),))
    return Standing(descriptor, lambda role, epoch: heard.append((role, epoch)), StoreCounters(), lambda: 0.0)


def draft():
    made = Draft(pack("T", born_host=HOST, store_host=HOST))
    made.kind = (("T", 0), store_time_at(HOST), False)
    return made


def test_offsets_are_given_while_this_process_leads():
    """Before, and after, the hook refuses, with RocketMQ's name for it; a new term begins with the applied table."""
    made = standing([])
    table = made.make()
    with pytest.raises(NotReady) as caught:
        made.hook(0, 0, 1, [draft()])
    assert caught.value.status == "SERVICE_NOT_AVAILABLE"
    table.role(Role.LEADING, 1)
    given = made.hook(0, 0, 1, [draft(), draft()])
    assert [unpack(value).queue_offset for value in given.values] == [0, 1]
    assert made.next("T", 0) == 2
    table.apply(SimpleNamespace(index=0, value=given.values[0]))
    table.role(Role.FOLLOWING, 1)
    with pytest.raises(NotReady):
        made.hook(1, 0, 1, [draft()])
    table.role(Role.LEADING, 2)
    assert unpack(made.hook(1, 0, 1, [draft()]).values[0]).queue_offset == 1


def test_what_this_process_stored_is_applied_at_once():
    """While it leads, and only what its hook made; else record by record."""
    made = standing([])
    table = made.make()
    table.role(Role.LEADING, 1)
    values = made.hook(0, 0, 1, [draft(), draft()]).values
    assert not table.apply_own(0, values[:1])
    assert table.apply_own(0, values)
    assert table.next("T", 0) == made.next("T", 0) == 2
    values = made.hook(2, 0, 1, [draft()]).values
    table.role(Role.FOLLOWING, 1)
    assert not table.apply_own(2, values)


def test_each_change_is_heard_once():
    """In order; a process that never led does not hear that it does not."""
    heard = []
    made = standing(heard)
    table = made.make()
    table.role(Role.FOLLOWING, 0)
    table.role(Role.LEADING, 3)
    table.role(Role.LEADING, 3)
    table.role(Role.FOLLOWING, 3)
    table.role(Role.FOLLOWING, 3)
    table.role(Role.LEADING, 5)
    assert heard == [("master", 3), ("slave", 3), ("master", 5)]
