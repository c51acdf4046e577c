"""The lists of BookKeeper's keys, and what is said about some."""

from quire.conf.bookie import BookieOptions
from quire.conf.known_keys import ADVICE, CLIENT, FAMILIES, SCRIPT_VARIABLES, SERVER, UNSERVED_SECURITY
from quire.conf.options import key_of

# SPDX-License-Identifier: Apache-2.0


def test_the_lists_are_apart() -> None:
    """A key is the server's or the client's, and a script's variable is neither."""
    assert not SERVER & CLIENT
    assert not SCRIPT_VARIABLES & (SERVER | CLIENT)
    assert len(SERVER) > 200
    assert all(name.endswith(".") for name in FAMILIES)


def test_advice_is_about_keys_without_meaning() -> None:
    """Each key with advice is one of Apache BookKeeper's that no option serves."""
    served = {name for field in BookieOptions.model_fields.values() for name in key_of(field)["names"]}
    assert set(ADVICE) <= SERVER
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
