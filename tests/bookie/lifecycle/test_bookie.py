"""
A real bookie, real directories, loopback TCP and raw frames: what needs all parts together.

The frames of a real Java client are sent again, and the answers of a real Apache bookie are expected
(`tests/vectors/`).
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.task import deferLater

from quire.bookie.lifecycle.bookie import Bookie
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.ids import BookieFailed, IdentityError
from quire.bookie.server.admission.lobby import Lobby
from quire.conf.version import own_version
from quire.metadata.memory.store import MemoryStore, open_memory
from quire.metadata.store import HOST_PROPERTY, INCARNATION_PROPERTY, TOKEN_PROPERTY, NoCluster
from quire.protocol import schema, v3
from quire.protocol.errors import Status
from quire.protocol.messages import BookieInfo, Force, ListEntries, ReadLac, WriteLac
from quire.rows.files import StorageError
from tests.bookie.fakes.in_process import Raw, connect, http, new_store, options_in, running
from tests.bookie.fakes.storage import FakeStorage, FakeUpkeep
from tests.bookie.fakes.wires import DIGEST, KEY, LEDGER, adds, adds3, batch_read, read, read3, status
from tests.bookie.server.test_listener import BAD, log_lines
from tests.metadata import stored
from tests.metadata.zk.guarded import private, section
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

VECTORS = Path(__file__).parents[2] / "vectors"
S = Status


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


# --- the frames of a real client


def comparable(frame: bytes) -> bytes | tuple[object, ...]:
    """A frame without what differs by machine and moment: disk sizes, the time of a LAC's update."""
    if frame[:1] != b"\x0a":
        return frame
    message = schema.Response.FromString(frame)
    if message.HasField("getBookieInfoResponse"):
        info = message.getBookieInfoResponse
        return (
            "info",
            message.header.txnId,
            info.status,
            info.HasField("totalDiskCapacity"),
            info.HasField("freeDiskSpace"),
        )
    if message.readResponse.HasField("lacUpdateTimestamp"):
        assert message.readResponse.lacUpdateTimestamp > 1_600_000_000_000
        message.readResponse.lacUpdateTimestamp = 1
        return bytes(message.SerializeToString(deterministic=True))
    return frame


@pytest.mark.parametrize("generation", ["v2", "v3"])
def test_a_java_clients_frames_are_answered_as_apache_answers_them(generation: str, tmp_path: Path) -> None:
    """
    Byte for byte, except disk sizes and times.  A request is sent when the capture's client sent it: after the answers
    before it.
    """
    rows = [json.loads(line) for line in (VECTORS / f"wire_{generation}.jsonl").read_text().splitlines()]

    async def story() -> None:
        async with running(tmp_path) as bookie:
            connections: dict[int, Raw] = {}
            came: dict[int, Counter[object]] = {}
            for row in rows:
                number, frame = row["connection"], bytes.fromhex(row["frame"])
                if number not in connections:
                    connections[number], came[number] = await connect(bookie), Counter()
                if row["direction"] == "request":
                    connections[number].send(framed(frame))
                    continue
                expected = comparable(frame)
                while not came[number][expected]:
                    got = comparable((await connections[number].frames())[0])
                    came[number][got] += 1
                    assert sum(came[number].values()) < 50, (
                        f"{row['scenario']}: {expected!r} did not come, but {came[number]}"
                    )
                came[number] -= Counter([expected])
            for number, raw in connections.items():
                assert not came[number], f"answers that Apache did not give: {came[number]}"
                assert raw.data == b""

    run(story)


# --- bad peers over a real socket


def test_bad_frames_over_tcp_affect_no_other_connection(tmp_path: Path) -> None:
    """Each closes its own connection without an answer."""

    async def story() -> None:
        async with running(tmp_path) as bookie:
            good = await connect(bookie)
            assert status(await good.ask(adds(b"a"))) is S.EOK
            for name, data in BAD.items():
                bad = (await connect(bookie)).send(bytes.fromhex(data))
                assert await bad.closed() == b"", name
                assert status(await good.ask(read(0))) is S.EOK, name
            assert bookie.listener.malformed == len(BAD)

    run(story)


def test_strangers_wait_in_the_lobby(tmp_path: Path) -> None:
    """Until something is given to them: of two connections that of the add on disk is in the reactor itself."""

    async def story() -> None:
        async with running(tmp_path) as bookie:
            refused, given = await connect(bookie), await connect(bookie)
            for raw in (refused, given):
                raw.send(read(0))
                assert status((await raw.frames())[0]) is S.ENOLEDGER
            assert [type(one.transport.reactor) for one in bookie.listener.connections] == [Lobby, Lobby]  # type: ignore[union-attr]
            given.send(adds(b"x"))
            assert status((await given.frames())[0]) is S.EOK
            outside = {one.transport.reactor is reactor for one in bookie.listener.connections if one.settled}  # type: ignore[union-attr]
            assert (outside, sum(one.settled for one in bookie.listener.connections)) == ({True}, 1)
            refused.send(read(0))
            assert status((await refused.frames())[0]) is S.EOK

    run(story)


def test_generations_side_by_side(tmp_path: Path) -> None:
    """V2 and V3 clients of one ledger see the same entries."""

    async def story() -> None:
        async with running(tmp_path) as bookie:
            old, new = await connect(bookie), await connect(bookie)
            await old.ask(adds(b"a"))
            await new.ask(adds3(1, b"b", first=1))
            one, two = await old.ask(read(1)), await new.ask(read3(2, 1))
            assert one[24:] in two
            assert len(one) > 24

    run(story)


def test_a_thousand_pipelined_adds(tmp_path: Path) -> None:
    """All answered, and one batch read brings them back."""

    async def story() -> None:
        async with running(tmp_path) as bookie:
            raw = await connect(bookie)
            raw.send(b"".join(adds(b"%d" % entry, first=entry) for entry in range(1000)))
            answers = await raw.frames(1000)
            assert {status(answer) for answer in answers} == {S.EOK}
            assert sorted(int.from_bytes(answer[16:24], "big") for answer in answers) == list(range(1000))
            found = await raw.ask(batch_read(0, count_max=500))
            assert status(found) is S.EOK
            assert found.count(LEDGER.to_bytes(8, "big") + b"\0" * 7) >= 256

    run(story)


# --- restarts


def test_what_was_acknowledged_survives_a_stop_and_a_start(tmp_path: Path) -> None:
    """Entries, key, fence and explicit LAC; and the bookie keeps its identity."""

    async def story() -> None:
        store = await new_store()
        async with running(tmp_path, store) as bookie:
            raw = await connect(bookie)
            await raw.ask(adds(b"a", b"b"))
            await raw.frames(1)
            control = await connect(bookie)
            await control.ask(v3.pack_request(WriteLac(LEDGER, 1, KEY, DIGEST.lac_body(LEDGER, 1), 1)))
            await raw.ask(read(-1, ledger=8, fence=True, master_key=KEY))
        async with running(tmp_path, store) as bookie:
            raw = await connect(bookie)
            assert status(await raw.ask(read(1))) is S.EOK
            assert status(await raw.ask(adds(b"c", first=2))) is S.EOK
            assert status(await raw.ask(adds(b"x", ledger=8))) is S.EFENCED
            assert status(await raw.ask(adds(b"x", ledger=8, recovery=True))) is S.EOK
            wrong = bytearray(adds(b"z", first=3))
            wrong[8:28] = bytes(20)
            assert status(await raw.ask(bytes(wrong))) is S.EUA
            control = await connect(bookie)
            assert DIGEST.lac_body(LEDGER, 1) in await control.ask(v3.pack_request(ReadLac(LEDGER, 2)))
        await store.close()

    run(story)


def test_control_requests(tmp_path: Path) -> None:
    """Force of an unknown ledger, list of entries, bookie info: through the real storage."""

    async def story() -> None:
        async with running(tmp_path) as bookie:
            raw = await connect(bookie)
            assert await raw.ask(v3.pack_request(Force(99, 1))) == bytes.fromhex(
                "0a060803100a180110 00da060408001063".replace(" ", "")
            )
            await raw.ask(adds3(2, b"a", first=4))
            listed = schema.Response.FromString(
                await raw.ask(v3.pack_request(ListEntries(LEDGER, 3)))
            ).getListOfEntriesOfLedgerResponse
            assert len(listed.availabilityOfEntriesOfLedger) == 64 + 24
            info = schema.Response.FromString(await raw.ask(v3.pack_request(BookieInfo(3, 4)))).getBookieInfoResponse
            assert info.totalDiskCapacity > info.freeDiskSpace > 0

    run(story)


def test_a_long_poll_over_tcp(tmp_path: Path) -> None:
    """Others on the connection go on; the add behind it answers it."""

    async def story() -> None:
        async with running(tmp_path) as bookie:
            raw = await connect(bookie)
            await raw.ask(adds3(1, b"a"))
            raw.send(read3(2, previous_lac=-1, timeout_ms=60_000, piggyback=True))
            await raw.ask(read3(3, 0))
            raw.send(adds3(4, b"b", first=1))
            txns = {schema.Response.FromString(frame).header.txnId for frame in await raw.frames(2)}
            assert txns == {2, 4}
            raw.send(read3(5, previous_lac=7, timeout_ms=60_000, piggyback=True))
            await raw.ask(read3(6, 0))
            assert bookie.service.long_polls.waiting.total == 1
            raw.transport.loseConnection()  # type: ignore[union-attr]
            await raw.closed()
            other = await connect(bookie)
            await other.ask(read3(1, 0))
            assert bookie.service.long_polls.waiting.total == 0

    run(story)


# --- being listed


def test_a_bookie_announces_the_machine_that_it_shares(tmp_path: Path) -> None:
    """Clients keep copies off other bookies with the same `hostId`."""

    async def story() -> None:
        store = await new_store()
        async with running(tmp_path, store, host_id="m1"):
            assert (await store.bookies()).writable["raw"].properties[HOST_PROPERTY] == "m1"
        await store.close()

    run(story)


def test_a_bookie_that_is_open_to_everybody_says_so(tmp_path: Path) -> None:
    """At its start; one that asks clients who they are does not."""

    async def story() -> None:
        with log_lines() as lines:
            async with running(tmp_path / "open"):
                pass
        assert any("raw asks no client who it is" in line for line in lines)
        jaas = private(tmp_path / "jaas", section("Bookie", user_bookkeeper="secret"))
        with log_lines() as lines:
            async with running(tmp_path / "asking", authentication="sasl", jaas_file=jaas):
                pass
        assert not any("asks no client" in line for line in lines)

    run(story)


def test_a_bookie_is_listed_with_its_addresses_and_leaves_at_its_stop(tmp_path: Path) -> None:
    """While it runs the store lists its bookie and HTTP addresses; its cookie is written at the start."""

    async def story() -> None:
        store = await new_store()
        async with running(tmp_path, store) as bookie:
            found = (await store.bookies()).writable["raw"]
            assert found.bookie_address() == ("127.0.0.1", bookie.port)
            assert found.http is not None
            assert (found.http.host, found.http.port) == ("127.0.0.1", bookie.http_port)
            assert await store.cookies() == ["raw"]
            announced = {TOKEN_PROPERTY: bookie.token_file, INCARNATION_PROPERTY: bookie.incarnation}
            assert dict(found.properties) == announced
            cookie = Cookie.decode((await store.read_cookie("raw")).value, "the store")
            assert cookie.incarnation == bookie.incarnation
        assert (await store.bookies()).find("raw") is None
        await store.close()

    run(story)


def test_a_lost_session_is_healed(tmp_path: Path) -> None:
    """A bookie whose session expired registers again."""

    async def story() -> None:
        store = await new_store()
        assert isinstance(store, MemoryStore)
        async with running(tmp_path, store):
            store.expire_session()
            assert (await store.bookies()).find("raw") is None
            again: Deferred[None] = Deferred()
            watch = store.watch_bookies(
                lambda found: again.callback(None) if "raw" in found.writable and not again.called else None
            )
            await again
            watch.cancel()
        await store.close()

    run(story)


def test_a_bookie_that_lost_its_place_to_another_says_so_and_ends(tmp_path: Path) -> None:
    """
    Its registration went and another process has the id: that one stays, and this one fails, whose command ends with
    status 1.
    """

    async def story() -> None:
        first = await new_store()
        store = open_memory(reactor, first.uri, session_timeout_ms=300)  # type: ignore[arg-type]
        async with running(tmp_path, store) as bookie:
            info = (await first.bookies()).find("raw")
            assert info is not None
            stored.unlist(store.shared)
            await first.register_bookie("raw", info)
            with pytest.raises(
                BookieFailed, match=r"raw can't be registered as writable: .* another live process is registered as raw"
            ):
                await bookie.ended
        assert (await first.bookies()).find("raw") == info
        await store.close()
        await first.close()

    run(story)


# --- ports and metrics


def test_metrics_and_health(tmp_path: Path) -> None:
    """Prometheus text with the journal's syncs; 404 and 405 elsewhere; not without its token, nor by another name."""

    async def story() -> None:
        async with running(tmp_path) as bookie:
            raw = await connect(bookie)
            await raw.ask(adds(b"a"))

            assert bookie.token_file is not None
            token = Path(bookie.token_file).read_text().strip()

            async def get(
                path: str, method: str = "GET", host: str = "localhost", accept: str = "*/*"
            ) -> tuple[int, str]:
                head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
                head += f"Accept: {accept}\r\n\r\n"
                found, body = await http(bookie.http_port, head.encode())
                return found, body.decode()

            code, text = await get("/metrics")
            assert code == 200
            numbers = {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.M)}
            assert numbers["quire_journal_syncs_total"] >= 1
            assert numbers["quire_service_add_entries_total"] == 1
            assert numbers["quire_bookie_status"] == 1
            assert numbers["quire_connections"] == 1
            assert numbers["process_resident_memory_bytes"] > 1e6
            code, text = await get("/metrics", accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
            families = {family.name: family for family in text_string_to_metric_families(text)}
            assert (code, families["quire_service_add_entries"].samples[0].value) == (200, 1)
            assert text.endswith("# EOF\n")
            assert await get("/healthz") == (200, "OK\n")
            assert await get("/api/v1/bookie/is_ready") == (200, "OK\n")
            state = json.loads((await get("/api/v1/bookie/state"))[1])
            theirs = {"running": True, "readOnly": False, "shuttingDown": False, "availableForHighPriorityWrites": True}
            assert state.pop("metadataStore")["behind"] is False
            assert state.pop("version") == own_version()
            assert state == {**theirs, "readOnlyReasons": [], "ledgersInLimbo": 0, "directoriesLost": []}
            assert numbers["quire_ledgers_in_limbo"] == 0
            assert (await get("/nothing"))[0] == 404
            assert (await get("/metrics", "DELETE"))[0] == 405
            assert (await get("/metrics", host="evil.example"))[0] == 403
            assert (await http(bookie.http_port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 401

    run(story)


def test_no_port_opens_before_the_journal_is_replayed(tmp_path: Path) -> None:
    """A client that comes too early is refused by the kernel, and the bookie is not listed."""

    async def story() -> None:
        store = await new_store()
        seen: list[int] = []

        class Slow(FakeStorage):
            def start(self, dead: Mapping[str, str] | None = None) -> None:
                seen.append(bookie.port)
                import socket

                with socket.socket() as probe, pytest.raises(OSError, match="refused"):
                    probe.connect(("127.0.0.1", bookie.port))

        bookie = Bookie(
            reactor, options_in(tmp_path, store.uri), store, storage=lambda *_: Slow(), upkeep=lambda *_: FakeUpkeep()
        )  # type: ignore[arg-type, return-value]
        await bookie.start()
        assert seen == [bookie.port]
        await bookie.stop()
        with pytest.raises(Refused):
            await connect(bookie)
        await store.close()

    run(story)


def test_a_stop_ends_what_a_round_of_garbage_collection_waits_for(tmp_path: Path) -> None:
    """A pass over the logs waits for an index rebuild, for hours perhaps; a stop must not."""

    async def story() -> None:
        store = await new_store()
        storage = FakeStorage()
        upkeep = FakeUpkeep()
        upkeep.space.held = Deferred()
        bookie = Bookie(
            reactor, options_in(tmp_path, store.uri), store, storage=lambda *_: storage, upkeep=lambda *_: upkeep
        )  # type: ignore[arg-type, return-value]
        await bookie.start()
        bookie.garbage.force()
        while not upkeep.space.passes:
            await deferLater(reactor, 0.001, lambda: None)
        await bookie.stop().addTimeout(60, reactor)
        assert storage.closed
        await store.close()

    run(story)


# --- starts that fail, and faults


def test_starts_that_fail_leave_nothing_open(tmp_path: Path) -> None:
    """No cluster, port taken, wrong cookie, broken storage: a reason each, and the next start can succeed."""

    async def story() -> None:
        bare = open_memory(reactor, "memory://bare")  # type: ignore[arg-type]
        with pytest.raises(NoCluster, match="quire metadata init"):
            await Bookie(reactor, options_in(tmp_path, bare.uri), bare).start()
        store = await new_store()
        async with running(tmp_path / "one", store) as first:
            taken = options_in(tmp_path / "two", store.uri, port=first.port, bookie_id="two")
            with pytest.raises(
                BookieFailed, match=f"127.0.0.1:{first.port} can't be listened on: Address already in use"
            ):
                await Bookie(reactor, taken, store).start()
            with pytest.raises(IdentityError, match="set bookieId=raw"):
                await Bookie(reactor, options_in(tmp_path / "one", store.uri, bookie_id="two"), store).start()
            other = await new_store(store.uri)
            same = Bookie(reactor, options_in(tmp_path / "one", store.uri), other)
            with pytest.raises(StorageError, match="another bookie runs on this directory"):
                await same.start()
            await other.close()
            broken = FakeStorage()
            broken.start_error = StorageError("journal x.qj at offset 512: damaged")
            with pytest.raises(StorageError, match="offset 512"):
                await Bookie(
                    reactor,
                    options_in(tmp_path / "three", store.uri, bookie_id="three"),
                    store,
                    storage=lambda *_: broken,
                ).start()  # type: ignore[arg-type, return-value]
            assert sorted((await store.bookies()).writable) == ["raw"]
        async with running(tmp_path / "one", store):
            pass
        await bare.close()
        await store.close()

    run(story)


def test_a_start_that_is_called_off_leaves_nothing_open(tmp_path: Path) -> None:
    """It waits for another process's session to end; then a signal comes."""

    async def story() -> None:
        store = await new_store()
        other = await new_store(store.uri)
        from quire.metadata.store import ServiceInfo

        await other.register_bookie("raw", ServiceInfo.of("h", 1))
        bookie = Bookie(reactor, options_in(tmp_path, store.uri), store)
        starting = bookie.start()
        assert not starting.called
        port = bookie.port
        starting.cancel()
        with pytest.raises(CancelledError):
            await starting
        bookie.port = port
        with pytest.raises(Refused):
            await connect(bookie)
        await other.close()
        async with running(tmp_path, store):
            pass
        await store.close()

    run(story)


def test_a_journal_fault_ends_the_bookie(tmp_path: Path) -> None:
    """`ended` fails with the reason, connections end unanswered, the list loses it."""

    async def story() -> None:
        store = await new_store()
        storage = FakeStorage()
        bookie = Bookie(
            reactor, options_in(tmp_path, store.uri), store, storage=lambda *_: storage, upkeep=lambda *_: FakeUpkeep()
        )  # type: ignore[arg-type, return-value]
        await bookie.start()
        raw = await connect(bookie)
        raw.send(adds(b"a") + read(0))
        assert status((await raw.frames())[0]) is S.EOK, "the read; the add waits for its sync"
        storage.events.failed("journal /j/current/0.qj: fdatasync: Input/output error")
        assert await raw.closed() == b""
        with pytest.raises(BookieFailed, match="Input/output error"):
            await bookie.ended
        assert (await store.bookies()).find("raw") is None
        assert storage.closed
        await store.close()

    run(story)


def test_a_registration_that_fails_ends_the_bookie(tmp_path: Path) -> None:
    """A bookie that can't say that it is read-only does not go on."""
    from quire.metadata.memory.cluster import Fault
    from quire.protocol.errors import MetaStore

    async def story() -> None:
        store = await new_store()
        assert isinstance(store, MemoryStore)
        bookie = Bookie(
            reactor,
            options_in(tmp_path, store.uri),
            store,
            storage=lambda *_: FakeStorage(),
            upkeep=lambda *_: FakeUpkeep(),
        )  # type: ignore[arg-type, return-value]
        await bookie.start()
        store.faults = lambda name, _: (
            Fault(error=MetaStore("the store is away")) if name == "register_bookie" else None
        )
        bookie.operator_read_only(True)
        with pytest.raises(BookieFailed, match="the store is away"):
            await bookie.ended
        await store.close()

    run(story)
