"""One configuration divided: ports, ids and directories apart, everything else the same; what is refused."""

import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.conf.bookie import BookieOptions
from quire.conf.properties import ConfigurationError, Property, parse
from quire.conf.shared_file import load_shared
from quire.tools.host.division import COUNT_MAX, Division, divided, escaped, load
from tests.tidy import ROOT
from tests.tools.command import ok

# SPDX-License-Identifier: Apache-2.0


SAMPLES = ROOT / "tools" / "units"
PLAIN = """
metadataServiceUri=zk://127.0.0.1:2181/ledgers
advertisedAddress=10.0.0.1
journalDirectories=/d1/journal, /d2/journal
ledgerDirectories=/d1/ledgers
prometheusStatsHttpPort=8000
hostBookies=2
"""


def of(text: str, without: str = "") -> Division:
    return divided({item.key: item for item in parse(PLAIN + text, "host.conf") if item.key != without})


def test_ports_ids_and_directories_are_divided() -> None:
    """Bookie 0 has the port of the file; each directory has a folder of each bookie; the host is the address."""
    found = of("")
    assert (found.host, found.page.metrics_port) == ("10.0.0.1", 8000)
    assert [part.id for part in found.parts] == ["10.0.0.1:3181", "10.0.0.1:3182"]
    second = found.parts[1].options
    assert second.port == 3182
    assert second.journal_directories == ("/d1/journal/bookie-1", "/d2/journal/bookie-1")
    assert second.ledger_directories == ("/d1/ledgers/bookie-1",)
    assert (second.host_id, second.metrics_port) == ("10.0.0.1", 0)
    assert found.parts[1].conf == Path("/d1/journal/bookie-1/bookie.conf")


def test_a_fixed_id_is_numbered_and_names_the_host() -> None:
    """So a bookie that is away is known to be of this host by its id; `hostId` is stronger."""
    found = of("bookieId=m1\nbookiePort=0\n")
    assert (found.host, [part.id for part in found.parts]) == ("m1", ["m1-0", "m1-1"])
    assert [part.options.port for part in found.parts] == [0, 0]
    assert of("bookieId=m1\nhostId=rack7-m1\n").parts[0].options.host_id == "rack7-m1"


def test_what_is_said_of_one_bookie_holds_as_it_stands() -> None:
    """Also directories and the port; an alias of the common key gives way to it."""
    found = of(
        "bookie.1.ledgerDirectories=/d9\nbookie.1.bookiePort=4000\nbookie.1.flushInterval=500\nflushInterval=400\n"
    )
    assert [part.options.ledger_directories for part in found.parts] == [("/d1/ledgers/bookie-0",), ("/d9",)]
    assert [part.options.port for part in found.parts] == [3181, 4000]
    assert [part.options.flush_interval_ms for part in found.parts] == [400, 500]
    own = "bookie.0.ledgerDirectories=/d8\nbookie.1.ledgerDirectories=/d9\n"
    assert [part.options.ledger_directories for part in of(own, without="ledgerDirectories").parts] == [
        ("/d8",),
        ("/d9",),
    ]


def test_the_page_is_at_the_port_of_apaches_keys() -> None:
    """The bookies' own pages take free ports; variables of scripts are in no bookie's file."""
    text = "httpServerEnabled=true\nhttpServerHost=127.0.0.1\nhttpServerPort=9000\nBK_BOOKIE_MEM_OPTS=-Xms1g\n"
    found = of(text)
    assert found.page.http_address[:2] == ("127.0.0.1", 9000)
    for part in found.parts:
        assert part.options.http_address[:2] == ("127.0.0.1", 0)
        assert "BK_BOOKIE" not in part.text
    assert len(found.warnings) == 1


@pytest.mark.parametrize(
    ("text", "without", "said"),
    [
        ("", "hostBookies", "hostBookies is missing.*--bookies 2"),
        ("bookie.2.flushInterval=5\n", "", "bookie.2.flushInterval is of a bookie that is not there: .* 0 to 1"),
        ("bookie.1.bookiePort=3181\n", "", "share the id 10.0.0.1:3181"),
        ("bookie.1.bookiePort=3181\nbookieId=m\n", "", "bookie 0 and bookie 1 share port 3181"),
        ("bookie.1.bookiePort=8000\nprometheusStatsHttpAddress=0.0.0.0\n", "", "the host's metrics and bookie 1 share"),
        ("bookie.1.ledgerDirectories=/d1/ledgers/bookie-0\n", "", "share the directory /d1/ledgers/bookie-0"),
        ("bookie.1.ledgerDirectories=/d1/x/../journal/bookie-0\n", "", "share the directory /d1/journal/bookie-0"),
        ("bookiePort=0\n", "", "bookiePort=0 gives .* set bookieId"),
        ("bookiePort=65535\n", "", "bookie 1: host.conf:8: bookiePort=65536 is not allowed"),
        ("ledgersDirectories=/x\n", "", "host.conf:8: unknown key 'ledgersDirectories'"),
        ("bookie.0.flushIntervall=5\n", "", "bookie 0: host.conf:8: unknown key 'flushIntervall'"),
        ("bookie.0.allowLoopback=perhaps\n", "", "bookie 0: host.conf:8: allowLoopback=perhaps"),
        ("", "ledgerDirectories", "ledgerDirectories is missing"),
        ("bookieId=/etc\n", "", "can't be a bookie's id"),
        ("bookie.1.httpServerTlsEnable=true\nbookie.1.httpServerKeyStorePath=/k\n", "", "TlsEnable=true is not served"),
    ],
)  # fmt: skip
def test_nonsense_is_refused(text: str, without: str, said: str) -> None:
    """With the line, and both of those that would share something."""
    with pytest.raises(ConfigurationError, match=said):
        of(text, without)


@pytest.mark.parametrize("count", ["0", "-1", "two", str(COUNT_MAX + 1)])
def test_a_number_of_bookies_that_can_t_be_is_refused(count: str) -> None:
    """With what is allowed."""
    with pytest.raises(ConfigurationError, match=rf"hostBookies={count} is not allowed: 1 to {COUNT_MAX}"):
        divided({item.key: item for item in parse(PLAIN.replace("hostBookies=2", f"hostBookies={count}"), "f")})


def test_the_command_line_is_stronger_than_the_environment_and_that_than_the_file(tmp_path: Path) -> None:
    """As for a single bookie."""
    conf = tmp_path / "host.conf"
    conf.write_text(PLAIN)
    assert len(load(str(conf), {"BK_hostBookies": "3"}).parts) == 3
    found = load(str(conf), {"BK_hostBookies": "3", "BK_bookiePort": "5000"}, count=1)
    assert [part.options.port for part in found.parts] == [5000]
    uri = Property("metadataServiceUri", "sqlite:///x/metadata.db", "--metadata")
    assert load(str(conf), {}, [uri]).parts[1].options.metadata_uri == "sqlite:///x/metadata.db"


def test_what_is_written_is_read_as_what_was_meant(tmp_path: Path) -> None:
    """By the bookie's own reader, and only by the owner of the file."""
    text = (
        PLAIN.replace("/d1", str(tmp_path))
        + "bookie.0.ledgerDirectories=/odd\\\\place\nautoRecoveryDaemonEnabled=true\n"
    )
    for part in divided({item.key: item for item in parse(text, "host.conf")}).parts:
        part.write()
        assert load_shared(BookieOptions, str(part.conf), {}) == (part.options, [])
        assert stat.S_IMODE(part.conf.stat().st_mode) == 0o600


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0x2FF), min_size=1).map(str.strip).filter(bool))
def test_any_value_survives_its_escaping(value: str) -> None:
    """Java's readers of properties read the same."""
    if value == value.strip() and not set(value) & set("\x0b\x0c\x1c\x1d\x1e\x85"):  # they end a line for Python alone
        (item,) = parse(f"key={escaped(value)}\n", "f")
        assert item.value == value


def test_the_samples_work() -> None:
    """The configuration can be divided, also with its lines about one bookie; the unit starts what there is."""
    text = (SAMPLES / "host.conf").read_text(encoding="utf-8")
    for each in (text, text.replace("\n#bookie.", "\nbookie.")):
        chosen = {item.key: item for item in parse(each, "host.conf")} | {
            "advertisedAddress": Property("advertisedAddress", "10.0.0.1", "test")
        }
        assert [part.id for part in divided(chosen).parts] == ["10.0.0.1:3181", "10.0.0.1:3182"]
    unit = (SAMPLES / "quire-host.service").read_text(encoding="utf-8")
    (command,) = [line.split() for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert command[1:] == ["host", "start", "--conf", "/etc/quire/host.conf"]
    assert "Type=notify" in unit


@pytest.mark.parametrize("name", ["bookie", "autorecovery"])
def test_the_unit_of_one_process_starts_what_there_is(name: str) -> None:
    """With the command and the file that docs/deploying.md says; a bad configuration is not tried again."""
    unit = (SAMPLES / f"quire-{name}.service").read_text(encoding="utf-8")
    (command,) = [line.split() for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert command[1:] == [name, "start", "--conf", "/etc/quire/bookie.conf"]
    assert ok(*command[1:3], "--help").out
    assert "RestartPreventExitStatus=2\n" in unit
