"""The reference as pages."""

from pathlib import Path

from release.reference import FACES, build

# SPDX-License-Identifier: Apache-2.0


def test_a_page_for_each_face(tmp_path: Path) -> None:
    """With its names and what they are, without a request to another host."""
    first = build(tmp_path)
    assert first.is_file()
    for face in FACES:
        page = (tmp_path / face.replace(".", "/")).with_suffix(".html").read_text(encoding="utf-8")
        assert 'src="http' not in page
        assert 'link rel="stylesheet" href="http' not in page
    page = (tmp_path / "quire/client.html").read_text(encoding="utf-8")
    assert "append_many" in page
    assert "LedgerFenced" in page
