"""Options of readers of Pulsar's topics."""

import pytest
from pydantic import ValidationError

from quire.conf.pulsar import PulsarOptions

# SPDX-License-Identifier: Apache-2.0


def test_defaults_and_bounds():
    """Nodes are looked for beside the ledgers' if no place is given; a place is a path."""
    assert PulsarOptions.given(None).root is None
    assert [PulsarOptions(root=each).root for each in ("", "/a/b")] == ["", "/a/b"]
    for wrong in ({"root": "a"}, {"root": "/a/"}, {"batch_bytes": 0}, {"poll_ms": 0}, {"unknown": 1}):
        with pytest.raises(ValidationError):
            PulsarOptions(**wrong)
    with pytest.raises(TypeError, match="PulsarOptions"):
        PulsarOptions.given({"root": "/"})  # type: ignore[arg-type]  # as a caller may
