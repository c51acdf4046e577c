"""The log of connections that were closed grows by minutes, not by connections."""

from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, globalLogPublisher
from twisted.python.failure import Failure

from quire.bookie.server.complaints import HOSTS_MAX, QUIET_S, Complaints
from quire.protocol.errors import Status
from quire.rows.files import StorageError
from tests.bookie.fakes.wires import Scene, adds, read
from tests.bookie.server.test_listener import log_lines

# SPDX-License-Identifier: Apache-2.0


def test_a_line_a_minute_for_each_host_and_kind() -> None:
    """Then how many there were besides."""
    clock = Clock()
    complaints = Complaints(clock, Logger())
    with log_lines() as lines:
        for port in range(100):
            complaints.report(f"192.0.2.1:{port}", "nonsense", "empty")
            complaints.report(f"2001:db8::1:{port}", "nonsense", "empty")
        complaints.report("192.0.2.1:5", "silence", "old")
        complaints.report("192.0.2.1:6", "asking", "nobody", closing=False)
        clock.advance(QUIET_S - 1)
        complaints.sweep()
    assert lines == [
        "closing the connection from 192.0.2.1:0: empty",
        "closing the connection from 2001:db8::1:0: empty",
        "closing the connection from 192.0.2.1:5: old",
        "refusing what 192.0.2.1:6 asks: nobody",
    ]
    with log_lines() as lines:
        clock.advance(1)
        complaints.sweep()
        complaints.sweep()
    assert lines == [
        f"99 more connections from {host} were closed for nonsense" for host in ("192.0.2.1", "2001:db8::1")
    ]
    with log_lines() as lines:
        complaints.report("192.0.2.1:7", "nonsense", "again")
    assert len(lines) == 1


def test_hosts_without_number_are_reported_together() -> None:
    """What is remembered has a bound, and so has the log."""
    clock = Clock()
    complaints = Complaints(clock, Logger())
    with log_lines() as lines:
        for host in range(3 * HOSTS_MAX):
            complaints.report(f"host{host}:1", "nonsense", "empty")
    assert len(lines) == HOSTS_MAX + 1
    with log_lines() as lines:
        clock.advance(QUIET_S)
        complaints.sweep()
    assert lines == [f"{2 * HOSTS_MAX - 1} more connections from other hosts were closed for nonsense"]


def test_a_listener_reports_it() -> None:
    """A thousand connections of nonsense: two lines."""
    scene = Scene()
    with log_lines() as lines:
        for _ in range(1000):
            scene.connect().send(bytes(4)).lose()
        scene.clock.pump([1.0] * (int(QUIET_S) + 1))
    assert lines == [
        "closing the connection from 192.0.2.1:1001: an empty frame",
        "999 more connections from 192.0.2.1 were closed for what they sent",
    ]


def test_requests_that_fail_are_reported_by_ledger() -> None:
    """A line a minute for each ledger and kind of request, whoever asks; each gets its answer."""
    scene = Scene()
    client = scene.connect().send(adds(b"a")).send(adds(b"a", ledger=8))

    def fails(*_: object) -> None:
        raise StorageError("the row is damaged")

    scene.storage.read = fails  # type: ignore[assignment,method-assign]
    scene.storage.add = fails  # type: ignore[assignment,method-assign]
    client.take()
    with log_lines() as lines:
        for _ in range(100):
            for frame in (read(0), adds(b"b", first=1), read(0, ledger=8)):
                assert client.ask(frame).status is Status.EIO  # type: ignore[union-attr]
        scene.clock.pump([1.0] * (int(QUIET_S) - 1))
    assert lines == [
        f"{what} failed: the row is damaged" for what in ("Read of ledger 7", "add of ledger 7", "Read of ledger 8")
    ]
    with log_lines() as lines:
        scene.clock.pump([1.0] * 2)
    assert lines == [
        f"99 more of {what} failed" for what in ("Read of ledger 7", "add of ledger 7", "Read of ledger 8")
    ]


def test_a_fault_of_ours_is_reported_with_its_place() -> None:
    """A disk's has none in our code."""
    complaints = Complaints(Clock(), Logger())
    seen: list[bool] = []

    def observe(event: LogEvent) -> None:
        seen.append("log_failure" in event)

    globalLogPublisher.addObserver(observe)
    try:
        for error in (OSError("a disk"), RuntimeError("ours")):
            complaints.failed("Read", len(seen), Failure(error))
    finally:
        globalLogPublisher.removeObserver(observe)
    assert seen == [False, True]
