"""
A file that several kinds of process read: a bookie, AutoRecovery beside it or inside it, and the clients of both.

Knows: who shares one.  Does not know: what the options do.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import Property, load

# SPDX-License-Identifier: Apache-2.0

M = TypeVar("M", bound=BaseModel)

READERS = (BookieOptions, AutoRecoveryOptions, ClientOptions)


def load_shared(
    model: type[M], path: str | None, environment: Mapping[str, str], extra: Sequence[Property] = ()
) -> tuple[M, list[str]]:
    """As `load`; the keys of the other readers are passed over in silence."""
    return load(model, path, environment, extra, READERS)
