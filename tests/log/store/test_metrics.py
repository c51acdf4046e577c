"""What Prometheus is shown of logs: every number under its documented name, and right after a log's life."""

from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry
from twisted.internet.defer import gatherResults

from quire.conf.log import LogSettings
from quire.log.owner.appending import sending
from quire.log.store.ledgers import LogLedgers, Tags
from quire.log.store.metrics import LogMetrics
from quire.protocol.log_errors import BatchGap, LogError, LogExists
from tests.log.fakes.cluster import cluster, values
from tests.log.test_api import failing_story
from tests.log.upkeep.test_orphans import GONE, made
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def listed(each):
    return [one async for one in each]


def scraped(metrics):
    """Of each sample its value, by name and labels."""
    registry = CollectorRegistry()
    registry.register(metrics)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [each for family in families for each in family.samples]
    return {
        (each.name, each.labels.pop("log"), *(value for _, value in sorted(each.labels.items()))): each.value
        for each in samples
    }


def test_a_log_s_life_in_numbers(tmp_path):
    """Appends, rollovers and why, a takeover, a fence, edits, a publish, what was read: each is counted once."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, second = await world.logs(), await world.logs()
            await logs.create("a", roll_records=4)
            await logs.create("other")
            owner = await logs.own("a")
            for number in range(8):
                await owner.append_many([b"%d" % number] * 2)
            owner.roll()
            await owner.append(b"x")
            await second.bk.recover_ledger((await second.info("a")).ledger)
            await gatherResults([owner.append(b"y"), owner.append(b"z")])
            await owner.close()
            sink = await logs.sink("a", "txn", "run")
            part = await sink.part(0, 0, 0)
            await part.append_many([b"p"] * 5)
            message = await part.close()
            left = await sink.part(1, 0, 0)
            await left.append_many([b"q"])
            await left.close()
            await sink.commit(0, [message])
            await sink.commit(0, [message])
            await failing_story(sink.commit(5, []), BatchGap)
            await sink.abort(1)
            reader = await logs.read("a")
            assert len(await values(reader)) == 24
            async for _batch in (await logs.read("a", 20)).tail(0.0):
                pass
            found = scraped(logs.metrics)
            return found, (await logs.info("a")).segments, (await logs.info("a")).doomed

    found, segments, doomed = run(story)
    assert found["quire_log_appends_total", "a"] == 19
    assert found["quire_log_append_bytes_total", "a"] == 19
    assert found["quire_log_append_seconds_count", "a"] == found["quire_log_batch_records_count", "a"]
    assert found["quire_log_batch_records_sum", "a"] == 19
    assert found["quire_log_rolls_total", "a", "records"] >= 3
    assert found["quire_log_fences_total", "a"] == 1
    assert found["quire_log_takeovers_total", "a"] == found["quire_log_takeover_seconds_count", "a"] == 1
    assert found["quire_log_edits_total", "a", "claim", "done"] == 1
    assert found["quire_log_edits_total", "a", "publish", "done"] == 1
    assert found["quire_log_publishes_total", "a", "done"] == 1
    assert found["quire_log_publishes_total", "a", "again"] == 1
    assert found["quire_log_publishes_total", "a", "refused"] == 1
    assert found["quire_log_published_ledgers_total", "a"] == 1
    assert found["quire_log_janitor_ledgers_total", "a"] == 1
    assert found["quire_log_read_records_total", "a"] == 24 + 4
    assert found["quire_log_tail_lag_records", "a"] == 0
    assert found["quire_log_segments", "a"] == segments
    assert found["quire_log_doomed", "a"] == doomed
    assert found["quire_log_manifest_bytes", "a"] > 500
    assert found["quire_log_appends_total", "other"] == 0


def test_what_is_under_way_shows(tmp_path):
    """Records and bytes that an owner has taken and not answered."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            waiting = owner.append_many([b"abc", b"d"])
            during = scraped(logs.metrics)
            await waiting
            return during, scraped(logs.metrics)

    for found, records in zip(run(story), ((2, 4), (0, 0)), strict=True):
        assert (found["quire_log_window_records", "a"], found["quire_log_window_bytes", "a"]) == records


def test_edits_are_counted(tmp_path):
    """What changes a manifest, by its name and outcome; one that is refused by a step beside it, too."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            await logs.create("b")
            await logs.update("a", roll_records=5)
            await logs.update("a", roll_records=5)
            await failing_story(logs.rename("a", "b"), LogExists)
            return scraped(logs.metrics)

    found = run(story)
    assert found["quire_log_edits_total", "a", "settings", "done"] == 1
    assert found["quire_log_edits_total", "a", "settings", "unwanted"] == 1
    assert found["quire_log_edits_total", "a", "rename", "refused"] == 1
    assert found["quire_log_edit_conflicts_total", "a"] == 0


def test_a_slow_hook_is_counted(tmp_path, monkeypatch):
    """Of the owner's log, once for each entry."""
    monkeypatch.setattr(sending, "SLOW_S", -1.0)  # all calls are slow

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a", before_append=lambda _index, _at, _stamp, values: values)
            for _ in range(3):
                await owner.append(b"x")
            return scraped(logs.metrics)

    assert run(story)["quire_log_hook_slow_total", "a"] == 3


def test_orphans_of_the_last_search(tmp_path):
    """None before one; those of logs that are not used here share an empty label; what was deleted counts no more."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            id_ = (await logs.create("a")).id
            kept = [await made(logs, each) for each in (id_, id_, GONE)]
            ledgers = LogLedgers(logs.bk, b"")
            other = Tags("log-segment", GONE, "another", "random", {})
            await ledgers.create(LogSettings.made(), other)
            before = scraped(logs.metrics)
            assert len(await listed(logs.orphans())) == 4
            during = scraped(logs.metrics)
            await failing_story(listed(logs.orphans(True, grace_s=0.0)), LogError)
            assert scraped(logs.metrics) == during
            async for each in logs.orphans(True, really=True, grace_s=0.0):
                assert each.deleted or each.ledger not in kept
            return before, during, scraped(logs.metrics)

    before, during, after = run(story)
    assert [key for key in before if key[0] == "quire_log_orphans"] == []
    assert (during["quire_log_orphans", "a"], during["quire_log_orphans", ""]) == (3, 1)
    assert (after["quire_log_orphans", "a"], after["quire_log_orphans", ""]) == (0, 0)


def test_logs_beyond_the_first_share_a_label():
    """Their counts are summed under an empty name; gauges, which can't be, are left out."""
    metrics = LogMetrics(lambda: [("0", 1, 2), ("late", 3, 4), ("later", 5, 6)], 3)
    for number in range(3):
        assert metrics.of(str(number)) is metrics.of(str(number))
    assert metrics.of("late") is metrics.of("later")
    metrics.of("late").fences += 2
    metrics.of("later").appended(3, 30, 0.5)
    found = scraped(metrics)
    assert found["quire_log_fences_total", ""] == 2
    assert found["quire_log_appends_total", ""] == 3
    assert found["quire_log_window_records", ""] == 8
    assert found["quire_log_window_bytes", "0"] == 2
    assert ("quire_log_segments", "") not in found
    assert ("quire_log_segments", "2") in found


class Changing(dict):
    """A mapping that another thread changes whenever it is gone through."""

    def looked_at(self):
        raise RuntimeError("dictionary changed size during iteration")

    keys = values = items = looked_at


def test_a_scrape_in_another_thread_goes_through_copies():
    """Whatever the reactor counts meanwhile; a copy is made in one step."""
    metrics = LogMetrics()
    counters = metrics.of("a")
    counters.cursor_backlogs = Changing(slow=(5, 50), fast=(1, 10))
    counters.rolls, counters.reads = Changing({("size",): 2}), Changing({("lease", "answered"): 3})
    counters.edits, counters.publishes = Changing(), Changing()
    found = scraped(metrics)
    assert (found["quire_log_cursor_backlog_records", "a"], found["quire_log_backlog_bytes", "a"]) == (5, 50)
    assert found["quire_log_rolls_total", "a", "size"] == 2
    assert found["quire_log_reads_total", "a", "lease", "answered"] == 3


def test_docs_name_every_metric():
    """docs/log-operating.md lists what is served."""
    text = Path(__file__).parents[3].joinpath("docs/log-operating.md").read_text()
    names = {family.name for family in LogMetrics().collect()}
    assert len(names) > 15
    assert [name for name in names if name not in text] == []
