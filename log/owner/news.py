"""
What a newer manifest means for an owner.

Knows: which inputs of its machine follow.  Does not know: how the manifest was heard of.
"""

from quire.log.core import edits
from quire.log.core import ownership_messages as m
from quire.log.core.manifest import Manifest
from quire.log.core.ownership import OWNING, Ownership, State
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0


def news(manifest: Manifest, machine: Ownership, token: str) -> list[m.Input]:
    """The inputs, in order."""
    over = _over(manifest)
    if machine.state is State.WAITING and over is not None:
        return [m.Deposed(over)]
    if machine.state not in OWNING and machine.state is not State.LOST:
        return []
    found: list[m.Input] = []
    for number in {machine.segment, machine.ending} - {None}:
        assert number is not None
        segment = manifest.segment(number)
        if segment is not None and not segment.is_open:
            found.append(m.SegmentEnded(number, segment.entries or 0))
        elif segment is None and manifest.line(number) is None and number < manifest.next:
            if number >= manifest.begin.n or _is_doomed_as_empty(manifest, machine.ledger):
                found.append(m.SegmentEnded(number, 0))
            elif number == machine.segment:  # it was trimmed: what was in it is to be looked for
                found.append(m.WriterEnded(number))
    if machine.state not in OWNING or (machine.state is State.MOVING and manifest.owner is None):
        return found
    mine = manifest.owner is not None and manifest.owner.token == token and manifest.epoch == machine.epoch
    if over is not None:
        found.append(m.Deposed(over))
    elif not mine:
        found.append(m.Deposed(edits.deposed(manifest, machine.epoch)))
    return found


def _over(manifest: Manifest) -> LogError | None:
    """Why nobody can own it any more, if so."""
    try:
        edits.check_open(manifest)
    except LogError as error:
        return error
    return None


def _is_doomed_as_empty(manifest: Manifest, ledger: int | None) -> bool:
    return any(each.ledger == ledger and each.why == "empty" for each in manifest.doomed)
