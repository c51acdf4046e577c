"""
`quire bookie export-check`, `export`, …: the commands that look at, or change, the directories of a bookie that does
not run; and the one of them that a running bookie can do, too.

Knows: what an operator asks of them.  Does not know: formats; `bookie/` does.
"""

import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.terminal import output
from quire.tools.terminal.bookie_http import document_of, service_of
from quire.tools.terminal.options import Conf, Json, Metadata, TokenFile, Usage, command, options_of, refused, value_in

if TYPE_CHECKING:
    from quire.bookie.offline.stopped import Stopped
    from quire.conf.bookie import BookieOptions

# SPDX-License-Identifier: Apache-2.0

STORAGE_KEY = "ledgerStorageClass"  # Apache's: means nothing to us
REBUILD_PATH = "/api/v1/bookie/rebuild_index"
REBUILD_STATE = "running", "directories", "problem"  # what a bookie says of a rebuild
REBUILD_LOOK_S = 0.2  # between two looks at how far it is


def stopped_bookie(conf: Conf) -> "closing[Stopped]":
    """Locks a stopped bookie's directories; `StorageError` when they can't be had or used."""
    from quire.bookie.offline.stopped import Stopped
    from quire.rows.files import Files

    return closing(Stopped(Files(), options_of(conf)))


def export_check(conf: Conf, json_wanted: Json = False) -> None:
    """
    Checks whether an Apache bookie could take over a stopped bookie's directories as they are. Changes nothing.

    Exit status 0: it could. 1: it could not, with the reasons; `quire bookie export` removes the usual one.
    """
    from quire.bookie.offline import export

    with stopped_bookie(conf) as stopped:
        storage = export.storage_class(stopped, value_in(conf, STORAGE_KEY))
        reasons = export.check(stopped, storage)
    document = {"apache_can_take_it": not reasons, "storage": storage, "reasons": reasons}
    lines = (
        [f"Apache BookKeeper can take these directories ({storage})"]
        if not reasons
        else ["Apache BookKeeper can't take these directories:"]
    )
    output.document(json_wanted, document, "\n".join([*lines, *(f"  {reason}" for reason in reasons)]))
    if reasons:
        raise typer.Exit(1)


def export_to_apache(conf: Conf, json_wanted: Json = False) -> None:
    """
    Gets a stopped bookie's directories ready for an Apache bookie: its index learns what was stored here, and it may
    start.

    Entry logs, ledger table and cookie are in Apache's formats already. A later `quire bookie start` takes the
    directories back.
    """
    from quire.bookie.offline import export

    with stopped_bookie(conf) as stopped:
        storage = export.storage_class(stopped, value_in(conf, STORAGE_KEY))
        reasons = export.obstacles(stopped, storage)
        if reasons:
            raise refused("not exported: " + "; ".join(reasons))
        done = export.export(stopped, storage)
    text = (
        f"{done.entries} entries of {done.ledgers} ledgers are in Apache's index: start it with "
        f"ledgerStorageClass {done.storage}"
    )
    output.document(json_wanted, done._asdict(), text)


def rebuild_index(
    conf: Annotated[
        Path | None,
        typer.Option(
            "--conf", metavar="FILE", help="the configuration of a stopped bookie", exists=True, dir_okay=False
        ),
    ] = None,
    online: Annotated[
        str | None,
        typer.Option(
            "--online", metavar="ID", help="a running bookie, on its own machine; `quire bookie list` prints its id"
        ),
    ] = None,
    ledgers: Annotated[
        bool,
        typer.Option(
            "--ledgers", help="the ledger table too: every ledger fenced, its key to be given by the next caller"
        ),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="with --online: come back when it is done")] = True,
    token_file: TokenFile = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Rebuilds a bookie's index from its entry logs, when it was lost or damaged. Logs that Apache wrote are read too.

    With --online while it serves: the old index answers until the new one takes its place. Records that can't be read
    any more stay known; ledgers of which the old index can't say what it has are put in limbo and copied from other
    bookies.

    With --conf of a stopped one, whose index need not be there. The ledger table is kept if it is there. What a damaged
    log may have held is put in limbo, so that it is never denied. The old index stays beside the new one as runs.old
    until the next rebuild.

    Exit status 1: done, but a log could not be read to its end; or not done, with the reason.
    """
    if (conf is None) == (online is None):
        raise Usage("give either --online ID of a running bookie or --conf FILE of a stopped one")
    if online is not None and ledgers:
        raise Usage("--ledgers is for a stopped bookie: one that runs needs its ledger table")
    if online is not None:
        found = service_of(online, metadata)
        ask = partial(document_of, online, found, REBUILD_PATH, token_file=token_file, needs=REBUILD_STATE)
        rebuild_online(online, ask, wait, json_wanted)
        return
    assert conf is not None
    rebuild_stopped(conf, ledgers, json_wanted)


def rebuild_stopped(conf: Path, ledgers: bool, json_wanted: bool) -> None:
    """Rebuilds the index of a stopped bookie in this process."""
    from quire.bookie.offline.rebuild import rebuild

    with stopped_bookie(conf) as stopped:
        found = rebuild(stopped, new_table=ledgers)
    problems = [problem for each in found for problem in each.problems]
    lines = [
        f"{each.directory}: {each.entries} entries of {each.ledgers} ledgers from {each.logs} logs"
        + (f"; {each.passed_over} of deleted ledgers passed over" if each.passed_over else "")
        + (f"; {each.limbo} ledgers put in limbo" if each.limbo else "")
        + ("; the ledger table was rebuilt" if each.new_table else "")
        for each in found
    ]
    output.document(json_wanted, {"directories": [asdict(each) for each in found]}, "\n".join([*lines, *problems]))
    if problems:
        raise typer.Exit(1)


def rebuild_online(bookie: str, ask: Callable[..., dict[str, Any]], wait: bool, json_wanted: bool) -> None:
    """Asks a running bookie for it, and follows it until it is done.  `ask(command={})` begins, `ask()` looks."""
    state = ask(command={})
    if wait:
        with output.ProgressBar(f"rebuild the index of {bookie}", None) as progress:
            while state["running"]:
                time.sleep(REBUILD_LOOK_S)
                state = ask()
                progress.advance(sum(each["entries"] for each in state["directories"]) - progress.done)
    lines = [
        f"{each['path']}: {each['entries']} entries from {each['logs_read']} of {each['logs']} logs"
        + (f"; {each['taken_over']} runs only the old index had" if each["taken_over"] else "")
        + (f"; {each['limbo']} ledgers put in limbo" if each["limbo"] else "")
        + ("" if each["done"] else "; not done")
        for each in state["directories"]
    ]
    problems = [problem for each in state["directories"] for problem in each["problems"]]
    output.document(json_wanted, {"bookie": bookie, **state}, "\n".join([*lines, *problems]))
    if state["problem"] is not None:
        raise refused(f"the index of {bookie} could not be rebuilt, and is as it was: {state['problem']}")
    if wait and not (lines and all(each["done"] for each in state["directories"])):
        raise refused(f"{bookie} was started again meanwhile, and knows of no rebuild: run the command again")
    if problems:
        raise typer.Exit(1)


def report_of(conf: Conf) -> dict[str, Any]:
    """Verifies a stopped bookie's files."""
    from quire.bookie.offline.verify import verify

    with stopped_bookie(conf) as stopped:
        return asdict(verify(stopped))


def report_text(report: dict[str, Any]) -> str:
    """A report for people: what was verified, then a line for each problem and note."""
    counts = ("journal_groups", "entry_logs", "ledgers", "entries")
    lines = ["verified " + ", ".join(f"{report[name]} {name.replace('_', ' ')}" for name in counts)]
    lines += [f"  {problem}" for problem in report["problems"]]
    if report["problems_left_out"]:
        lines.append(f"  and {report['problems_left_out']} more")
    lines += [f"  note: {note}" for note in report["notes"]]
    return "\n".join([*lines, "problems: " + str(len(report["problems"]) + report["problems_left_out"])])


def add_to(app: typer.Typer) -> None:
    """The commands, under `quire bookie`."""
    there = "--conf /etc/quire/bookie.conf"
    check = f"quire bookie export-check {there}"
    command(app, f"quire bookie export {there} && {check}", name="export")(export_to_apache)
    command(app, check, name="export-check")(export_check)
    rebuild = "quire bookie rebuild-index"
    command(app, f"{rebuild} --online 10.0.0.5:3181", f"{rebuild} {there}", name="rebuild-index")(rebuild_index)


def check_credentials(options: "BookieOptions") -> None:
    """Reads the files of TLS, users, rights and tokens as a start does; `ConfigurationError` as it has it."""
    from quire.bookie.admin.gate import TOKEN_NAME, keys_of
    from quire.security import authentication, rights
    from quire.security.opening import credentials, http_credentials

    credentials(options, time.time)
    http_credentials(options, time.time)
    authentication.of_bookie(options)
    rights.rights_of(options)
    directory = options.journal_directories[0]
    # a start makes the file of the token where it is missing
    keys_of(options, directory if os.path.lexists(os.path.join(directory, TOKEN_NAME)) else None)
