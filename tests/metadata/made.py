"""Random ledger metadata for hypothesis, and small makers that several tests use."""

from hypothesis import strategies as st

from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.metadata.store import ServiceInfo
from quire.protocol.digest import DigestType

# SPDX-License-Identifier: Apache-2.0

HERE = ServiceInfo.of("127.0.0.1", 3181)
BOOKIES = ("bk1:3181", "bk2:3181", "bk3:3181")
INT64 = st.integers(0, (1 << 63) - 2)


def ledger(password: bytes = b"secret", bookies: tuple[str, ...] = BOOKIES, **changes) -> LedgerMetadata:
    """An open ledger on three bookies, two acknowledgements."""
    return LedgerMetadata.new(3, 3, 2, bookies, DigestType.CRC32C, password, **changes)


bookie_ids = st.from_regex(r"[a-zA-Z0-9:_.\-\[\]]{1,20}", fullmatch=True).filter(
    lambda name: name.lower() != "readonly"
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def metadatas(draw, versions=(1, 2, 3)) -> LedgerMetadata:
    """Any metadata that keeps the invariants and fits its format."""
    version = draw(st.sampled_from(versions))
    ensemble = draw(st.integers(1, 5))
    write = draw(st.integers(1, ensemble))
    ack = write if version == 1 else draw(st.integers(1, write))
    firsts = sorted(draw(st.sets(INT64, min_size=1, max_size=4)))
    if draw(st.booleans()):
        firsts[0] = 0
    members = st.lists(bookie_ids, min_size=ensemble, max_size=ensemble)
    state = draw(st.sampled_from(list(LedgerState)))
    closed = state is LedgerState.CLOSED
    plain = version == 1 or draw(st.integers(0, 9)) == 0
    return LedgerMetadata(
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=ack,
        state=state,
        last_entry=draw(st.integers(-1, (1 << 63) - 2)) if closed else -1,
        length=draw(INT64) if closed else 0,
        fragments=tuple(Fragment(first, tuple(draw(members))) for first in firsts),
        digest=None if plain else draw(st.sampled_from(list(DigestType))),
        password=None if plain else draw(st.binary(max_size=40)),
        custom={} if version == 1 else draw(st.dictionaries(texts, st.binary(max_size=20), max_size=3)),
        ctime_ms=None if version == 1 else draw(st.none() | INT64),
        ctoken=draw(INT64) if version == 3 else 0,
        format_version=version,
    )
