"""
Errors of named logs, in the one tree of errors and number space of codes (docs/logs.md, "Errors").

Knows: the codes -300 to -321.  Does not know: who raised it, or why.

"Never sent" and "not in the log" are promises.
"""

from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class LogError(LedgerError, code=-300):
    """Base of what can go wrong with a named log."""


class NoSuchLog(LogError, code=-301):
    """No log has this name, or it is being deleted."""


class LogExists(LogError, code=-302):
    """A log has this name already."""


class LogTerminated(LogError, code=-303):
    """The log takes no more records.  `end`: the index of the first that it does not have, where it is known."""

    end = -1


class LogTrimmed(LogError, code=-304):
    """An index below the log's first record was asked for.  `begin`: the index of that record."""

    begin = 0


class NotOwner(LogError, code=-305):
    """The process does not own the log, or is handing it over; nothing was sent.  `address`: the owner's, if known."""

    address = ""


class LogFenced(LogError, code=-306):
    """The ownership, transaction or cursor went to another; the appends that fail with it are not in the log."""


class AppendUnknown(LogError, code=-307):
    """The end of the ledger could not be learned in time: the records may be in the log, or not."""


class BacklogQuota(LogError, code=-308):
    """The log's backlog is above its quota."""


class BatchGap(LogError, code=-309):
    """The batch is not the one after the last that was published."""


class PublishRefused(LogError, code=-310):
    """A ledger is not what its part says, or the batch was aborted."""


class SegmentLost(LogError, code=-311):
    """A ledger that the log names is gone."""


class LogDamaged(LogError, code=-312):
    """An entry or a record of metadata contradicts the format or the counts."""


class ApplyFailed(LogError, code=-313):
    """The state machine raised at a record.  `index`: the record's."""

    index = -1


class SnapshotDamaged(LogError, code=-314):
    """No snapshot of the log can be read, and the log begins above 0."""


class StaleRead(LogError, code=-315):
    """There was no proof in time that the state is new enough."""


class NoSuchCursor(LogError, code=-316):
    """The log has no cursor of this name."""


class LogFull(LogError, code=-317):
    """A limit of the log is reached: the text says which, and what to do."""


class UnknownFormat(LogError, code=-318):
    """Something was written by a newer version of quire, which this one must not interpret."""


class LogIsMirror(LogError, code=-319):
    """
    The log is a copy of another one, and takes appends from its mirror alone; nothing was sent.  `cluster`, `uri`,
    `log`, `log_name`: where that one is, and its id and name.
    """

    cluster = uri = log = log_name = ""


class MirrorDiverged(LogError, code=-320):
    """A log has records from `first` to `end` - 1 that the log which it is to be a copy of does not have there."""

    first = end = -1


class LogMoved(NoSuchLog, code=-321):
    """
    The log goes on in another cluster; what failed with it is not in the log.  `cluster`: the other one's name in the
    directory, `uri` its metadata URI, `directory` that of the directory.
    """

    cluster = ""
    uri = ""
    directory = ""
