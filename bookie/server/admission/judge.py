"""
The right that each request needs, and the refusal of those whose client lacks it.

    add                    AddRun, WriteLac, Force
    fence                  AddRun of a recovery (D18)
    read                   Read, also as a long poll, BatchRead, ReadLac, ListEntries
    read and fence         Read and BatchRead that fence
    inspect                BookieInfo of disks
    none                   BookieInfo of the bookie's id alone, and what nothing is done for: Auth, StartTls, Unserved

Knows: that table, and which ledger each request is for: the one that it changes or reads, whatever else it says.
Does not know: who has which right (`quire.security.rights`), what is done with a request that may be served.

A connection is judged once, when its client is known: whose client may do all that a bookie does is served as if there
were no rights, and of the others only requests that some right could be lacking for are looked at.

Safety: a kind of request that is not in the table is refused.
"""

from collections.abc import Callable, Sequence
from functools import partial

from quire.bookie.server.complaints import Complaints
from quire.bookie.server.contract import Peer
from quire.protocol import wire
from quire.protocol.errors import Status
from quire.protocol.messages import (
    BOOKIE_ID,
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
from quire.security.rights import ADD, ALL, FENCE, INSPECT, READ, VERBS, Grant, Rights

# SPDX-License-Identifier: Apache-2.0

# What a request of each kind can need at most.
MOST: dict[type, int] = {
    AddRun: ADD | FENCE,
    WriteLac: ADD,
    Force: ADD,
    Read: READ | FENCE,
    BatchRead: READ | FENCE,
    ReadLac: READ,
    ListEntries: READ,
    BookieInfo: INSPECT,
    Auth: 0,
    StartTls: 0,
    Unserved: 0,
}
NOBODYS = ALL + 1  # no line gives it


Serve = Callable[[Peer, Sequence[Request]], None]  # a connection, and what came of it at once


def needed(request: Request) -> int:
    """Returns the verbs that a request needs, each of them."""
    match request:
        case AddRun():
            return FENCE if request.recovery else ADD
        case Read() | BatchRead():
            return READ | FENCE if request.fence else READ
        case BookieInfo():
            return INSPECT if request.requested & ~BOOKIE_ID else 0
        case _:
            return MOST.get(type(request), NOBODYS)


def ledger_of(request: Request) -> int | None:
    """Returns the ledger that a request is for; None: it is for none."""
    match request:
        case WriteLac():
            return int.from_bytes(request.body[:8], "big", signed=True)  # what is stored; its field is not looked at
        case AddRun() | Read() | BatchRead() | ReadLac() | ListEntries() | Force():
            return request.ledger
        case _:
            return None


class Judge:
    """Serves requests of which the client has the right, and refuses the others."""

    def __init__(self, rights: Rights, serve: Serve, complaints: Complaints) -> None:
        """`serve`: how requests are served that may be."""
        self.refusals = 0
        self._rights = rights
        self._serve = serve
        self._complaints = complaints

    def grant(self, user: str, role: str | None) -> Grant:
        """Returns what a client may do that is this user ("": none) and whose certificate has this role."""
        return self._rights.of(user, role)

    def serving(self, grant: Grant, who: str, peer: str) -> Serve:
        """Returns what serves requests with this grant; `who` asks, and from `peer`, for the log."""
        free = frozenset(kind for kind, most in MOST.items() if not grant.lacks(most))
        return self._serve if len(free) == len(MOST) else partial(self._serve_some, grant, free, (who, peer))

    def _serve_some(
        self, grant: Grant, free: frozenset[type], who: tuple[str, str], connection: Peer, requests: Sequence[Request]
    ) -> None:
        kept, beyond = [], ~grant.verbs
        for request in requests:
            if type(request) in free or not (verbs := needed(request)) & beyond:
                kept.append(request)
            elif lacking := grant.lacks(verbs, ledger_of(request)):
                self._refuse(connection, request, who, lacking)
            else:
                kept.append(request)
        if kept:
            self._serve(connection, kept)

    def _refuse(self, connection: Peer, request: Request, who: tuple[str, str], lacking: int) -> None:
        """Answers EUA, which V2 has for each kind that can come by it."""
        self.refusals += 1
        right = " and ".join(name for name, verb in VERBS.items() if lacking & verb) or "anything of this kind"
        said, peer = who
        reason = f"{said} has no right to {right} there (rightsFile; docs/security.md, 9)"
        self._complaints.report(peer, f"want of the right to {right}", reason, closing=False)
        connection.send(wire.refusal(request, Status.EUA))
