"""Ledger ids and znode paths, and the LAYOUT text (metadata-rules.md 2.2, 3.3)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.metadata.ledgers.layout import Layout, LedgerPaths, is_special, parse_layout
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

TABLE = [
    (Layout.FLAT, 0, "/r/L0000000000"),
    (Layout.FLAT, 12345, "/r/L0000012345"),
    (Layout.FLAT, 9223372036854775806, "/r/L9223372036854775806"),
    (Layout.APACHE_ETCD, 0, "/r/ledgers/00000000-0000-0000-0000-000000000000"),
    (Layout.APACHE_ETCD, (40 << 56) + 1, "/r/ledgers/00000000-0000-0000-2800-000000000001"),
    (Layout.APACHE_ETCD, 9223372036854775806, "/r/ledgers/00000000-0000-0000-7fff-fffffffffffe"),
    (Layout.HIERARCHICAL, 0, "/r/00/0000/L0000"),
    (Layout.HIERARCHICAL, 12345, "/r/00/0001/L2345"),
    (Layout.HIERARCHICAL, 2147483646, "/r/21/4748/L3646"),
    (Layout.HIERARCHICAL, 2147483647, "/r/000/0000/0021/4748/L3647"),
    (Layout.HIERARCHICAL, 4294967296, "/r/000/0000/0042/9496/L7296"),
    (Layout.HIERARCHICAL, 9223372036854775806, "/r/922/3372/0368/5477/L5806"),
    (Layout.LONG, 0, "/r/000/0000/0000/0000/L0000"),
    (Layout.LONG, 12345, "/r/000/0000/0000/0001/L2345"),
    (Layout.LONG, 2147483646, "/r/000/0000/0021/4748/L3646"),
    (Layout.LONG, 9223372036854775806, "/r/922/3372/0368/5477/L5806"),
]


@pytest.mark.parametrize(("layout", "ledger", "path"), TABLE)
def test_table_of_paths(layout, ledger, path):
    """Both directions (metadata-rules.md 3.3)."""
    paths = LedgerPaths("/r", layout)
    assert paths.path_of(ledger) == path
    assert paths.id_of(path) == ledger


@given(
    st.sampled_from([layout for layout in Layout if layout is not Layout.APACHE_ETCD]), st.integers(0, (1 << 63) - 2)
)
def test_every_id_has_one_path_that_the_walk_finds(layout, ledger):
    """Path and id are inverse, and each level's name matches the pattern that listing uses."""
    paths = LedgerPaths("/a/b", layout)
    path = paths.path_of(ledger)
    assert paths.id_of(path) == ledger
    names = path.removeprefix("/a/b/").split("/")
    trees = [tree for tree in paths.levels() if len(tree) == len(names)]
    assert len(trees) == 1
    assert all(re.fullmatch(pattern, name) for pattern, name in zip(trees[0], names, strict=True))
    assert paths.is_ledger_top(names[0])
    assert [f"/a/b/{'/'.join(names[:depth])}" for depth in range(len(names) - 1, 0, -1)] == paths.parents(ledger)


@pytest.mark.parametrize(
    "path",
    [
        "/r/000/0000/0000/0001/L2345",
        "/r/21/4748/L3647",
        "/r/00/0000",
        "/r/00/0000/X0000",
        "/r/available",
        "/other/00/0000/L0000",
        "/r/00/0000/L000L",
        "/r/99/9999/L9999",
        "/r/" + "9" * 5000,
    ],
)
def test_a_path_of_the_wrong_form_is_no_ledger(path):
    """A small id at a long path, a big one at a short path, or no ledger's name at all."""
    assert LedgerPaths("/r", Layout.HIERARCHICAL).id_of(path) is None


@pytest.mark.parametrize("layout", list(Layout))
def test_layout_text(layout):
    """What we write reads back, and a URI that insists on another is refused with both names."""
    if layout is Layout.APACHE_ETCD:
        with pytest.raises(MetaStore, match=re.escape("etcd+apache://")):
            parse_layout(layout.text)
    else:
        assert parse_layout(layout.text) is layout
    assert not layout.text.endswith(b"\n")
    assert parse_layout(layout.text, layout) is layout
    other = next(each for each in Layout if each is not layout)
    with pytest.raises(MetaStore, match=f"{other.value}.*{layout.value}"):
        parse_layout(layout.text, other)


def test_layout_of_format_1_has_short_names():
    """metadata-rules.md 1.2."""
    assert parse_layout(b"1\nflat:1") is Layout.FLAT
    assert parse_layout(b"1\nhierarchical:1") is Layout.HIERARCHICAL
    with pytest.raises(MetaStore):
        parse_layout(b"1\nlonghierarchical:1")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"2",
        b"3\nx:1",
        b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
        b"2\na:b:1",
        b"\xff\xfe",
        Layout.FLAT.text[:-1] + b"2",
        b"2\nLegacy:1",
    ],
)
def test_strange_layouts_are_refused(data):
    """Anything else is an error of the store, not a guess."""
    with pytest.raises(MetaStore):
        parse_layout(data)


def test_special_nodes_are_no_ledgers():
    """The cluster's own nodes below the root."""
    for name in (
        "available",
        "cookies",
        "LAYOUT",
        "INSTANCEID",
        "underreplication",
        "idgen",
        "idgen-long",
        "ID-0000000001",
    ):
        assert is_special(name)
        assert not any(LedgerPaths("/r", layout).is_ledger_top(name) for layout in Layout)
