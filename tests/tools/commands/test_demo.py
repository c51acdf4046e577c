"""`quire demo`: the tour, on small files and in small parts."""

import hashlib
from pathlib import Path

import pytest

from quire.tools.commands import demo
from quire.tools.terminal.input import PAYLOAD_BYTES_MAX
from tests.requirements import need
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0


def check(done: dict[str, object], data: bytes, entries: int) -> None:
    digest = hashlib.sha256(data).hexdigest()
    assert (done["sha256_in"], done["sha256_out"]) == (digest, digest)
    assert (done["entries"], done["read_entries"]) == (entries, entries)
    fragments = done["fragments"]
    assert isinstance(fragments, list)
    assert done["ensemble_changes"] == len(fragments) - 1 >= 1
    assert done["killed"] in fragments[0]["bookies"]
    assert done["killed"] not in fragments[-1]["bookies"]
    assert fragments[-1]["last"] == entries - 1


@pytest.mark.parametrize(
    "options",
    [[], ["--protocol", "v3", "--metadata", "zookeeper"], ["--metadata", "etcd"]],
    ids=["as it comes", "v3 zookeeper", "etcd"],
)
def test_a_small_demo(tmp_path: Path, options: list[str]) -> None:
    """A real file of this project: equal digests, a bookie killed in the middle, an ensemble change; exit status 0."""
    if "etcd" in options:
        need("etcd")
    data = b"".join(path.read_bytes() for path in sorted(Path(demo.__file__).parent.glob("*.py")))
    file = tmp_path / "source"
    file.write_bytes(data)
    done = ok("demo", file, "--json", *options).document
    check(done, data, data.count(b"\n"))
    assert done["protocol"] == ("v3" if "v3" in options else "v2")


def test_the_summary_for_people(tmp_path: Path) -> None:
    """
    Entries, speed, the bookie that was killed, the change, both digests; the story beside it on standard error.  One
    line is cut in parts.
    """
    file = tmp_path / "line"
    file.write_bytes(b"only this")
    done = ok("demo", file)
    digest = hashlib.sha256(b"only this").hexdigest()
    assert done.out.count(digest) == 2
    assert "ensemble changes: 1" in done.out
    assert "MB/s" in done.out
    assert "kill -9" in done.err


def test_files_that_are_no_use(tmp_path: Path) -> None:
    """An empty one is wrong usage, a missing one is named, a directory in use is not touched."""
    empty = tmp_path / "empty"
    empty.touch()
    assert "has 0 bytes, 4 are needed" in refused(2, "demo", empty)
    assert "/no/such/file" in refused(1, "demo", "/no/such/file")
    assert "not empty" in refused(2, "demo", demo.__file__, "--dir", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


def test_the_standard_library_is_the_default() -> None:
    """Hundreds of thousands of lines of real text, nothing that was installed beside it."""
    files = demo.standard_library()
    assert any(path.name == "argparse.py" for path in files)
    assert not any("site-packages" in path.parts for path in files)
    assert sum(path.stat().st_size for path in files) > 5_000_000


def test_lines_of_files(tmp_path: Path) -> None:
    """
    Line ends stay, a long line comes in pieces, no file runs into the next; batches have the size that was asked for.
    """
    contents = [b"a\nb", b"", b"\n\nc\r\n", b"x" * (PAYLOAD_BYTES_MAX + 3) + b"\n"]
    files = []
    for number, content in enumerate(contents):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(content)
    found = list(demo.lines(files, PAYLOAD_BYTES_MAX))
    assert found[:5] == [b"a\n", b"b", b"\n", b"\n", b"c\r\n"]
    assert [len(line) for line in found[5:]] == [PAYLOAD_BYTES_MAX, 4]
    assert demo.count(files, PAYLOAD_BYTES_MAX) == (7, sum(map(len, contents)))
    assert [len(batch) for batch in demo.batches(files, 3, PAYLOAD_BYTES_MAX)] == [3, 3, 1]
    assert [line for batch in demo.batches(files, 2, PAYLOAD_BYTES_MAX) for line in batch] == found


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"sha256_out": "other"}, "not what went in"),
        ({"read_entries": 9}, "10 entries went in and 9 came back"),
        ({"ensemble_changes": 0}, "did not change"),
    ],
)
def test_the_verdict(changed: dict[str, object], why: str) -> None:
    """Success means equal digests, equal counts and at least one ensemble change."""
    done: dict[str, object] = {
        "sha256_in": "same",
        "sha256_out": "same",
        "entries": 10,
        "read_entries": 10,
        "ensemble_changes": 1,
    }
    verdict = demo.verdict({**done, **changed})
    assert why in verdict
    assert bool(verdict) == bool(changed)
