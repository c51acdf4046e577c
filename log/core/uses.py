"""
The right to change a log: whoever names its use, the mirror of a copy, and of a partitioned log its partitions' owners.

Knows: what a manifest says of it.  Does not know: who asks.
"""

from quire.log.core.manifest import MIRROR, PARTITIONS, USE, Manifest, moved_error
from quire.protocol.log_errors import LogFenced, LogIsMirror

# SPDX-License-Identifier: Apache-2.0


def check_use(manifest: Manifest, use: str) -> None:
    """`ValueError` unless this is the log's use: whoever does not name it must not change what others built on it."""
    check_mirror(manifest, use == MIRROR)
    own = manifest.settings.get(USE, "")
    if use in {own, MIRROR}:
        return
    check_records(manifest)
    if own:
        raise ValueError(
            f"the log {manifest.name!r} is kept by `quire {own}`, and nothing was changed: `quire {own} --help` lists "
            f"the commands to use instead; a program that is one of them says use={own!r}"
        )
    raise ValueError(
        f"the log {manifest.name!r} has no use {use!r}, and nothing was changed: a log is given its use when it is "
        "created"
    )


def check_mirror(manifest: Manifest, mirrors: bool) -> None:
    """
    `LogIsMirror` of a copy for all but its mirror; for that `LogFenced` once the log is no copy any more.  `LogMoved`
    once it goes on in another cluster.
    """
    if manifest.moved is not None and manifest.moved.done:
        raise moved_error(manifest.name, manifest.moved)
    of = manifest.mirrored
    if mirrors and of is None:
        raise LogFenced(
            f"the log {manifest.name!r} is no copy of another one (any more), and no mirror writes to it: "
            f"`quire log show {manifest.name}` says what it is"
        )
    if not mirrors and of is not None:
        error = LogIsMirror(
            f"the log {manifest.name!r} is a copy of {of.name!r} at {of.uri or of.cluster}, and `quire log mirror` "
            f"alone appends to it: append there; `quire log mirror {manifest.name} --promote` makes it a log of its own"
        )
        error.cluster, error.uri, error.log, error.log_name = of.cluster, of.uri, of.log, of.name
        raise error


def check_records(manifest: Manifest) -> None:
    """`ValueError` for a partitioned log, whose records are in its partitions."""
    count = manifest.settings.get(PARTITIONS, 0)
    if count:
        name = manifest.name
        raise ValueError(
            f"the log {name!r} has {count} partitions and no records of its own: the logs {name}/0 to "
            f"{name}/{count - 1} are its partitions; in a program `own_partitions`, `read_partitions` and "
            "`partition_cursor` use all of them"
        )
