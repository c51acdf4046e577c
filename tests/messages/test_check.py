"""A whole store verified: what is wrong with a value is named, with its place."""

import pytest

from quire.messages.check import Checker
from quire.messages.descriptor import Descriptor, Region
from tests.messages import archives
from tests.messages.reference import parser

# SPDX-License-Identifier: Apache-2.0

SETTINGS = {"file_bytes": 65536, "address": "127.0.0.1:10911", "progress": "p"}


def checker(*regions):
    return Checker(Descriptor((), "ready", SETTINGS, regions or (Region(0, "plain"),)))


def values(name, tmp_path):
    """The values that an import of an archive brings, with their places."""
    old, groups = parser.parts(archives.unpack(name, tmp_path))
    found = [(at, record["raw"]) for kind, at, record in parser.plain(old) if kind == "record"]
    for group in groups:
        for path in parser.files(group / "data"):
            data = path.read_bytes()
            for kind, at, head, _record in parser.dledger(group / "data"):
                if kind == "entry" and at // len(data) * len(data) == int(path.name):
                    found.append((at, data[at % len(data) : at % len(data) + head["size"]]))
    return found


@pytest.mark.parametrize("name", archives.BROKERS)
def test_what_a_broker_wrote_is_right(name, tmp_path):
    """Each value of each kind of region."""
    regions = {
        "upgraded": (Region(0, "plain"), Region(196608, "dledger", group="dledger-n0"), Region(327680, "plain")),
        "dledger": (Region(0, "dledger", group="dledger-n1"), Region(1 << 40, "plain")),
    }.get(name.split("-")[0], (Region(0, "plain"),))
    made = checker(*regions)
    found = values(name, tmp_path)
    assert [flaw for at, value in found if (flaw := made.verify(at, value))] == []
    assert len(found) > 80


def test_what_is_wrong_is_named(tmp_path):
    """Another place, a changed byte, another layout, a gap in a queue."""
    (at, value), (then, following) = values("plain-clean", tmp_path)[:2]
    assert "says that its offset is 0" in checker().verify(5, value).text
    assert "CRC" in checker().verify(at, value[:88] + b"!" + value[89:]).text
    assert "another layout" in checker(Region(0, "dledger"), Region(1 << 40, "plain")).verify(at, value).text
    assert "neither a record nor" in checker().verify(at, b"nothing").text
    made = checker()
    assert made.verify(at, value) is None
    assert made.verify(then, following) is None
    assert "whose next one is 1" in made.verify(at, value).text


def test_entries_of_a_group_that_do_not_follow(tmp_path):
    """One that is missing, and one of a lower term."""
    regions = Region(0, "dledger", group="dledger-n1"), Region(1 << 40, "plain")
    found = values("dledger-killed-leader", tmp_path)
    made = checker(*regions)
    assert made.verify(*found[0]) is None
    assert "has index 2 of term 1, behind 0 of 1" in made.verify(*found[2]).text


def test_a_store_that_was_trimmed(tmp_path):
    """Its queues begin where their first record is; behind that they are dense."""
    found = values("plain-clean", tmp_path)
    made = Checker(Descriptor((), "ready", SETTINGS, (Region(0, "plain"),)), is_trimmed=True)
    assert [flaw for at, value in found[20:] if (flaw := made.verify(at, value))] == []
    assert "whose next one is" in made.verify(*found[20]).text
