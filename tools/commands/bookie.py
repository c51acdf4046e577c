"""
`quire bookie`: start and stop a bookie, format its directories, list bookies, switch one read-only.

Knows: what an operator asks.  Does not know: how a bookie works; `daemons.bookie` is its process.

Safety: `format` throws away what a bookie acknowledged, so it asks first, and it refuses while the bookie runs or is
listed.
"""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.metadata.retired_ids import FORMATTED, retire
from quire.metadata.store import ServiceInfo
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import BookieHandleNotAvailable, MetaStore, error_of
from quire.tools.commands.directories import add_to, check_credentials, report_of, report_text
from quire.tools.commands.processes import Override, Pidfile, StartedPidfile, StopWithStdin, become, end
from quire.tools.daemons.process import BOOKIE
from quire.tools.terminal import output
from quire.tools.terminal.bookie_http import answer_of, document_of, metrics_url, said_by, service_of
from quire.tools.terminal.options import (
    BookieId,
    Conf,
    Json,
    Metadata,
    TokenFile,
    Usage,
    Yes,
    asked,
    command,
    group,
    metadata_uri,
    options_of,
    refused,
)
from quire.tools.terminal.running import with_client, with_store

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

READONLY_PATH = "/api/v1/bookie/state/readonly"
GC_PATH = "/api/v1/bookie/gc"
STATE_PATH = "/api/v1/bookie/state"
GC_COUNTS = "ledgers_deleted", "logs_removed", "bytes_removed", "bytes_moved"
GC_LOOK_S = 0.05  # between two looks at whether a round has ended

INFO_COLUMNS = {
    "bookie": 24, "state": 10, "free": 10, "total": 10, "used": 6, "logs": 10, "living": 10, "limbo": 8, "lost": 12,
    "store": 8, "why": 0,
}  # fmt: skip

app = group("Start and stop a bookie; list bookies.", "quire bookie start --conf /etc/quire/bookie.conf")


@command(app, "quire bookie start --conf /etc/quire/bookie.conf --daemon --pidfile /run/quire-bookie.pid")
def start(
    conf: Annotated[
        Path | None,
        typer.Option(
            "--conf", metavar="FILE", help="its configuration; without one, BK_<key> variables say everything"
        ),
    ] = None,
    metadata: Override = None,
    daemon: Annotated[bool, typer.Option("--daemon", help="detach; returns when the bookie serves")] = False,
    pidfile: Pidfile = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="F", help="with --daemon; bookie.log in the first journal directory if not given"
        ),
    ] = None,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="directories that are empty now were lost, or the id was in use: mark what was held, then copy it",
        ),
    ] = False,
    stop_with_stdin: StopWithStdin = False,
    json_wanted: Json = False,
) -> None:
    """
    Runs a bookie in the foreground until SIGTERM. Prints one line when it serves; logs go to standard error.

    A new bookie needs an id, which is the address unless it has a bookieId, that was never in use: one that was taken
    out of the cluster, or that a ledger names, is refused.

    The exit status is 0 after a stop that was asked for, 1 when it could not serve, 2 for a bad configuration.
    """
    become(
        BOOKIE,
        {"--conf": conf, "--metadata": metadata, "--pidfile": pidfile, "--log": log},
        {"--daemon": daemon, "--restore": restore, "--stop-with-stdin": stop_with_stdin, "--json": json_wanted},
    )


@command(app, "quire bookie stop --pidfile /run/quire-bookie.pid")
def stop(
    pidfile: StartedPidfile,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", help="seconds to wait; a clean stop writes a checkpoint")
    ] = 60.0,
    json_wanted: Json = False,
) -> None:
    """Stops a bookie cleanly and waits until it is gone."""
    end(BOOKIE, pidfile, timeout, json_wanted)


@command(app, "quire bookie list", name="list")
def list_bookies(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Lists every bookie that the cluster knows: writable, read-only, or down; and whether it is to be emptied (`quire
    decommission --drain`).
    """

    async def work(store: MetadataStore) -> list[dict[str, Any]]:
        from quire.metadata.bookies.drain_orders import DrainOrders

        found = await store.bookies()
        known = await store.cookies()
        drained: set[str] | None = None
        with suppress(MetaStore):  # who may only read what is Apache's is told the rest
            drained = await DrainOrders(store.records).bookies()
        rows = []
        for bookie in sorted({*known, *found.writable, *found.read_only}):
            info = found.find(bookie)
            state = "writable" if bookie in found.writable else "read-only" if bookie in found.read_only else "down"
            row = {"bookie": bookie, "state": state, "address": address_of(info), "metrics": metrics_url(info)}
            rows.append({**row, "draining": None if drained is None else bookie in drained})
        return rows

    rows = with_store(metadata_uri(metadata), work)
    table = output.Table(json_wanted, {"bookie": 24, "state": 10, "address": 24, "metrics": 38, "draining": 8})
    for row in rows:
        table.row(row)
    table.end("no bookie is known; `quire bookie start --conf FILE` starts one")


@command(app, "quire bookie info 10.0.0.5:3181")
def info(
    bookie: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="one bookie; all that are up if not given")
    ] = None,
    token_file: TokenFile = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Shows how full the disks of bookies are, as each of them says, and what of their finished entry logs lives, as the
    last garbage collection saw it; how many ledgers are in limbo, for they may lack entries there, which ledger
    directories failed, whether the metadata store is behind what the bookie has seen of it (`quire metadata
    set-back`), and why the bookie is read-only.
    """

    async def work(reactor: "ProcessReactor", client: "Client") -> list[dict[str, Any]]:
        found = await client.store.bookies()
        if bookie is not None and found.find(bookie) is None:
            raise BookieHandleNotAvailable(f"{bookie} is not up; `quire bookie list` shows those that are")
        rows = []
        for one in [bookie] if bookie is not None else sorted({*found.writable, *found.read_only}):
            answer = await client.pool.info(one)
            if answer.code and bookie is not None:
                raise error_of(answer.code, f"{one} did not say")
            state = "writable" if one in found.writable else "read-only"
            row: dict[str, Any] = {
                "bookie": one,
                "state": state,
                "total_bytes": answer.total_bytes,
                "free_bytes": answer.free_bytes,
                "code": answer.code,
            }
            row["gc"] = found.find(one)
            rows.append(row)
        return rows

    rows = with_client(metadata_uri(metadata), work)
    table = output.Table(json_wanted, INFO_COLUMNS)
    for row in rows:
        ask_admin(row, token_file)
        table.row(row if json_wanted else row | as_cells(row))
    table.end("no bookie is up; `quire bookie list` shows those that the cluster knows")


def ask_admin(row: dict[str, Any], token_file: Path | None) -> None:
    """Adds what its admin address answers, or notes why not; `gc` is its registration before, then the answer."""
    address = row["gc"]
    row["gc"], own = (said_by(row["bookie"], address, path, token_file) for path in (GC_PATH, STATE_PATH))
    if isinstance(row["gc"], str):
        output.note(f"{row['bookie']} does not say what its logs, limbo and store are: {row['gc']}")
        row["gc"] = None
    own = {} if isinstance(own, str) else own
    row["limbo"], row["lost"] = own.get("ledgersInLimbo"), own.get("directoriesLost")
    row["store"], row["read_only_reasons"] = own.get("metadataStore"), own.get("readOnlyReasons")


def as_cells(row: dict[str, Any]) -> dict[str, Any]:
    """Makes texts of a row; `?` for what is unknown."""
    total, free = row["total_bytes"], row["free_bytes"]
    known = total is not None and free is not None
    directories = row["gc"].get("directories") if row["gc"] else None  # of an Apache bookie nothing is known
    return {
        "free": output.size_text(free) if known else "?",
        "total": output.size_text(total) if known else "?",
        "used": f"{1 - free / total:.0%}" if known and total else "?",
        "logs": "?" if directories is None else output.size_text(sum(each["bytes"] for each in directories)),
        "living": "?" if directories is None else output.size_text(sum(each["living_bytes"] for each in directories)),
        "limbo": "?" if row["limbo"] is None else row["limbo"],
        "lost": "?" if row["lost"] is None else ", ".join(row["lost"]) or "-",
        "store": "?" if row["store"] is None else "behind" if row["store"]["behind"] else "-",
        "why": "?" if row["read_only_reasons"] is None else "; ".join(row["read_only_reasons"]) or "-",
    }


@command(app, "quire bookie check --conf /etc/quire/bookie.conf")
def check(
    conf: Conf,
    quick: Annotated[bool, typer.Option("--quick", help="do not read the files through")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="only the files; the metadata store is not asked")] = False,
    json_wanted: Json = False,
) -> None:
    """
    Checks whether a bookie could start with this configuration, and verifies every file of it. Changes nothing.

    First its cookies, its ports, its disks, the metadata store. Then, if it does not run, its journals, ledger table,
    index, and each entry against its checksum. Exit status 1 if anything is wrong; each problem names file and offset.
    """
    if offline and quick:
        raise Usage("--offline and --quick exclude each other: only the files are looked at, or all but them")
    if offline:
        found = report_of(conf)
        output.document(json_wanted, found, report_text(found))
        if found["problems"]:
            raise typer.Exit(1)
        return
    from quire.bookie.lifecycle import ids, start_check
    from quire.bookie.lifecycle.bookie import PORT_KEY, bound_socket
    from quire.bookie.lifecycle.read_only import check_disks
    from quire.conf.bookie import BookieOptions
    from quire.conf.shared_file import Settings, load_shared
    from quire.rows.files import Files

    options, warnings = load_shared(BookieOptions, str(conf), os.environ)
    if options.auto_recovery:
        Settings.load(str(conf), os.environ, [])  # refused as the start would be
    for warning in warnings:
        output.note(warning)
    files = Files()
    check_credentials(options)

    async def work(store: MetadataStore) -> dict[str, Any]:
        bookie = ids.derive_id(options, ids.own_host(options), options.port)
        cluster = await start_check.cluster_of(store, options, files)
        new = (await start_check.check(store, options, bookie, cluster, files, write=False)).is_new
        found = (await store.bookies()).find(bookie)
        if found is None:
            bound_socket(ids.listening_address(options), options.port, PORT_KEY).close()
            bound_socket(*options.http_address).close()
        return {"bookie": bookie, "cluster": cluster, "new": new, "running": found is not None}

    state = with_store(options.metadata_uri, work, options)
    seen = None if state["new"] else check_disks(files, options)  # a new one's directories need not exist yet
    state["read_only"] = None if seen is None else seen.reason
    report = (
        None if quick or state["new"] or state["running"] or (seen is not None and seen.broken) else report_of(conf)
    )
    if report is not None:
        state["files"] = report
    output.document(json_wanted, state if json_wanted or report is None else {**state, "files": report_text(report)})
    if seen is not None and seen.broken:
        raise refused(f"{seen.reason}")
    if report is not None and report["problems"]:
        raise refused(f"{len(report['problems'])} problems in its files")


@command(app, "quire bookie format --conf /etc/quire/old.conf --yes", name="format")
def format_bookie(
    conf: Conf,
    yes: Yes = False,
    json_wanted: Json = False,
) -> None:
    """
    Throws away everything that a stopped bookie holds, its cookie included. Asks, unless --yes.

    Entries whose only copies are here are lost: run `quire decommission` first. Then begin under another bookieId: the
    cluster remembers this one (the address if none is configured), and lets it in empty with --restore only.
    """
    from quire.bookie.layout import current, directories
    from quire.bookie.lifecycle import ids
    from quire.conf.parts.identity import interface_address
    from quire.rows.files import Files, StorageError

    options = options_of(conf)
    bookie = ids.derive_id(options, ids.own_host(options, interface_address), options.port)
    paths = [current(directory) for directory in directories(options)]
    asked(yes, f"For good go: {', '.join(paths)}, and the cookie of {bookie}.")
    files = Files()
    locks: list[int] = []

    async def work(store: MetadataStore) -> bool:
        if (await store.bookies()).find(bookie) is not None:
            raise StorageError(f"{bookie} is listed: it runs, here or elsewhere; stop it first")
        for path in paths:
            if files.exists(path):
                try:
                    locks.append(files.lock(os.path.join(path, "quire.lock")))
                except BlockingIOError:
                    raise StorageError(f"{path} is in use: a bookie runs on it; stop it first") from None
        for path in paths:
            if files.exists(path):
                shutil.rmtree(path)
        return await retire(store, bookie, FORMATTED)

    try:
        had_cookie = with_store(options.metadata_uri, work, options)
    finally:
        for lock in locks:
            files.close(lock)
    output.document(json_wanted, {"bookie": bookie, "removed": paths, "cookie_removed": had_cookie})


@command(app, "quire bookie readonly 10.0.0.5:3181 on", "quire bookie readonly 10.0.0.5:3181 off")
def readonly(
    bookie: BookieId,
    wanted: Annotated[str, typer.Argument(metavar="on|off", help="on: no new entries; off: as its disks allow")],
    token_file: TokenFile = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Switches a running bookie to read-only, or back: on its own machine, as its user, or with its token.

    It serves reads and recovery as before; a restart forgets the switch unless `persistBookieStatusEnabled` is set.
    `quire decommission --drain` has one that holds, and can be given from anywhere.
    """
    if wanted not in ("on", "off"):
        raise Usage(f"{wanted!r} is neither on nor off")

    found = service_of(bookie, metadata)
    state = document_of(bookie, found, READONLY_PATH, {"readOnly": wanted == "on"}, token_file, ("readOnly",))
    output.document(
        json_wanted, {"bookie": bookie, "read_only": state["readOnly"], "reasons": state.get("reasons", [])}
    )


@command(app, "quire bookie gc 10.0.0.5:3181")
def gc(
    bookie: BookieId,
    minor: Annotated[
        bool, typer.Option("--minor", help="compact as a minor compaction does; neither of the two: both")
    ] = False,
    major: Annotated[bool, typer.Option("--major", help="compact as a major compaction does")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="come back when it is done")] = True,
    token_file: TokenFile = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Makes a running bookie collect its garbage now: on its own machine, as its user, or with its token.

    Ledgers that are deleted go, and entry logs that are not needed any more; entry logs that are mostly dead are
    compacted.
    """
    found = service_of(bookie, metadata)
    both = minor == major

    def said() -> dict[str, Any]:
        return document_of(bookie, found, GC_PATH, token_file=token_file, needs=("is_in_force_gc",))

    before = said()
    answer_of(bookie, found, GC_PATH, {"forceMinor": both or minor, "forceMajor": both or major}, token_file)
    state = said()
    while wait and state["is_in_force_gc"] == "true":
        time.sleep(GC_LOOK_S)
        state = said()
    row: dict[str, Any] = {"bookie": bookie, "done": state["is_in_force_gc"] == "false"}
    counts = [name for name in GC_COUNTS if name in state and name in before]  # Apache's bookies have none
    row.update({name: state[name] - before[name] for name in counts})
    problems = [state.get("problem"), *(each["problem"] for each in state.get("directories", []))]
    row["problems"] = [problem for problem in problems if problem]
    output.document(json_wanted, row)
    if row["problems"]:
        raise refused("; ".join(row["problems"]))


def address_of(found: ServiceInfo | None) -> str | None:
    if found is None:
        return None
    try:
        host, port = found.bookie_address()
    except BookieHandleNotAvailable:
        return None
    return f"{host}:{port}"


add_to(app)
