"""Which right each request needs, and who is refused what."""

from collections.abc import Sequence
from itertools import product
from typing import get_args

import pytest
from twisted.internet.task import Clock
from twisted.logger import Logger

from quire.bookie.server.admission.judge import MOST, Judge, ledger_of, needed
from quire.bookie.server.complaints import Complaints
from quire.protocol import wire
from quire.protocol.errors import Status
from quire.protocol.messages import (
    BOOKIE_ID,
    FREE_DISK,
    TOTAL_DISK,
    AddRun,
    Auth,
    BatchRead,
    BookieInfo,
    Force,
    ListEntries,
    Read,
    ReadLac,
    Request,
    StartTls,
    Unserved,
    WriteLac,
)
from quire.security.rights import ADD, ADMINISTER, ALL, FENCE, INSPECT, READ, Grant, Rights, Spans, parse
from tests.bookie.fakes.wires import LEDGER
from tests.bookie.server.test_listener import log_lines

# SPDX-License-Identifier: Apache-2.0

BODY = (LEDGER).to_bytes(8, "big") + bytes(8)
KEY = b"k" * 20

# Each operation with each flag that matters, in both generations where it has both.
TABLE: list[tuple[Request, int]] = [
    (AddRun(LEDGER, 0, [b"x" * 40], KEY), ADD),
    (AddRun(LEDGER, 0, [b"x" * 40], KEY, priority=1, deferred_sync=True, txns=[1], version=3), ADD),
    (AddRun(LEDGER, 0, [b"x" * 40], KEY, recovery=True), FENCE),
    (AddRun(LEDGER, 0, [b"x" * 40], KEY, recovery=True, txns=[1], version=3), FENCE),
    (WriteLac(LEDGER, 0, KEY, BODY), ADD),
    (Force(LEDGER), ADD),
    (Read(LEDGER, 0), READ),
    (Read(LEDGER, 0, txn=1, version=3), READ),
    (Read(LEDGER, 0, txn=1, version=3, previous_lac=0, timeout_ms=1), READ),
    (Read(LEDGER, 0, fence=True, master_key=KEY), READ | FENCE),
    (Read(LEDGER, 0, fence=True, master_key=KEY, txn=1, version=3), READ | FENCE),
    (BatchRead(LEDGER, 0, 1, 1, 1), READ),
    (BatchRead(LEDGER, 0, 1, 1, 1, fence=True, master_key=KEY), READ | FENCE),
    (ReadLac(LEDGER), READ),
    (ListEntries(LEDGER), READ),
    (BookieInfo(TOTAL_DISK), INSPECT),
    (BookieInfo(FREE_DISK | BOOKIE_ID), INSPECT),
    (BookieInfo(1 << 25), INSPECT),
    (BookieInfo(BOOKIE_ID), 0),
    (Auth("sasl", b""), 0),
    (Auth("sasl", b"", 1, version=3), 0),
    (StartTls(), 0),
    (Unserved(3, 1), 0),
]
SINGLE = (ADD, READ, FENCE, INSPECT, ADMINISTER)
SUBSETS = [sum(verbs) for verbs in product(*((0, verb) for verb in SINGLE))]


class Peer:
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)


class Court:
    """A judge, and what was served."""

    def __init__(self) -> None:
        self.served: list[Request] = []
        self.clock = Clock()
        self.complaints = Complaints(self.clock, Logger())
        self.judge = Judge(Rights([]), self.take, self.complaints)

    def take(self, _peer: object, requests: Sequence[Request]) -> None:
        self.served += requests

    def ask(self, grant: Grant, *requests: Request) -> list[bytes]:
        """The refusals."""
        peer = Peer()
        self.judge.serving(grant, "role 'R'", "192.0.2.1:5")(peer, requests)  # type: ignore[arg-type]
        return peer.sent


def test_every_operation_is_in_the_table() -> None:
    """And what a kind needs at most is what its requests need."""
    kinds = set(get_args(Request))
    assert set(MOST) == kinds == {type(request) for request, _verbs in TABLE}
    for kind in kinds:
        found = 0
        for request, verbs in TABLE:
            found |= verbs if type(request) is kind else 0
        assert MOST[kind] == found


@pytest.mark.parametrize(("request_", "verbs"), TABLE, ids=lambda value: getattr(type(value), "__name__", ""))
def test_operation_by_right(request_: Request, verbs: int) -> None:
    """With every set of rights: it is served with all that it needs, and else refused with EUA."""
    assert needed(request_) == verbs
    for granted in SUBSETS:
        court = Court()
        refusals = court.ask(Grant(granted), request_)
        if verbs & ~granted:
            assert (court.served, refusals) == ([], [wire.refusal(request_, Status.EUA)])
            assert refusals != [b""]
            assert court.judge.refusals == 1
        else:
            assert (court.served, refusals) == ([request_], [])
            assert court.judge.refusals == 0


def test_an_operation_that_is_not_in_the_table() -> None:
    """Nobody has the right to it."""
    assert Grant(ALL).lacks(needed(object()))  # type: ignore[arg-type]


def test_who_may_everything_is_served_as_without_rights() -> None:
    """Nothing stands between; that he may not administer over HTTP makes no difference here."""
    court = Court()
    for grant in (Grant(ALL), Grant(ALL & ~ADMINISTER)):
        assert court.judge.serving(grant, "", "") == court.take


@pytest.mark.parametrize(("request_", "verbs"), TABLE, ids=lambda value: getattr(type(value), "__name__", ""))
def test_rights_to_some_ledgers(request_: Request, verbs: int) -> None:
    """In those it is served, in others not; what is of no ledger needs a right to all."""
    for last, may in ((LEDGER - 1, False), (LEDGER, True)):
        court = Court()
        grant = Grant(0, {verb: Spans([(0, last)]) for verb in (ADD, READ, FENCE)})
        court.ask(grant, request_)
        assert bool(court.served) == (not verbs or (may and ledger_of(request_) is not None))


def test_the_ledger_that_counts_is_the_one_that_is_changed() -> None:
    """A message's other words for it are not looked at: of WRITE_LAC the body is stored, of an add its entry."""
    assert ledger_of(WriteLac(1, 0, KEY, (9).to_bytes(8, "big") + bytes(8))) == 9
    assert ledger_of(AddRun(9, 0, [b""], KEY, txns=[1], answered_as=(1, 0))) == 9
    assert ledger_of(BookieInfo(TOTAL_DISK)) is None


def test_some_of_an_arrival_are_served() -> None:
    """In their order, and the others are refused, each for itself."""
    court = Court()
    adds, reads = TABLE[0][0], TABLE[6][0]
    fence = TABLE[9][0]
    refusals = court.ask(Grant(READ), reads, adds, fence, reads)
    assert court.served == [reads, reads]
    assert refusals == [wire.refusal(adds, Status.EUA), wire.refusal(fence, Status.EUA)]
    assert court.judge.refusals == 2


def test_the_log_grows_by_a_line_for_each_verb() -> None:
    """And not by one for each request; a count follows a minute later."""
    court = Court()
    rights = Rights(parse("role R read\n", "rights").values())
    with log_lines() as lines:
        for _ in range(500):
            court.ask(rights.of("", "R"), TABLE[0][0], TABLE[15][0])
        court.clock.advance(61)
        court.complaints.sweep()
    assert lines == [
        f"refusing what 192.0.2.1:5 asks: role 'R' has no right to {verb} there (rightsFile; docs/security.md, 9)"
        for verb in ("add", "inspect")
    ] + [
        f"499 more requests from 192.0.2.1 were refused for want of the right to {verb}" for verb in ("add", "inspect")
    ]
