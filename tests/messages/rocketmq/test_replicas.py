"""Several directories of one DLedger group: which one is taken, and what is refused."""

import shutil

import pytest

from quire.protocol.message_errors import ImportRefused
from tests.messages.archives import DLEDGER, unpack
from tests.messages.rocketmq.made import checkpoint, entries, log_file, overwrite, plain, plan_of

# SPDX-License-Identifier: Apache-2.0


def refused(why, *roots, **options):
    with pytest.raises(ImportRefused, match=why) as failure:
        plan_of(*roots, **options)
    assert failure.value.why == why
    return failure.value


def test_the_archives_of_one_group(tmp_path):
    """The node that went on holds all that the killed one had: both together are a majority of three."""
    killed, after = (unpack(name, tmp_path) for name in DLEDGER)
    for roots in ((killed, after), (after, killed)):
        plan = plan_of(*roots)
        assert (plan.source.root, plan.records) == (str(after), 113)


def test_one_that_is_behind_and_one_that_has_more_than_is_committed(tmp_path):
    """The highest last term counts, then the highest index; all that is committed is in it."""
    a, b, c = (tmp_path / name for name in "abc")
    for root, terms, committed in ((a, [1] * 10, 5), (b, [1] * 30, 6), (c, [1] * 8 + [2] * 6, 7)):
        entries(root, terms, name=f"dledger-{root.name}")
        checkpoint(root, committed, f"dledger-{root.name}")
    assert plan_of(a, b, group_size=3).records == 30
    assert plan_of(a, b, c, group_size=3).source.root == str(c)
    assert plan_of(b, c, group_size=3).records == 14
    assert plan_of(a, single=True).records == 10


def test_a_majority(tmp_path):
    """Without one an import is refused, unless what is there is to be taken."""
    entries(tmp_path / "a", [1] * 3)
    assert "--group-size" in str(refused("MajorityMissing", tmp_path / "a", single=False))
    failure = refused("MajorityMissing", tmp_path / "a", group_size=3)
    assert "1 of 3 nodes (dledger-n0)" in str(failure)
    assert failure.file == str(tmp_path / "a")
    assert plan_of(tmp_path / "a", group_size=1).records == 3
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert "1 of 3 nodes (dledger-n0)" in str(
        refused("MajorityMissing", tmp_path / "a", tmp_path / "copy", group_size=3)
    )


def test_entries_that_differ(tmp_path):
    """Up to the smallest committed index: the first one, with both files; above it nobody minds."""
    roots = [tmp_path / name for name in "ab"]
    for root in roots:
        builder = entries(root, [1] * 40)
        checkpoint(root, 30)
    place = builder.records[25][0] - 48
    header = place + 16 + 7  # the term's last byte
    overwrite(roots[1], header, b"\2", folder="dledger-n0/data")
    failure = refused("ReplicasDiffer", *roots)
    assert (failure.file, failure.offset) == (str(log_file(roots[0], place, folder="dledger-n0/data")), place)
    assert f"entry 25, which is committed, is another one in {log_file(roots[1], place, folder='dledger-n0/data')}" in (
        str(failure)
    )
    checkpoint(roots[0], 24)
    failure = refused("TornTail", *roots)  # a term that falls is no entry
    assert failure.file.startswith(str(roots[1]))


def test_a_committed_entry_that_is_missing(tmp_path):
    """The directory that lacks it is named."""
    a, b = tmp_path / "a", tmp_path / "b"
    entries(a, [1] * 10)
    entries(b, [1] * 7)
    for root in (a, b):
        checkpoint(root, 8)
    failure = refused("ReplicasDiffer", a, b)
    assert f"entry 7, which is committed, is not in {b}" in str(failure)
    assert failure.file == str(log_file(a, 0, folder="dledger-n0/data"))


def test_replicas_that_were_trimmed_at_different_places(tmp_path):
    """What both have is compared."""
    a, b = tmp_path / "a", tmp_path / "b"
    for root in (a, b):
        entries(root, [1] * 60)
        checkpoint(root, 50)
    log_file(b, 0, folder="dledger-n0/data").unlink()
    assert plan_of(a, b).records == 60
    plan = plan_of(b, single=True)
    assert plan.begin == 4096
    assert 0 < plan.records < 60


def test_directories_that_are_no_replicas(tmp_path):
    """Plain stores have none, and are not mixed with others."""
    plain(tmp_path / "a", [0])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    entries(tmp_path / "c", [1])
    refused("SourceUnknown", tmp_path / "a", tmp_path / "b")
    assert refused("SourceUnknown", tmp_path / "c", tmp_path / "a").file == str(tmp_path / "a")
