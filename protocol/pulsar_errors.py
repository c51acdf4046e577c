"""
Errors of Pulsar's topics, in the one tree of errors and number space of codes (docs/pulsar-topics.md, "Errors").

Knows: the codes -350 to -356.  Does not know: who raised it, or why.
"""

from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class PulsarError(LedgerError, code=-350):
    """Base of what can go wrong with a topic of Pulsar."""


class NoSuchTopic(PulsarError, code=-351):
    """The metadata names no topic of this name, or its name is none."""


class NoSuchSubscription(PulsarError, code=-352):
    """The topic has no subscription of this name that is kept in the metadata."""


class MessageDamaged(PulsarError, code=-353):
    """
    An entry contradicts the format or its sum, or a piece of metadata does.  `position`: ledger and entry of it;
    (-1, -1) for metadata.
    """

    position = (-1, -1)


class LedgerOffloaded(PulsarError, code=-354):
    """A ledger of the topic was moved away from the bookies.  `driver`: the offloader that has it."""

    driver = ""


class NotRead(PulsarError, code=-355):
    """A form that this version or this machine can't read; the text names what is missing."""


class NoSuchSchema(PulsarError, code=-356):
    """The topic has no schema of this version in its registry."""
