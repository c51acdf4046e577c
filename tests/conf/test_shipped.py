"""
The files of Apache BookKeeper and Pulsar as they are shipped: no key of theirs stops a start, and how each is treated.
The numbers are on the comparison page.
"""

from collections import Counter
from pathlib import Path

import pytest

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import parse, read
from quire.conf.shared_file import checked, load_shared

# SPDX-License-Identifier: Apache-2.0

SHIPPED = Path(__file__).parent / "shipped"
APACHES, PULSARS = SHIPPED / "bk_server.conf", SHIPPED / "bookkeeper.conf"
PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
# What asks for security that it does not say the rest of.
HALF = {
    "bookieAuthProviderFactoryClass": "not served",
    "tlsProviderFactoryClass": "TLS is on without",
    "tlsClientAuthentication": "TLS is not on",
}


def counts(text: str) -> Counter[str]:
    return Counter(treatment.kind for _item, treatment in checked(parse(text, "f")))


@pytest.mark.parametrize(
    ("path", "honoured", "differing", "ignored"), [(APACHES, 18, 2, 8), (PULSARS, 52, 3, 32)], ids=["apache", "pulsar"]
)
def test_how_their_keys_are_treated(path: Path, honoured: int, differing: int, ignored: int) -> None:
    """None is refused, and one line of the start names those that are not honoured."""
    assert counts(path.read_text()) == {"honoured": honoured, "differs": differing, "ignored": ignored}
    total = honoured + differing + ignored
    assert f"`{path.name}` | {total} | {honoured} | {differing} | {ignored} | 0 |" in PAGE.read_text(encoding="utf-8")
    for model in (BookieOptions, ClientOptions):
        _made, warnings = load_shared(model, str(path), {})
        assert len(warnings) == 1
        assert f"{honoured} honoured. {differing} differing: " in warnings[0]
        unsaid = [
            item.key
            for item, treatment in checked(read(str(path)))
            if item is not None and treatment.kind != "honoured" and item.key not in warnings[0]
        ]
        assert unsaid == []


def test_how_the_keys_in_comments_are_treated() -> None:
    """Each line alone, uncommented in Apache's file, starts a bookie; but what asks for half of a protection."""
    found: Counter[str] = Counter()
    for item in read(str(SHIPPED / "named_in_comments.conf")):
        rows = checked(parse(f"{APACHES.read_text()}\n{item.key}={item.value}\n", "f"))
        refused = [treatment.why for _item, treatment in rows if treatment.kind == "refused"]
        assert bool(refused) == (item.key in HALF), refused
        if refused:
            assert HALF[item.key] in "".join(refused)
            found["refused"] += 1
        else:
            (treatment,) = (treatment for each, treatment in rows if each is not None and each.key == item.key)
            found[treatment.kind] += 1
    assert found == {"honoured": 109, "differs": 6, "ignored": 70, "refused": 3}
    assert "each uncommented alone | 188 | 109 | 6 | 70 | 3 |" in PAGE.read_text(encoding="utf-8")


def test_what_pulsars_file_means() -> None:
    """The values that a Pulsar operator relies on."""
    bookie = load_shared(BookieOptions, str(PULSARS), {})[0]
    assert bookie.metadata_uri == "zk://localhost:2181/ledgers"
    assert bookie.journal_directories == ("data/bookkeeper/journal",)
    assert (bookie.auto_recovery, bookie.frame_bytes_max, bookie.gc_interval_ms) == (True, 5_253_120, 900_000)
    assert bookie.compaction_limits == (1000, 0)
    assert bookie.http_address == ("127.0.0.1", 8000, "prometheusStatsHttpPort")
    client = load_shared(ClientOptions, str(PULSARS), {})[0]
    assert (client.protocol, client.topology, client.session_timeout_ms) == ("v2", "metadata", 30_000)


def test_apaches_container_image() -> None:
    """The variables that its entry point sets, blank ones too."""
    environment = {
        "BK_HOME": "/opt/bookkeeper",
        "BK_DATA_DIR": "/data/bookkeeper",
        "BK_CLUSTER_ROOT_PATH": "",
        "BK_NUM_STORAGE_CONTAINERS": "32",
        "BK_STREAM_STORAGE_ROOT_PATH": "/stream",
        "BK_dlogRootPath": "/distributedlog",
        "BK_zkServers": "zk1:2181,zk2:2181",
        "BK_zkLedgersRootPath": "/ledgers",
        "BK_metadataServiceUri": "zk://zk1:2181,zk2:2181/ledgers",
        "BK_bookiePort": "3181",
        "BK_httpServerEnabled": "true",
        "BK_httpServerPort": "",
        "BK_journalDirectory": "/data/bookkeeper/journal",
        "BK_ledgerDirectories": "/data/bookkeeper/ledgers",
        "BK_indexDirectories": "/data/bookkeeper/ledgers",
    }
    found = load_shared(BookieOptions, str(APACHES), environment)[0]
    assert found.http_address == ("0.0.0.0", 8080, "httpServerPort")
    assert found.ledger_directories == ("/data/bookkeeper/ledgers",)
    assert found.journal_directories == ("/tmp/bk-txn",)  # the newer key of the file is stronger, as there
