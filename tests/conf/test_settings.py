"""AutoRecovery's configuration, read beside a bookie's."""

from pathlib import Path

from quire.conf.bookie import BookieOptions
from quire.conf.parts.stores import StoreOptions
from quire.conf.shared_file import Settings

# SPDX-License-Identifier: Apache-2.0


def test_one_file_configures_it_and_its_client(tmp_path: Path) -> None:
    """Each takes its keys; those of the bookie say nothing here, and one without meaning is named once."""
    path = tmp_path / "bookie.conf"
    path.write_text(
        "metadataServiceUri=zk://a:2181/ledgers\nzkTimeout=4000\nledgerDirectories=/l\nbookieId=b1\n"
        "lostBookieRecoveryDelay=600\nreadEntryTimeoutSec=9\npageSize=8192\n"
    )
    settings, warnings = Settings.load(str(path), {"BK_repairLedgersAtOnce": "7"}, [])
    assert settings.options.lost_bookie_recovery_delay_s == 600
    assert settings.options.ledgers_at_once == 7
    assert settings.client.read_timeout_ms == 9000
    assert settings.options.session_timeout_ms == settings.client.session_timeout_ms == 4000
    assert len(warnings) == 1
    assert ": 7 honoured. 1 ignored: pageSize (" in warnings[0]


def test_its_client_is_of_role_system(tmp_path: Path) -> None:
    """As Apache's, which decides whom it says that it is; unless the file says otherwise."""
    path = tmp_path / "bookie.conf"
    path.write_text("metadataServiceUri=zk://a:2181/ledgers\n")
    assert Settings.load(str(path), {}, [])[0].client.client_role == "system"
    assert Settings.load(str(path), {"BK_clientRole": "standard"}, [])[0].client.client_role == "standard"


def test_beside_a_bookie_that_does_not_run_it() -> None:
    """The bookie's cluster, and defaults: enough for what an operator asks for over HTTP."""
    bookie = BookieOptions(
        metadata_uri="sqlite:///x", session_timeout_ms=4000, journal_directories=("/j",), ledger_directories=("/l",)
    )
    settings = Settings.beside(bookie)
    assert settings.options.metadata_uri == "sqlite:///x"
    assert settings.options.session_timeout_ms == settings.client.session_timeout_ms == 4000


def test_the_client_inside_a_bookie_is_the_same_user_for_zookeeper() -> None:
    """Where its znodes are for one user alone, it reads them, too."""
    files = {"zk_tls_trust": "/ca.pem", "zk_tls_certificate": "/own.pem", "zk_tls_key": "/own.key"}
    bookie = BookieOptions(
        metadata_uri="zk://a:2181/ledgers",
        journal_directories=("/j",),
        ledger_directories=("/l",),
        zk_acl=True,
        zk_sasl_section="Client",
        jaas_file="/jaas",
        **files,
    )
    client = Settings.beside(bookie).client
    for name in StoreOptions.model_fields:
        assert getattr(client, name) == getattr(bookie, name), name
    assert client.secures_zookeeper
