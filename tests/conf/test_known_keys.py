"""The lists of BookKeeper's keys, and what is said about some."""

import re

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.known_keys import ADVICE, CLIENT, FAMILIES, SCRIPT_VARIABLES, SERVER, UNSERVED_SECURITY
from quire.conf.options import key_of

# SPDX-License-Identifier: Apache-2.0


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


def test_every_key_of_security_is_served_or_refused_or_harmless() -> None:
    """Of Apache's, none protects nothing in silence; the tables name no key twice and none that is not there."""
    models = (BookieOptions, ClientOptions, AutoRecoveryOptions)
    served = {name for model in models for field in model.model_fields.values() for name in key_of(field)["names"]}
    sounding = {key for key in SERVER | CLIENT if SOUNDS.search(key)}
    assert len(sounding) > 35
    assert sounding - served - set(UNSERVED_SECURITY) == set(HARMLESS)
    assert not set(HARMLESS) & (served | set(UNSERVED_SECURITY))


def test_the_lists_are_apart() -> None:
    """A key is the server's or the client's, and a script's variable is neither."""
    assert not SERVER & CLIENT
    assert not SCRIPT_VARIABLES & (SERVER | CLIENT)
    assert len(SERVER) > 200
    assert all(name.endswith(".") for name in FAMILIES)


def test_advice_is_about_keys_without_meaning() -> None:
    """Each key with advice is one of Apache BookKeeper's that no option serves."""
    served = {name for field in BookieOptions.model_fields.values() for name in key_of(field)["names"]}
    assert set(ADVICE) <= SERVER | CLIENT
    assert not set(ADVICE) & served
    assert set(UNSERVED_SECURITY) <= SERVER | CLIENT
    assert not set(UNSERVED_SECURITY) & (served | set(ADVICE))


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
