"""
Names about cookies: what ties a bookie's id to its directories, in the metadata store and beside the data.

Knows: Apache's words.  Does not know: what a start makes of a cookie.
"""

from argparse import Namespace
from pathlib import Path

from quire.metadata.ledger import check_bookie_id
from quire.metadata.store import ANY, NEW
from quire.tools.commands import cookie as commands
from quire.tools.commands.shell.bookies import own_ids
from quire.tools.commands.shell.context import Shell, one_of
from quire.tools.commands.shell.names import argument, flag, name, value
from quire.tools.terminal import output
from quire.tools.terminal.options import Usage

# SPDX-License-Identifier: Apache-2.0

LINE = "---"  # above and below a cookie's text
FILE = value("cf", "cookie-file", metavar="FILE", required=True)
BOOKIE = argument("bookie_id")


@name("cookie_create", FILE, BOOKIE)
def cookie_create(shell: Shell, given: Namespace) -> None:
    """Gives the metadata store the cookie of a bookie, from a file; refuses if it has one."""
    put(shell, given, NEW)
    shell.say("Created cookie", bookieId=given.bookie_id)


@name("cookie_update", FILE, BOOKIE)
def cookie_update(shell: Shell, given: Namespace) -> None:
    """Replaces the cookie of a bookie in the metadata store by that in a file."""
    put(shell, given, ANY)
    shell.say("Updated cookie", bookieId=given.bookie_id)


def put(shell: Shell, given: Namespace, version: int) -> None:
    """Writes the cookie of that version, if it is one of this bookie."""
    from quire.bookie.lifecycle.cookie import Cookie

    path = Path(given.cookie_file)
    cookie = Cookie.decode(path.read_bytes(), str(path))
    if cookie.bookie != given.bookie_id:
        raise Usage(f"{path} is the cookie of {cookie.bookie}, not of {given.bookie_id}: name that one's own")
    shell.store(lambda store: store.write_cookie(check_bookie_id(given.bookie_id), path.read_bytes(), version))


@name("cookie_delete", BOOKIE)
def cookie_delete(shell: Shell, given: Namespace) -> None:
    """Removes the cookie of a bookie that is down from the metadata store."""
    shell.doing("Deleted cookie", commands.delete, given.bookie_id, yes=True, metadata=shell.uri)


@name("cookie_get", BOOKIE)
def cookie_get(shell: Shell, given: Namespace) -> None:
    """Prints the cookie of a bookie as the metadata store has it."""
    found = shell.store(lambda store: store.read_cookie(given.bookie_id))
    text = found.value.decode("utf-8", "replace")
    document = {"bookieId": given.bookie_id, "version": found.version, "cookie": text}
    output.document(shell.json, document, [LINE, text.rstrip("\n"), LINE])


@name(
    "cookie_generate",
    value("j", "journal-dirs", metavar="DIRS", required=True),
    value("l", "ledger-dirs", metavar="DIRS", required=True),
    value("ix", "index-dirs", metavar="DIRS"),
    value("i", "instance-id", metavar="ID"),
    value("o", "output-file", metavar="FILE", required=True),
    BOOKIE,
)
def cookie_generate(shell: Shell, given: Namespace) -> None:
    """Writes the cookie of a bookie with these directories to a file; of this cluster, if no instance id is given."""
    from quire.bookie.lifecycle.cookie import Cookie, counted

    instance = given.instance_id or shell.store(lambda store: store.cluster()).instance_id
    indexes = counted(tuple(given.index_dirs.split(","))) if given.index_dirs else None
    ledgers = counted(tuple(given.ledger_dirs.split(",")))
    cookie = Cookie(check_bookie_id(given.bookie_id), given.journal_dirs, ledgers, instance, indexes)
    Path(given.output_file).write_bytes(cookie.encode())
    shell.say("Generated cookie", bookieId=given.bookie_id, file=given.output_file)


@name(
    "updatecookie",
    value("b", "bookieId", metavar="hostname|ip"),
    flag("e", "expandstorage"),
    flag("l", "list"),
    value("d", "delete", metavar="[force]", nargs="?", const="", default=None),
)
def updatecookie(shell: Shell, given: Namespace) -> None:
    """Changes the cookies of this machine's bookie, which is down, in its directories and in the metadata store."""
    from quire.bookie.lifecycle import cookie_changes as changes
    from quire.rows.files import Files

    chosen = one_of(given, "bookieId", "expandstorage", "list", "delete")
    if given.delete not in (None, "", "force"):
        raise Usage(f"-delete takes force or nothing, not {given.delete!r}")
    options, files = shell.options, Files()
    if chosen == "bookieId":
        before, after = own_ids(shell, given.bookieId)
        shell.store(lambda store: changes.rename(store, options, files, before, after))
        shell.say("Updated cookie", bookieId=after, before=before)
        return
    bookie = shell.bookie
    if chosen == "list":
        for where, found in shell.store(lambda store: changes.everywhere(store, options, files, bookie)).items():
            text = "none" if found is None else found.encode().decode()
            shell.say("Cookie", bookieId=bookie, place=where, cookie=text)
    elif chosen == "expandstorage":
        shell.store(lambda store: changes.expand(store, options, files, bookie))
        shell.say("Expanded storage", bookieId=bookie, directories=options.ledger_directories)
    else:
        shell.store(lambda store: changes.delete(store, options, files, bookie, even_with_data=given.delete == "force"))
        shell.say("Deleted cookie", bookieId=bookie)
