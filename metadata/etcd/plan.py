"""
Transactions of steps as transactions of etcd: comparisons, and what is done if all of them hold.

Knows: which steps can be done without a look before; what they come to, step by step, on what was read; what must not
have changed since.
Does not know: calls, sessions beyond their key.

A first try compares only what each step asks for, and reads all that is concerned where that does not hold.  What was
read is of one moment: a step that can't be done then has failed, and that is the answer.  If all of them can be done,
the next try does what they come to, if nothing that was read has changed since; otherwise it reads again.

Safety: one transaction of etcd does all of it or nothing.  A claim is made, and a call bound to a session carried out,
only while the key of that session exists, which goes with its lease, as its claims do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quire.metadata.etcd.messages import (
    EQUAL,
    GREATER,
    LESS,
    MOD,
    VALUE,
    VERSION,
    Compare,
    DeleteRangeRequest,
    PutRequest,
    RequestOp,
    TxnRequest,
)
from quire.metadata.etcd.nodes import (
    ADJUSTED,
    Look,
    Seen,
    above,
    children_of,
    family_of,
    family_value,
    key_of,
    made_in,
    session_key,
    value_of,
)
from quire.metadata.store import ANY
from quire.metadata.tree import (
    BadVersion,
    Create,
    Delete,
    Done,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionId,
    SessionOver,
    Step,
    Write,
)

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class UseUp:
    """A step of ours: counts children that were never made."""

    path: str
    count: int


AnyStep = Step | UseUp
AS_PUT = -3  # as a version: it is known by the answer


class Try(NamedTuple):
    """
    One transaction of etcd.  `done`: what the steps leave if it succeeds, None: it only reads; `look`: what it reads,
    if it does not.
    """

    request: Any
    look: Look
    done: list[Done] | None

    def results(self, response: Any) -> list[Done] | None:
        """Returns what the steps have left; None: they were not carried out."""
        if self.done is None or not response.succeeded:
            return None
        before = iter(
            [each.response_put.prev_kv for each in response.responses if each.response_put.HasField("prev_kv")]
        )
        return [each if each.version != AS_PUT else Done(each.path, next(before).version) for each in self.done]

    def seen(self, response: Any) -> Seen:
        """Returns what it has read."""
        return self.look.seen(response.header.revision, response.responses)


def _is(key: bytes, result: int, version: int) -> Any:
    return Compare(key=key, result=result, target=VERSION, version=version)


def _put(key: bytes, value: bytes = b"", **more: object) -> Any:
    return RequestOp(request_put=PutRequest(key=key, value=value, **more))


def _remove(key: bytes) -> Any:
    return RequestOp(request_delete_range=DeleteRangeRequest(key=key))


def _no_children(path: str) -> Any:
    return Compare(key=children_of(path), range_end=family_of(path), result=EQUAL, target=VERSION, version=0)


def first(steps: Sequence[AnyStep], session: SessionId | None) -> Try:
    """The first try.  `session`: in which all is done, None where that is open and nothing is claimed."""
    look = _look(steps, session, [])
    apart = _apart(steps)
    if apart is None:
        return Try(TxnRequest(success=look.operations()), look, None)
    compare = [] if session is None else [_is(session_key(session), GREATER, 0)]
    operations: list[Any] = []
    done: list[Done] = []
    for step in apart:
        key, parent = key_of(step.path), above(step.path)
        if isinstance(step, Create):
            compare.append(_is(key, EQUAL, 0))
            operations.append(_put(key, value_of(step.data), lease=session if step.claim else 0))
            if not step.claim:
                operations.append(_put(family_of(step.path)))
            if parent:
                compare.append(_is(family_of(parent), GREATER, 0))
                operations.append(_put(family_of(parent), ignore_value=True))
            done.append(Done(step.path, 0))
            continue
        if step.version == ANY:
            compare.append(_is(key, GREATER, 0))
        else:
            compare.append(_is(key, EQUAL, step.version + 1))
        if step.version != ANY or isinstance(step, Write):
            compare.append(Compare(key=key, result=LESS, target=VALUE, value=ADJUSTED))
        if isinstance(step, Write):
            any_version = step.version == ANY
            operations.append(_put(key, value_of(step.data), ignore_lease=True, prev_kv=any_version))
            done.append(Done(step.path, AS_PUT if any_version else step.version + 1))
            continue
        if isinstance(step, Delete):
            compare.append(_no_children(step.path))
            operations += [_remove(key), _remove(family_of(step.path))]
        done.append(Done(step.path, ANY))
    return Try(TxnRequest(compare=compare, success=operations, failure=look.operations()), look, done)


def _apart(all_steps: Sequence[AnyStep]) -> list[Step] | None:
    """The steps, if none depends on another one, or on a number, so that each can be done without a look before."""
    steps = [step for step in all_steps if not isinstance(step, UseUp)]
    if len(steps) < len(all_steps) or any(isinstance(step, Create) and step.numbered for step in steps):
        return None
    parents = [above(step.path) for step in steps if isinstance(step, Create)]
    touched = {step.path for step in steps if isinstance(step, Create | Delete)}
    removed_below = {above(step.path) for step in steps if isinstance(step, Delete)}
    if len({step.path for step in steps}) < len(steps) or len(set(parents)) < len(parents):
        return None
    return None if touched & {*parents, *removed_below} else steps


def _look(steps: Sequence[AnyStep], session: SessionId | None, more: Sequence[bytes]) -> Look:
    """Lists the keys and counts that say whether the steps can be done, and what they come to."""
    keys: dict[bytes, None] = {} if session is None else {session_key(session): None}
    counted: dict[str, None] = {}
    made = {step.path for step in steps if isinstance(step, Create)}
    for step in steps:
        if isinstance(step, Create):
            if above(step.path):
                keys[family_of(above(step.path))] = None
            if step.numbered:
                continue
        if isinstance(step, UseUp):
            keys[family_of(step.path)] = None
            continue
        keys[key_of(step.path)] = None
        if isinstance(step, Delete):
            counted[step.path] = None
            if step.path in made:
                keys[family_of(step.path)] = None
    keys |= dict.fromkeys(more)
    return Look(list(keys), list(counted))


@dataclass(slots=True)
class State:
    """A node as the steps have left it so far."""

    data: bytes
    version: int
    owner: SessionId | None
    said_made: int


@dataclass(slots=True)
class Overlay:
    """The state to which steps bring what was read."""

    uri: str
    seen: Seen
    session: SessionId | None
    nodes: dict[str, State | None] = field(default_factory=dict)  # that were looked at
    families: dict[str, int | None] = field(default_factory=dict)  # how many children were made; None: can't have any
    counts: dict[str, int] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)  # the paths to put or remove
    counted: dict[str, None] = field(default_factory=dict)  # the paths whose families are put
    gone: dict[str, None] = field(default_factory=dict)  # the paths whose families are removed

    def node(self, path: str) -> State | None:
        """The node of now."""
        if path not in self.nodes:
            found = self.seen.node(path)
            self.nodes[path] = None if found is None else State(found.data, found.version, found.owner, found.said_made)
        return self.nodes[path]

    def family(self, path: str) -> int | None:
        """How many children were made so far; None: there is no node, or it can't have any."""
        if path not in self.families:
            found = self.seen.keys.get(family_of(path))
            self.families[path] = None if found is None else made_in(found)
        return self.families[path]

    def children(self, path: str) -> int:
        """How many there are now."""
        if path not in self.counts:
            self.counts[path] = self.seen.counts.get(path, 0)
        return self.counts[path]

    def apply(self, step: AnyStep) -> Done:
        """Carries out a step; its `NodeError`."""
        if isinstance(step, UseUp):
            self._make_children(step.path, step.count)
            return Done(step.path, ANY)
        if isinstance(step, Create):
            return self._create(step)
        path, node = step.path, self.node(step.path)
        if node is None:
            raise NoNode(f"{self.uri}: there is no node {path}")
        if step.version not in {ANY, node.version}:
            raise BadVersion(f"{self.uri}: {path} has version {node.version}, not {step.version}")
        if isinstance(step, Write):
            node.data, node.version = step.data, node.version + 1
            self.written[path] = None
            return Done(path, node.version)
        if isinstance(step, Delete):
            if self.children(path) > 0:  # less where what went is not counted as a child (`apache`)
                raise NotEmpty(f"{self.uri}: {path} has children")
            self.nodes[path] = self.families[path] = None
            self.written[path] = None
            self.counted.pop(path, None)
            self.gone[path] = None
            self.counts[above(path)] = self.children(above(path)) - 1
        return Done(path, ANY)

    def _create(self, step: Create) -> Done:
        path, parent = step.path, above(step.path)
        if step.numbered:
            path += f"{self.family(parent) or 0:010d}"
        if self.node(path) is not None:
            raise NodeExists(f"{self.uri}: there is a node {path}")
        if parent:
            self._make_children(parent, 1)
        self.counts[parent] = self.children(parent) + 1
        again = self.seen.node(path) is not None
        self.nodes[path] = State(
            step.data, 0, self.session if step.claim else None, self.seen.revision + 1 if again else 0
        )
        self.families[path] = None if step.claim else 0
        self.counts[path] = 0
        self.written[path] = None
        if not step.claim:
            self.counted[path] = None
            self.gone.pop(path, None)
        return Done(path, 0)

    def _make_children(self, path: str, count: int) -> None:
        made = self.family(path)
        if made is None:
            raise NoNode(f"{self.uri}: there is no node {path} that can have children")
        self.families[path] = made + count
        self.counted[path] = None

    def operations(self) -> list[Any]:
        """The operations that bring what was read to this."""
        operations = [_remove(family_of(path)) for path in self.gone]
        for path in self.written:
            key, node, before = key_of(path), self.nodes[path], self.seen.node(path)
            if node is not None:
                puts = 1 if before is None else before.puts + 1
                value = value_of(node.data, node.version - (puts - 1), node.said_made)
                operations.append(_put(key, value, lease=int(node.owner or 0)))
            elif before is not None:
                operations.append(_remove(key))
        for path in self.counted:
            made, found = self.families[path], self.seen.keys.get(family_of(path))
            assert made is not None
            puts = 1 if found is None else found.version + 1
            operations.append(_put(family_of(path), family_value(made, puts)))
        return operations


def judged(uri: str, steps: Sequence[AnyStep], session: SessionId | None, seen: Seen) -> Try:
    """
    The try after what was read; raises the error of the first step that could not be done at that moment, with its
    number, and `SessionOver`.
    """
    if session is not None and session_key(session) not in seen.keys:
        raise SessionOver(f"{uri}: the session that {steps[0].path} belonged to has ended")
    overlay, done = Overlay(uri, seen, session), []
    for number, step in enumerate(steps):
        try:
            done.append(overlay.apply(step))
        except NodeError as error:
            error.step = number
            raise
    numbered = [isinstance(step, Create) and step.numbered for step in steps]
    look = _look(steps, session, [key_of(each.path) for each, new in zip(done, numbered, strict=True) if new])
    compare = [_unchanged(key, seen) for key in look.keys]
    for path in look.counted:  # none was made since, and fewer are no hindrance
        end = family_of(path)
        compare.append(
            Compare(key=children_of(path), range_end=end, result=LESS, target=MOD, mod_revision=seen.revision + 1)
        )
    request = TxnRequest(compare=compare, success=overlay.operations(), failure=look.operations())
    return Try(request, look, done)


def _unchanged(key: bytes, seen: Seen) -> Any:
    found = seen.keys.get(key)
    if found is None:
        return _is(key, EQUAL, 0)
    return Compare(key=key, result=EQUAL, target=MOD, mod_revision=found.mod_revision)
