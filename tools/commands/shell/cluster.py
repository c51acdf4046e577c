"""
Names about the cluster as a whole: its metadata, its repair.

Knows: Apache's words.  Does not know: how any of it is done.
"""

from argparse import Namespace
from typing import TYPE_CHECKING

from quire.metadata.auditing import Periodic
from quire.metadata.overview import overview
from quire.metadata.store import ClusterExists, WrongCluster
from quire.tools.commands import metadata
from quire.tools.commands.repair import autorecovery as repair
from quire.tools.commands.shell.context import Shell, confirm, one_of
from quire.tools.commands.shell.names import flag, name, value
from quire.tools.terminal import output
from quire.tools.terminal.options import Usage

if TYPE_CHECKING:
    from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

FORGOTTEN_MS = 21 * 24 * 3600 * 1000  # so long ago the last checks are said to have been
CHECKS = {
    "checkallledgerscheck": Periodic.COPIES,
    "placementpolicycheck": Periodic.PLACEMENT,
    "replicascheck": Periodic.REPLICAS,
}


@name("metaformat", flag("n", "nonInteractive"), flag("f", "force"))
def metaformat(shell: Shell, given: Namespace) -> None:
    """Makes a new cluster in place of one that is there, which must have no bookie up and no log."""
    uri = shell.uri
    confirm(f"Remove every ledger of {uri}, if there are any, and begin a new cluster?", given.nonInteractive)

    async def work(store: "MetadataStore") -> str:
        try:
            return await store.init_cluster()
        except ClusterExists:
            if given.nonInteractive and not given.force:
                raise
        await metadata.refuse_with_logs(store)
        await store.destroy_cluster((await store.cluster()).instance_id)
        return await store.init_cluster()

    shell.say("Formatted metadata", metadataServiceUri=uri, instanceId=shell.store(work))


@name("initnewcluster")
def initnewcluster(shell: Shell, _given: Namespace) -> None:
    """Makes a new cluster where there is none."""
    made = shell.store(lambda store: store.init_cluster())
    shell.say("Initialized new cluster", metadataServiceUri=shell.uri, instanceId=made)


@name(
    "nukeexistingcluster",
    value("p", "zkledgersrootpath", metavar="PATH", required=True),
    value("i", "instanceid", metavar="ID"),
    flag("f", "force"),
)
def nukeexistingcluster(shell: Shell, given: Namespace) -> None:
    """Removes all metadata; refuses while a bookie is up, or for another root or id than the cluster's."""
    one_of(given, "instanceid", "force")

    async def work(store: "MetadataStore") -> str:
        if given.zkledgersrootpath != store.root:
            raise WrongCluster(f"{store.uri} keeps its ledgers at {store.root}, not {given.zkledgersrootpath}")
        named = given.instanceid or (await store.cluster()).instance_id
        await metadata.refuse_with_logs(store)
        await store.destroy_cluster(named)
        return str(named)

    shell.say("Removed cluster", metadataServiceUri=shell.uri, instanceId=shell.store(work))


@name("whatisinstanceid")
def whatisinstanceid(shell: Shell, _given: Namespace) -> None:
    """Prints the cluster's id."""
    cluster = shell.store(lambda store: store.cluster())
    shell.say("Cluster", metadataServiceUri=shell.uri, instanceId=cluster.instance_id)


@name("clusterinfo")
def clusterinfo(shell: Shell, _given: Namespace) -> None:
    """Prints a summary of the cluster's state, always as JSON."""
    output.document(True, shell.store(overview))


@name("whoisauditor")
def whoisauditor(shell: Shell, _given: Namespace) -> None:
    """Prints which process audits."""
    auditor = shell.store(lambda store: store.auditing.election()).auditor
    if auditor is None:
        shell.say("No auditor elected")
    else:
        shell.say("Current auditor", auditor=auditor)


@name("autorecovery", flag("e", "enable"), flag("d", "disable"))
def autorecovery(shell: Shell, given: Namespace) -> None:
    """Turns repair on or off for the whole cluster, or says which it is."""
    if given.enable and given.disable:
        one_of(given, "enable", "disable")

    async def work(store: "MetadataStore") -> bool:
        await store.cluster()
        if given.enable or given.disable:
            await store.repairs.set_enabled(given.enable)
        return await store.repairs.enabled()

    shell.say("Autorecovery", status="enabled" if shell.store(work) else "disabled")


@name("queryautorecoverystatus", flag("v", "verbose"))
def queryautorecoverystatus(shell: Shell, given: Namespace) -> None:
    """Lists the ledgers that are being repaired now, and by whom."""

    async def work(store: "MetadataStore") -> int:
        count, after = 0, -1
        while page := await store.repairs.shortages(after, repair.PAGE):
            for each in page:
                worker = await store.repairs.worker(each.ledger)
                if worker is not None:
                    size = (await store.read_ledger(each.ledger)).value.length if given.verbose else None
                    shell.say("Ledger under repair", ledgerId=each.ledger, bookieId=worker, ledgerSize=size)
                    count += 1
            after = page[-1].ledger
        return count

    if not shell.store(work):
        shell.say("No Ledger is being recovered")


@name(
    "listunderreplicated",
    value("mr", "missingreplica", metavar="ID"),
    value("emr", "excludingmissingreplica", metavar="ID"),
    flag("pmr", "printmissingreplica"),
    flag("prw", "printreplicationworkerid"),
    flag("c", "onlydisplayledgercount"),
)
def listunderreplicated(shell: Shell, given: Namespace) -> None:
    """Lists the ledgers that wait for repair, then how many they are."""

    async def work(store: "MetadataStore") -> int:
        count, after = 0, -1
        while page := await store.repairs.shortages(after, repair.PAGE):
            for each in page:
                if not each.fits(given.missingreplica, given.excludingmissingreplica):
                    continue
                count += 1
                if not given.onlydisplayledgercount:
                    worker = await store.repairs.worker(each.ledger) if given.printreplicationworkerid else None
                    missing = each.missing if given.printmissingreplica else None
                    known = {"ctime": each.since_ms, "missingReplica": missing, "replicationWorkerId": worker}
                    shell.say("Under replicated ledger", ledgerId=each.ledger, **known)
            after = page[-1].ledger
        return count

    shell.say("Under replicated ledger count", count=shell.store(work))


@name("lostbookierecoverydelay", flag("g", "get"), value("s", "set", metavar="SECONDS", type=int))
def lostbookierecoverydelay(shell: Shell, given: Namespace) -> None:
    """Prints or sets how long a bookie may stay away before its ledgers are repaired."""
    one_of(given, "get", "set")

    async def work(store: "MetadataStore") -> int:
        if given.set is not None:
            await store.auditing.set_delay(given.set)
        return await store.auditing.delay() or 0

    shell.say("LostBookieRecoveryDelay value", delay=shell.store(work))


@name("triggeraudit")
def triggeraudit(shell: Shell, _given: Namespace) -> None:
    """Asks the auditor for a look at all ledgers now."""
    shell.store(lambda store: store.auditing.ask())
    shell.say("Triggered audit")


@name(
    "forceauditchecks",
    flag("calc", "checkallledgerscheck"),
    flag("ppc", "placementpolicycheck"),
    flag("rc", "replicascheck"),
)
def forceauditchecks(shell: Shell, given: Namespace) -> None:
    """Has an auditor make its checks of all ledgers when it starts: the last are said to be 21 days ago."""
    chosen = [word for word in CHECKS if getattr(given, word)]
    if not chosen:
        raise Usage(f"give at least one of {', '.join('-' + word for word in CHECKS)}")

    async def work(store: "MetadataStore") -> int:
        now = await store.records.clock()
        for word in chosen:
            await store.auditing.set_checked(CHECKS[word], now - FORGOTTEN_MS)
        return now - FORGOTTEN_MS

    at = shell.store(work)
    for word in chosen:
        shell.say("Set last run", check=word, ctime=at)
