"""The function for `foreachBatch`, without Spark; `tests/spark` has queries."""

from types import SimpleNamespace
from typing import Any

import pytest

from quire.pipeline import each_batch

# SPDX-License-Identifier: Apache-2.0


class Frame:
    """What Spark gives the function, as far as that uses it; notes the options of its write."""

    def __init__(self, query: str | None) -> None:
        self.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda _name: query))
        self.noted: dict[str, Any] = {}
        self.write = self

    def format(self, name: str) -> "Frame":
        self.noted["format"] = name
        return self

    def options(self, **options: str) -> "Frame":
        self.noted |= options
        return self

    def mode(self, mode: str) -> "Frame":
        self.noted["mode"] = mode
        return self

    def save(self) -> None:
        self.noted["saved"] = True


def test_a_batch_has_the_name_of_its_query() -> None:
    """Unless the user names the writer; options are text."""
    frame = Frame("the query")
    each_batch(log="a", create=True)(frame, 7)
    assert frame.noted == {
        **{"format": "log", "mode": "append", "saved": True},
        **{"log": "a", "create": "true", "txnAppId": "the query", "txnVersion": "7"},
    }
    frame = Frame(None)
    each_batch(TxnAppId="billing")(frame, 8)
    assert (frame.noted["txnAppId"], frame.noted["txnVersion"]) == ("billing", "8")


def test_a_query_that_is_not_known() -> None:
    """Is an error that says what to give: with a name of its own for each batch nothing would be once."""
    with pytest.raises(ValueError, match="with Spark Connect give txnAppId"):
        each_batch(log="a")(Frame(None), 7)
