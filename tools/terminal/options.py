"""
Common parts of the sub-commands: the shape of a command group, the options that all of them take, the question before
something is gone for good, and where the metadata URI comes from when no option names it.

Knows: names, help texts and environment variables of the shared options.  Does not know: any command.
"""

import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.tools.terminal.output import note

if TYPE_CHECKING:
    from quire.conf.bookie import BookieOptions
    from quire.conf.client import ClientOptions

    StoreOptions = BookieOptions | ClientOptions  # they say how a metadata store is reached

# SPDX-License-Identifier: Apache-2.0

PROTOCOL_KEY = "useV2WireProtocol"

Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        metavar="URI",
        envvar="QUIRE_METADATA",
        help="the metadata store, zk://host:port/ledgers or sqlite:///path/metadata.db",
    ),
]
BookieId = Annotated[str, typer.Argument(metavar="ID", help="the bookie's id, as `quire bookie list` prints it")]
Json = Annotated[bool, typer.Option("--json", help="one JSON document, or one a line for lists, on standard output")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", metavar="F", help="a file with the ledger's password (a final line end is dropped)"
    ),
]
Conf = Annotated[
    Path, typer.Option("--conf", metavar="FILE", help="the bookie's configuration", exists=True, dir_okay=False)
]
TOKEN_FILE_OPTION, TOKEN_FILE_VARIABLE = "--token-file", "QUIRE_TOKEN_FILE"
TokenFile = Annotated[
    Path | None,
    typer.Option(
        TOKEN_FILE_OPTION,
        metavar="F",
        help="a file with the token of the bookie's HTTP port (or QUIRE_TOKEN_FILE names it); without one the bookie's "
        "own is read, on its machine",
    ),
]
Protocol = Annotated[
    str | None, typer.Option("--protocol", metavar="v2|v3", help="the wire protocol of the data path; v2 if not given")
]

Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]


EXAMPLE_CHARS_MAX = 72  # of a line, in 80 columns
# An example up to its next option or pipe; texts in quotes are whole.
PARTS = re.compile(r"(?:^|(?<=\s)(?=[-|&>]))(?:[^\s'\"]|'[^']*'|\"[^\"]*\"|\s+(?![-|&>])|\s+)+?(?=\s[-|&>]|$)\s?")
HELP = {"help_option_names": ["-h", "--help"]}


class Usage(ValueError):
    """A command line that cannot be carried out; the exit status is 2."""


def group(about: str, example: str) -> typer.Typer:
    """A command group: plain help (rich costs 100 ms), no shell completion to install, errors left to `main`."""
    return typer.Typer(
        help=f"{about}\n\n\b\nExample:\n{folded(example)}",
        context_settings=HELP,
        rich_markup_mode=None,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )


def single() -> typer.Typer:
    """Makes the application of a command without sub-commands."""
    return typer.Typer(
        context_settings=HELP, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False
    )


def command(
    app: typer.Typer, *examples: str, name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Makes a function a command of `app`, named as the function is if not otherwise.  Its help ends with examples; the
    list of its group shows its first sentence.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        word = "Example" if len(examples) == 1 else "Examples"
        about = inspect.getdoc(function) or ""
        text = "\n".join([f"{about}\n\n\b\n{word}:", *map(folded, examples)])
        return app.command(name or function.__name__, help=text, short_help=first_sentence(about))(function)

    return add


def first_sentence(text: str) -> str:
    """The first sentence of a text, or what is before its colon or semicolon."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[\w)`])[.;:](?: |$)", paragraph)[0].rstrip(".") + "."


def folded(example: str) -> str:
    """An example as help shows it: one that is too wide for a terminal goes on in the next line, at an option."""
    lines = [""]
    for part in PARTS.findall(example):
        if lines[-1] and len(lines[-1]) + len(part) > EXAMPLE_CHARS_MAX:
            lines.append("    ")
        lines[-1] += part
    return " \\\n".join(f"  {line.rstrip()}" for line in lines)


def metadata_uri(option: str | None) -> str:
    """
    The URI from --metadata or QUIRE_METADATA, else `metadataServiceUri` of the configuration file; `Usage` when there
    is none, or it names what is gone with the command.
    """
    from quire.conf.client import NoStoreNamed, store_named

    try:
        uri = store_named(option)
    except NoStoreNamed as failure:
        raise Usage(str(failure).replace("give its URI", "give --metadata URI")) from None
    if uri.startswith("memory://"):
        raise Usage(f"{uri} is the memory of this command, and ends with it; give one as zk://… or sqlite://…")
    return uri


def password_of(file: Path | None) -> bytes:
    """The password in a file, b"" without one."""
    if file is None:
        return b""
    from quire.security.watched import warn_of_readers

    password = file.read_bytes()
    warn_of_readers(str(file))
    return password.removesuffix(b"\n").removesuffix(b"\r")


def client_options(protocol: str | None = None) -> "ClientOptions":
    """The configuration file's options, and --protocol over them; what the file has in excess is noted."""
    from quire.conf.client import from_conf_file
    from quire.conf.properties import Property

    if protocol not in {None, "v2", "v3"}:
        raise Usage(f"--protocol is v2 or v3, not {protocol!r}")
    made, warnings = from_conf_file([] if protocol is None else [Property(PROTOCOL_KEY, protocol, "--protocol")])
    for warning in warnings:
        note(warning)
    return made


def options_of(conf: Path) -> "BookieOptions":
    """A bookie's configuration, for commands that act on its directories."""
    from quire.conf.bookie import BookieOptions
    from quire.conf.shared_file import load_shared

    return load_shared(BookieOptions, str(conf), os.environ)[0]


def refused(text: str) -> typer.Exit:
    """Says why nothing was done; the exit status is 1."""
    note(f"quire: {text}")
    return typer.Exit(1)


def asked(yes: bool, what: str) -> None:
    """Says what will be done and asks, unless `yes`; exit status 1 when it is not wanted, or there is no one to ask."""
    note(what)
    if yes:
        return
    if not sys.stdin.isatty():
        raise refused("nothing was done: give --yes where there is no terminal to ask on")
    typer.confirm("Go on?", abort=True, err=True)


def value_in(path: Path, key: str) -> str | None:
    """Reads what a configuration file says of one key, ours or another's; None: nothing."""
    from quire.conf.properties import read

    return next((found.value for found in read(str(path)) if found.key == key), None)
