"""
How keys are treated: each of Apache's has an option or an entry, and a value that asks for what happens is honoured.
"""

from collections import Counter

import pytest

from quire.conf.known_keys import CLIENT, SERVER
from quire.conf.options import key_of
from quire.conf.properties import LAYOUT_CLASS, LAYOUT_TYPE, ZK_ROOT, ZK_SERVERS, fields_of
from quire.conf.shared_file import READERS
from quire.conf.treatment import FAMILIES, INSTEAD, INSTEAD_NAMES, of_script, served, summary, unserved

# SPDX-License-Identifier: Apache-2.0

SERVED = {name for model in READERS for field in fields_of(model).values() for name in key_of(field)["names"]}
COMPANIONS = {ZK_SERVERS, ZK_ROOT, LAYOUT_CLASS, LAYOUT_TYPE}


def test_every_key_has_an_option_or_an_entry() -> None:
    """One of both, and no key two entries; no entry is about a key that is not Apache's."""
    assert set(INSTEAD) == (SERVER | CLIENT) - SERVED - COMPANIONS
    names = Counter(name.partition("=")[0] for names in INSTEAD_NAMES.values() for name in names.split())
    assert [name for name, count in names.items() if count > 1] == []
    assert all(name.endswith(".") for name in FAMILIES)
    assert not [key for key in SERVER | CLIENT if of_script(key)]


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("readOnlyModeEnabled", "true", "honoured"),
        ("readOnlyModeEnabled", "false", "differs"),
        ("tlsProvider", "OpenSSL", "honoured"),
        ("tlsProvider", "JDK", "differs"),
        ("digestType", "CRC32", "ignored"),
        ("passwd", "", "honoured"),
        ("storageserver.grpc.port", "4181", "ignored"),
        ("BK_CLUSTER_NAME", "x", "ignored"),
        ("bookiePort", "3181", "ignored"),  # in the file of a client
    ],
)
def test_a_key_without_an_option(key: str, value: str, kind: str) -> None:
    """By its value, where one of its values asks for what happens here."""
    found = unserved(key, {key: value} if value else {})
    assert found is not None
    assert found.kind == kind
    assert found.why


def test_an_unknown_key_has_no_treatment() -> None:
    """Whatever it looks like."""
    for key in ("bookiePrt", "BK_bookiePort", "dlog", "BOOKIE_OTHER"):
        assert unserved(key, {key: "1"}) is None


def test_the_http_port_beside_other_keys() -> None:
    """An Apache's bookie without a server of its own opens /metrics to other machines; ours says that it does not."""
    given = {"statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"}
    for more, said in (
        ({}, "at a free port of 127.0.0.1"),
        ({"prometheusStatsHttpPort": "8000"}, "at prometheusStatsHttpPort of 127.0.0.1"),
        ({"prometheusStatsHttpAddress": "0.0.0.0"}, ""),
        ({"httpServerEnabled": "true"}, ""),
    ):
        found = unserved("statsProviderClass", given | more)
        assert found is not None
        assert (said in found.why, found.kind) == (True, "differs" if said else "honoured")
    assert served("httpServerEnabled", {"httpServerEnabled": "True"}).kind == "honoured"
    assert served("httpServerEnabled", {"httpServerEnabled": "False"}).kind == "differs"


def test_a_limit_that_is_not_there_leaves_the_other() -> None:
    """By entries, and none is named: the line says which limit holds."""
    by_entries = {"isThrottleByBytes": "false"}
    assert served("isThrottleByBytes", by_entries).kind == "differs"
    for key in ("compactionRate", "compactionRateByEntries"):
        assert served("isThrottleByBytes", by_entries | {key: "9"}).kind == "honoured"
    assert served("isThrottleByBytes", {"isThrottleByBytes": "true"}).kind == "honoured"


def test_nothing_is_said_where_all_is_honoured() -> None:
    """So our own samples start without a line."""
    assert summary([("a", "1", served("a", {"a": "1"})), ("b", "", served("b", {}))]) is None
