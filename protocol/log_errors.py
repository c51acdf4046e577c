"""
Errors of named logs, in the one tree of errors and number space of codes (docs/logs.md, "Errors").

Knows: the codes -300 to -318.  Does not know: who raised it, or why.

"Never sent" and "not in the log" are promises.
"""

from quire.protocol.errors import LedgerError, coded

# SPDX-License-Identifier: Apache-2.0


@coded
class LogError(LedgerError):
    """Base of what can go wrong with a named log."""

    code = -300


@coded
class NoSuchLog(LogError):
    """No log has this name, or it is being deleted."""

    code = -301


@coded
class LogExists(LogError):
    """A log has this name already."""

    code = -302


@coded
class LogTerminated(LogError):
    """The log takes no more records.  `end`: the index of the first that it does not have, where it is known."""

    code = -303
    end = -1


@coded
class LogTrimmed(LogError):
    """An index below the log's first record was asked for.  `begin`: the index of that record."""

    code = -304
    begin = 0


@coded
class NotOwner(LogError):
    """The process does not own the log, or is handing it over; nothing was sent.  `address`: the owner's, if known."""

    code = -305
    address = ""


@coded
class LogFenced(LogError):
    """The ownership, transaction or cursor went to another; the appends that fail with it are not in the log."""

    code = -306


@coded
class AppendUnknown(LogError):
    """The end of the ledger could not be learned in time: the records may be in the log, or not."""

    code = -307


@coded
class BacklogQuota(LogError):
    """The log's backlog is above its quota."""

    code = -308


@coded
class BatchGap(LogError):
    """The batch is not the one after the last that was published."""

    code = -309


@coded
class PublishRefused(LogError):
    """A ledger is not what its part says, or the batch was aborted."""

    code = -310


@coded
class SegmentLost(LogError):
    """A ledger that the log names is gone."""

    code = -311


@coded
class LogDamaged(LogError):
    """An entry or a record of metadata contradicts the format or the counts."""

    code = -312


@coded
class ApplyFailed(LogError):
    """The state machine raised at a record.  `index`: the record's."""

    code = -313
    index = -1


@coded
class SnapshotDamaged(LogError):
    """No snapshot of the log can be read, and the log begins above 0."""

    code = -314


@coded
class StaleRead(LogError):
    """There was no proof in time that the state is new enough."""

    code = -315


@coded
class NoSuchCursor(LogError):
    """The log has no cursor of this name."""

    code = -316


@coded
class LogFull(LogError):
    """A limit of the log is reached: the text says which, and what to do."""

    code = -317


@coded
class UnknownFormat(LogError):
    """Something was written by a newer version of quire, which this one must not interpret."""

    code = -318
