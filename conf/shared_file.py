"""
A file that several kinds of process read: a bookie, AutoRecovery beside it or inside it, and the clients of both; how
AutoRecovery is configured in a process: its own options and those of its client.

Knows: who shares one.  Does not know: what the options do.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.parts.zookeeper import ZooKeeperOptions
from quire.conf.properties import Property, load

# SPDX-License-Identifier: Apache-2.0

M = TypeVar("M", bound=BaseModel)

READERS = (BookieOptions, AutoRecoveryOptions, ClientOptions)


def load_shared(
    model: type[M], path: str | None, environment: Mapping[str, str], extra: Sequence[Property] = ()
) -> tuple[M, list[str]]:
    """As `load`; the keys of the other readers are passed over in silence."""
    return load(model, path, environment, extra, READERS)


class Settings(NamedTuple):
    """The options of AutoRecovery and of the client that it has."""

    options: AutoRecoveryOptions
    client: ClientOptions

    @classmethod
    def beside(cls, bookie: BookieOptions) -> "Settings":
        """The defaults, in a bookie's cluster, which is reached as the bookie reaches it."""
        options = AutoRecoveryOptions(
            metadata_uri=bookie.metadata_uri, session_timeout_ms=bookie.session_timeout_ms, bookie_id=bookie.bookie_id
        )
        reached = bookie.model_dump(include={"session_timeout_ms", *ZooKeeperOptions.model_fields})
        return cls(options, ClientOptions.model_validate(reached))

    @classmethod
    def load(
        cls, path: str | None, environment: Mapping[str, str], extra: Sequence[Property]
    ) -> tuple["Settings", list[str]]:
        """From a file that a bookie may read too, with the warnings to log; `ConfigurationError`."""
        options, warnings = load_shared(AutoRecoveryOptions, path, environment, extra)
        client = load_shared(ClientOptions, path, environment, extra)[0]
        if "client_role" not in client.model_fields_set:
            client = client.model_copy(update={"client_role": "system"})
        return cls(options, client), warnings
