"""
The checks of `quire doctor` that need the metadata store only, or this machine.

Knows: which state of the store, the lists of bookies, the repair queue, this process and its certificates is wrong.
Does not know: what a bookie says of itself, logs.
"""

import os
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from quire.metadata.clock import time_of_day
from quire.tools.commands.doctor.examining import Check, Finding, Machine, Scene, Severity, said, unmade

# SPDX-License-Identifier: Apache-2.0

COPIES, ACKS = 3, 2  # of a ledger whose creator says nothing
QUEUE_MAX = 10_000  # ledgers of the repair queue that are looked at
DESCRIPTORS = Path("/proc/self/fd")
NOTE, WARNING, ERROR = Severity


async def store_answers(scene: Scene) -> AsyncIterator[Finding]:
    """Compares the store's time to answer with the limit, and its clock with ours."""
    begun, clock, limits = scene.clock.seconds(), scene.client.store.records.clock, scene.limits
    before = time_of_day()
    theirs = await clock()
    took = scene.clock.seconds() - begun
    if took > limits.store_s:
        yield Finding(
            WARNING,
            scene.client.store.uri,
            f"it took {took:.1f} s to answer: ledgers are made and closed slowly, sessions may end",
            "look at the load and the disk of its machine",
        )
    apart = abs(theirs - 1000 * (before + took / 2))
    if apart > limits.clocks_ms + 500 * took:
        yield Finding(
            WARNING,
            scene.client.store.uri,
            f"its clock and this machine's are {apart / 1000:.1f} s apart: ages, retention and times in logs are off",
            "set both by NTP: `timedatectl`",
        )


async def set_back(scene: Scene) -> AsyncIterator[Finding]:
    from quire.tools.commands.metadata import look_back

    _, shown = await look_back(scene.client.store)
    step = f"quire metadata set-back --metadata '{scene.client.store.uri}'"
    if shown["set_back"]:
        lost = sum(each["unknown_ledgers"] or 0 for each in shown["bookies"].values())
        yield Finding(
            ERROR,
            scene.client.store.uri,
            f"it knows less than {len(shown['bookies'])} bookies have seen of it, as after an old backup; they hold "
            f"{lost} copies of ledgers that it does not know, and delete nothing until that is settled",
            step,
        )
    if shown["doubts"]:
        yield Finding(
            WARNING,
            ", ".join(shown["doubts"]),
            "it holds ledgers whose ids the store never gave, and deletes nothing until that is settled",
            step,
        )


async def bookies_up(scene: Scene) -> AsyncIterator[Finding]:
    """Finds bookies that are known and away, and too few that are writable."""
    listed, known = scene.bookies, scene.known
    for bookie in sorted(known - {*listed.writable, *listed.read_only}):
        yield Finding(
            WARNING,
            bookie,
            "it is known, and away",
            f"start it: `quire bookie start`; if it is lost: `quire decommission {bookie}`",
        )
    writable = len(listed.writable)
    if writable < COPIES:
        what = f"{writable} of them writable: "
        yield Finding(
            ERROR if writable < ACKS else WARNING,
            "bookies",
            what + f"no ledger with the usual {COPIES} copies can be made, nor can a bookie that fails be replaced",
            "start more: `quire bookie start`; see `quire bookie list`",
        )


async def drained(scene: Scene) -> AsyncIterator[Finding]:
    """Lists bookies that are ordered to be emptied."""
    if scene.draining is None:
        yield unmade("bookies", "which of them are to be emptied can't be read", NOTE, "quire bookie list")
    for bookie in sorted(scene.draining or ()):
        yield Finding(
            NOTE, bookie, "it is to be emptied, and takes no new ledgers", f"quire decommission --drain {bookie}"
        )


async def repair(scene: Scene) -> AsyncIterator[Finding]:
    """Finds repair that is switched off, or without an auditor."""
    store = scene.client.store
    if not await store.repairs.enabled():
        yield Finding(
            WARNING, "repair", "it is switched off: lost copies are not made again", "quire autorecovery enable"
        )
    if (await store.auditing.election()).auditor is None:
        yield Finding(
            WARNING,
            "repair",
            "there is no auditor: nobody looks for bookies that are lost",
            "quire autorecovery start --conf FILE",
        )


async def copies(scene: Scene) -> AsyncIterator[Finding]:
    """Counts the repair queue by what its ledgers wait for."""
    from quire.replication.autorecovery.notes import Notes
    from quire.tools.commands.repair.underreplicated import PAGE, looked_at

    store = scene.client.store
    notes, counted, after, seen = Notes(store.records), Counter[str](), -1, 0
    while seen < QUEUE_MAX and (page := await store.repairs.shortages(after, PAGE)):
        after, seen = page[-1].ledger, seen + len(page)
        counted.update(row["state"] for row in await looked_at(store, notes, page))
    more = f", the first {QUEUE_MAX} of more" if seen >= QUEUE_MAX else ""
    if gone := counted.pop("gone", 0):
        yield Finding(
            ERROR,
            "repair queue",
            f"ledgers with entries that have no copy left: {gone}; only the bookies that are lost can bring them back",
            "quire underreplicated list",
        )
    if counted:
        states = ", ".join(f"{count} {state}" for state, count in counted.most_common())
        yield Finding(
            WARNING, "repair queue", f"ledgers that lack copies: {states}{more}", "quire underreplicated list"
        )


async def own_files(machine: Machine) -> AsyncIterator[Finding]:
    """Finds a low limit of open files; what is started from here inherits it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    count = len(os.listdir(DESCRIPTORS)) if DESCRIPTORS.exists() else 0
    if soft < machine.limits.files_min or count > machine.limits.files * soft:
        yield Finding(
            WARNING,
            "this machine",
            f"a process that is started here may open {soft} files: few, for a client of many bookies or a bookie",
            "raise it: `ulimit -n`, or LimitNOFILE of its unit",
        )


async def certificates(machine: Machine) -> AsyncIterator[Finding]:
    """Finds certificates of the client's configuration that end."""
    options = machine.options
    named = {
        "tlsCertificatePath": options.tls_certificate if options.tls else None,
        "clientTrustStore": options.tls_trust if options.tls else None,
        "zkTlsCertificate": options.zk_tls_certificate,
        "zkTlsTrust": options.zk_tls_trust,
    }
    for path in sorted({path for path in named.values() if path is not None}):
        try:
            for each in ends_of(path, machine):
                yield each
        except (OSError, ValueError) as error:
            yield Finding(
                ERROR, path, f"its certificates can't be read: {said(error)}", "see docs/security.md, 4", made=False
            )


def ends_of(path: str, machine: Machine) -> Iterator[Finding]:
    """Finds certificates in one file that end; `OSError`, `ValueError`."""
    from cryptography import x509

    for each in x509.load_pem_x509_certificates(Path(path).read_bytes()):
        end = each.not_valid_after_utc
        left_ms = 1000 * (end.timestamp() - time_of_day())
        if left_ms < machine.limits.certificate_ms:
            ended = left_ms < 0
            yield Finding(
                ERROR if ended else WARNING,
                path,
                f"the certificate of {each.subject.rfc4514_string()} {'ended' if ended else 'ends'} on {end:%Y-%m-%d}",
                "put a new one in its place: docs/security.md, 4",
            )


MACHINE: dict[str, Check[Machine]] = {
    "own-files": Check("files that this machine's processes may open", own_files),
    "certificates": Check("certificates of the client's configuration", certificates),
}
CLUSTER: dict[str, Check[Scene]] = {
    "store": Check("the metadata store's answer and clock", store_answers),
    "set-back": Check("whether the metadata store was set back", set_back),
    "up": Check("which bookies are up", bookies_up),
    "drained": Check("which bookies are to be emptied", drained),
    "repair": Check("whether lost copies are made again", repair),
    "copies": Check("ledgers that lack copies", copies),
}
