"""
Errors of message stores, in the one tree of errors and number space of codes (docs/messages.md, "Errors").

Knows: the codes -330 to -342.  Does not know: who raised it, or why.
"""

from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class MessageError(LedgerError, code=-330):
    """Base of what can go wrong with a message store.  `status`: RocketMQ's name for it, where a put has one."""

    status = ""


class NotReady(MessageError, code=-331):
    """The store owns its log and has not applied all that was there before; nothing was sent."""

    status = "SERVICE_NOT_AVAILABLE"


class NotAMessage(MessageError, code=-332):
    """No record begins at the offset, or of another store host.  `next`: the next record's offset; -1: unknown."""

    next = -1


class BeyondEnd(MessageError, code=-333):
    """The offset is at or above the end of what can be read.  `end`: that end."""

    end = -1


class MessageIllegal(MessageError, code=-334):
    """A message or group that the store does not take; nothing was sent."""

    status = "MESSAGE_ILLEGAL"


class PropertiesTooLong(MessageError, code=-335):
    """The properties of a message need more than 32,767 bytes; nothing was sent."""

    status = "PROPERTIES_SIZE_EXCEEDED"


class StoreDamaged(MessageError, code=-336):
    """A record or a position contradicts the format, its sums or the queue table."""


class StoreImporting(MessageError, code=-337):
    """The import of the store has not ended: the text names the command that ends it."""


class StoreExists(MessageError, code=-338):
    """A store or a log has this name already."""


class NoSuchStore(MessageError, code=-339):
    """No message store has this name."""


class RowsForeign(MessageError, code=-340):
    """The directory of rows is another log's, or not one of rows."""


class _Refused(MessageError):
    """
    Refusal to read or write files, by name.  `why`: the name of the refusal; `file` and `offset`: where, "" and -1
    where none is meant.
    """

    def __init__(
        self, why: str = "Refused", text: str = "for a reason that is not known", *, file: str = "", offset: int = -1
    ) -> None:
        where = file if offset < 0 else f"{file}, offset {offset}" if file else f"offset {offset}"
        super().__init__(f"{why}: {where}: {text}" if where else f"{why}: {text}")
        self.why, self.file, self.offset = why, file, offset


class ImportRefused(_Refused, code=-341):
    """A source that is not imported (docs/messages.md, "Refusals")."""


class ExportRefused(_Refused, code=-342):
    """A store, or a range of it, that is not exported (docs/messages.md, "Refusals")."""
