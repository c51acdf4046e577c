"""
The words before a name of the shell, and what each name works with: which cluster, which bookie, how records are
printed.

Knows: the options before a name, and the forms of ledger ids and entries that they choose.
Does not know: names.
"""

import io
import json
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import typer

from quire.tools.terminal import output
from quire.tools.terminal.options import Usage, client_options, metadata_uri, options_of
from quire.tools.terminal.running import with_client, with_store

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.conf.bookie import BookieOptions
    from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
URI_VARIABLE = "QUIRE_METADATA"
CONF_VARIABLE = "BOOKIE_CONF"  # as Apache's launcher has it
LEDGER_FORMATS = ("long", "hex", "uuid")
ENTRY_FORMATS = ("string", "hex")  # the first is what Apache has, too
BARE = re.compile(r"[^\s\"=]+")  # a value that needs no quotes
LEDGER = "ledgerId"


@dataclass
class Shell:
    """The options before a name; `local` is the bookie that `-localbookie` names."""

    metadata: str | None = None
    conf: Path | None = None
    local: str | None = None
    ledger_format: str = "long"
    entry_format: str = ENTRY_FORMATS[0]
    json: bool = False

    # -- which cluster, which bookie -----------------------------------------------------------------------------------

    @cached_property
    def conf_file(self) -> Path:
        """The configuration of this machine's bookie; `Usage` without one."""
        named = self.conf or (Path(os.environ[CONF_VARIABLE]) if os.environ.get(CONF_VARIABLE) else None)
        if named is None:
            raise Usage(
                "this works on a bookie's directories: name its configuration, `quire shell -conf FILE NAME …`, or "
                f"set {CONF_VARIABLE}"
            )
        if not named.is_file():
            raise Usage(f"{named} is no file: -conf names a bookie's configuration")
        return named

    @cached_property
    def options(self) -> "BookieOptions":
        """Reads the configuration of this machine's bookie."""
        return options_of(self.conf_file)

    @property
    def uri(self) -> str:
        """The metadata store: `--metadata`, `-conf`, or as for every command, but for `BOOKIE_CONF`."""
        named = self.metadata or (None if self.conf else os.environ.get(URI_VARIABLE))
        if named is None and (self.conf or os.environ.get(CONF_VARIABLE)):
            from quire.conf.autorecovery import AutoRecoveryOptions
            from quire.conf.shared_file import load_shared

            # what every such file has; one of AutoRecovery alone names no directories
            return load_shared(AutoRecoveryOptions, str(self.conf_file), os.environ)[0].metadata_uri
        return metadata_uri(named)

    @property
    def bookie(self) -> str:
        """The id of this machine's bookie."""
        if self.local is not None:
            return self.local
        from quire.bookie.lifecycle import ids
        from quire.conf.parts.identity import interface_address

        options = self.options
        return ids.derive_id(options, ids.own_host(options, interface_address), options.port)

    def store(self, work: "Callable[[MetadataStore], Awaitable[T]]") -> T:
        """Runs `work` with the metadata store."""
        return with_store(self.uri, work)

    def client(self, work: "Callable[[Client], Awaitable[T]]") -> T:
        """Runs `work` with a client of the cluster."""
        return with_client(self.uri, lambda _reactor, client: work(client), client_options())

    # -- how it is printed ---------------------------------------------------------------------------------------------

    def say(self, message: str, **attributes: Any) -> None:
        """Prints one record: a line `message key=value …`, or a JSON document."""
        known = {key: each for key, each in attributes.items() if each is not None}
        if LEDGER in known:
            known[LEDGER] = self.ledger_text(known[LEDGER])
        words = [message, *(f"{key}={value_text(each)}" for key, each in known.items())]
        output.document(self.json, {"message": message, **known}, " ".join(words))

    def doing(self, message: str, command: Callable[..., None], *arguments: Any, **options: Any) -> None:
        """Carries out a command of quire; each document that it prints is a record, also if it fails."""
        said = io.StringIO()
        try:
            with redirect_stdout(said):
                command(*arguments, **options, json_wanted=True)
        finally:
            for line in said.getvalue().splitlines():
                self.say(message, **json.loads(line))

    def ledger_text(self, ledger: int) -> str | int:
        """A ledger's id as -ledgeridformat has it."""
        if self.ledger_format == "hex":
            return f"{ledger:x}"
        return str(UUID(int=ledger)) if self.ledger_format == "uuid" else ledger

    def ledger(self, text: str) -> int:
        """The ledger that a word of the command line means; `Usage`."""
        from quire.metadata.ledger import check_ledger_id

        try:
            if self.ledger_format == "uuid":
                found = UUID(text).int
            else:
                found = int(text, 16 if self.ledger_format == "hex" else 10)
        except ValueError:
            raise Usage(f"{text!r} is no ledger id of -ledgeridformat {self.ledger_format}") from None
        check_ledger_id(found)
        return found

    def entry_text(self, data: bytes) -> str:
        """An entry's data as -entryformat has it."""
        return data.decode(errors="backslashreplace") if self.entry_format == "string" else data.hex()


def value_text(value: object) -> str:
    """A value in a record: as it is, or in quotes where a reader could not tell its end."""
    if isinstance(value, (list, tuple, set)) and not any(isinstance(each, (dict, list)) for each in value):
        return ",".join(map(value_text, value))
    if isinstance(value, (dict, list)):
        return output.as_json(value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if BARE.fullmatch(text) else output.as_json(text)


def one_of(given: Any, *words: str) -> str:
    """Tells which one of these flags or values was given; `Usage` when it is not exactly one."""
    found = [word for word in words if (each := getattr(given, word)) is not None and each is not False]
    if len(found) != 1:
        raise Usage(f"give exactly one of {', '.join('-' + word for word in words)}")
    return found[0]


def confirm(text: str, unless: bool) -> None:
    """Asks, unless it was said already; ends the command where the answer is no."""
    if not unless:
        typer.confirm(text, abort=True, err=True)
