"""
Reading BookKeeper's configuration files: the format, the overrides, and what is said about keys that mean nothing or
are unknown.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.known_keys import CLIENT, SERVER
from quire.conf.options import key_of
from quire.conf.properties import (
    ConfigurationError,
    Property,
    fields_of,
    load,
    options,
    overrides,
    parse,
    read,
)

# SPDX-License-Identifier: Apache-2.0

MINIMUM = "metadataServiceUri=memory://a\njournalDirectories=/j\nledgerDirectories=/l\n"


def made(text: str, environment: dict[str, str] | None = None) -> tuple[BookieOptions, list[str]]:
    return options(BookieOptions, [*parse(MINIMUM + text, "bookie.conf"), *overrides(environment or {})])


def pairs(text: str) -> list[tuple[str, str]]:
    return [(item.key, item.value) for item in parse(text, "f")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a = b", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("a b", [("a", "b")]),
        ("  a\t=\t b c ", [("a", "b c")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("# c\n! d\n\n \na=b", [("a", "b")]),
        ("a=b=c", [("a", "b=c")]),
        ("a==b", [("a", "=b")]),
        ("a=one,\\\n   two", [("a", "one,two")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a\\=b=c", [("a=b", "c")]),
        ("a=\\u0041\\tz\\q", [("a", "A\tzq")]),
        ("a=b\r\nc=d\r\n", [("a", "b"), ("c", "d")]),
        ("#x\\\na=b", [("a", "b")]),
        ("a=end\\", [("a", "end")]),
        ("a=1\\\n\\\\\\\n\\\\\nb=2", [("a", "1\\\\"), ("b", "2")]),
    ],
)
def test_format(text: str, expected: list[tuple[str, str]]) -> None:
    """Separators, comments, continuations and escapes of the Java format."""
    assert pairs(text) == expected


def test_positions_are_those_of_the_first_line() -> None:
    """A property knows its file and line, also behind comments and continuations."""
    found = parse("# one\na=1,\\\n 2\nb=3\n", "bookie.conf")
    assert [item.where for item in found] == ["bookie.conf:2", "bookie.conf:4"]


def test_broken_escape_names_its_line() -> None:
    """A \\u escape without four digits is refused with its place."""
    with pytest.raises(ConfigurationError, match=r"f:1: \\uxyzw is not a character"):
        parse("a=\\uxyzw", "f")


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    """No text makes the parser fail in another way than ConfigurationError."""
    try:
        for item in parse(text, "f"):
            assert isinstance(item, Property)
    except ConfigurationError:
        pass


def test_units_of_the_file_become_those_of_the_field() -> None:
    """A key in MiB fills a field in bytes; a list is cut at commas; blanks around its parts go."""
    found, warnings = made("journalMaxMemorySizeMb=2\njournalSyncData=false\nbookiePort=0\nindexDirectories= /i \n")
    assert found.journal_queue_bytes_max == 2 << 20
    assert found.journal_sync_data is False
    assert found.port == 0
    assert found.index_directories == ("/i",)
    assert warnings == []


@pytest.mark.parametrize("value", ["--5", "5-", "five", "9" * 5000, "٣"])
def test_what_is_no_number_is_said_with_its_line(value: str) -> None:
    """Of a key with a unit, too."""
    with pytest.raises(ConfigurationError, match=r"bookie\.conf:4: connectionPendingSizeMB"):
        made(f"connectionPendingSizeMB={value}\n")


def test_blank_values_mean_the_default() -> None:
    """As in BookKeeper: `bookieId=` is no id."""
    found, _ = made("bookieId=\nbookiePort=\n")
    assert found.bookie_id is None
    assert found.port == 3181


def test_old_journal_key_yields_to_the_new_one() -> None:
    """journalDirectory is read where journalDirectories is missing, and skipped where it isn't."""
    text = "metadataServiceUri=memory://a\nledgerDirectories=/l\n"
    alone, _ = options(BookieOptions, parse(text + "journalDirectory=/old\n", "f"))
    assert alone.journal_directories == ("/old",)
    for order in (
        "journalDirectory=/old\njournalDirectories=/a,/b\n",
        "journalDirectories=/a,/b\njournalDirectory=/old\n",
    ):
        both, warnings = options(BookieOptions, parse(text + order, "f"))
        assert both.journal_directories == ("/a", "/b")
        assert warnings == []


def test_one_line_says_what_is_not_honoured() -> None:
    """It names keys, values that mean something else here, and what happens instead; a blank one asks for nothing."""
    _, warnings = made("pageSize=1\nextraServerComponents=\nreadOnlyModeEnabled=false\ndlog.bkcEnsembleSize=3\n")
    (line,) = warnings
    assert line.startswith("keys of the configuration: 4 honoured. 1 differing: readOnlyModeEnabled=false (a bookie ")
    assert "2 ignored: pageSize (there is one storage" in line
    assert "; dlog.bkcEnsembleSize (there is no table service)" in line
    assert "extraServerComponents" not in line


def test_a_value_that_was_allowed_once_is_taken_as_far_as_it_goes() -> None:
    """The size of an entry log up to 4.2; the line says what holds."""
    found, (line,) = made("logSizeLimit=2147483648\n")
    assert found.entry_log_bytes_max == 2147483647
    assert "1 differing: logSizeLimit=2147483648 (as 2147483647: more can't be)" in line
    assert made("logSizeLimit=2147483647\njournalSegmentSizeMB=2\n")[1] == []


def test_only_permitted_users_are_kept() -> None:
    """As a list; the daemon asks for it."""
    assert made("permittedStartupUsers=a, b\n")[0].permitted_users == ("a", "b")
    assert made("permittedStartupUsers=\n")[0].permitted_users == ()


def test_a_password_is_in_no_message() -> None:
    """Nor in that of a key that is set twice; a file's path is no password."""
    with pytest.raises(ConfigurationError, match="is set again") as refused:
        made("passwd=planted-1\npasswd=planted-2\n")
    assert "planted" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="'/a'"):
        made("tlsTrustStorePasswordPath=/a\ntlsTrustStorePasswordPath=/b\n")


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    """So that a slip of the finger does not silently lose a setting."""
    with pytest.raises(
        ConfigurationError, match=r"bookie\.conf:4: unknown key 'bookiePrt'; the nearest one is bookiePort"
    ):
        made("bookiePrt=3181\n")


def test_all_faults_are_reported_at_once() -> None:
    """An operator repairs a file in one go."""
    with pytest.raises(ConfigurationError) as refused:
        made("bookiePort=99999\nflushIntervall=3\nzkTimeout=soon\n")
    for part in (
        "bookie.conf:4: bookiePort=99999 is not allowed: 0 to 65535",
        "flushInterval",
        "bookie.conf:6: zkTimeout=soon is not allowed: at least 1000 ms",
    ):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("journalMaxMemorySizeMb=0", "journalMaxMemorySizeMb=0 is not allowed: at least 1 MiB"),
        ("journalSyncData=maybe", "journalSyncData=maybe is not allowed: true or false"),
        ("diskUsageThreshold=1.5", "diskUsageThreshold=1.5 is not allowed: above 0 and below 1"),
        ("logSizeLimit=1", "logSizeLimit=1 is not allowed: at least 4096 bytes"),
        ("flushInterval=", ""),
    ],
)
def test_bad_values_name_key_value_and_range(text: str, said: str) -> None:
    """The error has the key as the file spells it, the value and what is permitted."""
    if not said:
        made(text)
        return
    with pytest.raises(ConfigurationError) as refused:
        made(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("indexDirectories=/a,/b", "indexDirectories names 2 directories, ledgerDirectories 1"),
        ("diskUsageThreshold=0.5", "diskUsageWarnThreshold 0.9 is above diskUsageThreshold 0.5"),
    ],
)
def test_broken_relations_name_both_keys(text: str, said: str) -> None:
    """The error has both keys with their values."""
    with pytest.raises(ConfigurationError) as refused:
        made(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ("/l,/l", "a directory twice: /l,/l"),
        ("/l,/k/../l/", "a directory twice: /l,/k/../l/"),
        (",", "an empty name: ','"),
    ],
)
def test_directories_named_twice_are_refused(paths: str, said: str) -> None:
    """In whatever spelling."""
    with pytest.raises(ConfigurationError) as refused:
        options(
            BookieOptions,
            parse(f"metadataServiceUri=memory://a\njournalDirectories=/j\nledgerDirectories={paths}", "f"),
        )
    assert f"ledgerDirectories {'has' if paths == ',' else 'names'} {said}" in str(refused.value)


def test_missing_keys_come_with_an_example() -> None:
    """Directories have no default: guessing where data lies loses it."""
    with pytest.raises(ConfigurationError) as refused:
        options(BookieOptions, [])
    for key in (
        "metadataServiceUri is missing",
        "journalDirectories=/var/lib/quire/journal",
        "ledgerDirectories is missing",
    ):
        assert key in str(refused.value)


def test_two_values_for_one_key_are_refused() -> None:
    """BookKeeper takes the first, others the last; equal ones do no harm."""
    with pytest.raises(
        ConfigurationError,
        match=r"bookie\.conf:5: bookiePort is set again, to '2'; bookie\.conf:4 says '1': leave one of them",
    ):
        made("bookiePort=1\nbookiePort=2\n")
    assert made("bookiePort=1\nbookiePort=1\n")[0].port == 1


def test_the_environment_overrides_the_file() -> None:
    """BK_<key>, as in BookKeeper's images, and PULSAR_PREFIX_<key>, as in Pulsar's."""
    found, warnings = made("bookiePort=1\n", {"BK_bookiePort": "2", "PATH": "/bin", "BK_bookieDeathWatchInterval": "1"})
    assert found.port == 2
    assert len(warnings) == 1
    assert "1 ignored: bookieDeathWatchInterval (a bookie that can't go on ends its process at once)" in warnings[0]
    assert made("bookiePort=1\n", {"PULSAR_PREFIX_bookiePort": "3"}) == made("bookiePort=3\n")
    assert made("bookiePort=1\n", {"bookiePort": "3", "PULSAR_HOME": "/pulsar"}) == made("bookiePort=1\n")
    with pytest.raises(
        ConfigurationError,
        match="environment variable BK_bookieport: unknown key 'bookieport'; the nearest one is bookiePort",
    ):
        made("", {"BK_bookieport": "2"})


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("zkServers=h1:2181,h2:2181\n", "zk://h1:2181;h2:2181/ledgers"),
        ("zkServers=h1\nzkLedgersRootPath=/a/b\n", "zk://h1/a/b"),
        (
            "zkServers=h1\nledgerManagerFactoryClass=org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory\n",
            "zk+longhierarchical://h1/ledgers",
        ),
        ("metadataServiceUri=\nzkServers=h1\n", "zk://h1/ledgers"),
        ("metadataServiceUri=zk://m/ledgers\nzkServers=h1\n", "zk://m/ledgers"),
    ],
)
def test_the_old_zookeeper_keys_stand_in_for_the_uri(text: str, uri: str) -> None:
    """`zkServers` and its companions give the URI if none is set, without a warning."""
    found, warnings = options(BookieOptions, parse("journalDirectories=/j\nledgerDirectories=/l\n" + text, "f"))
    assert found.metadata_uri == uri
    assert warnings == []


def test_variables_of_scripts_are_said_once() -> None:
    """With BK_ before them or without; none is taken for a key, and a value, which may hold a secret, is not shown."""
    variables = ["BK_BOOKIE_EXTRA_OPTS", "BK_BOOKIE_MEM_OPTS", "BK_BOOKIE_GC_OPTS", "BK_BOOKIE_LOG_DIR"]
    variables += ["BK_BOOKIE_EXTRA_CLASSPATH", "BK_CLUSTER_NAME", "BK_DATA_DIR", "BK_PORT_3181_TCP", "BK_dlogRootPath"]
    variables += ["PULSAR_MEM", "PULSAR_GC", "PULSAR_EXTRA_OPTS", "PULSAR_PREFIX_OPTS"]
    variables += ["BOOKIE_EXTRA_OPTS", "BOOKIE_MEM_OPTS", "BOOKIE_GC_OPTS", "BOOKIE_LOG_DIR", "BOOKIE_EXTRA_CLASSPATH"]
    found, warnings = made("", dict.fromkeys(variables, "planted"))
    assert found == made("")[0]
    (line,) = warnings
    assert f"{len(variables)} ignored: {', '.join(sorted(variables))} (a variable of Apache's scripts" in line
    assert "planted" not in line


@pytest.mark.parametrize("key", ["ledgerManagerFactoryClass", "ledgerManagerType"])
def test_a_layout_that_is_not_known_is_the_stores(key: str) -> None:
    """The line says so, where the key counts: beside a URI it does not."""
    text = f"journalDirectories=/j\nledgerDirectories=/l\nzkServers=h1\n{key}=org.example.Mine\n"
    found, warnings = options(BookieOptions, parse(text, "f"))
    assert found.metadata_uri == "zk://h1/ledgers"
    assert f"1 differing: {key}=org.example.Mine (the layout is the one that the store has)" in warnings[0]
    assert options(BookieOptions, parse("metadataServiceUri=zk://m/ledgers\n" + text, "f"))[1] == []


def test_every_known_server_key_is_accepted(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A file that sets all keys of BookKeeper's own starts a bookie: none is refused, and one line names the others."""
    fields = {key for field in fields_of(BookieOptions).values() for key in key_of(field)["names"]}
    others = sorted((SERVER | CLIENT) - fields - {"zkServers", "zkLedgersRootPath"})
    path = tmp_path / "bk_server.conf"
    path.write_text(MINIMUM + "".join(f"{key}=odd\n" for key in others) + "zkServers=h\nzkLedgersRootPath=/r\n")
    _, warnings = load(BookieOptions, str(path), {})
    assert len(warnings) == 1
    unsaid = [key for key in others if not re.search(rf"\b{key}\b", warnings[0])]
    assert unsaid == ["ledgerManagerFactoryClass", "ledgerManagerType"]  # metadataServiceUri is stronger


def test_the_command_line_is_strongest(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """It wins over the environment and the file."""
    path = tmp_path / "bookie.conf"
    path.write_text(MINIMUM + "bookiePort=1\n")
    found, _ = load(BookieOptions, str(path), {"BK_bookiePort": "2"}, [Property("bookiePort", "3", "--port")])
    assert found.port == 3


def test_latin_1_files_are_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Java writes them so."""
    path = tmp_path / "f"
    path.write_bytes("a=\xe9".encode("latin-1"))
    assert read(str(path))[0].value == "\xe9"


def test_an_unreadable_file_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The error has the path and the system's reason."""
    with pytest.raises(ConfigurationError, match=r"nowhere\.conf: No such file or directory"):
        read(str(tmp_path / "nowhere.conf"))


# Keys with a name that sounds of security, which may be passed over with a warning: why nobody is exposed by that.
HARMLESS = {
    "allowShadedLedgerManagerFactoryClass": "names of Java classes",
    "clientTrustStorePasswordPath": "PEM files of authorities have no password",
    "httpServerKeyStorePassword": "a key that has one can't be read without, which stops the start",
    "httpServerTrustStorePassword": "PEM files of authorities have no password",
    "passwd": "a ledger's password is given with the ledger",
    "shadedLedgerManagerFactoryClassPrefix": "names of Java classes",
    "startTLSTimeoutSecs": "a deadline; there always is one",
    "tlsProvider": "which library, not whether",
    "tlsTrustStorePasswordPath": "PEM files of authorities have no password",
}
SOUNDS = re.compile(
    "auth|sasl|tls|secur|trust|keystore|passw|role|permitted|acl(?!e)|super|token|shaded", re.IGNORECASE
)


def test_every_key_of_security_is_served_or_harmless() -> None:
    """Of Apache's, none protects nothing in silence; the tables name no key twice and none that is not there."""
    models = (BookieOptions, ClientOptions, AutoRecoveryOptions)
    served = {name for model in models for field in model.model_fields.values() for name in key_of(field)["names"]}
    sounding = {key for key in SERVER | CLIENT if SOUNDS.search(key)}
    assert len(sounding) > 35
    assert sounding - served == set(HARMLESS)


def test_the_lists_are_apart() -> None:
    """A key is the server's or the client's."""
    assert not SERVER & CLIENT
    assert len(SERVER) > 200


def test_a_key_of_one_version_is_known_with_the_other() -> None:
    """A file that was written for 4.17 or for 4.18 is read as it is."""
    assert {"ensemblePlacementPolicyOrderSlowBookies", "bookieConnectionErrorQuarantineEnabled"} <= CLIENT
    assert {"serverTcpKeepCnt", "serverTcpKeepIdle", "serverTcpKeepIntvl", "zkReplicationTaskRateLimit"} <= SERVER


def test_keys_of_the_reference_that_operators_set_most() -> None:
    """The list of known keys has them."""
    for key in (
        "journalWriteData",
        "gcWaitTime",
        "ledgerStorageClass",
        "zkServers",
        "numReadWorkerThreads",
        "dbStorage_rocksDB_blockCacheSize",
    ):
        assert key in SERVER
