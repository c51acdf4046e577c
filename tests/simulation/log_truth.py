"""
What really happened to a named log, seen from outside, and the promises of docs/logs.md that are held against it.

It hears of every manifest, txn and intent as it takes effect, of what the bookies stored, of what callers were answered
and of what readers were given.  None of the code that is judged is asked whether it is right.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from tests.metadata import stored
from tests.simulation.log_cursors import CursorTruth
from tests.simulation.log_records import Change, Content, NotALog, WatchedRecords, content
from tests.simulation.nodes import World
from tests.simulation.truth import LedgerTruth, Violation

Json = dict[str, Any]


class LogTruth:
    """One log's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.truth = world.truth
        self.seen = world.truth.seen
        self.ledgers = stored.Ledgers(world.shared)
        self.tags: dict[int, dict[str, str]] = {}  # custom metadata of ledgers, also of deleted ones
        world.ledger_changed = self._ledger_changed  # type: ignore[method-assign]
        world.shared.nodes = WatchedRecords(world.shared.nodes, world, self.changed)
        self.intents: dict[str, Json] = {}  # by path
        self.past: set[str] = set()  # paths of deleted logs
        self._plain: set[int] = set()  # ledgers that were there when this log began
        self.manifest: Json | None = None
        self.path = ""
        self.archive: dict[int, bytes] = {}  # index -> value, of closed segments, trimmed ones, too
        self.begin_again()

    def begin_again(self) -> None:
        """A log of the same name, which has nothing of one that was deleted."""
        self.past.add(self.path)
        self._plain = set(self.ledgers)
        self.archive = {}
        self.manifest, self.path = None, ""
        self._chunks: dict[str, list[Json]] = {}
        self.txns: dict[str, Json] = {}  # by path
        self._claims: dict[int, int] = {}  # a part's ledger -> claim of the intent that named it
        self._named: dict[int, int] = {}  # ledger -> number of the segment that it is or was
        self._numbers: dict[int, int] = {}  # number -> ledger
        self.cursors = CursorTruth(self.truth)
        self._ever: dict[int, Json] = {}  # segments by number as they were named last, trimmed ones, too
        self.trimmed = 0  # the highest index below which somebody wanted nothing any more
        self._bases: set[int] = set()  # the indexes from which on a compaction may know the records
        self._claimed: set[str] = set()  # tokens that had the claim on the log
        self.dropped: set[int] = set()  # ledgers of parts that their task may delete
        # what callers were answered, and readers given
        self.given: dict[bytes, str] = {}  # value -> who appended it
        self.acked: dict[int, bytes] = {}  # index -> value
        self.denied: dict[bytes, str] = {}  # value -> the error that says that it is not in the log
        self.read: dict[int, bytes] = {}
        self.offers: dict[tuple[str, int], list[list[bytes]]] = {}  # (txn, batch) -> what commits wanted to publish
        self.receipts: dict[tuple[str, int], tuple[int, int]] = {}

    def break_(self, promise: str, text: str) -> None:
        self.truth.break_(promise, text)

    def metadata(self, ledger: int) -> LedgerMetadata | None:
        return self.world.metadata(ledger)

    @property
    def log(self) -> str:
        """Its id."""
        return self.path.rpartition("/")[2]

    # -- what a log holds ------------------------------------------------------------------------------------------

    @property
    def begin(self) -> int:
        """The first index that may be read."""
        return 0 if self.manifest is None else int(self.manifest["begin"]["index"])

    def segments(self, manifest: Json | None = None) -> list[Json]:
        """All that a manifest names, in chunks too; what a chunk has below the begin is gone."""
        manifest = manifest or self.manifest
        if manifest is None:
            return []
        chunked = [segment for line in manifest["chunks"] for segment in self._chunks[line["c"]]]
        return [each for each in chunked if each["n"] >= manifest["begin"]["n"]] + manifest["segments"]

    def held(self, segment: Json) -> Content:
        """In its closed ledger, by what the bookies got.  A plain one that the log took in has a record an entry."""
        ledger = segment["ledger"]
        metadata = self.metadata(ledger)
        assert metadata is not None
        payloads = self.truth.ledgers[ledger].payloads
        try:
            entries = [payloads[entry] for entry in range(metadata.last_entry + 1)]
            return Content(entries, [], len(entries)) if segment.get("raw") else content(entries)
        except (NotALog, KeyError) as error:
            self.break_("format", f"ledger {ledger}: {error!r}")
            return Content([], [], 0)

    # -- records ---------------------------------------------------------------------------------------------------

    def changed(self, changes: list[Change]) -> None:
        """One operation took effect."""
        manifest: Change | None = None
        txns: list[Change] = []
        cursors: list[Change] = []
        for change in changes:
            parts = change.path.split("/")
            if parts[0] != "logs" or len(parts) < 3:
                continue
            if "/".join(parts[:3]) in self.past:
                continue
            kind = parts[3] if len(parts) > 3 else "manifest"
            if kind == "manifest" and change.after is not None and "segments" in change.after:
                manifest = change
            elif kind == "chunk" and len(parts) == 5 and change.after is not None:
                self._chunks[parts[4]] = change.after["segments"]
                self.seen["chunk made"] += 1
            elif kind == "txn" and len(parts) == 5 and change.after is not None:
                txns.append(change)
            elif kind == "owner" and change.after is not None:
                self._claimed.add(change.after["token"])
            elif kind == "cursor" and len(parts) == 5:
                cursors.append(change)
            elif kind == "intents" and len(parts) == 6:
                self._intent(change)
        new = [] if manifest is None else self._manifest(manifest)
        for change in txns:
            self._txn(change, [segment for segment in new if segment.get("txn") == change.after["txn"]])
        if not txns and any("txn" in segment for segment in new):
            self.break_("exactly once", f"{new} are published, and the txn does not say so")
        if manifest is not None:
            self.manifest, self.path = manifest.after, manifest.path
        self.cursors.changed(cursors, self.manifest, None if manifest is None else manifest.after["edit"])
        for change in txns:
            self.txns[change.path] = change.after

    def _intent(self, change: Change) -> None:
        if change.after is None:
            self.intents.pop(change.path, None)
            return
        self.intents[change.path] = change.after
        for ledger in change.after["ledgers"]:
            if ledger in self.ledgers and ledger not in (change.before or change.after)["ledgers"]:
                self.break_("intents", f"ledger {ledger} was there before its intent {change.path}")
            self._claims[ledger] = change.after["claim"]

    def _manifest(self, change: Change) -> list[Json]:
        """The segments that it names newly."""
        new, old = change.after, change.before
        segments = self.segments(new)
        self._one_sequence(new, segments)
        self._ever.update((segment["n"], segment) for segment in segments if "merged" not in segment)
        if old is None:
            self._bases = {new["begin"]["index"]}
            return []
        before = {segment["n"]: segment for segment in self.segments(old)}
        said = new["settings"]
        if not said["ack"] <= said["write"] <= said["ensemble"] or (said["lease_ms"] and said["publish"]):
            self.break_("settings", f"no owner understands {said}, of the edit after {old['settings']}")
        for name in ("epoch", "next"):
            if new[name] < old[name]:
                self.break_("never back", f"{name} went from {old[name]} to {new[name]}")
        if (new["begin"]["n"], new["begin"]["index"]) < (old["begin"]["n"], old["begin"]["index"]):
            self.break_("never back", f"the log began at {old['begin']}, now at {new['begin']}")
        if new["begin"]["index"] > self.trimmed:
            self.break_("begin", f"the log begins at {new['begin']}, and nobody wanted more than {self.trimmed} gone")
        self.seen["log trimmed"] += new["begin"] != old["begin"]
        self._owner(old, new)
        if new["edit"] in old["recent"]:
            self.break_("edits", f"edit {new['edit']} was done twice")
        fresh = [segment for segment in segments if segment["n"] not in before]
        for segment in fresh:
            self._fresh(old, new, segment)
        if new["compacted"] != old["compacted"]:
            self._compacted(old, new)
        if not _stands(new):
            self._bases.add(new["begin"]["index"])
        after = {segment["n"]: segment for segment in segments}
        doomed = {each["ledger"]: each for each in new["doomed"]}
        for each in {segment["ledger"] for segment in segments} & set(doomed):
            self.break_("named exists", f"ledger {each} is a segment, and doomed")
        for each in {each["ledger"] for each in old["doomed"]} - set(doomed):
            if self.metadata(each) is not None:
                self.break_("no leak", f"ledger {each} is not doomed any more, and is there")
        for segment in segments:
            if "merged" in segment and before.get(segment["n"]) != segment and segment["ledger"] not in self._named:
                for each in self._merged(old, segment, before):
                    if each["ledger"] not in doomed:
                        self.break_("named exists", f"ledger {each['ledger']} was merged, and is not doomed")
                    del before[each["n"]]
        for number, segment in before.items():
            self._kept(segment, after.get(number), doomed, new)
        self.seen["chunk named"] += len(new["chunks"]) > len(old["chunks"])
        self._snapshots(old, new, set(doomed))
        return fresh

    def _snapshots(self, old: Json, new: Json, doomed: set[int]) -> None:
        """Each kept one is whole, and has its tail; a newer one only is named; what is left out is doomed."""
        was, now = ({each["ledger"]: each for each in manifest["snapshots"]} for manifest in (old, new))
        newest = max((each["index"] for each in was.values()), default=-1)
        for ledger, each in now.items():
            metadata = self.metadata(ledger)
            if metadata is None or not metadata.is_closed or metadata.last_entry != each["entries"] + 1:
                self.break_("holds", f"the snapshot {each} is named, its ledger is {metadata}")
            if each["index"] < new["begin"]["index"]:
                self.break_("holds", f"the log begins at {new['begin']}, the snapshot {each} is kept")
            if ledger not in was:
                self.seen["snapshot named"] += 1
                if each["index"] <= newest:
                    self.break_("holds", f"the snapshot {each} is named after one at {newest}")
        if len(now) > 3 or not was.keys() - now.keys() <= doomed:
            self.break_("holds", f"the snapshots {list(was)} became {list(now)}, doomed are {sorted(doomed)}")

    def _one_sequence(self, manifest: Json, segments: Sequence[Json]) -> None:
        end: tuple[int, int] | None = None
        for number, segment in enumerate(segments):
            if end is not None and (segment["first"], segment["at"]) != end:
                self.break_(
                    "dense", f"segment {segment['n']} begins at {segment['first']}, the one before ends at {end}"
                )
            if "records" not in segment:
                if number != len(segments) - 1:
                    self.break_("one open", f"segment {segment['n']} is open, and not the last")
                return
            end = segment["first"] + segment["records"], segment["at"] + segment["bytes"]

    def _owner(self, old: Json, new: Json) -> None:
        was, now = old["owner"], new["owner"]
        if now is not None and now["token"] not in self._claimed:
            self.break_("claims", f"{now} owns the log, and never had the claim on it")
        if new["epoch"] == old["epoch"]:
            if now is not None and now != was:
                self.break_("epoch", f"the owner changed from {was} to {now} without a new epoch")
        elif new["epoch"] != old["epoch"] + 1 or now is None or now["epoch"] != new["epoch"]:
            self.break_("epoch", f"epoch {old['epoch']} became {new['epoch']}, with the owner {now}")
        else:
            self.seen["log taken over"] += was is not None

    def _fresh(self, old: Json, new: Json, segment: Json) -> None:
        """A segment is named."""
        number, ledger = segment["n"], segment["ledger"]
        metadata = self.metadata(ledger)
        if number in self._numbers or ledger in self._named:
            self.break_("used once", f"segment {number}, ledger {ledger}: the number or the ledger was used before")
        self._numbers[number], self._named[ledger] = ledger, number
        if metadata is None or ledger in {each["ledger"] for each in old["doomed"]}:
            self.break_("named exists", f"segment {number} is ledger {ledger}, which is gone or doomed")
            return
        tags = self.tags[ledger]
        if "records" in segment:
            self._counted(segment, segment)
            return
        self.seen["segment opened"] += 1
        if new["owner"] is None or tags.get("quire/epoch") != str(new["epoch"]):
            self.break_(
                "owner's edits", f"ledger {ledger} of epoch {tags.get('quire/epoch')} is named in epoch {new['epoch']}"
            )
        if self.truth.ledgers[ledger].payloads:
            self.break_("named first", f"ledger {ledger} was written before it was named")

    def _merged(self, old: Json, segment: Json, before: dict[int, Json]) -> list[Json]:
        """A segment is made of several, which are given: it has their records, in a ledger that was not used before."""
        self.seen["log merged"] += 1
        ledger = segment["ledger"]
        taken = [each for number, each in before.items() if segment["merged"][0] <= number <= segment["n"]]
        self._named[ledger], self._numbers[segment["n"]] = segment["n"], ledger
        if self.metadata(ledger) is None or ledger in {each["ledger"] for each in old["doomed"]}:
            self.break_("named exists", f"segment {segment['n']} is merged as ledger {ledger}, which is gone or doomed")
            return taken
        if any("records" not in each for each in taken):
            self.break_("final", f"{taken} were merged into {segment}, and one of them is open")
            return taken
        sums = [sum(each[name] for each in taken) for name in ("records", "bytes")]
        if sums != [segment["records"], segment["bytes"]] or taken[0]["first"] != segment["first"]:
            self.break_("final", f"{taken} became {segment}")
        wanted = [self.archive[index] for index in range(segment["first"], segment["first"] + segment["records"])]
        self._counted(segment, segment)
        if self.held(segment).values != wanted or self.tags[ledger].get("component") != "log-merged":
            self.break_("final", f"segment {segment['n']}, ledger {ledger}, has not the records of {taken}")
        return taken

    def _kept(self, was: Json, now: Json | None, doomed: dict[int, Json], manifest: Json) -> None:
        """What becomes of a segment that was named before."""
        number, ledger = was["n"], was["ledger"]
        if now is None:
            if ledger not in doomed:
                self.break_("named exists", f"segment {number}, ledger {ledger}, left the manifest and is not doomed")
            elif "records" not in was:
                self._counted(was, {"records": 0, "bytes": 0})
                del self._ever[number]
                self.seen["empty segment doomed"] += 1
            elif manifest["begin"]["n"] <= number:
                self.break_("begin", f"segment {number} is gone, and the log begins at {manifest['begin']}")
            return
        same = ("ledger", "first", "at", "epoch") + (("records", "bytes", "entries") if "records" in was else ())
        if any(was[name] != now[name] for name in same):
            self.break_("final", f"segment {was} became {now}")
        if "records" in now and "records" not in was:
            self._counted(now, now)

    def _counted(self, segment: Json, counts: Json) -> None:
        """A segment is closed, or left out as empty, with what its closed ledger holds."""
        ledger = segment["ledger"]
        metadata = self.metadata(ledger)
        if metadata is None or not metadata.is_closed:
            self.break_("counts", f"segment {segment['n']} is closed, its ledger {ledger} is {metadata}")
            return
        found = self.held(segment)
        self.archive.update(enumerate(found.values, segment["first"]))
        if (len(found.values), found.bytes) != (counts["records"], counts["bytes"]) or (
            "entries" in counts and counts["entries"] != found.entries
        ):
            self.break_(
                "counts",
                f"segment {segment['n']} says {counts}, its ledger {ledger} holds {len(found.values)} records of "
                f"{found.bytes} bytes in {found.entries} entries",
            )

    def _compacted(self, old: Json, new: Json) -> None:
        """
        A compaction is named: of what was closed up to its horizon it holds the newest record of each key, of the whole
        log, or of where that began since there was none, or records were trimmed that the one before lacks.
        """
        was, now = old["compacted"], new["compacted"]
        doomed = {each["ledger"] for each in new["doomed"]}
        gone = [each["ledger"] for each in (was or {"ledgers": ()})["ledgers"] if each["ledger"] not in doomed]
        if gone:
            self.break_("named exists", f"the ledgers {gone} left the manifest and are not doomed")
        if now is None and not _stands({**new, "compacted": was}):
            self.seen["compaction overtaken by a trim"] += 1
            return
        self.seen["log compacted"] += 1
        if now is not None and not _stands(new):
            self.break_("compacted", f"{now} is named, and the log begins at {new['begin']}")
        if now is None or (was is not None and now["horizon"] <= was["horizon"]):
            self.break_("never back", f"the compaction {was} became {now}")
            return
        found: list[tuple[int, bytes]] = []
        for each in now["ledgers"]:
            metadata = self.metadata(each["ledger"])
            if metadata is None or not metadata.is_closed or each["ledger"] in doomed:
                self.break_("named exists", f"the compacted ledger {each} is gone, open or doomed")
                return
            held = self.held(each)
            found += zip(held.indexes, held.values, strict=True)
        horizon = now["horizon"]
        base = next((each for each in sorted(self._bases) if found == self._newest(each, horizon)), None)
        if base is None:
            wanted = [self._newest(each, horizon) for each in sorted(self._bases)]
            self.break_("compacted", f"{found} are left, of the log from {sorted(self._bases)} on {wanted}")
            return
        self.seen["compacted from a later begin"] += base > 0
        self._bases = {base}

    @property
    def compacts(self) -> bool:
        """Whether the log is to be compacted."""
        return self.manifest is not None and bool(self.manifest["settings"].get("compaction"))

    @property
    def horizon(self) -> int:
        """The last index that was compacted; -1: none, or records behind it are missing."""
        if self.manifest is None or not _stands(self.manifest):
            return -1
        return int(self.manifest["compacted"]["horizon"])

    def newest(self, horizon: int) -> list[tuple[int, bytes]]:
        """What the last compaction left, if that stands."""
        return self._newest(min(self._bases), horizon)

    def _newest(self, base: int, horizon: int) -> list[tuple[int, bytes]]:
        """Of the records from `base` to `horizon` the newest of each key, and all without one."""
        records = [each for each in sorted(self.archive.items()) if base <= each[0] <= horizon]
        by_key = {key_of(value): index for index, value in records}
        return [(index, value) for index, value in records if by_key[key_of(value)] == index or key_of(value) is None]

    def _txn(self, change: Change, named: Sequence[Json]) -> None:
        old, new = change.before, change.after
        if old is None:
            return
        name = new["txn"]
        if new["claim"] != old["claim"] + (new["run"] != old["run"]) or new["run"] in new["past"]:
            self.break_(
                "runs", f"txn {name}: run {old['run']}, claim {old['claim']} became {new['run']}, {new['claim']}"
            )
        mark, before = new["aborted"], old["aborted"]
        aborted = before is not None and before["claim"] == new["claim"] == old["claim"]
        if aborted and (mark is None or mark["claim"] != before["claim"] or mark["batch"] > before["batch"]):
            self.break_("aborts", f"txn {name}: the mark {before} became {mark} in the same claim")
        if new["last"] == old["last"]:
            if named:
                self.break_("exactly once", f"txn {name} publishes {named} as no batch")
            return
        batch = new["last"]
        if batch != old["last"] + 1 or any(segment["batch"] != batch for segment in named):
            self.break_("exactly once", f"txn {name}: batch {batch} is published as {named} after {old['last']}")
        if new["run"] != old["run"]:
            self.break_("runs", f"txn {name}: batch {batch} is published by {new['run']}, the txn is {old['run']}'s")
        if aborted and batch >= before["batch"]:
            self.break_("aborts", f"txn {name}: batch {batch} is published, which was aborted in this claim")
        receipt = new["receipt"]
        records = sum(segment["records"] for segment in named)
        if receipt["end"] - receipt["first"] != records or (named and named[0]["first"] != receipt["first"]):
            self.break_("receipts", f"txn {name}: batch {batch} has the receipt {receipt}, its segments are {named}")
        for segment in named:
            ledger = segment["ledger"]
            tags = self.tags[ledger]
            if (tags["quire/txn"], tags["quire/run"], tags["quire/batch"]) != (name, new["run"], str(batch)):
                self.break_("parts", f"ledger {ledger} of {tags} is published in batch {batch} of run {new['run']}")
            if self._claims[ledger] != new["claim"]:
                self.break_("parts", f"ledger {ledger} of claim {self._claims[ledger]} is published in {new['claim']}")
            kept = [path for path, intent in self.intents.items() if ledger in intent["ledgers"]]
            if kept:
                self.break_("intents", f"ledger {ledger} is published, and its intent {kept} is there")
        values = [value for segment in named for value in self.held(segment).values]
        if values not in self.offers.get((name, batch), []):
            self.break_("whole", f"txn {name}: batch {batch} is not what any commit was given")
        self.seen["batch published"] += 1
        self.seen["batch published beside an owner"] += self.manifest is not None and self.manifest["owner"] is not None

    def _ledger_changed(
        self, ledger: int, before: Versioned[LedgerMetadata] | None, after: Versioned[LedgerMetadata] | None
    ) -> None:
        """The metadata of a ledger was written or deleted; each new ledger is watched from now on."""
        if after is None:
            assert before is not None
            self._gone(ledger, before.value)
        elif ledger not in self.truth.ledgers:
            made = after.value
            shape = made.ensemble_size, made.write_quorum, made.ack_quorum
            self.truth.ledgers[ledger] = LedgerTruth(ledger, shape, "", deferred=False)
            self.tags[ledger] = {name: text.decode() for name, text in made.custom.items()}
        World.ledger_changed(self.world, ledger, before, after)

    def _gone(self, ledger: int, metadata: LedgerMetadata) -> None:
        """A ledger was deleted."""
        if not metadata.is_closed:
            self.break_("fenced first", f"ledger {ledger} is deleted while it is {metadata.state.name}")
        if self.manifest is None or self.manifest.get("state") == "deleting" or ledger in self._plain:
            return
        if self.tags[ledger].get("quire/log", self.log) != self.log:
            return
        if any(each["ledger"] == ledger for each in (*self.segments(), *self.manifest["snapshots"])):
            self.break_("named exists", f"ledger {ledger} is deleted, and a segment or a snapshot")
        intents = {path: intent for path, intent in self.intents.items() if ledger in intent["ledgers"]}
        for path, intent in intents.items():
            if ledger not in self.dropped and not self._is_dead(path, intent):
                self.break_("intents", f"ledger {ledger} is deleted, which {path} may still publish")
        doomed = ledger in {each["ledger"] for each in self.manifest["doomed"]}
        # of an intent that another janitor has cleared meanwhile: nothing can publish it any more
        cleared = ledger in self._claims and ledger not in self._named
        maker = self.world.makers.get(ledger)
        self.seen["orphan deleted"] += doomed
        if not (self.cursors.let_go(ledger) or doomed or intents or cleared or maker == self.world.deleter):
            who = f"{self.world.deleter} deletes ledger {ledger} of {maker}"
            self.break_("doomed first", f"{who}, which no intent named and which is not doomed")

    def drop(self, part: str) -> None:
        """A task may delete what it wrote: nobody was given its part."""
        for path, intent in self.intents.items():
            if part in path:
                self.dropped.update(intent["ledgers"])

    def _is_dead(self, path: str, intent: Json) -> bool:
        """Whether a part can't be published any more."""
        folder, _, name = path.rpartition("/")
        txn = self.txns[folder.replace("/intents/", "/txn/")]
        batch, mark = int(name.split("-")[0]), txn["aborted"]
        aborted = mark is not None and mark["claim"] == txn["claim"] == intent["claim"] and batch >= mark["batch"]
        return batch <= txn["last"] or intent["claim"] < txn["claim"] or aborted

    # -- what callers are answered ---------------------------------------------------------------------------------

    def appended(self, who: str, values: Iterable[bytes]) -> None:
        self.given.update(dict.fromkeys(values, who))

    def acknowledged(self, who: str, epoch: int, values: Sequence[bytes], indexes: Sequence[int]) -> None:
        """An append was answered."""
        if len(values) != len(indexes) or list(indexes) != sorted(set(indexes)):
            self.break_("answered", f"{who} was told the indexes {list(indexes)} for {len(values)} values")
            return
        found = {segment["epoch"] for index in indexes for segment in self._ever.values() if _holds(segment, index)}
        if not found and self.past:  # of a log that was deleted, and had the name before
            return
        for index, value in zip(indexes, values, strict=True):
            if self.acked.setdefault(index, value) != value:
                self.break_("acknowledged", f"index {index} was given to {self.acked[index]!r} and to {value!r}")
            self._same(index, value, self.read, "a reader was given")
        if found != {epoch}:
            self.break_("epochs", f"{who} of epoch {epoch} was told {list(indexes)}, which are of epochs {found}")

    def refused(self, values: Sequence[bytes], error: object) -> None:
        """An append was answered: it is not in the log."""
        self.denied.update(dict.fromkeys(values, repr(error)))

    def saw(self, who: str, index: int, values: Sequence[bytes]) -> None:
        """A reader was given these."""
        for number, value in enumerate(values, index):
            self._same(number, value, self.read, f"{who} was given")
            self._same(number, value, self.acked, "an append was answered with it for")
            self.read[number] = value
            if value not in self.given:
                self.break_("one sequence", f"{who} was given {value[:40]!r} at {number}, which nobody appended")
            if value in self.denied:
                self.break_(
                    "answered", f"{who} was given {value!r} at {number}; its append failed: {self.denied[value]}"
                )

    def _same(self, index: int, value: bytes, others: dict[int, bytes], who: str) -> None:
        if others.get(index, value) != value:
            self.break_("one sequence", f"index {index} is {value!r}; {who} {others[index]!r}")

    def committed(self, txn: str, batch: int, first: int, end: int) -> None:
        """A commit was answered; `first` -1: without its receipt."""
        if first < 0:
            return
        if self.receipts.setdefault((txn, batch), (first, end)) != (first, end):
            self.break_(
                "receipts", f"batch {batch} of {txn} has the receipts {self.receipts[txn, batch]}, {first, end}"
            )

    def took_in(self, first: int, values: Sequence[bytes]) -> None:
        """An adoption was answered: from which index on."""
        for index, value in enumerate(values, first):
            self._same(index, value, self.acked, "an append was answered with it for")
            self._same(index, value, self.read, "a reader was given")
            self.acked[index] = value

    # -- the reckoning ---------------------------------------------------------------------------------------------

    def reckon(self, read: Sequence[bytes]) -> None:
        """The log is closed, and `read` is what a fresh reader got of it."""
        assert self.manifest is not None
        low = min((segment["first"] for segment in self.segments()), default=self.manifest["begin"]["index"])
        values: list[bytes] = []
        stamps: list[int] = []
        for segment in self.segments():
            if "records" not in segment:
                self.break_("ends", f"segment {segment} is still open")
                return
            found = self.held(segment)
            values += found.values
            own = "txn" not in segment and not segment.get("raw")
            stamps += found.stamps if own else [segment["t"][0]] * segment["records"]
        if list(read) != values[self.manifest["begin"]["index"] - low :]:
            self.break_("one sequence", f"a fresh reader got {len(read)} records, the log holds {len(values)}")
        if stamps != sorted(stamps):
            self.break_("stamps", "stamps fall")
        for what, known in (("acknowledged", self.acked), ("one sequence", self.read)):
            for index, value in known.items():
                here = values[index - low] if low <= index < low + len(values) else None
                if index >= low and here != value:
                    self.break_(what, f"index {index} was {value!r}, in the log it is {here!r}")
        if len(set(values)) != len(values):
            twice = {value for value in values if values.count(value) > 1}
            self.break_("once", f"{sorted(twice)[:3]} are in the log more than once")
        there = set(values)
        lied = [(value, error) for value, error in self.denied.items() if value in there]
        if lied:
            self.break_("answered", f"{lied[0][0]!r} is in the log, its append failed with {lied[0][1]}")
        if not there <= set(self.given):
            self.break_("one sequence", "the log holds what nobody appended")
        for (txn, batch), (first, end) in self.receipts.items():
            if first >= low and values[first - low : end - low] not in self.offers[txn, batch]:
                self.break_("receipts", f"batch {batch} of {txn} is not at {first} to {end}")
        self._order(values)
        if self.truth.violation is not None:
            raise self.truth.violation

    def _order(self, values: Sequence[bytes]) -> None:
        """Records of one handle are in the order in which they were appended: `handle.number`."""
        last: dict[bytes, int] = {}
        for value in values:
            handle, number, *_rest = value.split(b".")
            if handle.startswith(b"h"):
                if int(number) <= last.get(handle, -1):
                    self.break_("order", f"{value!r} is behind {handle!r}.{last[handle]}")
                last[handle] = int(number)

    def leaked(self) -> set[int]:
        """Ledgers of this layer that nothing names."""
        assert self.manifest is not None
        named = {segment["ledger"] for segment in self.segments()}
        named |= {each["ledger"] for each in (*self.manifest["doomed"], *self.manifest["snapshots"])}
        named |= {each["ledger"] for each in (self.manifest["compacted"] or {"ledgers": ()})["ledgers"]}
        named |= {ledger for intent in self.intents.values() for ledger in intent["ledgers"]}
        named |= self.cursors.named
        return {ledger for ledger in self.ledgers if self.tags[ledger].get("quire/log")} - named


def key_of(value: bytes) -> bytes | None:
    """With which key a value is appended to a log that is compacted."""
    number = crc32(b".".join(value.split(b".")[:2])) % 6
    return b"k%d" % number if number else None


def _stands(manifest: Json) -> bool:
    """Whether there is a compaction, and all records behind it are there."""
    done = manifest["compacted"]
    return done is not None and manifest["begin"]["index"] <= done["horizon"] + 1


def _holds(segment: Json, index: int) -> bool:
    return bool(
        segment["first"] <= index and ("records" not in segment or index < segment["first"] + segment["records"])
    )


__all__ = ["LogTruth", "Violation"]
