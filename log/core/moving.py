"""
The edits of a move to another cluster: begun, given up, ended.

A move is in the manifest of the log that it takes away, from its begin on, so that there is one place that decides
between what two commands do at the same time.  At its end the log's name says where the log went on, in the step in
which the log is deleted here: upkeep then removes it as any other.

Knows: predicates and changes.  Does not know: the copy, how this one is kept from taking more appends, the directory.
Safety: a log is moved to one cluster at a time.  Only a move that was not given up lets it be fenced (`check_move`),
and none is given up after that.  What is carried into a copy comes in one step with its manifest, which still says that
it is a copy: so nothing comes late into a log that goes on.  Until then nothing of it is trimmed, for what needs its
records may come yet.  A log is deleted only where its copy `has_all` of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from quire.log.core.edits import check_exists
from quire.log.core.manifest import DELETING, TERMINATED, Manifest
from quire.log.core.values import Moved
from quire.protocol.log_errors import LogError, LogFenced, LogIsMirror

# SPDX-License-Identifier: Apache-2.0


def elsewhere(manifest: Manifest, to: Moved) -> LogError:
    """The error of a second move to another cluster than the first, which is `to`."""
    return LogError(
        f"the log {manifest.name!r} is being moved to the cluster {to.cluster} already: run `quire log move "
        f"{manifest.name} {to.cluster}` to its end, or with --abort"
    )


def another_move(manifest: Manifest) -> LogError:
    """The error of a move that is not that of the log (any more)."""
    return LogError(f"this move of the log {manifest.name!r} was given up or ended meanwhile: nothing more is done")


def check_move(manifest: Manifest, id_: str) -> None:
    """`LogError` when that move was given up: another one may have begun."""
    if manifest.moved is None or manifest.moved.id != id_ or manifest.moved.aborted:
        raise another_move(manifest)


def is_fenced(manifest: Manifest) -> bool:
    """True while a log that moves takes nothing any more, and can only go on where it goes."""
    return manifest.moved is not None and (manifest.mirrored is not None or manifest.moved.fenced)


def check_held_here(manifest: Manifest) -> None:
    """`LogIsMirror` while the log goes to another cluster, with cursors and settings; `LogMoved` once it is there."""
    check_exists(manifest)
    to = manifest.moved
    if to is not None and is_fenced(manifest):
        error = LogIsMirror(
            f"the log {manifest.name!r} is on its way to the cluster {to.cluster}, with its cursors and its "
            "settings: use them there"
        )
        error.uri, error.log_name = to.uri, manifest.name
        raise error


def has_all(source: Manifest, copy: Manifest) -> bool:
    """
    True if the log takes no more records, and all that it has are in that copy, which was promoted with them.  One that
    was promoted before, or apart from this log, lacks what came then.
    """
    of, end = source.mirrored, source.end
    if of is not None:
        end = of.start if of.log == copy.id else None
    return end is not None and any(
        origin.log == source.id and origin.end is not None and origin.end >= end for origin in copy.origins
    )


@dataclass(frozen=True, slots=True)
class BeginMove:
    """
    The log is to go to another cluster; not wanted where such a move is under way.  `LogError`: to another one, or it
    is being given up; or the log is a copy, of another log than `copy`, which is the id of the one that is there.
    """

    to: Moved
    copy: str = ""
    name = "begin-move"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        before, of = manifest.moved, manifest.mirrored
        if before is None and of is not None and of.log != self.copy:
            raise LogError(
                f"the log {manifest.name!r} is a copy of {of.name!r} at {of.uri or of.cluster}: nothing was changed; "
                f"move that one, or first make this one a log of its own, with `quire log mirror {manifest.name} "
                "--promote`"
            )
        if before is None or (before.aborted and before.cluster != self.to.cluster):  # which may be away for good
            return replace(manifest, moved=self.to)
        if before.cluster != self.to.cluster:
            raise elsewhere(manifest, before)
        if before.aborted:
            raise LogError(
                f"the move of the log {manifest.name!r} to the cluster {before.cluster} is being given up, and its "
                f"copy is there still: run `quire log move {manifest.name} {before.cluster} --abort` to its end first"
            )
        return None


@dataclass(frozen=True, slots=True)
class FenceMove:
    """A log that has its end can't stay any more: what a fence says of one that took appends.  `LogError`: given up."""

    id: str
    name = "fence-move"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        check_move(manifest, self.id)
        assert manifest.moved is not None
        return None if is_fenced(manifest) else replace(manifest, moved=replace(manifest.moved, fenced=True))


@dataclass(frozen=True, slots=True)
class AbortMove:
    """The log stays, and the copy is to go.  `LogError` once it is fenced."""

    id: str
    name = "abort-move"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        to = manifest.moved
        if to is None or to.id != self.id or to.aborted:
            return None
        if is_fenced(manifest):
            raise LogError(
                f"the log {manifest.name!r} takes no appends here any more, and its move can only be ended: run `quire "
                f"log move {manifest.name} {to.cluster}`"
            )
        return replace(manifest, moved=replace(to, aborted=True))


@dataclass(frozen=True, slots=True)
class ForgetMove:
    """A move that was given up has left nothing."""

    id: str
    name = "forget-move"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        to = manifest.moved
        return None if to is None or to.id != self.id or not to.aborted else replace(manifest, moved=None)


@dataclass(frozen=True, slots=True)
class EndMove:
    """The log goes on elsewhere, and is deleted here; its name says so from the same step on."""

    id: str
    name = "end-move"

    def apply(self, manifest: Manifest) -> Manifest | None:
        if manifest.moved is not None and manifest.moved.done:
            return None
        check_exists(manifest)
        check_move(manifest, self.id)
        assert manifest.moved is not None
        if manifest.mirrored is None and manifest.state != TERMINATED:
            raise LogError(f"the log {manifest.name!r} takes appends here: its move is not at its end")
        done = replace(manifest.moved, done=True)
        return replace(manifest, state=DELETING, owner=None, transfer=None, moved=done)


@dataclass(frozen=True, slots=True)
class HoldCopy:
    """
    Nothing of the copy of the log with that id is trimmed until it is promoted: the cursors that need it come with the
    move.  `held` False: the move was given up.  `LogFenced`: it is no copy of that log.
    """

    log: str
    held: bool = True
    name = "hold-copy"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        of = manifest.mirrored
        if of is None or of.log != self.log:
            if not self.held:
                return None
            raise no_copy(manifest)
        if of.held == self.held:
            return None
        return replace(manifest, origins=(*manifest.origins[:-1], replace(of, held=self.held)))


@dataclass(frozen=True, slots=True)
class Carry:
    """
    Gives a copy settings of the log, and moves its version, so that what comes in the same step comes before it is the
    log itself.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    name = "carry"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        if manifest.mirrored is None:
            raise no_copy(manifest)
        settings = {**manifest.settings, **self.settings}
        return replace(manifest, settings=settings, table=manifest.table if settings.get("dedup") else None)


def no_copy(manifest: Manifest) -> LogFenced:
    """The error of what comes with a move to a copy that was promoted."""
    return LogFenced(f"the log {manifest.name!r} is no copy any more: another command has ended the move")
