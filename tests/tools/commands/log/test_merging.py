"""`quire log merge` against four real bookies; `quire pipeline merge` is in `tests/spark`."""

from quire.pipeline.clients import cluster
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0


def test_small_segments_are_merged(uri: str) -> None:
    """What would be is said first; then it is done, once, and reads the same."""
    ours = cluster(uri)

    async def fill() -> None:
        await ours.logs.create("small", roll_records=2)
        owner = await ours.logs.own("small")
        for each in range(40):
            await owner.append(b"%d" % each)
        await owner.close()

    ours.wait(fill)
    before = ok("log", "read", "small", "--json", metadata=uri).rows
    dry = ok("log", "merge", "small", "--dry-run", "--json", metadata=uri).document
    assert (dry["segments"], dry["into"], dry["records"], dry["left"]) == (19, 1, 38, [])
    assert ok("log", "show", "small", "--json", metadata=uri).document["segments"] == 20
    assert "19 segments became 1: 38 records" in ok("log", "merge", "small", metadata=uri).out
    assert ok("log", "show", "small", "--json", metadata=uri).document["segments"] == 2
    assert ok("log", "read", "small", "--json", metadata=uri).rows == before
    assert "nothing to merge" in ok("log", "merge", "small", metadata=uri).out
    assert ok("log", "check", "small", metadata=uri).out == ""
    listed = ok("log", "show", "small", "--segments", "--json", metadata=uri).document["segments"]
    assert [each["merged"] for each in listed] == [[0, 2], None]
    merges, _limits = ours.wait(lambda: ours.logs.merging("small"))
    ours.wait(merges.begin)
    assert "is being merged by another process" in refused(1, "log", "merge", "small", metadata=uri)
    ours.wait(merges.end)
    assert "there is no log" in refused(1, "log", "merge", "nobody", metadata=uri)
