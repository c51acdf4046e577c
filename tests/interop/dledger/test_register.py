"""
Registers of a DLedger group while its leader is killed, under the same checker as the registers of a log: what clients
were told is linearizable.
"""

from tests.interop.dledger.group import Group, Line
from tests.linear import NEVER, Call, first_broken

# SPDX-License-Identifier: Apache-2.0

CLIENTS, KEYS = 4, 2
SOME = 100  # operations before the kill, and after it


def calls_of(history: list[Line]) -> list[Call]:
    """Calls with the time of each; what failed did nothing, and what may have been done has no answer."""
    begun: dict[int, Line] = {}
    found = []
    for line in history:
        if line["type"] == "invoke":
            begun[line["op"]] = line
            continue
        first = begun.pop(line["op"])
        what = ("read",) if line["f"] == "read" else ("write", line["value"])
        if line["type"] == "ok":
            answer = line["value"] if line["f"] == "read" else None
            found.append(Call(first["time"], line["time"], line["key"], what, answer))
        elif line["type"] == "info":
            found.append(Call(first["time"], NEVER, line["key"], what))
    assert not begun
    return found


def test_registers_of_dledger_are_linearizable() -> None:
    """Its leader is killed meanwhile; clients are answered before and after."""
    with Group(register=True) as group, group.clients(CLIENTS, KEYS) as history:
        history.wait(SOME)
        killed = group.leader().id
        group.kill(killed)
        at = group.leads(killed)[1]
        history.wait(SOME)
    calls = calls_of(history.lines)
    assert [call for call in calls if call.end < NEVER and call.begin > at * 1e9]
    assert first_broken(calls) is None


def test_a_read_that_misses_a_write_is_found() -> None:
    """The lines of a history are read so that a wrong answer shows."""

    def lines(read: int | None, written: str) -> list[Line]:
        told = [
            ("write", 1, "invoke", 7),
            ("write", 1, written, 7),
            ("read", 2, "invoke", None),
            ("read", 2, "ok", read),
        ]
        return [
            {"op": op, "client": 0, "type": kind, "f": f, "key": 1, "value": value, "time": time}
            for time, (f, op, kind, value) in enumerate(told)
        ]

    assert first_broken(calls_of(lines(None, "ok"))) is not None
    assert first_broken(calls_of(lines(7, "fail"))) is not None
    assert first_broken(calls_of(lines(7, "ok"))) is None
    assert [first_broken(calls_of(lines(read, "info"))) for read in (7, None)] == [None, None]
