"""
Stories about one ledger as text: each line is a command, the indented lines below it are what was seen to happen.

Knows: the words (`SENTENCES`), which act on the fake cluster of `tests.client.fakes.cluster` and on virtual time.
Does not know: what should happen; the text says that, and a person read it.

After each command a twentieth of a second passes; then everything that came to an end since is printed, in the order in
which it did.  `#` begins a comment.  A request that matches a rule (`hold`, `lose`, `mute`, `refuse`) meets the first
such rule; `obey` ends all rules.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from quire.client.handles.reader import Reader
from quire.client.handles.writer import Writer
from quire.client.placement.choice import BookieChoice
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.memory.cluster import Fault
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import NotEnoughBookies
from tests.client.fakes.cluster import FakeCluster, Outcome, Request
from tests.metadata import stored

MOMENT = 0.05
NAMES = {
    "unreachable": -8,
    "timeout": -23,
    "no entry": -13,
    "no ledger": -7,
    "fenced": -101,
    "read-only": -104,
    "write": -12,
    "unknown": -108,
    "busy": -105,
}
OPS = {
    "adds": "add", "recovery adds": "recovery add", "reads": "read", "batch reads": "batch", "fences": "fence",
    "recovery reads": "fence",
    "lac writes": "write lac", "forces": "force", "polls": "poll", "lac reads": "lac",
}  # fmt: skip
SENTENCES: list[tuple[re.Pattern[str], Callable[..., None]]] = []


def says(pattern: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The sentence that a method performs."""

    def keep(method: Callable[..., None]) -> Callable[..., None]:
        SENTENCES.append((re.compile(pattern), method))
        return method

    return keep


class InOrder:
    """The first usable bookies by name, or those that the story names."""

    def __init__(self) -> None:
        self.named: list[str] = []

    def new_ensemble(self, available: Sequence[str], size: int, exclude: Sequence[str] = (), **_more: Any) -> list[str]:
        usable = self.named or sorted(set(available) - set(exclude))
        if len(usable) < size:
            raise NotEnoughBookies(f"{size} bookies are needed, {len(usable)} can be used")
        return usable[:size]

    def replacement(
        self, available: Sequence[str], ensemble: Sequence[str], excluded: Sequence[str] = (), **_more: Any
    ) -> str:
        usable = sorted(set(available) - set(ensemble) - set(excluded))
        if not usable:
            raise NotEnoughBookies("there is no spare")
        return usable[0]


def runs(ids: Sequence[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}..{ids[-1]}"


class Story:
    """One ledger and all who have to do with it."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(3)
        self.options: dict[str, Any] = {
            "add_timeout_ms": 500,
            "read_timeout_ms": 500,
            "long_poll_ms": 200,
            "speculative_read_ms": 0,
        }
        self.placement = InOrder()
        self.clients: dict[str, Any] = {}
        self.writers: dict[str, Writer] = {}
        self.readers: dict[str, Reader] = {}
        self.news: list[str] = []
        # operations, bookies, clients, entries; empty: any
        self.rules: list[tuple[set[str], set[str], set[str], set[int], str | int]] = []
        self.ledger = -1
        self.quorums = (3, 3, 2)
        self.password = b""

    def play(self, line: str) -> list[str]:
        """Performs one command; what happened."""
        self.news = []
        for pattern, perform in SENTENCES:
            found = pattern.fullmatch(line)
            if found:
                perform(self, **found.groupdict())
                self.cluster.spin(MOMENT)
                return self.news
        raise ValueError(f"no sentence is like {line!r}")

    # Who takes part.

    @says(r"there are (?P<count>\d+) bookies")
    def there_are(self, count: str) -> None:
        self.cluster = FakeCluster(int(count))
        self.cluster.judge = self.judge

    @says(r"option (?P<name>\w+) is (?P<value>\S+)")
    def option(self, name: str, value: str) -> None:
        self.options[name] = value

    @says(
        r"(?P<who>\w+) creates (?P<e>\d)/(?P<w>\d)/(?P<a>\d)(?: on (?P<bookies>[\w ]+?))?"
        r"(?: with password (?P<password>\w+))?"
        r"(?P<flags>(?:, (?:advanced|deferred sync))*)"
    )
    def creates(self, who: str, e: str, w: str, a: str, bookies: str | None, password: str | None, flags: str) -> None:
        self.quorums = (int(e), int(w), int(a))
        self.password = (password or "").encode()
        self.placement.named = bookies.split() if bookies else []
        made = self.client(who).create_ledger(
            ensemble_size=int(e), write_quorum=int(w), ack_quorum=int(a), password=self.password,
            write_flags="DEFERRED_SYNC" if "deferred" in flags else (), advanced="advanced" in flags,
        )  # fmt: skip
        try:
            writer = self.cluster.succeed(made)
        except NotEnoughBookies as error:
            self.note(who, f"could not create: {type(error).__name__}")
            return
        self.placement.named = []
        self.writers[who] = writer
        self.ledger = writer.id

        def changed(before: tuple[str, ...], after: tuple[str, ...]) -> None:
            self.note(who, f"ensemble {' '.join(before)} became {' '.join(after)}")

        writer.on_ensemble_change = changed

    @says(r"a ledger (?P<e>\d)/(?P<w>\d)/(?P<a>\d) was left with (?P<fragments>.+)")
    def was_left(self, e: str, w: str, a: str, fragments: str) -> None:
        self.quorums = (int(e), int(w), int(a))
        parts = [(int(first), tuple(names.split())) for first, names in re.findall(r"(\d+): ([\w ]+)", fragments)]
        metadata = LedgerMetadata.new(*self.quorums, list(parts[0][1]), DigestType.CRC32C, self.password, None, 1, 0)
        for first, names in parts[1:]:
            metadata = metadata.with_ensemble(first, names)
        self.ledger = self.cluster.succeed(self.cluster.store.new_ledger_id())
        self.cluster.succeed(self.cluster.store.create_ledger(self.ledger, metadata))

    @says(r"(?P<names>(?:b\d+ )+)holds? entr(?:y|ies) (?P<first>\d+)(?:\.\.(?P<last>\d+))? with lac (?P<lac>-?\d+)")
    def holds(self, names: str, first: str, last: str | None, lac: str) -> None:
        """Each entry has four bytes."""
        digest = Digest(DigestType.CRC32C, self.password)
        for entry in range(int(first), int(last or first) + 1):
            self.cluster.put(
                self.ledger, entry, b"%04d" % entry, int(lac), 4 * (entry + 1), *names.split(), digest=digest
            )

    # Writing.

    @says(r"(?P<who>\w+) appends (?P<payload>\w+) at (?P<entry>\d+)")
    def appends_at(self, who: str, payload: str, entry: str) -> None:
        self.follow(
            self.writers[who].append_at(int(entry), payload.encode()),
            lambda done: self.note(who, f"{done} acknowledged"),
            lambda error: self.note(who, f"append at {entry} failed: {error}"),
        )

    @says(r"(?P<who>\w+) appends (?P<payloads>[\w ]+)")
    def appends(self, who: str, payloads: str) -> None:
        words = payloads.split()
        if len(words) == 2 and words[1] == "entries":
            words = [f"{number:04d}" for number in range(int(words[0]))]
        self.follow(
            self.writers[who].append_many([word.encode() for word in words]),
            lambda ids: self.note(who, f"{runs(ids)} acknowledged"),
            lambda error: self.note(
                who, f"append of {words[0]}{'..' + words[-1] if len(words) > 1 else ''} failed: {error}"
            ),
        )

    @says(r"(?P<who>\w+) (?P<what>closes|forces|writes its lac)")
    def ends(self, who: str, what: str) -> None:
        writer = self.writers[who]
        deferred = {"closes": writer.close, "forces": writer.force, "writes its lac": writer.write_lac}[what]()
        end = {"closes": "closed", "forces": "forced", "writes its lac": "lac written"}[what]
        self.follow(deferred, lambda _none: self.note(who, end), lambda error: self.note(who, f"{what}: {error}"))

    @says(r"(?P<who>\w+) is asked how far it is")
    def how_far(self, who: str) -> None:
        writer = self.writers[who]
        self.note(
            who,
            f"confirmed {writer.last_add_confirmed}, pushed {writer.last_add_pushed}, length {writer.length}"
            + (", closed" if writer.closed else ""),
        )

    # Reading.

    @says(r"(?P<who>\w+) (?P<how>opens|looks)(?: with password (?P<password>\w+))?")
    def opens(self, who: str, how: str, password: str | None) -> None:
        def opened(reader: Reader) -> None:
            self.readers[who] = reader
            end = (
                f"closed at {reader.last_entry_id}, length {reader.length}"
                if reader.closed
                else f"open, confirmed {reader.last_entry_id}"
            )
            self.note(who, end)

        key = self.password if password is None else password.encode()
        self.follow(
            self.client(who).open_ledger(self.ledger, key, recover=how == "opens"),
            opened,
            lambda error: self.note(who, f"could not open: {error}"),
        )

    @says(r"(?P<who>\w+) reads (?P<first>\d+)\.\.(?P<last>\d+)(?P<unconfirmed> unconfirmed)?")
    def reads(self, who: str, first: str, last: str, unconfirmed: str | None) -> None:
        reader = self.readers[who]
        self.follow(
            (reader.read_unconfirmed if unconfirmed else reader.read)(int(first), int(last)),
            lambda entries: self.note(who, "read " + (" ".join(entry.data.decode() for entry in entries) or "nothing")),
            lambda error: self.note(who, f"read failed: {error}"),
        )

    @says(r"(?P<who>\w+) asks for the last confirmed")
    def asks(self, who: str) -> None:
        self.follow(
            self.readers[who].read_last_confirmed(),
            lambda lac: self.note(who, f"confirmed {lac}"),
            lambda error: self.note(who, str(error)),
        )

    @says(r"(?P<who>\w+) tries for the last confirmed")
    def tries(self, who: str) -> None:
        self.follow(
            self.readers[who].try_read_last_confirmed(),
            lambda lac: self.note(who, f"confirmed {lac}"),
            lambda error: self.note(who, str(error)),
        )

    @says(r"(?P<who>\w+) reads the last entry")
    def reads_last(self, who: str) -> None:
        self.follow(
            self.readers[who].read_last_entry(),
            lambda entry: self.note(who, f"entry {entry.entry_id} is {entry.data.decode()}"),
            lambda error: self.note(who, str(error)),
        )

    @says(r"(?P<who>\w+)'s client is closed")
    def client_closed(self, who: str) -> None:
        self.follow(
            self.client(who).close(),
            lambda _none: self.note(who, "client closed"),
            lambda error: self.note(who, str(error)),
        )

    @says(r"(?P<who>\w+) follows for (?P<seconds>\d+) seconds?")
    def follows(self, who: str, seconds: str) -> None:
        async def run() -> None:
            async for batch in self.readers[who].tail(float(seconds)):
                self.note(who, "saw " + " ".join(entry.data.decode() for entry in batch))

        self.follow(
            run(),
            lambda _none: self.note(who, "came to the end"),
            lambda error: self.note(who, f"follows no more: {error}"),
        )

    # Bookies.

    @says(
        r"(?P<names>(?:b\d+ )+)(?P<what>dies?|dies? unnoticed|returns?|goes? into limbo|"
        r"becomes? read-only|becomes? slow)"
    )
    def bookie(self, names: str, what: str) -> None:
        for name in names.split():
            bookie = self.cluster.bookies[name]
            if what.startswith("die"):
                bookie.registered = "unnoticed" in what  # type: ignore[attr-defined]  # the story's own note
                self.cluster.kill(name, registered="unnoticed" in what)
            elif what.startswith("return"):
                self.cluster.restart(name, registered=getattr(bookie, "registered", False))
            elif "limbo" in what:
                bookie.limbo = True
            elif "read-only" in what:
                bookie.read_only = True
            else:
                self.cluster.slow[name] = 0.1

    @says(r"(?P<name>b\d+) loses everything")
    def loses(self, name: str) -> None:
        """As a bookie without journal does at a power loss; afterwards it is in limbo, and refuses ordinary adds."""
        bookie = self.cluster.bookies[name]
        bookie.ledgers.clear()
        bookie.limbo = bookie.read_only = True

    @says(r"(?P<name>b\d+) begins again, empty(?P<restored>, restored)?")
    def begins_again(self, name: str, restored: str | None) -> None:
        """
        Under its id, on other disks.  Restored: what is not open any more is fenced there, and it is in limbo for what
        metadata gives it.
        """
        bookie = self.cluster.bookies[name]
        bookie.ledgers.clear()
        bookie.incarnation += "+"
        metadata = self.cluster.metadata(self.ledger)
        if restored:
            bookie.limbo = bookie.read_only = name in metadata.bookies()
            bookie.stored(self.ledger).fenced = metadata.state is not LedgerState.OPEN
        self.cluster.restart(name)

    @says(r"(?P<name>b\d+) damages entry (?P<entry>\d+)")
    def damages(self, name: str, entry: str) -> None:
        entries = self.cluster.bookies[name].ledgers[self.ledger].entries
        entries[int(entry)] = entries[int(entry)][:-1] + b"!"

    @says(r"another bookie registers")
    def another(self) -> None:
        self.news.append(f"it is {self.cluster.grow()}")

    # The network.

    @says(
        r"(?P<verb>hold|lose|mute|refuse) (?P<op>[a-z ]+?)(?: to (?P<names>(?:b\d+ ?)+?))?"
        r"(?: of (?P<entries>[-\d ]+?))?(?: from (?P<who>\w+))?"
        r"(?: with (?P<code>[a-z- ]+))?"
    )
    def rule(
        self, verb: str, op: str, names: str | None, entries: str | None, who: str | None, code: str | None
    ) -> None:
        verdict: str | int = {"hold": "hold", "lose": "drop", "mute": "mute"}.get(verb) or NAMES[str(code)]
        ops = set() if op == "everything" else {OPS[op]}
        clients = {str(self.client(who).pool.number)} if who else set()
        self.rules.append((ops, set((names or "").split()), clients, set(map(int, (entries or "").split())), verdict))
        self.cluster.judge = self.judge

    @says(r"obey")
    def obey(self) -> None:
        self.rules.clear()

    @says(r"what was held(?: to (?P<names>(?:b\d+ ?)+?))?(?: of (?P<entries>[-\d ]+?))? arrives")
    def arrives(self, names: str | None, entries: str | None) -> None:
        chosen, ids = set((names or "").split()), {int(each) for each in entries.split()} if entries else None
        self.cluster.let_go(
            lambda request: (not chosen or request.bookie in chosen) and (ids is None or request.is_of(ids))
        )

    # Time and metadata.

    @says(r"(?P<seconds>[\d.]+) seconds? pass(?:es)?")
    def passes(self, seconds: str) -> None:
        self.cluster.spin(float(seconds))

    @says(r"metadata writes take (?P<seconds>[\d.]+) seconds?")
    def writes_take(self, seconds: str) -> None:
        wait = float(seconds)
        self.cluster.store_fault = lambda name, _given: Fault(before=wait) if name == "write_ledger" and wait else None

    @says(
        r"another client (?P<what>marks it in recovery|deletes it"
        r"|closes it at (?P<last>-?\d+) with length (?P<length>\d+)"
        r"|replaces (?P<old>b\d+) by (?P<new>b\d+) from (?P<first>\d+))"
    )
    def another_client(
        self, what: str, last: str | None, length: str | None, old: str | None, new: str | None, first: str | None
    ) -> None:
        shared, ledger = self.cluster.shared, self.ledger
        fault, self.cluster.store_fault = self.cluster.store_fault, lambda _name, _given: None
        if what == "deletes it":
            self.cluster.succeed(self.cluster.store.delete_ledger(ledger))
        else:
            current = stored.Ledgers(shared)[ledger]
            value = current.value
            if last is not None and length is not None:
                value = value.closed(int(last), int(length))
            elif first is not None and old is not None and new is not None:
                value = value.replace_bookies(
                    int(first), tuple(new if bookie == old else bookie for bookie in value.ensemble_at(int(first)))
                )
            else:
                value = value.recovering()
            self.cluster.succeed(self.cluster.store.write_ledger(ledger, value, current.version))
        self.cluster.store_fault = fault

    @says(r"the ledger is")
    def the_ledger(self) -> None:
        if self.ledger not in stored.Ledgers(self.cluster.shared):
            self.news.append("gone")
            return
        metadata = self.cluster.metadata(self.ledger)
        ensembles = ", ".join(f"{first}: {' '.join(bookies)}" for first, _last, bookies in metadata.fragment_ranges())
        state = metadata.state.name.lower().replace("_", " ")
        self.news.append(
            f"{state}"
            f"{f' at {metadata.last_entry}, length {metadata.length}' if metadata.state is LedgerState.CLOSED else ''}"
            f", {{{ensembles}}}"
        )

    @says(r"entry (?P<entry>\d+) is on")
    def is_on(self, entry: str) -> None:
        self.news.append(" ".join(sorted(self.cluster.holders(self.ledger, int(entry)))) or "no bookie")

    @says(r"metadata was written")
    def was_written(self) -> None:
        self.news.append(f"{len(self.cluster.writes)} times")

    # How.

    def client(self, who: str) -> Any:
        if who not in self.clients:
            client = self.cluster.client(**self.options)
            client.choice = BookieChoice(self.cluster.clock, self.cluster.store, self.placement)
            self.clients[who] = client
        return self.clients[who]

    def judge(self, request: Request) -> str | int:
        asked = (request.op, request.bookie, str(request.client))
        for *wanted, entries, verdict in self.rules:
            if entries and not request.is_of(entries):
                continue
            if all(not among or each in among for each, among in zip(asked, wanted, strict=True)):
                return verdict
        return "pass"

    def note(self, who: str, what: str) -> None:
        self.news.append(f"{who}: {what}")

    def follow(self, made: Any, done: Callable[[Any], None], failed: Callable[[str], None]) -> None:
        outcome: Outcome = self.cluster.outcome(made)
        watched = made if hasattr(made, "addBoth") else None
        if watched is not None:
            watched.addBoth(lambda _nothing: self.report(outcome, done, failed))
        else:
            self.wait_for(outcome, done, failed)

    def wait_for(self, outcome: Outcome, done: Callable[[Any], None], failed: Callable[[str], None]) -> None:
        if outcome.done:
            self.report(outcome, done, failed)
        else:
            self.cluster.clock.callLater(MOMENT / 4, self.wait_for, outcome, done, failed)

    def report(self, outcome: Outcome, done: Callable[[Any], None], failed: Callable[[str], None]) -> None:
        if outcome.error is None:
            done(outcome.value)
        else:
            failed(f"{type(outcome.error).__name__} ({outcome.code})")


def performed(text: str) -> str:
    """The same story with what happens now below each command."""
    story, out = Story(), []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        out.append(line)
        command = line.split("#")[0].strip()
        if command:
            out += ["  " + news for news in story.play(command)]
    return "\n".join(out) + "\n"
