"""The checker of named logs notices each promise that is broken, and decodes what the code encodes."""

from typing import Any

import pytest

from quire.conf.log import LogSettings
from quire.log.core.batch import Records
from quire.log.owner.appending.encoder import Encoder
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from tests.metadata import stored
from tests.simulation.log_records import Change, NotALog, content
from tests.simulation.log_truth import LogTruth
from tests.simulation.nodes import World

MANIFEST, TXN, INTENT = "logs/ab/ab01", "logs/ab/ab01/txn/t", "logs/ab/ab01/intents/t/0-0-1-x"


def entries(*batches: list[bytes], part_bytes: int = 1 << 20, compression: str = "none") -> list[bytes]:
    """As an owner or a task writes them."""
    encoder = Encoder.of_ledger(part_bytes, compression)
    return [entry for values in batches for entry in encoder.encode(Records(values), 7)[0]]


@pytest.mark.parametrize(("part_bytes", "compression"), [(1 << 20, "none"), (64, "none"), (1 << 20, "zlib")])
def test_what_the_code_encodes(part_bytes, compression):
    """Values, stamps and counts are found without the code's decoder, of parts and compressed bodies too."""
    found = content(entries([b"a" * 100, b"b" * 100], [b"c"], part_bytes=part_bytes, compression=compression))
    assert found.values == [b"a" * 100, b"b" * 100, b"c"]
    assert (found.stamps, found.bytes) == ([7, 7, 7], 201)


def test_half_a_batch_has_no_index_and_a_gap_is_no_log():
    """Parts without the last one are no records; an entry that does not continue the others is found."""
    parts = entries([b"a" * 100, b"b" * 100], part_bytes=64)
    assert content(parts[:-1]).values == []
    with pytest.raises(NotALog):
        content(entries([b"a"], [b"b"])[1:])


def segment(n: int, ledger: int, first: int, records: int | None = None, **more: Any) -> dict[str, Any]:
    """Of one-byte values."""
    made = {"n": n, "ledger": ledger, "epoch": 1, "first": first, "at": first}
    return {**made, **({} if records is None else {"records": records, "bytes": records, "entries": 1}), **more}


def manifest(*segments: dict[str, Any], epoch: int = 1, edit: str = "e", **more: Any) -> dict[str, Any]:
    made = {
        "owner": {"token": "one", "epoch": epoch} if epoch else None,
        "begin": {"n": 0, "index": 0},
        "next": len(segments),
        "edit": edit,
        "recent": [edit],
        "chunks": [],
        "doomed": [],
        "compacted": None,
        "snapshots": [],
        "epoch": epoch,
        "segments": list(segments),
        "settings": LogSettings.made().model_dump(),
    }
    return {**made, **more}


class Story:
    """A log with a claim, and what comes to pass with it."""

    def __init__(self) -> None:
        self.world = World(1, 0.001, 0.001)
        self.truth = LogTruth(self.world)
        self.change(f"{MANIFEST}/owner", {"token": "one"})
        self.change(MANIFEST, manifest(epoch=0))

    def ledger(self, ledger: int, values: list[bytes] | None = None, tags: dict[str, str] | None = None) -> None:
        """Closed with these values, or open without any."""
        tags = {"quire/epoch": "1", **(tags or {})}
        made = LedgerMetadata.new(1, 1, 1, ("b",), custom={name: text.encode() for name, text in tags.items()})
        ledgers = stored.Ledgers(self.world.shared)
        ledgers[ledger] = Versioned(made, 0)
        if values is not None:
            self.store(ledger, values)
            end = -1 if not values else 0
            self.world.truth.ledgers[ledger].kept = {0: {"b"}}
            ledgers[ledger] = Versioned(made.closed(end, 9 if values else 0), 1)

    def store(self, ledger: int, values: list[bytes]) -> None:
        self.world.truth.ledgers[ledger].payloads.update(enumerate(entries(values)) if values else ())

    def change(self, path: str, after: Any, before: Any = None) -> None:
        known = {MANIFEST: self.truth.manifest, **self.truth.txns, **self.truth.intents}
        self.truth.changed([Change(path, known.get(path, before), after)])

    @property
    def broken(self) -> str | None:
        violation = self.world.truth.violation
        return None if violation is None else violation.invariant


def opened() -> Story:
    """A log whose first segment is open."""
    story = Story()
    story.change(MANIFEST, manifest(edit="claim"))
    story.ledger(1)
    story.change(MANIFEST, manifest(segment(0, 1, 0), edit="open"))
    assert story.broken is None
    return story


def closing(story: Story, values: list[bytes]) -> Any:
    """The metadata of its first ledger, closed with these."""
    story.store(1, values)
    made = stored.Ledgers(story.world.shared)[1].value
    story.world.truth.ledgers[1].kept = {0: {"b"}}
    stored.Ledgers(story.world.shared)[1] = Versioned(made.closed(0, 9), 2)


@pytest.mark.parametrize(
    ("after", "promise"),
    [
        (manifest(segment(0, 1, 0, 2)), None),
        (manifest(segment(0, 1, 0, 3)), "counts"),
        (manifest(next=1), "named exists"),
        (manifest(next=1, doomed=[{"ledger": 1}]), "counts"),
        (manifest(segment(0, 1, 1, 2)), "final"),
        (manifest(segment(0, 1, 0, 2), segment(1, 9, 2)), "named exists"),
        (manifest(segment(0, 1, 0, 2), segment(1, 1, 2)), "used once"),
        (manifest(segment(0, 1, 0), segment(1, 2, 0)), "one open"),
        (manifest(segment(0, 1, 0, 2), segment(1, 2, 1)), "dense"),
        (manifest(segment(0, 1, 0, 2), epoch=3), "epoch"),
        (manifest(segment(0, 1, 0, 2), epoch=0), "never back"),
        (manifest(segment(0, 1, 0, 2), edit="open"), "edits"),
        (manifest(segment(0, 1, 0, 2), owner={"token": "two", "epoch": 1}), "claims"),
        (manifest(segment(0, 1, 0, 2), begin={"n": -1, "index": 0}), "never back"),
        (manifest(segment(0, 1, 0, 2), begin={"n": 0, "index": 1}), "begin"),
        (manifest(segment(0, 1, 0, 2), doomed=[{"ledger": 1}]), "named exists"),
    ],
)
def test_a_manifest_that_breaks_a_promise(after, promise):
    """Each wrong change of the manifest has its promise, and a right one breaks none."""
    story = opened()
    closing(story, [b"a", b"b"])
    story.ledger(2, [b"c"])
    story.change(MANIFEST, after)
    assert story.broken == promise


def test_a_segment_is_closed_only_with_its_ledger():
    """Counts of a ledger that is still written are no counts."""
    story = opened()
    story.store(1, [b"a", b"b"])
    story.change(MANIFEST, manifest(segment(0, 1, 0, 2)))
    assert story.broken == "counts"


@pytest.mark.parametrize(("tags", "written", "promise"), [
    ({}, False, None), ({"quire/epoch": "0"}, False, "owner's edits"), ({}, True, "named first"),
])  # fmt: skip
def test_an_open_segment_is_the_owners_and_named_first(tags, written, promise):
    """A ledger of another epoch, and one that was written before it was named."""
    story = Story()
    story.change(MANIFEST, manifest(edit="claim"))
    story.ledger(1, tags=tags)
    if written:
        story.store(1, [b"a"])
    story.change(MANIFEST, manifest(segment(0, 1, 0), edit="open"))
    assert story.broken == promise


def test_answers_that_are_wrong():
    """What was acknowledged, refused or read is compared with each other and with the log."""
    for wrong, promise in (
        (lambda truth: truth.acknowledged("h", 1, [b"b"], [0]), "acknowledged"),
        (lambda truth: truth.acknowledged("h", 2, [b"b"], [1]), "epochs"),
        (lambda truth: truth.saw("r", 0, [b"b"]), "one sequence"),
        (lambda truth: truth.saw("r", 1, [b"z"]), "one sequence"),
        (lambda truth: (truth.refused([b"b"], "LogFenced"), truth.saw("r", 1, [b"b"])), "answered"),
    ):
        story = opened()
        story.truth.appended("h", [b"a", b"b"])
        story.truth.acknowledged("h", 1, [b"a"], [0])
        assert story.broken is None
        wrong(story.truth)
        assert story.broken == promise


@pytest.mark.parametrize(
    ("state", "deleted", "maker", "promise"),
    [
        (LedgerState.CLOSED, 1, "p0", "named exists"),
        (LedgerState.OPEN, 2, "p0", "fenced first"),
        (LedgerState.CLOSED, 2, "p1", "doomed first"),
        (LedgerState.CLOSED, 2, "p0", None),
    ],
)
def test_a_ledger_is_deleted_only_when_it_is_fenced_and_not_named(state, deleted, maker, promise):
    """One that a segment names, or that can still be written, stays."""
    story = opened()
    closing(story, [b"a"])
    story.ledger(2, [b"b"] if state is LedgerState.CLOSED else None)
    story.world.makers[deleted], story.world.deleter = maker, "p0"
    stored.Ledgers(story.world.shared).pop(deleted)
    assert story.broken == promise


def txn(last: int = -1, claim: int = 1, run: str = "r", **more: Any) -> dict[str, Any]:
    made = {"txn": "t", "run": run, "claim": claim, "past": [], "last": last, "receipt": None, "aborted": None}
    return {**made, **more}


PUBLISHED = {"first": 0, "end": 1, "n": [0, 0]}


@pytest.mark.parametrize(
    ("after", "kept", "promise"),
    [
        (txn(0, receipt=PUBLISHED), False, None),
        (txn(0, receipt=PUBLISHED), True, "intents"),
        (txn(1, receipt=PUBLISHED), False, "exactly once"),
        (txn(0, receipt={"first": 0, "end": 2}), False, "receipts"),
        (txn(0, receipt=PUBLISHED, claim=2), False, "runs"),
        (txn(0, receipt=PUBLISHED, aborted={"batch": 0, "claim": 1}), False, "aborts"),
        (None, False, "exactly once"),
    ],
)
def test_a_batch_is_published_in_one_step_from_parts_of_its_claim(after, kept, promise):
    """What the txn says, its intents and the segments go together."""
    story = Story()
    intent = {"run": "r", "claim": 1, "ledgers": [1]}
    aborted = after is not None and after["aborted"] is not None
    story.change(TXN, txn(aborted=after["aborted"] if aborted else None))
    story.change(INTENT, intent)
    story.ledger(1, [b"a"], {"quire/txn": "t", "quire/run": "r", "quire/batch": "0"})
    story.truth.offers["t", 0] = [[b"a"]]
    before = story.truth.manifest
    named = manifest(segment(0, 1, 0, 1, txn="t", batch=0), epoch=0, edit="publish")
    changes = [Change(MANIFEST, before, named)]
    if after is not None:
        changes.append(Change(TXN, story.truth.txns[TXN], after))
    if not kept:
        changes.append(Change(INTENT, intent, None))
    story.truth.changed(changes)
    assert story.broken == promise


def test_a_ledger_of_an_intent_that_was_cleared_may_be_deleted_by_anybody():
    """A janitor that read the intent before another one cleared it finds a ledger that was made late."""
    story = Story()
    story.change(TXN, txn(claim=2))
    story.change(INTENT, {"run": "r", "claim": 1, "ledgers": [1]})
    story.change(INTENT, None)
    for ledger in (1, 2):
        story.ledger(ledger, [b"a"])
        story.world.makers[ledger], story.world.deleter = "p1", "p0"
    stored.Ledgers(story.world.shared).pop(1)
    assert story.broken is None
    stored.Ledgers(story.world.shared).pop(2)
    assert story.broken == "doomed first"


def test_an_answer_after_a_trim_is_judged_by_what_was_trimmed():
    """The epoch of records that are gone is still that of their owner."""
    story = opened()
    story.truth.appended("h", [b"a"])
    closing(story, [b"a"])
    story.change(MANIFEST, manifest(segment(0, 1, 0, 1), edit="close"))
    story.truth.trimmed = 1
    begin, doomed = {"n": 1, "index": 1, "at": 1}, [{"ledger": 1}]
    story.change(MANIFEST, manifest(edit="trim", begin=begin, next=1, doomed=doomed))
    story.truth.acknowledged("h", 1, [b"a"], [0])
    assert story.broken is None
    story.truth.acknowledged("h", 2, [b"a"], [0])
    assert story.broken == "epochs"


def test_a_part_that_may_still_be_published_is_not_deleted():
    """Nor is the mark of an abort taken back in the same claim."""
    story = Story()
    story.change(TXN, txn(aborted={"batch": 1, "claim": 1}))
    story.change(INTENT, {"run": "r", "claim": 1, "ledgers": [1]})
    story.ledger(1, [b"a"])
    stored.Ledgers(story.world.shared).pop(1)
    assert story.broken == "intents"
    story = Story()
    story.change(TXN, txn(aborted={"batch": 1, "claim": 1}))
    story.change(TXN, txn(aborted={"batch": 2, "claim": 1}))
    assert story.broken == "aborts"
