"""
A file that several kinds of process read: a bookie, AutoRecovery beside it or inside it, and the clients of both; how
AutoRecovery is configured in a process: its own options and those of its client; what becomes of each key of a file.

Knows: who shares one.  Does not know: what the options do.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.parts.stores import StoreOptions
from quire.conf.properties import Property, Reading, load, reading
from quire.conf.treatment import Treatment

# SPDX-License-Identifier: Apache-2.0

M = TypeVar("M", bound=BaseModel)

HOST_COUNT, OF_ONE = "hostBookies", re.compile(r"bookie\.(\d+)\.(.+)")  # how many; a key of one of them alone
STORE_KEYS = frozenset({"metadataServiceUri", "zkServers"})
DIRECTORY_KEYS = frozenset({"journalDirectories", "journalDirectory", "ledgerDirectories"})
READERS = (BookieOptions, AutoRecoveryOptions, ClientOptions)


def load_shared(
    model: type[M], path: str | None, environment: Mapping[str, str], extra: Sequence[Property] = ()
) -> tuple[M, list[str]]:
    """As `load`; the keys of the other readers are passed over in silence."""
    return load(model, path, environment, extra, READERS)


class Checked(NamedTuple):
    """One key of a file: its property, without one what stops a start besides; and its treatment."""

    item: Property | None
    treatment: Treatment


def checked(found: Sequence[Property]) -> list[Checked]:
    """
    Finds out what becomes of each key of a file, in its order, whatever processes read it: a bookie if it names
    directories, AutoRecovery if it names a metadata store; in a file of a host of bookies, keys of one bookie alone,
    too.  `ConfigurationError` for a key that has two values.
    """
    if not any(item.key == HOST_COUNT for item in found):
        return _checked(found)
    rows = []
    for item in found:
        one = OF_ONE.fullmatch(item.key)
        if item.key == HOST_COUNT:
            rows.append(Checked(item, Treatment("honoured")))
        elif one is not None:
            alone = reading(BookieOptions, [Property(one[2], item.value, item.where)], READERS)
            rows.append(Checked(item, alone.treated[one[2]][1]))
    return rows + _checked([item for item in found if item.key != HOST_COUNT and not OF_ONE.fullmatch(item.key)])


def _checked(found: Sequence[Property]) -> list[Checked]:
    given = {item.key for item in found if item.value}
    readings: list[Reading[Any]] = [reading(ClientOptions, found, READERS)]
    if not given.isdisjoint(STORE_KEYS):
        readings.append(reading(AutoRecoveryOptions, found, READERS))
    if not given.isdisjoint(DIRECTORY_KEYS):
        readings.append(reading(BookieOptions, found, READERS))
    rows = {key: Checked(*each) for key, each in readings[0].treated.items()}
    for each in readings:
        rows |= {key: Checked(*made) for key, made in each.treated.items() if made[1].kind != "honoured"}
    for fault in (fault for each in readings for fault in each.faults):
        key = fault.why if fault.item is None else fault.item.key
        rows[key] = Checked(fault.item, Treatment("refused", fault.why))
    return list(rows.values())


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
        reached = bookie.model_dump(include={"session_timeout_ms", *StoreOptions.model_fields})
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
