"""
Access lists: which znodes are whose, and what is told to who may not read or change one.
"""

import pytest
from twisted.internet.threads import deferToThread

from quire.metadata.auditing import Periodic
from quire.metadata.clock import pause
from quire.metadata.store import ANY, NEW
from quire.metadata.tree import Create
from quire.protocol.errors import MetaStoreRefused
from tests.metadata.made import HERE, ledger
from tests.metadata.stories import failing
from tests.metadata.zk.guarded import OPEN, OURS, acls, told
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

LONG = 1 << 33
INSIDE = "underreplication"
# Those that stay open to everybody (metadata-rules.md 2.3).
FOR_ALL = {"idgen-long", "idgen-long/HOB-0000000002", f"{INSIDE}/lostBookieRecoveryDelay"}


async def everything(store) -> None:
    """Lets a store make a znode of each kind that it ever makes."""
    await store.init_cluster()
    await store.create_new_ledger(ledger())
    await store.raise_ledger_ids(LONG)
    await store.create_new_ledger(ledger())
    await store.create_ledger(LONG + 7, ledger())
    made = await store.create_ledger(7, ledger())
    await store.write_ledger(7, ledger(b"another"), made.version)
    await store.register_bookie("a:1", HERE)
    await store.register_bookie("b:1", HERE, read_only=True)
    await store.write_cookie("a:1", b"x", NEW)
    await store.repairs.mark(7, ["a:1"], 1)
    await store.repairs.mark(8, ["a:1"], None)
    assert await store.repairs.lock(7)
    await store.repairs.set_enabled(False)
    await store.auditing.vote("a:1")
    await store.auditing.set_delay(5)
    for check in Periodic:
        await store.auditing.set_checked(check, 1)
    await store.records.multi([Create("log", b"x"), Create("log/claim", b"", claim=True)])
    await store.records.clock()


def expected(root: str, found: dict[str, tuple[str, ...]], ours: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {path: OPEN if path.removeprefix(f"{root}/") in FOR_ALL else ours for path in found}


def test_a_znode_of_each_kind_is_ours_alone(guarded, guarded_place):
    """But for those that Apache leaves open; parents and what transactions make included."""
    root = guarded_place.root

    async def story():
        await everything(await guarded_place.open_at(guarded.plain))
        return await deferToThread(acls, guarded, root.rpartition("/")[0])

    found = run(story)
    names = {path.removeprefix(f"{root}/") for path in found}
    for kind in (
        *FOR_ALL,
        root.rpartition("/")[0],
        root,
        f"{root}-quire",
        f"{root}-quire/clock",
        f"{root}-quire/log/claim",
        "LAYOUT",
        "INSTANCEID",
        "available/a:1",
        "available/readonly/b:1",
        "cookies/a:1",
        "idgen",
        "00/0000/L0007",
        "000/0000/0085/8993/L4599",
        f"{INSIDE}/LAYOUT",
        f"{INSIDE}/ledgers/0000/0000/0000/0007/urL0000000007",
        f"{INSIDE}/locks/urL0000000007",
        f"{INSIDE}/disable",
        f"{INSIDE}/auditorelection/V_0000000000",
        *(f"{INSIDE}/{check.value}" for check in Periodic),
    ):
        assert kind in names, (kind, sorted(names))
    assert any(name.startswith("idgen-long/HOB-0000000002/ID-") for name in names)
    assert found == expected(root, found, OURS)


def test_a_certificate_is_a_second_name(guarded, guarded_place):
    """With TLS the list names the certificate's subject, too: either is enough."""

    async def story():
        chosen = {**guarded.known("quire"), **guarded.shown, "zk_acl": True}
        store = await guarded_place.open_at(guarded.secure, **chosen)
        await everything(store)
        without = await guarded_place.open_at(guarded.secure, **guarded.shown)
        assert (await without.read_ledger(7)).version == 1
        return await deferToThread(acls, guarded, guarded_place.root)

    found = run(story)
    both = {name.rpartition(":")[0].partition(",")[0] for acl in found.values() for name in acl}
    assert {"sasl:quire", "world:anyone"} < both
    (other,) = both - {"sasl:quire", "world:anyone"}
    assert other.startswith("x509:CN=client")
    ours = max(found.values(), key=len)
    assert len(ours) == 2
    assert found == {path: tuple(acl) if tuple(acl) == OPEN else ours for path, acl in found.items()}


def test_without_the_option_znodes_are_open(guarded, guarded_place):
    """A name and a password alone change nothing about them."""

    async def story():
        await everything(await guarded_place.open_at(guarded.plain, **guarded.known("quire")))
        return await deferToThread(acls, guarded, guarded_place.root)

    assert set(run(story).values()) == {OPEN}


@pytest.mark.parametrize("who", ["other", None])
def test_another_user_is_refused(guarded, guarded_place, who):
    """
    By each operation at once, with the znode, the user and the next step; a watcher is called with nothing, and the log
    says so.
    """
    root = guarded_place.root

    async def story():
        ours = await guarded_place.open_at(guarded.plain)
        await everything(ours)
        options = guarded.known(who) if who else {"zk_acl": False}
        theirs = await guarded_place.open_at(guarded.plain, **options)
        said = []
        for path, operation in (
            ("INSTANCEID", theirs.cluster),
            ("", theirs.ledger_ids),
            ("available", theirs.bookies),
            ("cookies/a:1", lambda: theirs.read_cookie("a:1")),
            ("cookies", lambda: theirs.write_cookie("c:1", b"", NEW)),
            ("cookies/a:1", lambda: theirs.remove_cookie("a:1", ANY)),
            ("available/c:1", lambda: theirs.register_bookie("c:1", HERE)),
            (INSIDE, lambda: theirs.repairs.mark(9, ["a:1"], None)),
        ):
            error = await failing(operation(), MetaStoreRefused)
            assert f"the access list of {root}/{path}".rstrip("/") in str(error)
            said.append(str(error))
        await failing(theirs.read_ledger(7), MetaStoreRefused)
        await failing(theirs.create_new_ledger(ledger()), MetaStoreRefused)
        for text in said:
            assert f"does not let {f'the user {who}' if who else 'a session without a name'} do that" in text
            assert "zkSaslSection, saslJaasFile" in text
            assert "docs/security.md 10" in text
        assert await theirs.auditing.delay() == 5, "it is open to everybody"
        assert (await ours.read_ledger(7)).version == 1

        called = []
        with told() as lines:
            theirs.watch_bookies(called.append)
            theirs.repairs.watch(lambda: called.append("queue"))
            theirs.auditing.watch_election(called.append)
            for what in ("what is watched can't be read", "the repair queue can't be watched"):
                while not any(what in line and "access list" in line for line in lines):
                    await pause(reactor, 0.01)
        assert called == []

    run(story)
