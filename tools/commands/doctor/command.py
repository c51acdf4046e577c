"""
`quire doctor`: what is wrong with a cluster, how bad it is, and the next command.

Knows: how a cluster is opened, or that it can't be; how findings are printed, and the exit status.
Does not know: what is looked at.
"""

import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout

from quire.metadata.bookies.drain_orders import DrainOrders
from quire.metadata.store import NoCluster
from quire.protocol.errors import LedgerError, MetaStore
from quire.security.tokens import tokens_in
from quire.tools.commands.doctor.bookies import BOOKIES
from quire.tools.commands.doctor.cluster import CLUSTER, MACHINE
from quire.tools.commands.doctor.examining import (
    Check,
    Finding,
    Limits,
    Machine,
    Scene,
    Severity,
    examine,
    not_made,
    said,
    within,
    worst_first,
)
from quire.tools.commands.doctor.logs import LOGS
from quire.tools.terminal import output
from quire.tools.terminal.options import (
    TOKEN_FILE_OPTION,
    TOKEN_FILE_VARIABLE,
    Json,
    Metadata,
    TokenFile,
    client_options,
    command,
    metadata_uri,
    single,
)
from quire.tools.terminal.running import bounded, run

if TYPE_CHECKING:
    from pathlib import Path

    from quire.client.api import Client
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

OF_THE_CLUSTER: dict[str, Check[Scene]] = {**CLUSTER, **BOOKIES, **LOGS}
STORE = "store"

app = single()


@command(
    app,
    "quire doctor",
    "quire doctor --token-file /etc/quire/admin.token",
    "quire doctor --json | jq -r '.findings[] | select(.severity == \"error\") | .next'",
)
def doctor(token_file: TokenFile = None, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Looks at a cluster from this machine, and prints what is wrong, how bad it is, and the next command. Changes nothing
    of it.

    Looked at are the metadata store and its clock, each bookie with its disks, open files, certificate and alarms, the
    repair queue and who repairs, named logs and their cursors, the certificates and limits here. What could not be
    looked at is a finding, too. State and metrics of a bookie need its token: they are read on its own machine, or with
    --token-file.

    \b
    How bad:
      error    data is lost or in danger, or something does not work
      warning  it works, and will not for long, or not as it should
      note     to be known; nothing has to be done at once

    The exit status is 0 if there are notes only, or nothing; 1 if there is a warning or an error; 2 for wrong usage.
    """
    uri, options = metadata_uri(metadata), client_options()
    given = str(token_file) if token_file is not None else os.environ.get(TOKEN_FILE_VARIABLE)
    if given:
        tokens_in(given, TOKEN_FILE_OPTION)  # refused before anything is looked at

    async def whole(reactor: "ProcessReactor") -> list[Finding]:
        from quire.client.api import connect

        machine = Machine(clock=reactor, options=options)
        try:
            client = await bounded(reactor, connect(reactor, uri, options), uri)
        except LedgerError as error:
            return await without_store(machine, uri, error)
        try:
            return await look(client, token_file)
        finally:
            await client.close()

    found = run(whole)
    show(uri, found, json_wanted)
    if any(each.severity > Severity.NOTE for each in found):
        raise typer.Exit(1)


async def look(client: "Client", token_file: "Path | None" = None, limits: Limits | None = None) -> list[Finding]:
    """Makes all checks of an open cluster."""
    machine = Machine(clock=client.reactor, options=client.options, limits=limits or Limits())
    try:
        scene = await scene_of(client, token_file, machine.limits)
    except LedgerError as error:
        return await without_store(machine, client.store.uri, error)
    return worst_first([*await examine(OF_THE_CLUSTER, scene), *await examine(MACHINE, machine)])


async def scene_of(
    client: "Client",
    token_file: "Path | None" = None,
    limits: Limits | None = None,
    metrics: frozenset[str] = frozenset(),
) -> Scene:
    """Reads the lists of bookies of an open cluster.  The errors of reading; `MetaStore` for a store that is silent."""
    store, reactor, bounds = client.store, client.reactor, limits or Limits()
    listed = await bounded(reactor, store.bookies(), store.uri)
    known = await bounded(reactor, store.cookies(), store.uri)
    draining: frozenset[str] | None = None
    with suppress(MetaStore, DeferredTimeout):  # of a cluster where we may read what is Apache's only
        orders: Deferred[set[str]] = Deferred.fromCoroutine(DrainOrders(store.records).bookies())
        draining = frozenset(await within(reactor, bounds.check_s, orders))
    return Scene(
        clock=reactor,
        options=client.options,
        limits=bounds,
        client=client,
        bookies=listed,
        known=frozenset(known),
        draining=draining,
        token_file=token_file,
        metrics=metrics,
    )


async def without_store(machine: Machine, uri: str, error: LedgerError) -> list[Finding]:
    """The store does not answer: that, and what can be looked at without it."""
    step = "see whether it is up and reached from here; --metadata names another"
    if isinstance(error, NoCluster):
        step = f"quire metadata init --metadata '{uri}'"
    elif not isinstance(error, MetaStore):
        step = "docs/security.md says how a client is let in"
    failed = Finding(Severity.ERROR, uri, f"no cluster can be opened: {said(error)}", step, check=STORE)
    rest = not_made(OF_THE_CLUSTER, "for it needs the metadata store")
    return worst_first([failed, *rest, *await examine(MACHINE, machine)])


def show(uri: str, found: list[Finding], json_wanted: bool) -> None:
    """Prints the findings, and how many there are of each severity."""
    counted = Counter(each.severity for each in found)
    counts = {f"{each.name.lower()}s": counted[each] for each in sorted(Severity, reverse=True)}
    value = {"metadata": uri, **counts, "findings": [as_document(each) for each in found]}
    lines = []
    for each in found:
        lines += [f"{each.severity.name.lower():<8} {each.about}: {each.problem}", f"{'next:':>13} {each.next}"]
    lines.append(", ".join(f"{name}: {count}" for name, count in counts.items()))
    output.document(json_wanted, value, lines)


def as_document(each: Finding) -> dict[str, Any]:
    return {**each._asdict(), "severity": each.severity.name.lower()}
