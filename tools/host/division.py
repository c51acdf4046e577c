"""
One configuration divided into those of the bookies of a machine.

    hostBookies=2                                   how many; --bookies is stronger
    hostId=m1                                       else bookieId, else the address that clients are given
    bookiePort=3181                                 3181 + the bookie's number: 0, 1, …
    bookieId=m1                                     m1-0, m1-1; where it is not set the id is address:port
    journalDirectories=/d1/journal                  /d1/journal/bookie-0, /d1/journal/bookie-1
    ledgerDirectories, indexDirectories             likewise
    prometheusStatsHttpPort=8000                    the host's; each bookie's own takes a free one
    bookie.1.ledgerDirectories=/d2/ledgers          of bookie 1 alone, as it stands
    any other key                                   the same for all

Knows: which keys differ between bookies, and that no two of them may share an id, a port or a directory.
Does not know: processes.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from quire.bookie.lifecycle.ids import ANY_ADDRESS, IdentityError, derive_id, own_host
from quire.conf.bookie import BookieOptions
from quire.conf.options import key_of
from quire.conf.parts.http import HttpAddress
from quire.conf.properties import ConfigurationError, Property, options, overrides, read, settled
from quire.conf.shared_file import HOST_COUNT, OF_ONE, READERS
from quire.conf.treatment import of_script

# SPDX-License-Identifier: Apache-2.0

COUNT, COUNT_MAX = HOST_COUNT, 64
HOST, ID, PORT = "hostId", "bookieId", "bookiePort"
OF_PAGE = frozenset({"prometheusStatsHttpPort", "httpServerEnabled", "httpServerPort"})  # the host's, no bookie's
DIRECTORIES = ("journal_directories", "ledger_directories", "index_directories")
CONF_NAME = "bookie.conf"

Keys = dict[str, Property]


class Part(NamedTuple):
    """One bookie: its number from 0 on, its id, its options, and what its configuration file says."""

    number: int
    id: str
    options: BookieOptions
    text: str

    @property
    def conf(self) -> Path:
        """Where its configuration is written for the process that runs it, and for commands on it alone."""
        return Path(self.options.journal_directories[0]) / CONF_NAME

    def write(self) -> None:
        """For its owner's eyes only: it may hold secrets, as the host's may."""
        self.conf.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.conf.with_name(f"{CONF_NAME}.new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(self.text)
        os.replace(fresh, self.conf)


class Division(NamedTuple):
    """The bookies of one machine."""

    host: str
    parts: tuple[Part, ...]
    page: BookieOptions  # those of a bookie that are the host's page's, too
    warnings: tuple[str, ...]


def load(
    path: str | None, environment: Mapping[str, str], extra: Sequence[Property] = (), count: int | None = None
) -> Division:
    """From a file, `BK_<key>` variables and the command line, in rising strength.  `ConfigurationError`."""
    stronger = {item.key: item for item in [*overrides(environment), *extra]}
    if count is not None:
        stronger[COUNT] = Property(COUNT, str(count), "--bookies")
    found = read(path) if path is not None else []
    chosen = settled([*(item for item in found if item.key not in stronger), *stronger.values()])
    return divided({key: item for key, item in chosen.items() if item.value})


def divided(chosen: Keys) -> Division:
    """`ConfigurationError` for what no bookie could start with, and for what two of them would share."""
    own = _own_keys(chosen, _count(chosen.get(COUNT)))
    common = {key: item for key, item in chosen.items() if key != COUNT and not OF_ONE.fullmatch(key)}
    of_page = {key: item for key, item in common.items() if key in OF_PAGE or of_script(key)}
    places = {name: own[0][name] for field in DIRECTORIES for name in names_of(field) if name in own[0]}
    shared = places | _keys(common, 0, {}) | of_page
    whole, warnings = options(BookieOptions, list(shared.values()), READERS)  # complains once of what all share
    if not whole.port and not whole.bookie_id:
        raise ConfigurationError(
            f"{PORT}=0 gives a bookie another port at each start, and its id has the port: set {ID}, or a port"
        )
    try:
        name = common.get(HOST) or common.get(ID)
        host = name.value if name is not None else own_host(whole)
        common[HOST] = Property(HOST, host, "hostId of all")
        parts = tuple(_part(number, _keys(common, number, each)) for number, each in enumerate(own))
    except IdentityError as failure:
        raise ConfigurationError(str(failure)) from None
    if any(part.options.http_tls for part in parts):
        raise ConfigurationError(
            "httpServerTlsEnable=true is not served by a host of bookies: put a proxy with TLS in front of its page, "
            "or run each bookie by `quire bookie start`"
        )
    _refuse_shared(parts, whole.http_address)
    return Division(host, parts, whole, tuple(warnings))


def _count(item: Property | None) -> int:
    if item is None:
        raise ConfigurationError(
            f"{COUNT} is missing: how many bookies this machine runs; for example {COUNT}=2, or --bookies 2"
        )
    if not item.value.isdecimal() or not 1 <= int(item.value) <= COUNT_MAX:
        raise ConfigurationError(f"{item.where}: {COUNT}={item.value} is not allowed: 1 to {COUNT_MAX}")
    return int(item.value)


def _own_keys(chosen: Keys, count: int) -> list[Keys]:
    """Reads what is said of each bookie alone."""
    found: list[Keys] = [{} for _ in range(count)]
    for key, item in chosen.items():
        one = OF_ONE.fullmatch(key)
        if one is None:
            continue
        if int(one[1]) >= count:
            raise ConfigurationError(
                f"{item.where}: {key} is of a bookie that is not there: {COUNT}={count} are numbered 0 to {count - 1}"
            )
        found[int(one[1])][one[2]] = Property(one[2], item.value, item.where)
    return found


def names_of(field: str) -> list[str]:
    return key_of(BookieOptions.model_fields[field])["names"]


def _keys(common: Keys, number: int, own: Keys) -> Keys:
    """All keys of one bookie."""
    keys = {key: item for key, item in common.items() if key not in OF_PAGE and not of_script(key)}
    for field in DIRECTORIES:
        names = names_of(field)
        for name in names:
            if not own.keys().isdisjoint(names):
                keys.pop(name, None)
            elif name in keys:
                places = [os.path.join(place.strip(), f"bookie-{number}") for place in keys[name].value.split(",")]
                keys[name] = Property(name, ",".join(places), keys[name].where)
    port = common.get(PORT, Property(PORT, str(BookieOptions.model_fields["port"].default), "default"))
    if port.value.isdecimal() and int(port.value):
        port = Property(PORT, str(int(port.value) + number), port.where)
    keys[PORT] = port
    if ID in keys:
        keys[ID] = Property(ID, f"{keys[ID].value}-{number}", keys[ID].where)
    return keys | own


def _part(number: int, keys: Keys) -> Part:
    """`IdentityError`."""
    try:
        made, _warnings = options(BookieOptions, list(keys.values()), READERS)
    except ConfigurationError as failure:
        raise ConfigurationError(f"bookie {number}: {failure}") from None
    lines = [f"# Bookie {number} of this machine; written again at each `quire host start`."]
    lines += [f"{key}={escaped(item.value)}" for key, item in keys.items()]
    return Part(number, derive_id(made, own_host(made), made.port), made, "\n".join([*lines, ""]))


def escaped(value: str) -> str:
    """As a properties file has it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _refuse_shared(parts: Iterable[Part], page: HttpAddress) -> None:
    taken: dict[str, str] = {}
    ports: list[tuple[str, int, str]] = [(page.host, page.port, "the host's metrics")]

    def take(what: str, owner: str) -> None:
        if taken.setdefault(what, owner) != owner:
            raise ConfigurationError(f"{taken[what]} and {owner} share {what}; give one of them another")

    for part in parts:
        name, made = f"bookie {part.number}", part.options
        take(f"the id {part.id}", name)
        for place in (*made.journal_directories, *made.ledger_directories, *made.index_directories):
            take(f"the directory {os.path.realpath(place)}", name)
        own = made.http_address
        ports += [(made.listen, made.port, name), (own.host, own.port, f"{name}'s metrics")]
    for at, (address, port, owner) in enumerate(ports):
        for other_address, other_port, other in ports[:at]:
            same = address == other_address or address in ANY_ADDRESS or other_address in ANY_ADDRESS
            if port and port == other_port and same:
                raise ConfigurationError(f"{other} and {owner} share port {port}; give one of them another")
