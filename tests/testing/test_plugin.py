"""The plugin as a project that tests its own program meets it: pytest runs in a directory that is not ours."""

import sys

import pytest

# SPDX-License-Identifier: Apache-2.0

pytest_plugins = ["pytester"]

FIRST = """
import os, threading
import pytest
from quire.client import connect, aio

def test_one(quire_cluster):
    assert os.environ["QUIRE_METADATA"] == quire_cluster.uri
    assert len(quire_cluster.ids) == 4
    with connect() as bk, bk.create_ledger() as writer:
        assert writer.append(b"one") == 0
    assert list(quire_cluster.connect().ledgers()) == [writer.id]

@pytest.mark.quire(bookies=1, options={"journalSegmentSizeMB": "2"})
def test_another_finds_nothing(quire_cluster):
    assert len(quire_cluster.ids) == 1
    assert list(quire_cluster.connect().ledgers()) == []

def test_without():
    assert "QUIRE_METADATA" not in os.environ
"""


def outcome(pytester: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *words)


def test_each_test_has_a_cluster_of_its_own(pytester: pytest.Pytester) -> None:
    """Named in the environment while it runs, as large as its mark says."""
    outcome(pytester, FIRST).assert_outcomes(passed=3)


def test_processes(pytester: pytest.Pytester) -> None:
    """The second kind, by its fixture; its files are in the directory of the test."""
    text = """
    import pytest

    @pytest.mark.quire(bookies=1)
    def test_it(quire_process_cluster, tmp_path):
        (bookie,) = quire_process_cluster.ids
        assert (tmp_path / "quire" / "bookie-1" / "bookie.log").exists()
        quire_process_cluster.kill(bookie)
        assert quire_process_cluster.running == []
    """
    outcome(pytester, text).assert_outcomes(passed=1)


def test_containers_need_an_image(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the option."""
    monkeypatch.delenv("QUIRE_IMAGE", raising=False)
    result = outcome(pytester, "def test_it(quire_container_cluster): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E *give --quire-image, or set QUIRE_IMAGE*"])


def test_containers_need_their_library(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is missing, the command that installs it is shown."""
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", None)
    monkeypatch.delitem(sys.modules, "quire.testing.containers", raising=False)
    result = outcome(pytester, "def test_it(quire_container_cluster): pass", "--quire-image=any")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*testcontainers.core.container is not here: pip install *testing*"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("bookie=3", "the mark quire: *unexpected keyword argument 'bookie'*"),
        ("3", "the mark quire takes names: @pytest.mark.quire(bookies=3)*"),
        ("options={'journalSegmentSize': '3'}", "*unknown key 'journalSegmentSize'; the nearest one is journal*"),
    ],
)
def test_a_wrong_mark_is_named(pytester: pytest.Pytester, mark: str, said: str) -> None:
    """With what it should be."""
    result = outcome(
        pytester, f"import pytest\n@pytest.mark.quire({mark})\ndef test_it(quire_cluster): pass", "--strict-markers"
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"E *{said}"])


def test_the_plugin_alone_costs_nothing(pytester: pytest.Pytester) -> None:
    """A project that uses none of it imports neither a client nor Twisted, nor has warnings of an unknown mark."""
    text = """
    import sys
    def test_it():
        ours = [name for name in sys.modules if name.startswith("quire")]
        assert sorted(ours) == ["quire", "quire.testing", "quire.testing.plugin"], ours
        assert "twisted" not in sys.modules
    """
    pytester.makepyfile(text)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
