"""Client options: BookKeeper's keys and units, defaults that hold together, relations that are refused."""

import pytest
from pydantic import ValidationError

from quire.conf.client import ClientOptions
from quire.conf.known_keys import CLIENT, SERVER
from quire.conf.options import key_of
from quire.conf.properties import ConfigurationError, parse, sample
from quire.conf.properties import options as read_options

OURS = {
    "reconnectWaitMillisMin", "reconnectWaitMillisMax", "longPollMillis", "writerWindowEntries", "writerWindowBytes",
    "replicaBacklogBytes",
    "batchEntries", "batchBytes", "readAheadBytes", "readAheadEntries", "readAheadBatches", "disableEnsembleChange",
    "networkTopologyFileName", "localPlace", "enforceDifferentHosts", "tlsRevocationList", "saslJaasFile",
    "zkSaslSection", "zkTlsTrustStore", "zkTlsCertificatePath", "zkTlsKeyStore",
    "etcdSection", "etcdTlsTrustStore", "etcdTlsCertificatePath", "etcdTlsKeyStore",
    "zkTlsKeyStorePasswordPath", "zkRequestBytesMax",
}  # fmt: skip


def from_text(text: str) -> ClientOptions:
    return read_options(ClientOptions, parse(text, "client.conf"))[0]


def test_defaults_are_v2_and_hold_together():
    """The default time-outs and sizes keep the relations between them."""
    options = ClientOptions()
    assert options.protocol == "v2"
    assert options.long_poll_ms < options.read_timeout_ms
    assert options.batch_bytes_max <= options.window_bytes_max


def test_every_key_is_bookkeeper_s_or_listed_as_ours():
    """So that a mistyped key is never taken for one of them."""
    keys = {name for field in ClientOptions.model_fields.values() for name in key_of(field)["names"]}
    assert keys - CLIENT - SERVER == OURS


def test_bookkeeper_s_units_become_ours():
    """Keys in seconds, milliseconds and booleans are converted to our options."""
    options = from_text(
        "useV2WireProtocol=false\naddEntryTimeoutSec=7\nreadEntryTimeoutSec=9\nbatchReadEnabled=false\n"
        "zkTimeout=12000\n"
    )
    assert (options.protocol, options.add_timeout_ms, options.read_timeout_ms, options.batch_read) == (
        "v3",
        7000,
        9000,
        False,
    )
    assert options.session_timeout_ms == 12000
    assert from_text("useV2WireProtocol=true").protocol == "v2"
    assert from_text("useV2WireProtocol=v3").protocol == "v3"


@pytest.mark.parametrize(
    "text", ["useV2WireProtocol=maybe", "addEntryTimeoutSec=soon", "nettyMaxFrameSizeBytes=1", "readAheadBatches=0"]
)
def test_bad_values_are_refused_with_their_line(text):
    """The error names file and line."""
    with pytest.raises(ConfigurationError, match=r"client\.conf:1"):
        from_text(text)


def test_relations_that_cannot_work_are_refused():
    """The error names both options, or says what would happen."""
    with pytest.raises(ValidationError, match="each poll would time out"):
        ClientOptions(long_poll_ms=5000, read_timeout_ms=5000)
    with pytest.raises(ValidationError, match="reconnect_wait_ms_max"):
        ClientOptions(reconnect_wait_ms_min=100, reconnect_wait_ms_max=10)
    for name in ("speculative_read_ms", "speculative_poll_ms"):
        with pytest.raises(ValidationError, match=rf"{name} \(100\) is above {name}_max \(10\)"):
            ClientOptions(**{name: 100, f"{name}_max": 10})


def test_a_negative_limit_is_none_as_in_bookkeeper():
    """-1 means no limit, and 0 is a limit."""
    options = from_text("addEntryQuorumTimeoutSec=-1\nmaxNumEnsembleChanges=-1\n")
    assert (options.add_quorum_timeout_ms, options.ensemble_changes_max) == (None, None)
    options = from_text("addEntryQuorumTimeoutSec=9\nmaxNumEnsembleChanges=0\n")
    assert (options.add_quorum_timeout_ms, options.ensemble_changes_max) == (9000, 0)


def test_options_do_not_change_and_know_no_other_names():
    """Assigning an option or naming an unknown one raises."""
    options = ClientOptions()
    with pytest.raises(ValidationError):
        options.protocol = "v3"
    with pytest.raises(ValidationError):
        ClientOptions(windows=3)


def test_the_sample_reads_back_as_the_defaults():
    """Every line uncommented, so that what the sample shows is what holds."""
    lines = [
        line[1:]
        for line in sample(ClientOptions, "client").splitlines()
        if line.startswith("#") and not line.startswith("# ") and "=" in line
    ]
    assert len(lines) == len(ClientOptions.model_fields)
    assert from_text("\n".join(lines)) == ClientOptions()
