"""What a real etcd refuses us, in words; and over which connections, as which user, it lets us in."""

from itertools import count

import pytest
from twisted.internet.defer import Deferred

from quire.conf.parts.stores import StoreOptions
from quire.metadata.records import NoRecord
from quire.metadata.tree import Check, Create
from quire.metadata.uri import open_store
from quire.protocol.errors import MetadataTooLarge, MetaStore, MetaStoreRefused
from quire.tools.local_cluster.etcd import Etcd
from tests.metadata.etcd.called import forget_tokens, guard
from tests.metadata.stories import Heard, failing
from tests.metadata.zk.guarded import private, section
from tests.reactor import reactor, run
from tests.requirements import need
from tests.security.authority import Authority

# SPDX-License-Identifier: Apache-2.0

TIMEOUT_MS = 20_000


@pytest.fixture
def server(tmp_path):
    """Starts servers of the test's own."""
    need("etcd")
    started = []

    def start(**options):
        started.append(Etcd(tmp_path / f"etcd-{len(started)}", **options))
        started[-1].wait_until_healthy()
        return started[-1]

    yield start
    for each in started:
        each.stop()


def opened(uri, **options):
    return open_store(reactor, uri, session_timeout_ms=TIMEOUT_MS, security=StoreOptions.model_validate(options))


async def fill(tree):
    """Writes until etcd, which looks at its size now and then, takes no more."""
    for number in count():
        await tree.create(f"/a/full-{number}", bytes(1 << 20))


def test_bounds_of_the_server_are_named(server):
    """A value and a transaction that are too large for it, and a database that is full: with the option to set."""
    etcd = server(settings=("--max-txn-ops", "128", "--quota-backend-bytes", str(16 << 20)))

    async def story():
        store = await opened(etcd.uri)
        tree = store.tree
        await tree.create("/a")
        await tree.transact([Check("/a")] * 1000)
        await tree.transact([Create(f"/a/{number}") for number in range(40)])
        for steps, option in (
            ([Create(f"/a/x{number}") for number in range(200)], "--max-txn-ops"),
            ([Create("/b", bytes(1700 << 10))], "--max-request-bytes"),
            ([Create("/b", bytes(4 << 20))], "--max-request-bytes"),
        ):
            assert option in str(await failing(tree.transact(steps), MetadataTooLarge))
        assert "--quota-backend-bytes" in str(await failing(Deferred.fromCoroutine(fill(tree)), MetaStoreRefused))
        assert (await tree.get("/a"))[1].children > 40
        await store.close()

    run(story)


@pytest.fixture
def login(tmp_path):
    """Options by which somebody logs in."""

    def options(user, password):
        text = section("Etcd", username=user, password=password)
        return {"jaas_file": private(tmp_path / f"{user}-{password}", text), "etcd_section": "Etcd"}

    return options


def test_a_token_that_has_ended(server, login):
    """What is watched then is heard of, though the stream was opened with that token; and the session ends at once."""
    etcd = server()
    guard(etcd.address, {"root": "r", "quire": "secret"})

    async def story():
        store, other = [await opened(etcd.uri, **login("quire", "secret")) for _ in range(2)]
        await store.init_cluster()
        await store.records.create("a", b"x", claim=True)
        first, second, gone = Heard(), Heard(), Heard()
        store.records.watch("a", first)
        await first.until(lambda seen: seen is not None)
        forget_tokens(etcd.address, "r", "quire", "secret")
        await store.records.create("b", b"x")
        store.records.watch("b", second)
        await second.until(lambda seen: seen is not None)
        await other.records.write("b", b"y", 0)
        await second.until(lambda seen: seen.value == b"y")
        other.records.watch("a", gone)
        await gone.until(lambda seen: seen is not None)
        forget_tokens(etcd.address, "r", "quire", "secret")
        await store.close()
        assert await failing(other.records.read("a"), NoRecord)
        await other.close()

    run(story)


def test_users(server, login):
    """The right one is let in; for every other one the error says what is wrong."""
    etcd = server()
    guard(etcd.address, {"root": "r", "quire": "secret", "nobody": "n"})

    async def story():
        store = await opened(etcd.uri, **login("quire", "secret"))
        await store.init_cluster()
        await store.records.create("a", b"x", claim=True)
        await store.close()
        for options, words in (
            ({}, "set etcdSection"),
            (login("quire", "wrong"), "does not let this user in"),
            (login("nobody", "n"), "grant a role"),
        ):
            assert words in str(await failing(opened(etcd.uri, **options), MetaStoreRefused))

    run(story)
    plain = server()

    async def needless():
        error = await failing(opened(plain.uri, **login("quire", "secret")), MetaStoreRefused)
        assert "etcdctl auth enable" in str(error)

    run(needless)


def test_certificates(server, tmp_path):
    """Of the server, checked against our file of authorities; ours, where it is asked for."""
    authority, other = Authority(tmp_path / "tls"), Authority(tmp_path / "other")
    pair, own = authority.issue("etcd"), authority.issue("client")
    options = ("--cert-file", pair.certificate, "--key-file", pair.key)
    etcd = server(tls=(*options, "--client-cert-auth", "--trusted-ca-file", authority.trust))
    shown = {"etcd_tls_certificate": own.certificate, "etcd_tls_key": own.key}

    async def story():
        store = await opened(etcd.uri, etcd_tls_trust=authority.trust, **shown)
        await store.init_cluster()
        await store.close()
        error = await failing(opened(etcd.uri, etcd_tls_trust=other.trust, **shown), MetaStoreRefused)
        assert "does not accept the other's certificate" in str(error)

    run(story)


def test_nobody_is_there(server):
    """The error names the address and the next step, within the session timeout."""
    etcd = server()
    etcd.stop()

    async def story():
        error = await failing(open_store(reactor, etcd.uri, session_timeout_ms=1000), MetaStore)
        assert etcd.address in str(error)
        assert "see whether it runs" in str(error)

    run(story)
