"""One line for each failure that a user can act on."""

import pytest

from quire.conf.properties import ConfigurationError
from quire.metadata.store import CookieNotFound, WrongCluster
from quire.protocol import errors
from quire.tools.failures import NEXT_STEP, explained
from quire.tools.local_cluster.etcd import EtcdMissing
from quire.tools.local_cluster.zookeeper import ZooKeeperFailed, ZooKeeperMissing
from quire.tools.terminal.options import Usage

# SPDX-License-Identifier: Apache-2.0


def test_a_ledger_error_names_itself_its_code_and_the_next_step() -> None:
    """In one line."""
    code, text = explained(errors.NotEnoughBookies("3 are needed, 2 are writable")) or (0, "")
    assert code == 1
    assert (
        text == "NotEnoughBookies: 3 are needed, 2 are writable (code -6); `quire bookie list` shows those that are up"
    )


def test_a_message_with_a_command_gets_no_second_one() -> None:
    """The raiser knew better."""
    _, text = explained(errors.MetaStore("no cluster yet: make one with `quire metadata init`")) or (0, "")
    assert text.count("`") == 2


@pytest.mark.parametrize("kind", sorted(errors.BY_CODE.values(), key=lambda kind: kind.code))
def test_every_code_is_explained(kind: type[errors.LedgerError]) -> None:
    """No error of the tree shows a traceback, not even one without a text."""
    code, text = explained(kind()) or (0, "")
    assert code == 1
    assert text.startswith(f"{kind.__name__}: ")
    assert f"(code {kind.code})" in text
    assert "\n" not in text


def test_next_steps_are_reachable() -> None:
    """A subclass comes before its base, or its step would never be printed."""
    kinds = [kind for kind, _ in NEXT_STEP]
    for index, kind in enumerate(kinds):
        assert not any(issubclass(kind, before) for before in kinds[:index])


def test_what_a_store_answers_does_not_blame_it() -> None:
    """It is up; only what no store answered points to it."""
    assert "whether the store is up" in (explained(errors.MetaStore("no answer")) or (0, ""))[1]
    assert "whether the store is up" not in (explained(WrongCluster("it is another")) or (0, ""))[1]
    assert "`quire bookie list`" in (explained(CookieNotFound("foo has no cookie")) or (0, ""))[1]


def test_who_gave_no_id_is_told_to_give_none_by_nobody() -> None:
    """What raises it says what to do, and knows whether an id was given."""
    assert (explained(errors.LedgerExist("ids were taken: try again")) or (0, ""))[1].endswith("try again (code -20)")


def test_a_file_error_names_the_file() -> None:
    """As the operating system says it."""
    assert explained(FileNotFoundError(2, "No such file or directory", "/no/such")) == (
        1,
        "/no/such: No such file or directory",
    )
    assert explained(OSError("no place")) == (1, "no place")


def test_a_server_that_can_not_be_started() -> None:
    """Its text names the command that installs it."""
    assert explained(ZooKeeperMissing("pip install 'quire[zookeeper]'")) == (1, "pip install 'quire[zookeeper]'")
    assert explained(ZooKeeperFailed("its log ends with …")) == (1, "its log ends with …")
    assert explained(EtcdMissing("apt-get install")) == (1, "apt-get install")


@pytest.mark.parametrize("error", [Usage("no"), ValueError("no"), ConfigurationError("no")])
def test_wrong_arguments_are_wrong_usage(error: Exception) -> None:
    """Exit status 2."""
    assert explained(error) == (2, "no")


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    """It is not explained away."""
    assert explained(AssertionError("broken")) is None
    assert explained(KeyError("x")) is None
