"""The service's counters: what each kind of request adds to."""

from quire.bookie.server.contract import ServiceCounters
from quire.protocol import v3
from quire.protocol.messages import Force, ListEntries, Read, ReadLac, WriteLac
from tests.bookie.fakes.wires import KEY, LEDGER, Scene, adds, batch_read, read

# SPDX-License-Identifier: Apache-2.0


def counted(scene: Scene) -> dict[str, int]:
    """Those that have counted anything."""
    counters = scene.service.tally
    return {name: getattr(counters, name) for name in ServiceCounters.__slots__ if getattr(counters, name)}


def test_all_begin_at_none() -> None:
    """Every name is a number from the start: /metrics reads them all."""
    assert {getattr(ServiceCounters(), name) for name in ServiceCounters.__slots__} == {0}


def test_adds_count_by_run_and_by_entry() -> None:
    """Those that arrived together are one run; entries that were refused are counted apart."""
    scene = Scene()
    client = scene.connect()
    client.send(adds(b"a", b"b", b"c"))
    client.send(adds(b"d", first=3))
    assert counted(scene) == {"add_runs": 2, "add_entries": 4}


def test_reads_count_by_request_entry_and_byte() -> None:
    """A batch read is one request; an entry that is not there is a refusal and no entry."""
    scene = Scene()
    client = scene.connect()
    client.send(adds(b"a", b"b"))
    before = counted(scene)
    client.send(read(0)).send(batch_read(0)).send(read(9))
    found = {name: value - before.get(name, 0) for name, value in counted(scene).items() if value != before.get(name)}
    assert found.pop("read_bytes") > 0
    assert found == {"reads": 2, "batch_reads": 1, "read_entries": 3, "refusals": 1, "reads_refused": 1}


def test_each_other_request_has_a_counter() -> None:
    """Fences beside the reads that ask for them."""
    scene = Scene()
    client = scene.connect()
    for txn, request in enumerate(
        (
            WriteLac(LEDGER, 0, KEY, b"x" * 36, 1),
            ReadLac(LEDGER, 2),
            Force(LEDGER, 3),
            ListEntries(LEDGER, 4),
            Read(LEDGER, 0, True, KEY, txn=5, version=3),
        ),
        1,
    ):
        request.txn = txn
        client.send(v3.pack_request(request))
    found = counted(scene)
    assert {name: found.get(name) for name in ("lac_writes", "lac_reads", "forces", "lists", "fences")} == {
        "lac_writes": 1,
        "lac_reads": 1,
        "forces": 1,
        "lists": 1,
        "fences": 1,
    }
