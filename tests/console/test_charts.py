"""Charts as pictures, and in words."""

import math
from xml.etree import ElementTree

from quire.console.charts import CURVES_MAX, OTHERS, SIGNS, curves, number_text, picture, told
from quire.console.history import BY_KEY, Curve, History
from tests.console.test_history import added

# SPDX-License-Identifier: Apache-2.0

ADDS = BY_KEY["adds"]


def test_a_picture_has_a_curve_and_a_name_for_each() -> None:
    """Each with a sign of its dashes, for colours alone say nothing to some."""
    drawn = [Curve(f"b:{number}", [1.0, math.nan, 3.0 + number]) for number in range(3)]
    text = picture(ADDS, [0, 15, 30], drawn)
    for sign, curve in zip(SIGNS, drawn, strict=False):
        assert f"{sign} {curve.name}</text>" in text
    assert text.count("stroke-dasharray:") > 2
    assert "<script" not in text
    assert "xlink:href" not in text


def test_names_are_text() -> None:
    """What is written as a name of a bookie is no mark-up, and the picture stays one."""
    text = picture(ADDS, [0, 15], [Curve("<script>alert(1)</script>&", [1, 2])])
    assert "<script" not in text
    ElementTree.fromstring(text.encode())


def test_nothing_was_measured() -> None:
    """Picture and words say so."""
    assert "nothing was measured yet" in picture(ADDS, [], [])
    assert told(ADDS, []) == "Entries added, last: nothing was measured yet"


def test_of_many_bookies_the_busiest_are_drawn() -> None:
    """The others are one curve."""
    history, names = History(), [f"b:{number}" for number in range(20)]
    history.take(0, [added(0, name) for name in names])
    history.take(1, [added(number, name) for number, name in enumerate(names)])
    drawn = curves(history, ADDS, names)
    assert [each.name for each in drawn] == [*names[:-CURVES_MAX:-1], OTHERS]
    assert drawn[-1].values[1] == sum(range(20 - CURVES_MAX + 1))
    assert [each.name for each in curves(history, ADDS, names[:3])] == names[:3]


def test_words_say_the_last_numbers() -> None:
    """For a reader who hears the page."""
    drawn = [Curve("b:1", [1, 2500]), Curve("b:2", [1, math.nan])]
    assert told(ADDS, drawn) == "Entries added, last: b:1: 2.5 k /s; b:2: unknown"


def test_numbers_are_short() -> None:
    """Three digits and a unit."""
    assert [number_text(value) for value in (None, 0, 12.345, 4567, 3_400_000, 8e9)] == [
        *("", "0", "12.3", "4.57 k", "3.4 M"),
        "8 G",
    ]
