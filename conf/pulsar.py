"""
The options of a process that reads Pulsar's topics.

Knows: each one's unit, default, range and meaning.  Does not know: topics.
"""

from pydantic import BaseModel, ConfigDict, Field

from quire.conf.options import chosen

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20


class PulsarOptions(BaseModel):
    """How topics are read."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    root: str | None = Field(
        default=None,
        pattern=r"^(/[^/]+)*$",
        description="the node below which Pulsar's are; the one that the ledgers' node is in if not given",
    )
    batch_bytes: int = Field(default=2 * MIB, ge=1, le=1 << 30, description="bytes of one batch of messages, about")
    split_bytes: int = Field(default=64 * MIB, ge=1, description="bytes of one range of a plan, about")
    chunk_bytes_max: int = Field(
        default=256 * MIB, ge=1, description="bytes of messages in chunks that wait for their last chunk, at most"
    )
    look_back_max: int = Field(
        default=20_000, ge=0, description="entries before a range in which the first chunks of a message are looked for"
    )
    unconfirmed: bool = Field(
        default=False,
        description="whether the last entries of an open ledger are read, too, which no later entry confirms yet: the "
        "broker may have acknowledged them or not",
    )
    poll_ms: int = Field(default=200, ge=1, description="how often a follower looks for new entries, in milliseconds")

    @classmethod
    def given(cls, options: "PulsarOptions | None") -> "PulsarOptions":
        """The options that are given, or the defaults; `TypeError` for another kind."""
        return chosen(cls, options)
