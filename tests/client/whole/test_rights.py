"""
Roles and names of clients by what they may do, with real bookies over sockets: each writes, reads and recovers, or is
told so, and no bookie is taken for a lost one.
"""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from quire.client import api
from quire.conf.client import ClientOptions
from quire.metadata.ledger import LedgerState
from quire.protocol.errors import OK, Security, UnauthorizedAccess
from quire.security.jaas import MODULE
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster
from tests.security.authority import Authority

# SPDX-License-Identifier: Apache-2.0

ENTRIES = [b"one", b"two", b"three"]
PASSWORD = b"the ledger's own"
SHAPE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "password": PASSWORD}
TEXT = """
role Maker add,read,fence
role Writer add
role Reader read
role Recoverer read,fence
role First add,read,fence ledgers 0-{last}
"""
PROTOCOLS = ("v2", "v3")
Work = Callable[[api.Client], Awaitable[None]]


class World:
    """Four bookies that serve by certificates, an authority, and clients of any role."""

    def __init__(self, path: Path, **more: object) -> None:
        self.path = path
        self.authority = Authority(path / "tls")
        keys = {"tls": True, "tls_trust": self.authority.trust, "tls_client_certificates": True, **more}
        self.cluster = RealCluster(path / "cluster", 4, **self.authority.issue("bookie").keys, **keys)

    def options(self, role: str, protocol: str) -> ClientOptions:
        pair = self.authority.issue(role, unit=f"0:{role};1:Cluster1")
        keys = {"tls": True, "tls_trust": self.authority.trust, "tls_client_certificates": True, **pair.keys}
        return ClientOptions.model_validate({**keys, "protocol": protocol})

    def go(self, role: str, work: Work, protocol: str = "v3") -> None:
        async def story() -> None:
            client = await api.connect(reactor, self.cluster.uri, self.options(role, protocol))
            try:
                await work(client)
            finally:
                await client.close()

        run(story)

    def counted(self, name: str) -> int:
        """The sum over the bookies."""
        found = 0
        for bookie in self.cluster.bookies:
            assert bookie is not None
            assert bookie.listener.entrance is not None
            found += {key: count for key, _meaning, count in bookie.listener.entrance.counts()}[name]
        return found


def rights(where: Path, text: str) -> str:
    path = where / "rights"
    path.write_text(text)
    path.chmod(0o640)
    return str(path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Rights by verbs; one role has some of the ledgers."""
    made = World(tmp_path, rights_file=rights(tmp_path, TEXT.format(last=1)))
    with made.cluster:
        yield made


def written(ids: list[int], close: bool) -> Work:
    async def work(client: api.Client) -> None:
        writer = await client.create_ledger(**SHAPE)
        await writer.append_many(ENTRIES)
        ids.append(writer.id)
        if close:
            await writer.close()

    return work


async def shape_of(client: api.Client, ledger: int) -> tuple[LedgerState, int]:
    """The state in the metadata, and how many fragments there are: one, if no bookie was replaced."""
    metadata = (await client.store.read_ledger(ledger))[0]
    return metadata.state, len(metadata.fragments)


async def may_append(client: api.Client) -> bool:
    """Whether an append is taken, or refused with -102; the bookies that the ledger has stay."""
    writer = await client.create_ledger(**SHAPE)
    before = (await shape_of(client, writer.id))[1]
    try:
        await writer.append_many(ENTRIES)
    except UnauthorizedAccess as refused:
        said = str(refused)
    else:
        said = ""
    assert (await shape_of(client, writer.id))[1] == before == 1
    assert not said or "no right" in said
    return not said


async def may_read(client: api.Client, ledger: int) -> bool:
    """A closed ledger."""
    reader = await client.open_ledger(ledger, PASSWORD)
    try:
        assert [entry.data for entry in await reader.read(0, 2)] == ENTRIES
    except UnauthorizedAccess:
        return False
    return True


async def may_recover(client: api.Client, ledger: int) -> bool:
    """One whose writer went away."""
    try:
        reader = await client.open_ledger(ledger, PASSWORD)
    except UnauthorizedAccess:
        return False
    assert (await shape_of(client, ledger)) == (LedgerState.CLOSED, 1)
    assert [entry.data for entry in await reader.read(0, 2)] == ENTRIES
    return True


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("Maker", (True, True, True)),
        ("Writer", (True, False, False)),
        ("Reader", (False, True, False)),
        ("Recoverer", (False, True, True)),
        ("First", (False, True, True)),
        ("Nobody", (False, False, False)),
    ],
)
def test_role_by_verb(world: World, role: str, may: tuple[bool, bool, bool], protocol: str) -> None:
    """
    Appends, reads and recoveries go, or fail with -102 that says why; no entry is lost, no bookie is replaced.  `First`
    has the rights of ledgers 0 and 1, which it reads and recovers, and none of ledger 2, which it makes.
    """
    ids: list[int] = []
    world.go("Maker", written(ids, close=True), protocol)
    world.go("Maker", written(ids, close=False), protocol)

    async def matrix(client: api.Client) -> None:
        assert (await may_read(client, ids[0]), await may_recover(client, ids[1])) == may[1:]
        assert await may_append(client) == may[0]

    assert ids == [0, 1]
    world.go(role, matrix, protocol)
    refused = world.counted("rights_refusals") + world.counted("without_right")
    assert bool(refused) == (may != (True, True, True))

    async def all_there(client: api.Client) -> None:
        assert await may_read(client, ids[0])
        assert await may_recover(client, ids[1])

    world.go("Maker", all_there)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_writer_keeps_what_it_has_while_others_are_refused(world: World, protocol: str) -> None:
    """Who may not fence does not stop it."""

    async def goes_on(client: api.Client) -> None:
        writer = await client.create_ledger(**SHAPE)
        await writer.append_many(ENTRIES)
        other = await api.connect(reactor, world.cluster.uri, world.options("Reader", protocol))
        pool = api.BookiePool(reactor, other.store, world.options("Reader", protocol))
        key = api.Digest(api.DigestType.CRC32C, PASSWORD).master_key
        for bookie in world.cluster.ids:
            assert (await pool.read(bookie, writer.id, -1, key)).code == UnauthorizedAccess.code
        await pool.close()
        await other.close()
        assert await writer.append(b"four") == 3

    world.go("Maker", goes_on, protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_roles_without_a_file_of_rights(tmp_path: Path, protocol: str) -> None:
    """Apache's keys alone: an authorised role may do everything, any other is told at once, by -102."""
    made = World(tmp_path, authentication="roles", authorized_roles=("Maker", "Other"))
    with made.cluster:
        ids: list[int] = []
        made.go("Maker", written(ids, close=True), protocol)

        async def refused(client: api.Client) -> None:
            assert not await may_read(client, ids[0])
            assert not await may_append(client)

        async def served(client: api.Client) -> None:
            assert await may_read(client, ids[0])
            assert await may_append(client)

        made.go("Nobody", refused, protocol)
        made.go("Other", served, protocol)
        assert made.counted("without_right") >= 1
        assert made.counted("rights_refusals") == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_names_by_verb(tmp_path: Path, protocol: str) -> None:
    """Users of SASL have rights as roles have; a user without any is let in and refused everything."""
    file = tmp_path / "jaas.conf"
    users = {"maker": "a", "reader": "b", "nobody": "c"}
    known = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    sections = [f'{user} {{ {MODULE} required username="{user}" password="{users[user]}"; }};' for user in users]
    file.write_text("\n".join([f"Bookie {{ {MODULE} required {known}; }};", *sections]))
    file.chmod(0o600)
    text = "user maker add,read,fence\nuser reader read\n"
    keys = {"authentication": "sasl", "jaas_file": str(file)}
    asking = {**keys, "jaas_allowed": ".*", "rights_file": rights(tmp_path, text)}
    found: dict[str, tuple[bool, bool]] = {}
    ids: list[int] = []

    async def story() -> None:
        for user in users:
            options = ClientOptions.model_validate({**keys, "jaas_client_section": user, "protocol": protocol})
            client = await api.connect(reactor, cluster.uri, options)
            try:
                if not ids:
                    await written(ids, close=True)(client)
                found[user] = await may_append(client), await may_read(client, ids[0])
            finally:
                await client.close()

    with RealCluster(tmp_path / "cluster", 3, **asking) as cluster:
        run(story)
    assert found == {"maker": (True, True), "reader": (False, True), "nobody": (False, False)}


def test_the_disks_of_a_bookie_are_for_who_may_inspect(tmp_path: Path) -> None:
    """And -102 for the others, who are served the rest."""
    text = TEXT.format(last=0) + "role Watcher inspect\n"
    made = World(tmp_path, rights_file=rights(tmp_path, text))
    codes: dict[str, tuple[int, int]] = {}

    def ask(role: str) -> Work:
        async def work(client: api.Client) -> None:
            pool = api.BookiePool(reactor, client.store, made.options(role, "v3"))
            bookie = made.cluster.ids[0]
            codes[role] = (await pool.info(bookie)).code, (await pool.read(bookie, 1 << 40, 0)).code
            await pool.close()

        return work

    with made.cluster:
        for role in ("Watcher", "Reader", "Nobody"):
            made.go(role, ask(role))
    refused = UnauthorizedAccess.code
    assert codes["Watcher"] == (OK, refused)
    assert codes["Reader"][0] == refused
    assert codes["Reader"][1] not in (OK, refused, Security.code)
    assert codes["Nobody"] == (refused, refused)
