"""Where a log's records are, and which names can be a part of a path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.log.store import paths
from quire.metadata.records import check_path

# SPDX-License-Identifier: Apache-2.0

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(names)
def test_a_name_of_a_user_is_one_part_of_a_path(name):
    """Whatever it holds, it is found again, and no two names have one path."""
    part = paths.encoded(name)
    check_path(part)
    assert "/" not in part
    assert paths.decoded(part) == name
    check_path(paths.name_path(name))


@pytest.mark.parametrize("name", ["", "a\nb", "\x7f", "ä" * 34, "a" * 201])
def test_a_name_that_cannot_be_one(name):
    """Empty, with control characters, or too long once it is encoded."""
    with pytest.raises(ValueError, match="no name of a log"):
        paths.encoded(name)


def test_names_that_a_path_gives_a_meaning():
    """Slashes and dots are part of the name and mean nothing."""
    assert paths.encoded(".") == "%2E"
    assert paths.encoded("..") == "%2E%2E"
    assert paths.encoded("a/b~c.d") == "a%2Fb%7Ec.d"
    with pytest.raises(TypeError):
        paths.encoded(7)


def test_paths():
    """Each is one that a store takes."""
    log = "6f1c" * 8
    assert paths.log_path(log) == f"logs/6f/{log}"
    assert paths.adopted_path(258) == "adopted/02/258"
    for path in (paths.log_path(log), paths.chunk_path(log, "000000000000-5f3a9c01"), paths.adopted_path(1)):
        check_path(path)
