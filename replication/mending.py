"""
Making good what a scrub found of one ledger.

Knows: the order of steps: look again at what was found, copy what is still wrong onto the bookie that should have it,
read it back, and where that bookie does not take it, move its share to another; last, free the ledger from bookies that
are gone.  A wrong copy on a bookie that is none of quire's is not written over: Apache's answer with the new one until
their next flush or start, and with the old one after that.
Does not know: how findings came about, which ledgers there are.

Restartable: nothing is believed but what a second look finds now, so what another run has mended is not touched again.

Safety: the repair lock of the ledger is held where the store has such locks.  Only entries that are settled are copied,
from copies whose digests hold and that no finding calls wrong.  A ledger that is being written is closed only with
`fence`, and only when its last ensemble names a bookie that is gone and its last add confirmed stood still meanwhile.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from quire.client.api import Client
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import (
    LedgerError,
    MetadataTooLarge,
    NoSuchEntry,
    NoSuchLedgerExistsOnMetadataServer,
    Read,
    Replication,
)
from quire.replication.concurrently import Pace, about_one, all_of
from quire.replication.copier import Copied, FragmentCopier, Sources, TargetFailed, Unread, Wrong
from quire.replication.core.fragments import HeldFragment, fragments_naming, writer_depends_on
from quire.replication.freeing.naming import repair_lock
from quire.replication.lost_bookies import recover_bookies
from quire.replication.scrub.examine import DIFFERS, STALE, UNDECIDED, WRONG_HEAD, Manner
from quire.replication.scrub.judge import MENDED_BY_COPIES, WRONG_THERE, Finding, Suspicion
from quire.replication.scrub.ledgers import end_of
from quire.replication.scrub.run import Judged
from quire.replication.scrub.second_look import Look, second_look
from quire.replication.scrub.whole import SETTLE_S

# SPDX-License-Identifier: Apache-2.0

MISLEADING = frozenset((DIFFERS, STALE, UNDECIDED, WRONG_HEAD))  # codes of copies that are wrong, whose digests hold
AT_ONCE = 4  # ledgers that are mended at the same time
GRACE_S = 30.0  # so long a ledger's last add confirmed does not change before its writer is taken for gone


@dataclass(slots=True)
class Mended:
    """The result of mending a ledger, in a dry run what it would be.  `left`: what was not mended, and why."""

    ledger: int
    entries: int = 0
    bytes: int = 0
    fragments: int = 0  # whose ensemble was changed
    left: list[str] = field(default_factory=list)
    undecided: bool = False  # whether copies differ, and which of them is right is not known
    unsettled: bool = False  # whether something is wrong in a fragment that is being written

    def copied(self, step: Copied) -> None:
        self.entries += step.entries
        self.bytes += step.bytes


@dataclass(frozen=True, slots=True)
class Mending:
    """
    How: `fence`: whether ledgers whose writer seems gone are closed; `grace_s`: how long that is watched;
    `lock`: that of the ledger, which the caller has; `pace` of the copying.
    """

    dry_run: bool = False
    fence: bool = False
    grace_s: float = GRACE_S
    lock: RepairLock | None = None
    pace: Pace | None = None


async def mend_bookies(
    look: Look,
    bookies: Collection[str],
    how: Mending,
    *,
    full: bool = False,
    gone: Collection[str] = (),
) -> tuple[Mended, bool]:
    """
    Makes good what bookies that are there lack of what is settled, found by their lists, or with `full` by reading all;
    and whether an entry that could not be copied has no copy at all, for those that are `gone` have none.  What they
    lack of confirmed entries in a fragment that is being written is left, once it had the time to come.  One that went
    meanwhile is left, too: it may be restarting, and this caller does not know for how long it was away.
    """
    client, ledger, metadata = look.client, look.record.ledger, look.record.metadata
    manner, by_lists = Manner(how.pace), not full
    unread, confirmed = list[str](), -1
    if any(fragment.last is None for fragment in fragments_naming(metadata, bookies)):
        try:
            confirmed, _metadata = await end_of(client, ledger, metadata)
            await look.holds()  # its writer may have replaced a bookie, or closed it
            metadata = look.record.metadata
        except Read as error:
            unread.append(f"ledger {ledger}: its last add confirmed can't be read: {error}")
    suspicion = Suspicion(ledger, -1)
    for fragment in fragments_naming(metadata, bookies):
        last = confirmed if fragment.last is None else fragment.last
        if last >= fragment.first:
            suspicion.last = max(suspicion.last, last)
            suspicion.copies += [(index, fragment.first, last) for index in fragment.indexes]
            if full:
                suspicion.differing.add((fragment.first, last))
    findings = await look.found(suspicion, manner, by_lists)
    written = metadata.last_fragment.first if not metadata.is_closed else None
    if late := [each for each in findings if each.fragment == written and each.kind in MENDED_BY_COPIES]:
        await pause(client.reactor, SETTLE_S)
        await look.holds()
        still = await look.found(suspicion_of(ledger, late), Manner(how.pace), by_lists)
        findings = [each for each in findings if each not in late] + still
    wrong = [each for each in findings if each.kind in MENDED_BY_COPIES]
    done = await mend(client, ledger, wrong, how, look) if wrong else Mended(ledger)
    done.left += [
        f"ledger {ledger}, entries {each.first} to {each.last}: {each.bookie}: {each.detail}"
        for each in findings
        if each.kind not in MENDED_BY_COPIES
    ]
    done.left += unread
    if not done.left or not wrong:
        return done, False
    copies = [(index, each.first, each.last) for each in wrong for index in range(metadata.ensemble_size)]
    manner = Manner(how.pace, dict.fromkeys(gone, NoSuchEntry.code))
    everywhere = await look.confirmed(Suspicion(ledger, suspicion.last, copies), manner, by_lists, placed=True)
    return done, any(each.kind == "lost" for each in everywhere)


async def answered(client: Client, findings: Sequence[Finding], how: Mending) -> list[Judged]:
    """Mends findings of any ledgers that copies make good, and looks once more: the answer of a `ScrubRun`."""
    judged = [Judged(each, reason=_not_by_copies(each)) for each in findings if each.kind not in MENDED_BY_COPIES]
    wanted = sorted((each for each in findings if each.kind in MENDED_BY_COPIES), key=lambda each: each.ledger)
    work = [(ledger, list(some)) for ledger, some in groupby(wanted, key=lambda each: each.ledger)]
    for start in range(0, len(work), AT_ONCE):
        for some in await all_of([_answered(client, *one, how) for one in work[start : start + AT_ONCE]]):
            judged += some
    return judged


def _not_by_copies(finding: Finding) -> str:
    if finding.kind != "unreachable" or not finding.bookie:
        return finding.detail
    return f"{finding.detail}; once it answers, run this again; if it is lost, `quire recover {finding.bookie}`"


async def _answered(client: Client, ledger: int, findings: list[Finding], how: Mending) -> list[Judged]:
    done = await mend(client, ledger, findings, how)
    try:
        still = await second_look(client, suspicion_of(ledger, findings), Manner(how.pace))
    except LedgerError as error:
        return [Judged(each, reason=str(error)) for each in findings]
    reasons = "; ".join(done.left)
    return [
        Judged(each, not wrong, reasons or wrong[0].detail if wrong else "")
        for each in findings
        for wrong in [[one for one in still if one.index == each.index and _overlap(one, each)]]
    ]


def _overlap(one: Finding, other: Finding) -> bool:
    return one.first <= other.last and other.first <= one.last


async def mend(
    client: Client, ledger: int, findings: Sequence[Finding], how: Mending = Mending(), look: Look | None = None
) -> Mended:
    """
    Makes good what was found of a ledger.  What can't be is in `left`; nothing is raised but by the store.  With the
    caller's `look`, taken under its lock, bookies that are not listed are its matter; without one they are lost, so
    that their shares go to others.
    """
    done, gone = Mended(ledger), list[str]()
    try:
        if look is None:
            listed = await client.store.bookies()
            named = {finding.bookie for finding in findings if finding.bookie}
            gone = sorted(bookie for bookie in named if listed.find(bookie) is None)
        # First of all what is wrong though its digest holds: nothing is to be copied from that.
        there = [finding for finding in findings if finding.bookie not in gone]
        wrong = await _copy(client, ledger, there, how, done, look)
        if gone and done.undecided:
            done.left.append(f"ledger {ledger}: what {', '.join(gone)} held is not copied while other copies differ")
        elif gone:
            await _free(client, ledger, gone, wrong, how, done)
    except NoSuchLedgerExistsOnMetadataServer:
        pass  # deleted meanwhile
    except LedgerError as error:
        if how.lock is not None and isinstance(error, MetadataTooLarge):
            raise
        await about_one(client.store, error)
        done.left.append(str(error))
    return done


async def _free(
    client: Client, ledger: int, gone: Sequence[str], wrong: Sequence[Wrong], how: Mending, done: Mended
) -> None:
    """Copies what bookies that are gone held of the ledger to others."""
    metadata = (await client.store.read_ledger(ledger)).value
    unclosed = writer_depends_on(metadata, gone)
    if unclosed and not how.dry_run:
        if not how.fence:
            done.left.append(
                f"ledger {ledger} is not closed and its last ensemble names {', '.join(gone)}: its writer replaces "
                f"them; if it is gone, `quire ledger recover {ledger}`"
            )
            return
        if not await stands_still(client, ledger, metadata, how.grace_s):
            done.left.append(f"ledger {ledger} is being written: its writer replaces {', '.join(gone)}")
            return
    await _moved_off(client, ledger, gone, wrong, done, how, fence=unclosed)


async def stands_still(client: Client, ledger: int, metadata: LedgerMetadata, seconds: float) -> bool:
    """True if the last add confirmed is the same after so long."""
    before, _metadata = await end_of(client, ledger, metadata)
    await pause(client.reactor, seconds)
    after, _metadata = await end_of(client, ledger, metadata)
    return before == after


async def _moved_off(
    client: Client,
    ledger: int,
    bookies: Collection[str],
    wrong: Sequence[Wrong],
    done: Mended,
    how: Mending,
    *,
    fence: bool = False,
) -> None:
    freed = await recover_bookies(
        client,
        bookies,
        dry_run=how.dry_run,
        verify=True,
        even_if_registered=True,
        fence=fence,
        ledgers=[ledger],
        wrong=wrong,
        lock=how.lock,
        pace=how.pace,
    )
    done.entries += freed.progress.entries
    done.bytes += freed.progress.bytes
    done.fragments += freed.progress.fragments
    done.left += [each.reason for each in freed.failed]


async def _copy(
    client: Client, ledger: int, findings: Sequence[Finding], how: Mending, done: Mended, look: Look | None
) -> list[Wrong]:
    """
    Copies what is wrong on bookies that are there; what one does not take, or would not keep, to others.  The copies
    that are still wrong though their digests hold.
    """
    suspicion = suspicion_of(ledger, findings)
    others = [finding for finding in findings if finding.index < 0]
    done.left += [f"ledger {ledger}: {finding.kind}: {finding.detail} {finding.bookie}".rstrip() for finding in others]
    if not suspicion.copies:
        return []
    async with repair_lock(client.store.repairs, ledger, how.lock) as lock:
        if lock is None and not how.dry_run:
            raise Replication(f"ledger {ledger}: another process repairs it right now; run this again")
        look = look or await Look.taken(client, ledger)
        wrong = await look.confirmed(suspicion, Manner(how.pace))
        able = [finding for finding in wrong if _can_be_mended(look.record.metadata, finding, done)]
        leaving = await _keeping(client, able)
        copied = [finding for finding in able if finding.bookie not in leaving]
        if how.dry_run:
            done.entries += sum(finding.entries for finding in copied)
        else:
            copied = [finding for finding in copied if await _copied(look, finding, wrong, how, done)]
            if copied:
                again = await look.confirmed(suspicion_of(ledger, copied), Manner(how.pace))
                silent = {finding.bookie for finding in again if finding.kind == "unreachable"}
                leaving |= {finding.bookie for finding in again} - silent
                done.left += [f"ledger {ledger}: {each} went while copies were made on it" for each in sorted(silent)]
    still = misleading([finding for finding in wrong if finding not in copied or finding.bookie in leaving])
    if leaving and done.undecided:
        names = ", ".join(sorted(leaving))
        done.left.append(f"ledger {ledger}: what {names} should have is not copied while other copies differ")
    elif leaving:
        await _moved_off(client, ledger, leaving, still, done, how)
    return still


async def _keeping(client: Client, findings: Sequence[Finding]) -> set[str]:
    """The bookies that would have a wrong copy again though it is written over."""
    having = sorted({finding.bookie for finding in findings if finding.kind in WRONG_THERE})
    return {bookie for bookie in having if not await client.pool.says_its_id(bookie)}


def misleading(findings: Sequence[Finding]) -> list[Wrong]:
    """Copies that nothing is to be made from, though their digests hold."""
    return [Wrong(each.bookie, each.first, each.last) for each in findings if each.code in MISLEADING]


def suspicion_of(ledger: int, findings: Sequence[Finding]) -> Suspicion:
    """Makes a suspicion of what is to be looked at again."""
    found = Suspicion(ledger, max((finding.last for finding in findings), default=-1))
    for finding in findings:
        if finding.index >= 0:
            found.copies.append((finding.index, finding.first, finding.last))
            if finding.code in (DIFFERS, STALE, UNDECIDED):
                found.differing.add((finding.first, finding.last))
    return found


def _can_be_mended(metadata: LedgerMetadata, finding: Finding, done: Mended) -> bool:
    """By a copy, as far as is known; else why not is noted."""
    about = f"ledger {finding.ledger}, entries {finding.first} to {finding.last}"
    settled = any(
        first == finding.fragment and last is not None and last >= finding.last
        for first, last, _bookies in metadata.fragment_ranges()
    )
    if finding.kind not in MENDED_BY_COPIES:
        done.left.append(f"{about}: {finding.bookie}: {finding.detail}")
    elif not settled:
        done.unsettled = True
        done.left.append(f"{about}: it is not closed, so its writer has the last word, or `quire ledger recover`")
    elif finding.code == UNDECIDED:
        done.undecided = True
        done.left.append(f"{about}: its copies differ, and no content has the majority")
    else:
        return True
    return False


async def _copied(look: Look, finding: Finding, wrong: Sequence[Finding], how: Mending, done: Mended) -> bool:
    """
    True if the copies of a finding were made again, or the bookie would not take them; else why not is noted.  What no
    survivor gives is looked for on bookies that the metadata does not name.
    """
    bookies, others = look.record.metadata.fragment_at(finding.first).bookies, list[str]()
    while True:
        part = HeldFragment(finding.first, finding.last, bookies, (finding.index,))
        sources = Sources({finding.bookie}, others, misleading(wrong))
        copier = FragmentCopier(look.client.pool, look.record, part, sources, done.copied, how.pace)
        try:
            await copier.copy(finding.index, finding.bookie)
        except TargetFailed:
            return True
        except Unread as error:
            finding = replace(finding, first=error.entry)
            if others or not (holder := await look.holder(finding)):
                done.left.append(str(error))
                return False
            others.append(holder)
        else:
            return True
