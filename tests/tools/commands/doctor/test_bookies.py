"""What `quire doctor` finds of single bookies: of real ones, and of answers as bookies in need give them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.admin.bookie_paths import STATE
from quire.bookie.admin.gate import METRICS
from quire.client.connections.answers import InfoAnswer
from quire.metadata.clock import time_of_day
from quire.metadata.store import BookieList, ServiceInfo
from quire.tools.commands.doctor import bookies as checks
from quire.tools.commands.doctor.bookies import ALARMS, LOOKED_AT, OF_A_BOOKIE, Alarm, Visit, answers, samples_in
from quire.tools.commands.doctor.examining import Finding, Limits, Scene, Severity
from quire.tools.terminal.bookie_http import fetched
from tests.reactor import reactor, run
from tests.tools.commands.doctor.conftest import World, only

# SPDX-License-Identifier: Apache-2.0

NOW = time_of_day()


def scene(listed: BookieList | None = None) -> Scene:
    """One bookie, b:1, which is writable."""
    return Scene(
        clock=reactor,  # type: ignore[arg-type]
        options=None,  # type: ignore[arg-type]  # no bookie's finding looks at them
        client=None,  # type: ignore[arg-type]
        bookies=listed or BookieList({"b:1": ServiceInfo.of("h", 1)}, {}),
        known=frozenset(),
        draining=frozenset(),
    )


def found_in(metrics: str = "", info: InfoAnswer | None = None) -> list[Finding]:
    """What is found in these answers of b:1."""
    visit = Visit("b:1", info or InfoAnswer(0, 100, 50), {}, samples_in(metrics.encode()))
    return [each for look in OF_A_BOOKIE for each in look(visit, scene())]


def test_each_metric_is_one_that_bookies_have(world: World) -> None:
    """An alarm on a name that nobody gives would be silent for ever; AutoRecovery's come with its part."""

    async def story() -> set[str]:
        return {name for bookie in world.bookies for name in samples_in(bookie.metrics.text())}

    names = run(story)
    asked = {each.name for each in ALARMS} | {"quire_disk_bytes", "quire_disk_free_bytes"}
    optional = {"quire_autorecovery_parked", "quire_tls_files_broken", "quire_access_files_broken"}
    assert asked - names <= optional
    assert {"process_open_fds", "process_max_fds"} <= names


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.name)
def test_an_alarm(alarm: Alarm) -> None:
    """Above its limit it is a finding with the next step; at it, and with other labels, it is none."""
    labels = ",".join(f'{name}="{value}"' for name, value in alarm.labels.items())
    name = f"{alarm.name}{{{labels}}}" if labels else alarm.name
    found = only(found_in(f"{name} {alarm.above + 3}\n"))
    assert (found.severity, found.about) == (alarm.severity, "b:1")
    assert "{" not in found.problem + found.next
    assert found_in(f"{name} {alarm.above}\n") == []
    if labels:
        assert found_in(f'{alarm.name}{{outlook="waits_for_spare"}} 5\n') == []


def test_metrics_that_nobody_looks_at_are_passed_over() -> None:
    """Whole names count; text of which nothing is wanted is read all the same, for it may be no metrics at all."""
    text = b'# HELP a b\n# TYPE a counter\na_total 1\na{x="1 2"} 2\nab 3\na_bucket{le="1"} 4\n'
    assert samples_in(text, {"a", "a_bucket"}) == {"a": [({"x": "1 2"}, 2.0)], "a_bucket": [({"le": "1"}, 4.0)]}
    assert set(samples_in(text, {"none"})) == {"a_total", "a", "ab", "a_bucket"}
    with pytest.raises(ValueError, match="<html>"):
        samples_in(b"<html>", {"none"})


def test_what_the_checks_look_at_is_read() -> None:
    """Each metric that a check names in its source is among those that a visit keeps."""
    source = Path(checks.__file__).read_text()
    assert set(re.findall(r'"((?:quire|process)_[a-z_]+)"', source)) - LOOKED_AT == set()


def test_one_that_is_silent_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is waited for the others are asked, and they come in the order of their names."""
    silent: Deferred[Visit] = Deferred()
    asked = []

    async def ask(_: Scene, bookie: str) -> Visit:
        asked.append(bookie)
        return await silent if bookie == "b:00" else Visit(bookie, InfoAnswer(0), None, None)

    monkeypatch.setattr(checks, "_visit", ask)
    names = [f"b:{number:02}" for number in range(3 * checks.TOGETHER)]
    found = []

    async def story() -> None:
        async for each in answers(scene(BookieList({name: ServiceInfo.of("h", 1) for name in names}, {}))):
            found.append(each.bookie)

    done = Deferred.fromCoroutine(story())
    assert (asked, found) == (names, [])
    silent.callback(Visit("b:00", InfoAnswer(-23), None, None))
    assert (found, done.called) == (names, True)


def test_disks_that_are_nearly_full() -> None:
    """Of ledgers as every bookie says, of journals as ours do."""
    warned = only(found_in(info=InfoAnswer(0, 1000, 80)))
    assert (warned.severity, "92.0% full" in warned.problem) == (Severity.WARNING, True)
    assert "quire bookie gc b:1" in warned.next
    assert only(found_in(info=InfoAnswer(0, 1000, 10))).severity == Severity.ERROR
    journals = 'quire_disk_bytes{of="journals"} 100\nquire_disk_free_bytes{of="journals"} 2\n'
    assert "its journals are 98.0% full" in only(found_in(journals)).problem
    assert found_in(info=InfoAnswer(0, None, None)) == []


def test_open_files_and_a_certificate() -> None:
    """Nine tenths of the files that it may open, and an end within two weeks."""
    files = only(found_in("process_open_fds 900\nprocess_max_fds 1000\n"))
    assert "900 of 1000" in files.problem
    assert found_in("process_open_fds 899\nprocess_max_fds 1000\n") == []
    ends = partial("quire_tls_certificate_expires {}\n".format)
    assert only(found_in(ends(NOW + 86_400))).severity == Severity.WARNING
    assert only(found_in(ends(NOW - 86_400))).severity == Severity.ERROR
    assert found_in(ends(NOW + 30 * 86_400)) == found_in(ends(0)) == []


def test_one_that_does_not_answer_at_all() -> None:
    """The code's name is in the finding."""
    found = only(found_in(info=InfoAnswer(-23)))
    assert found.severity == Severity.ERROR
    assert "does not answer: " in found.problem


def test_one_that_is_read_only_says_why(world: World) -> None:
    """By order of an operator; a note where it is to be emptied."""

    async def story() -> None:
        bookie = world.bookies[0]
        bookie.operator_read_only(True)
        await world.writable(2)
        found = only(await world.found(), bookie.id)
        bookie.operator_read_only(False)
        await world.writable(3)
        assert found.severity == Severity.WARNING
        assert "read-only: " in found.problem
        assert "does not say why" not in found.problem
        assert f"quire bookie readonly {bookie.id} off" in found.next

    run(story)


def test_one_that_does_not_let_us_in(world: World, tmp_path: Path) -> None:
    """With a token that is not its own: what was not looked at is said, and is no more than a note."""
    token = tmp_path / "token"
    token.write_text("another-another-another\n")
    token.chmod(0o600)
    found = run(lambda: world.found(token_file=token))
    assert [(each.about, each.severity, each.made) for each in found] == [
        (f"b{number}", Severity.NOTE, False) for number in range(3)
    ]
    assert all("were not looked at: it refused" in each.problem for each in found)
    assert "--token-file" in found[0].next


def test_versions_that_differ(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With who has which; a bookie that says none is left out."""
    said = iter(["1.0", "1.1", None])
    with monkeypatch.context() as changed:
        for bookie in world.bookies:
            state = bookie.state() | {"version": next(said)}
            changed.setattr(bookie, "state", lambda state=state: state)
        found = only(run(world.found))
    assert (found.severity, found.about) == (Severity.NOTE, "bookies")
    assert found.problem == "they run different versions: 1.0 on b0; 1.1 on b1"


@contextmanager
def answering(path: str, body: bytes | float, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What bookies answer to one path is something else."""

    def asked(bookie: str, address: object, where: str, *rest: object) -> bytes:
        answer = fetched(bookie, address, where, *rest)  # type: ignore[arg-type]
        return body if where == path and isinstance(body, bytes) else answer

    with monkeypatch.context() as changed:
        changed.setattr("quire.tools.terminal.bookie_http.fetched", asked)
        yield


@pytest.mark.parametrize("path", [STATE, METRICS])
def test_something_else_at_its_port(path: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no object, or no metrics, is said, for each bookie."""
    with answering(path, b'<html lang="en">', monkeypatch):
        found = run(world.found)
    assert [each.about for each in found] == ["b0", "b1", "b2"]
    assert all(path in each.problem and not each.made for each in found)


def test_one_that_takes_too_long(world: World) -> None:
    """Each question has its time: nothing of it was looked at, and that is said."""
    found = run(lambda: world.found(Limits(bookie_s=0.0)))
    assert {each.about for each in found} == {"b0", "b1", "b2"}
    assert {each.severity for each in found} == {Severity.ERROR, Severity.NOTE}
    assert any("took more than 0 s" in each.problem for each in found)


def test_more_bookies_than_are_asked_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are asked, some at a time."""
    monkeypatch.setattr(checks, "TOGETHER", 2)
    found = run(lambda: world.found(Limits(disk=0.0)))
    assert {each.about for each in found} == {"b0", "b1", "b2"}
