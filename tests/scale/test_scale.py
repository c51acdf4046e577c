"""A small cluster of the model: what is lost is made good in time, and nothing grows faster than it must."""

from dataclasses import replace
from random import Random

import pytest

from tests.scale.beside import EVENTS, compared, error_of
from tests.scale.fleet import grouped
from tests.scale.growth import measured, must, table
from tests.scale.page import BEGIN, END, section
from tests.scale.scenarios import SCENARIOS, SMALL, ran
from tests.scale.sides import Model, Plan

# SPDX-License-Identifier: Apache-2.0

TINY = replace(SMALL, bookies=30, ledgers=1920, repairers=3, clients=2)


@pytest.mark.parametrize("name", ["one", "rack", "disks"])
def test_what_is_lost_is_made_good(name):
    """Every copy is there again, after not much more than the bytes and the end of the sessions take."""
    figures = ran(name, SMALL).figures
    assert figures["TB copied"] > 0
    assert figures["ledgers gone"] == 0
    assert figures["s to full copies"] < 60 + 2 * figures["s that the bytes need"]


def test_a_slow_store_is_no_end():
    """With a store of 200 ms a lost bookie takes longer, and is made good."""
    slow, usual = ran("slow-store", TINY).figures, ran("one", TINY).figures
    assert slow["TB copied"] == pytest.approx(usual["TB copied"], rel=0.2)
    assert slow["s to full copies"] > usual["s to full copies"]


@pytest.mark.parametrize("name", ["rolling", "region"])
def test_nothing_is_copied_for_those_who_come_back(name):
    """Inside the delay of lost bookies nobody counts as lost."""
    found = ran(name, TINY)
    assert found.figures["TB over copier"] == 0
    assert max(count for _at, count in found.curves["marked"]) == 0


def test_several_are_drained_in_as_many_looks_as_one():
    """A command for each bookie looks at all ledgers for each; one command for all does so once."""
    each, together = ran("drain-each", TINY).figures, ran("drain-all", TINY).figures
    assert each["ledgers left"] == together["ledgers left"] == 0
    assert together["store calls, each bookie"] < 0.7 * each["store calls, each bookie"]


def test_bookies_that_join():
    """Each reads the metadata of all ledgers once; a client reads the list for all that join, not for each."""
    figures = ran("out", TINY).figures
    assert figures["store calls of a bookie's first start"] == pytest.approx(TINY.ledgers, rel=0.05)
    assert figures["lists that a client was called with"] <= 3


def test_evening_out():
    """A plan for an even fill moves what it has to, and not much more."""
    figures = ran("even", TINY).figures
    assert figures["TB that it has to"] <= figures["TB that evening out moves"] < 2 * figures["TB that it has to"]
    even = ran("fill", TINY).figures
    assert even["fill, deviation / mean"] < 1.5 * even["fill, deviation / mean of blind draws"]


def test_new_bookies_fill_up():
    """With what ends and what is written, and sooner where the placement looks at free disks."""
    by_number, by_free = ran("by-number", SMALL).figures, ran("by-free", SMALL).figures
    assert by_free["turnovers to 50 %"] < by_number["turnovers to 50 %"] < 0.8
    assert by_free["turnovers to 90 %"] < by_number["turnovers to 90 %"]


def test_one_seed_has_one_outcome():
    """The same figures each time; another seed has others."""
    first, again, other = (ran("one", replace(TINY, seed=seed)).figures for seed in (3, 3, 4))
    assert first == again != other


def test_a_group_stands_for_its_ledgers():
    """Groups of another size change the figures little."""
    coarse, fine = (ran("rack", replace(SMALL, group=group)).figures for group in (32, 8))
    assert fine["TB copied"] == pytest.approx(coarse["TB copied"], rel=0.2)
    assert fine["s to full copies"] == pytest.approx(coarse["s to full copies"], rel=0.3)


def test_nothing_grows_faster_than_it_must():
    """What one event costs, over clusters of three sizes."""
    found = measured((15, 30, 60))
    lines = table(found)
    assert len(found) > 10
    assert {must(name) for name in found} == {0.0, 1.0}
    assert not [line for line in lines if "**faster**" in line]


def test_the_page_is_made_of_figures():
    """Tables and charts stand between its marks, and what is around them stays."""
    found = ran("one", TINY)
    document = {"shape": {}, "outcomes": [{"name": found.name, "figures": found.figures, "curves": found.curves}]}
    text = section(f"head\n{BEGIN}old\n{END}tail\n", document, "scale")
    assert text.startswith("head\n")
    assert text.endswith(f"{END}tail\n")
    assert "| all copies there after, s |" in text
    assert "![store.svg](scale/store.svg)" in text
    assert "old" not in text
    assert set(SCENARIOS) >= {"one", "rack", "region", "rolling"}


def test_what_is_compared_is_counted():
    """In the model: a mark for each ledger on the bookie that is lost, a copy of each on the one that is drained."""
    plan, random = Plan(6, 30, 1 << 19, 8_000_000), Random(1)
    ensembles = [random.sample(range(plan.bookies), 3) for _ in range(plan.ledgers)]
    with grouped(1):
        lost, drained = (event(Model(plan, ensembles, 0.001), plan) for event in EVENTS.values())
    assert lost["ledgers marked"] == lost["ledgers repaired"] == sum(0 in each for each in ensembles)
    assert drained["ledgers freed"] == sum(1 in each for each in ensembles)
    assert lost["bytes copied"] == pytest.approx(lost["ledgers repaired"] * plan.size, rel=0.01)  # with what is around
    assert lost["store calls of the auditor: writes"] > lost["ledgers marked"]
    assert drained["store calls of the client: reads"] > 0


@pytest.mark.long
@pytest.mark.parametrize("bookies", [6, 24])
def test_the_model_is_like_a_real_cluster(bookies, tmp_path):
    """Bookies as processes, one killed and one drained: what is copied is the same, calls of the store nearly so."""
    found = compared(Plan(bookies, 10 * bookies, 1 << 19, 8_000_000), tmp_path)
    for event, exact in (
        ("a bookie lost", ("ledgers marked", "ledgers repaired", "bytes copied")),
        ("a bookie drained", ("ledgers freed", "bytes copied")),
    ):
        rows = {name: (real, model) for name, real, model in found[event]}
        for name in exact:
            assert rows[name][0] == rows[name][1], name
    assert abs(error_of(*rows["store calls of the command: writes"])) < 0.25
    assert abs(error_of(*rows["store calls of the command: reads"])) < 0.25
