"""docs/security.md, followed to the letter: its commands are run and its configurations are loaded."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quire.client import api
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import options, parse
from quire.conf.shared_file import READERS, Settings
from quire.metadata.store import ServiceInfo
from quire.metadata.uri import open_store
from quire.protocol.errors import MetaStoreRefused, Security, UnauthorizedAccess
from quire.tools.daemons.recovering import Front, Recovering
from quire.tools.local_cluster.guarded import free_port
from quire.tools.local_cluster.zookeeper import ZooKeeper
from quire.tools.terminal.bookie_http import answer_of
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster
from tests.requirements import need
from tests.tools.command import COMMAND, quire, warm

# SPDX-License-Identifier: Apache-2.0

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BLOCK = re.compile(r"^( *)```(?:sh|properties) (\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
BLOCKS = {
    name: re.sub(f"^{indent}", "", text, flags=re.MULTILINE) for indent, name, text in BLOCK.findall(PAGE.read_text())
}
BASE = "metadataServiceUri=memory://x\njournalDirectories=/j\nledgerDirectories=/l\n"
WAIT_S = 120.0


def in_shell(text: str, where: Path, **more: str) -> str:
    """Runs one block; its standard output."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **more}
    command = ["bash", "-euc", text]
    done = subprocess.run(
        command, cwd=where, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_has_the_blocks() -> None:
    """Those that the tests below follow."""
    tls = {"try", "tried", "certificates", "bookie", "client", "required"}
    roles = {"roles", "rights", "judged"}
    zookeeper = {"zkusers", "zkserver", "zkclient", "zktls", "zktlsclient"}
    assert set(BLOCKS) == tls | {"users", "introduced", "asking"} | {"http", "metrics", "https"} | roles | zookeeper


def test_a_cluster_of_its_own(tmp_path: Path) -> None:
    """Section 1: the cluster starts, and what a client wrote over TLS comes back."""
    directory = tmp_path / "cluster"
    environment = {**os.environ, "DIR": str(directory)}
    _quire, *words = shlex.split(BLOCKS["try"].strip().removesuffix("&").replace("$DIR", str(directory)))
    with subprocess.Popen([*COMMAND, *words], env=environment, stdout=subprocess.PIPE, text=True) as local:
        try:
            assert local.stdout is not None
            said = next(line for line in local.stdout if line.startswith("clients"))
            assert said == f"clients   QUIRE_CONF={directory}/client.conf\n"
            tried = warm().shell(BLOCKS["tried"], environment)
            assert (tried.returncode, tried.stdout) == (0, "first line\n"), tried.stderr
            says_why_it_is_refused(f"sqlite://{directory}/metadata.db")
        finally:
            local.terminate()


def says_why_it_is_refused(uri: str) -> None:
    """A command without TLS, on standard error; and no copy counts as missing for it."""
    for words in (("read", 0), ("tail", 0, "--from", 0), ("check", 0)):
        done = quire("ledger", *words, metadata=uri)
        assert done.code == 1, done
        assert "serves only clients that it knows: by TLS (tlsProviderFactoryClass)" in done.err, done.err
    assert "was not asked for 0 to 0" in done.out
    assert "bookies and this client do not trust each other" in done.err
    assert "quire recover" not in done.err


def of_bookie(text: str, prefixes: tuple[str, ...]) -> dict[str, object]:
    """The options that a block of a bookie's file sets, those with these prefixes."""
    found = options(BookieOptions, parse(BASE + text, "bookie.conf"))[0].model_dump(exclude_unset=True)
    return {name: value for name, value in found.items() if name.startswith(prefixes)}


def served(cluster: RealCluster, chosen: ClientOptions) -> bool:
    """Whether an append comes through, or is refused with -24."""

    async def story() -> bool:
        client = await api.connect(reactor, cluster.uri, chosen)
        try:
            writer = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
            await writer.append(b"one")
        except Security:
            return False
        finally:
            await client.close()
        return True

    return run(story)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sections 2 and 9: the certificates and the file of rights that their commands make."""
    need("openssl")
    where = tmp_path_factory.mktemp("etc")
    in_shell(BLOCKS["certificates"], where)
    in_shell(BLOCKS["rights"], where)
    return where


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_from_nothing_to_certificates_on_both_sides(made: Path, tmp_path: Path, protocol: str) -> None:
    """Section 3: after each step those are served that the page says, and after the last nobody else."""
    first, second, third = (BLOCKS[name].replace("/etc/quire", str(made)) for name in ("bookie", "client", "required"))
    plain = ClientOptions.model_validate({"protocol": protocol})
    secure = options(ClientOptions, parse(second, "client.conf"))[0].model_copy(update={"protocol": protocol})
    anybody = secure.model_copy(update={"tls_client_certificates": False})
    third = first.replace("tlsRequired=false\n", "") + third
    for number, (text, who) in enumerate([("", (plain,)), (first, (plain, secure, anybody)), (third, (secure,))]):
        with RealCluster(tmp_path / str(number), 2, **of_bookie(text, ("tls",))) as cluster:
            for client in (plain, secure, anybody):
                assert served(cluster, client) == (client in who)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_from_nothing_to_names_and_passwords(tmp_path: Path, protocol: str) -> None:
    """Section 7: clients first, then bookies, which then serve nobody else, and are let in by each other."""
    in_shell(BLOCKS["users"], tmp_path)
    assert not (tmp_path / "bookie.jaas").stat().st_mode & 0o077
    introduced, asking = (BLOCKS[name].replace("/etc/quire", str(tmp_path)) for name in ("introduced", "asking"))
    nobody = ClientOptions.model_validate({"protocol": protocol})
    known = options(ClientOptions, parse(introduced, "client.conf"))[0].model_copy(update={"protocol": protocol})
    (tmp_path / "bookie.conf").write_text(BASE + asking)
    inside = Settings.load(str(tmp_path / "bookie.conf"), {}, [])[0].client
    for number, (text, who) in enumerate([("", (nobody, known, inside)), (asking, (known, inside))]):
        found = options(BookieOptions, parse(BASE + text, "bookie.conf"), READERS)[0].model_dump(exclude_unset=True)
        keys = {name: value for name, value in found.items() if name.startswith(("authentication", "jaas"))}
        with RealCluster(tmp_path / str(number), 2, **keys) as cluster:
            for client in (nobody, known, inside):
                assert served(cluster, client) == (client in who)


ROLES = ("System", "Operator", "Writer", "Reader")


def of_role(made: Path, role: str, protocol: str) -> ClientOptions:
    """Of section 3's client with the certificate of a role; "client" has none."""
    text = BLOCKS["client"].replace("/etc/quire/client", f"{made}/{role}").replace("/etc/quire", str(made))
    return options(ClientOptions, parse(text, "client.conf"))[0].model_copy(update={"protocol": protocol})


def may(cluster: RealCluster, chosen: ClientOptions, ledger: int | None) -> bool:
    """Whether an append, or a read of a ledger without recovery, comes through, or is refused with -102."""

    async def story() -> bool:
        client = await api.connect(reactor, cluster.uri, chosen)
        try:
            if ledger is None:
                writer = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
                await writer.append(b"one")
                await writer.close()
            else:
                assert [entry.data for entry in await (await client.open_ledger(ledger)).read(0, 0)] == [b"one"]
        except UnauthorizedAccess:
            return False
        finally:
            await client.close()
        return True

    return run(story)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_from_certificates_to_roles_and_rights(made: Path, tmp_path: Path, protocol: str) -> None:
    """Section 9: roles alone open everything, the file what it says, and a certificate without a role nothing."""
    base = BLOCKS["bookie"].replace("tlsRequired=false\n", "")
    roles, judged = ((base + BLOCKS[name]).replace("/etc/quire", str(made)) for name in ("roles", "judged"))
    with RealCluster(tmp_path / "1", 2, **of_bookie(roles, ("tls", "authentication", "authorized"))) as cluster:
        clients = [of_role(made, role, protocol) for role in (*ROLES, "client")]
        for ledger in (None, 0):
            assert [may(cluster, client, ledger) for client in clients] == [True] * 4 + [False]
    with RealCluster(tmp_path / "2", 2, **of_bookie(judged, ("tls", "rights"))) as cluster:
        assert [may(cluster, client, None) for client in clients[1:]] == [True, True, False, False]
        assert [may(cluster, client, 0) for client in clients] == [True, True, False, True, False]


def test_a_role_over_https(made: Path, tmp_path: Path) -> None:
    """Sections 8 and 9: at a bookie with rights a certificate opens what its role may; with roles alone everything."""
    need("curl")
    in_shell("cat bookie.key bookie.pem > http.pem", made)
    https = BLOCKS["https"] + "httpServerTrustStorePath=/etc/quire/ca.pem\n"
    base = BLOCKS["bookie"].replace("tlsRequired=false\n", "") + https
    change = ("--request", "PUT", "--data", "{}")
    found = {}
    for name in ("roles", "judged"):
        text = (base + BLOCKS[name]).replace("/etc/quire", str(made))
        keys = of_bookie(text, ("tls", "http", "authentication", "authorized", "rights"))
        with RealCluster(tmp_path / name, 1, **keys) as cluster:
            page = page_of(cluster, "https")["PAGE"]
            for role in ("Operator", "Writer"):
                shown = ("--cacert", f"{made}/ca.pem", "--cert", f"{made}/{role}.pem", "--key", f"{made}/{role}.key")
                read = status(f"{page}/api/v1/bookie/state", "", *shown)
                found[name, role] = read, status(f"{page}/api/v1/bookie/gc", "", *shown, *change)
    assert found["judged", "Operator"] == found["roles", "Operator"] == found["roles", "Writer"] == ("200", "200")
    assert found["judged", "Writer"] == ("403", "403")


def test_a_role_at_the_port_of_autorecovery(made: Path, tmp_path: Path) -> None:
    """
    Sections 8 and 9: a process of its own that has a bookie's file looks at the same rights as that, as they are at the
    time of a request.
    """
    need("curl")
    in_shell("cat bookie.key bookie.pem > http.pem", made)
    file = tmp_path / "rights"
    file.write_text((made / "rights").read_text() + "user somebody inspect\n")
    https = BLOCKS["https"] + "httpServerTrustStorePath=/etc/quire/ca.pem\naccessFilesRefreshDurationSeconds=1\n"
    base = BLOCKS["bookie"].replace("tlsRequired=false\n", "")
    text = base + https + BLOCKS["judged"].replace("/etc/quire/rights", str(file))
    (tmp_path / "bookie.conf").write_text(BASE + text.replace("/etc/quire", str(made)))
    settings = Settings.load(str(tmp_path / "bookie.conf"), {}, [])[0]

    async def begin() -> tuple[Front, int]:
        front = Front(reactor, Recovering(reactor, settings), settings.options, "127.0.0.1")  # type: ignore[arg-type]
        return front, front.listen("127.0.0.1", 0)

    front, port = run(begin)
    paths = ("/api/v1/autorecovery/status", "GET"), ("/api/v1/autorecovery/trigger_audit", "PUT")

    def statuses(role: str) -> list[str]:
        shown = ("--cacert", f"{made}/ca.pem", "--cert", f"{made}/{role}.pem", "--key", f"{made}/{role}.key")
        return [status(f"https://127.0.0.1:{port}{path}", "", "--request", way, *shown) for path, way in paths]

    try:
        assert "403" not in statuses("Operator")
        assert [found == "403" for found in statuses("System")] == [False, True]
        assert statuses("Writer") == ["403", "403"]
        file.write_text("role Writer inspect\n")
        deadline = time.monotonic() + WAIT_S
        while (found := statuses("Writer"))[0] == "403":
            assert time.monotonic() < deadline
        assert found[1] == "403"
        assert statuses("Operator") == ["403", "403"]
    finally:
        run(front.close)


def page_of(cluster: RealCluster, scheme: str = "http") -> dict[str, str]:
    """What section 8 calls PAGE and JOURNAL, of the first bookie."""
    bookie = cluster.bookies[0]
    assert bookie is not None
    journal = bookie.options.journal_directories[0]
    return {"PAGE": f"{scheme}://127.0.0.1:{bookie.http_port}", "JOURNAL": journal}


def status(address: str, token: str = "", *more: str) -> str:
    """What curl gets from it."""
    header = ["--header", f"Authorization: Bearer {token}"] if token else []
    command = ["curl", "--silent", "--output", os.devnull, "--write-out", "%{http_code}", *header, *more, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False).stdout


def test_the_token_that_a_bookie_makes(tmp_path: Path) -> None:
    """Section 8: health for everybody, the rest with the token."""
    need("curl")
    with RealCluster(tmp_path, 1) as cluster:
        where = page_of(cluster)
        health, state = in_shell(BLOCKS["http"], tmp_path, **where).splitlines()
        assert health == "OK"
        assert '"running": true' in state
        assert status(f"{where['PAGE']}/api/v1/bookie/state") == "401"


def test_a_prometheus_server_reads_metrics_alone(tmp_path: Path) -> None:
    """Section 8: with the bookie's keys as they are there."""
    need("curl")
    token = "metrics-metrics-metrics"
    (tmp_path / "metrics.token").write_text(f"{token}\n")
    (tmp_path / "metrics.token").chmod(0o640)
    text = BLOCKS["metrics"].replace("/etc/quire", str(tmp_path)).replace("8000", "0")
    with RealCluster(tmp_path / "c", 1, **of_bookie(text, ("metrics",))) as cluster:
        page = page_of(cluster)["PAGE"]
        assert status(f"{page}/metrics", token) == "200"
        assert status(f"{page}/metrics") == "401"
        assert status(f"{page}/api/v1/bookie/state", token) == "403"
        assert status(f"{page}/metrics", token, "--request", "PUT") == "403"


def test_https_of_the_port(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Section 8: the token is needed over TLS as well; with authorities a certificate takes its place, or no one is heard.
    Commands show what the client's file has.
    """
    need("curl")
    for name in ("bookie", "client"):
        both = (made / f"{name}.key").read_text() + (made / f"{name}.pem").read_text()
        (made / "http.pem" if name == "bookie" else made / "both.pem").write_text(both)
    text = BLOCKS["https"].replace("/etc/quire", str(made))
    trust = ("--cacert", str(made / "ca.pem"))
    shown = (*trust, "--cert", str(made / "both.pem"))
    with RealCluster(tmp_path / "1", 1, **of_bookie(text, ("http",))) as cluster:
        where = page_of(cluster, "https")
        token = (Path(where["JOURNAL"]) / "admin.token").read_text().strip()
        assert status(f"{where['PAGE']}/healthz", "", *trust) == "200"
        assert status(f"{where['PAGE']}/metrics", "", *trust) == "401"
        assert status(f"{where['PAGE']}/metrics", token, *trust) == "200"
        assert status(f"{where['PAGE']}/metrics", token) == "000", "its authority is not trusted"
        assert status(f"{where['PAGE']}/metrics".replace("https", "http"), token) == "000"
    text += f"httpServerTrustStorePath={made}/ca.pem\n"
    with RealCluster(tmp_path / "2", 1, **of_bookie(text, ("http",))) as cluster:
        where = page_of(cluster, "https")
        assert not (Path(where["JOURNAL"]) / "admin.token").exists()
        assert status(f"{where['PAGE']}/metrics", "", *shown) == "200"
        assert status(f"{where['PAGE']}/healthz", "", *trust) == "000"
        (tmp_path / "client.conf").write_text(BLOCKS["client"].replace("/etc/quire", str(made)))
        monkeypatch.setenv("QUIRE_CONF", str(tmp_path / "client.conf"))
        bookie = cluster.bookies[0]
        assert bookie is not None
        announced = ServiceInfo.of("127.0.0.1", bookie.port, http=("127.0.0.1", bookie.http_port), https=True)
        assert json.loads(answer_of(bookie.id, announced, "/api/v1/bookie/state"))["running"] is True


def test_a_zookeeper_that_asks_who_comes(made: Path, tmp_path: Path) -> None:
    """Section 9: with its lines the metadata is one user's, over TLS, and nobody else's."""
    in_shell(BLOCKS["zkusers"], tmp_path)
    assert not (tmp_path / "zookeeper.jaas").stat().st_mode & 0o077
    (tmp_path / "zk.pem").write_text((made / "bookie.key").read_text() + (made / "bookie.pem").read_text())
    port = free_port()
    server = (BLOCKS["zkserver"] + BLOCKS["zktls"]).replace("2281", str(port))
    server = server.replace("/etc/zookeeper/ca.pem", str(made / "ca.pem")).replace("/etc/zookeeper", str(tmp_path))
    ours = BLOCKS["zktlsclient"].replace("/etc/quire", str(made))
    named = BLOCKS["zkclient"].replace("/etc/quire", str(tmp_path))
    uri = f"zk://127.0.0.1:{port}/ledgers"

    async def instance(text: str, init: bool = False) -> str:
        security = options(ClientOptions, parse(text, "client.conf"))[0]
        store = await open_store(reactor, uri, session_timeout_ms=20_000, security=security)
        try:
            return await store.init_cluster() if init else (await store.cluster()).instance_id
        finally:
            await store.close()

    with ZooKeeper(
        tmp_path / "zookeeper",
        settings=[*server.splitlines(), "secureClientPortAddress=127.0.0.1"],
        jvm=[f"-Djava.security.auth.login.config={tmp_path}/server.jaas"],
        start_s=WAIT_S,
    ):
        cluster = run(lambda: instance(named + ours, init=True))
        assert run(lambda: instance(named + ours)) == cluster
        for wrong, words in (
            (ours.replace("client.", "bookie."), "access list of /ledgers/INSTANCEID"),
            (ours.splitlines()[0], "we showed none"),
        ):
            with pytest.raises(MetaStoreRefused, match=words):
                run(lambda wrong=wrong: instance(wrong))  # type: ignore[misc]
