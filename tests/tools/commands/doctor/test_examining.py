"""How checks are made: at the same time, each for a limited time, and none silently."""

from collections.abc import AsyncIterator

from twisted.internet.defer import Deferred

from quire.conf.client import ClientOptions
from quire.protocol.errors import MetaStore
from quire.tools.commands.doctor.examining import Check, Finding, Limits, Machine, Severity, examine, not_made
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

ONE, TWO = Finding(Severity.NOTE, "a", "one", "-"), Finding(Severity.ERROR, "b", "two", "-")


def found(*checks: Check[Machine]) -> list[Finding]:
    machine = Machine(clock=reactor, options=ClientOptions(), limits=Limits(check_s=0.2))  # type: ignore[arg-type]
    named = {f"c{number}": check for number, check in enumerate(checks)}
    return run(lambda: Deferred.fromCoroutine(examine(named, machine)))


def test_they_are_made_at_the_same_time_and_the_worst_is_first() -> None:
    """The first ends only once the second has begun."""
    begun: Deferred[None] = Deferred()

    async def first(machine: Machine) -> AsyncIterator[Finding]:
        await begun
        yield ONE

    async def second(machine: Machine) -> AsyncIterator[Finding]:
        begun.callback(None)
        yield TWO

    assert found(Check("first", first), Check("second", second)) == [
        TWO._replace(check="c1"),
        ONE._replace(check="c0"),
    ]


def test_one_that_hangs_or_fails_is_said_beside_what_it_found() -> None:
    """What it had found by then stays; the other checks are made."""

    async def hangs(machine: Machine) -> AsyncIterator[Finding]:
        yield ONE
        await Deferred()

    async def fails(machine: Machine) -> AsyncIterator[Finding]:
        yield TWO
        raise MetaStore("the store is away")

    (two, late, failed, one) = found(Check("what hangs", hangs), Check("what fails", fails))
    assert (two.problem, one.problem) == ("two", "one")
    assert (late.check, late.about, late.severity, late.made) == ("c0", "what hangs", Severity.WARNING, False)
    assert "took more than 0.2 s" in late.problem
    assert (failed.about, failed.problem) == ("what fails", "not looked at: the store is away")


def test_checks_that_are_not_begun_are_named() -> None:
    """In one finding."""

    async def nothing(machine: Machine) -> AsyncIterator[Finding]:
        return
        yield

    (one,) = not_made({"a": Check("the disks", nothing), "b": Check("the logs", nothing)}, "for there is no store")
    assert one.problem == "not looked at, for there is no store: the disks; the logs"
    assert not one.made
