"""What a bookie announces, as bytes (metadata-rules.md 5.2)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.metadata.formats.service_info import UNKNOWN, decode, encode
from quire.metadata.store import Endpoint, ServiceInfo
from quire.protocol.errors import BookieHandleNotAvailable, MetadataSerialization

# SPDX-License-Identifier: Apache-2.0

VECTORS = Path(__file__).parents[2] / "vectors"
REGISTRATIONS = [
    (row["path"].rpartition("/")[2], bytes.fromhex(row["data"]))
    for name in ("rocksdb", "sorted")
    for row in map(json.loads, (VECTORS / f"{name}_znodes_running.jsonl").read_text().splitlines())
    if row["ephemeral"]
]


def test_there_are_registrations():
    """Three bookies in each of the two captures."""
    assert len(REGISTRATIONS) == 6


@pytest.mark.parametrize(("bookie", "data"), REGISTRATIONS)
def test_a_live_bookie_wrote_it(bookie, data):
    """Both directions, bit for bit."""
    host, port = bookie.split(":")
    assert decode(bookie, data) == ServiceInfo.of(host, int(port))
    assert encode(ServiceInfo.of(host, int(port))) == data


def test_an_example():
    """127.0.0.1:3181."""
    assert (
        encode(ServiceInfo.of("127.0.0.1", 3181)).hex()
        == "32220a06626f6f6b696510ed181a093132372e302e302e31220a626f6f6b69652d727063"
    )


def test_everything_that_can_be_announced():
    """HTTP server, TLS and properties come back; the address for ledgers is the bookie-rpc one, in any order."""
    info = ServiceInfo.of("h", 1, http=("i", 2), tls=True, properties={"b": "2", "a": "1"})
    assert decode("x", encode(info)) == info
    assert info.http == Endpoint("httpserver", "i", 2, "http")
    assert info.bookie_address() == ("h", 1)
    assert ServiceInfo(tuple(reversed(info.endpoints))).bookie_address() == ("h", 1)
    assert info.endpoints[0].extensions == ("tls",)


def test_empty_data_of_old_bookies():
    """The address is in the id; a custom id without a port can't be resolved, and says so only when it is asked."""
    assert decode("10.0.0.1:3181", b"").bookie_address() == ("10.0.0.1", 3181)
    for bookie in ("custom", "a:b", ":1", "h:99999"):
        assert decode(bookie, b"") == UNKNOWN
    with pytest.raises(BookieHandleNotAvailable):
        UNKNOWN.bookie_address()


def test_properties_are_written_in_one_order():
    """The same information is always the same bytes."""
    assert encode(ServiceInfo((), {"b": "", "a": ""})) == encode(ServiceInfo((), {"a": "", "b": ""}))


@given(st.binary(min_size=1, max_size=60))
def test_junk(data):
    """A value or `MetadataSerialization`, nothing else."""
    try:
        decode("h:1", data)
    except MetadataSerialization:
        return
    assert isinstance(decode("h:1", data), ServiceInfo)
