"""
One entry's body by ordinary reads, from one bookie after the other, for a recovery that needs it.

Knows: which answer counts.  Does not know: whether the entry is confirmed.
"""

from collections.abc import Sequence

from quire.client.core.coverage import describe
from quire.client.core.quorum import merge
from quire.client.core.read import unreadable
from quire.client.handles.range_reader import ReadPool
from quire.protocol.digest import Digest
from quire.protocol.errors import OK, DigestMatch, error_of

# SPDX-License-Identifier: Apache-2.0


async def read_body(pool: ReadPool, ledger: int, digest: Digest, bookies: Sequence[str], entry: int) -> bytes:
    """One entry's body, header and digest included, checked, from the first of its replicas that has it."""
    failures = []
    code = OK
    for bookie in bookies:
        answer = await pool.read(bookie, ledger, entry)
        got = answer.code
        if got == OK and answer.body is not None:
            try:
                digest.open(ledger, entry, answer.body)
                return answer.body
            except DigestMatch:
                got = DigestMatch.code
        failures.append(describe(bookie, got))
        code = merge(code, got)
    raise error_of(code, unreadable(f"entry {entry}", ledger, len(bookies), "; ".join(failures), code))
