"""Metadata URIs that are refused, and what is said about them; `test_address.py` has those that are accepted."""

import pytest
from twisted.internet.task import Clock

from quire.metadata.uri import open_store

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("uri", [None, b"zk://h/ledgers", 7])
def test_what_is_no_text_is_no_uri(uri):
    """As `os.environ.get` gives where the variable is not set."""
    with pytest.raises(TypeError, match=r"a metadata URI is text .*sqlite:///"):
        open_store(Clock(), uri)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("zk:///ledgers", "host"),
        ("zk://;/ledgers", "host"),
        ("zk://h", "path"),
        ("zk://h/", "path"),
        ("zk://h/a/", "path"),
        ("zk://h//a", "path"),
        ("zk://h/../a", "path"),
        ("zk://h:x/a", "host:port"),
        ("zk://h:0/a", "host:port"),
        ("zk://h:70000/a", "host:port"),
        ("zk+legacyhierarchical://h/a", "scheme"),
        ("zk+ms://h/a", "scheme"),
        ("zk:h/a", "scheme"),
        ("metadata-store:etcd:h", "etcd"),
        ("sqlite://host/a.db", "three slashes"),
        ("sqlite:///", "file"),
        ("sqlite:///a/", "file"),
        ("memory://", "form"),
        ("memory:x", "form"),
        ("consul://h/a", "form"),
        ("etcd:///a", "host"),
        ("etcd://h", "path"),
        ("", "form"),
        ("/var/lib/metadata.db", "form"),
    ],
)
def test_bad_uris_name_the_forms(uri, why):
    """`ValueError` is raised at once; it says what is wrong and what would be right."""
    with pytest.raises(ValueError, match=why) as caught:
        open_store(Clock(), uri)
    for form in ("zk://", "sqlite:///", "memory://"):
        assert form in str(caught.value)
