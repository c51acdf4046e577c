"""
The watches of one tree: a watch of etcd for each watched node, and two for the children of one, on one stream.

Knows: which revision a watcher has read, so that only what came after it counts; what of a family and its children's
keys says that a child came or went.
Does not know: how the stream is made, what watchers do.

Safety: a watch that etcd cancels, for what it begins at was compacted away, and a stream that ends call all of their
watchers: these read again.  A stream on which a watch is refused ends: its token has.  Etcd answers reads beside its
stream, and each watch goes at a pace of its own: no watcher of a child is called after an answer about its parent's
children that shows the change, and one whose reading is older than what its watch has told or left out is called at
once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from quire.metadata.etcd.client import Stream
from quire.metadata.etcd.messages import CLASSES, DELETED, NO_PUTS
from quire.metadata.etcd.nodes import above, children_of, family_of, key_of, name_in
from quire.metadata.store import notify
from quire.metadata.tree import Wake

# SPDX-License-Identifier: Apache-2.0

WatchRequest: Any = CLASSES["WatchRequest"]
Watched = tuple[str, bool]  # a path, and whether its children
Listener = Callable[[Any], None]


class Reading(NamedTuple):
    """A watcher's reading: at which revision, and whether there was no node."""

    revision: int
    absent: bool

    def is_before(self, last: int, absent: bool) -> bool:
        """True if a node that was changed last at that revision, or is absent since then, is another one by now."""
        return self.revision < last and not (self.absent and absent)


@dataclass(slots=True)
class Armed:
    """
    A watched thing: its watches at etcd, and its watchers with what they have read.  `past`: the revision of the last
    event, at first the one behind which the watches begin.
    """

    ids: tuple[int, ...]
    past: int
    wakes: dict[Wake, Reading] = field(default_factory=dict)


class Watches:
    """
    The watchers of one tree.  `open_stream(heard, ended)` opens a stream; `lost(why)` is called when it has ended by
    itself.
    """

    def __init__(
        self, open_stream: Callable[[Listener, Callable[[Stream, str], None]], Stream], lost: Callable[[str], None]
    ) -> None:
        self._open_stream = open_stream
        self._lost = lost
        self._stream: Stream | None = None
        self._armed: dict[Watched, Armed] = {}
        self._below: dict[str, dict[str, None]] = {}  # the children of a path of which the nodes are watched
        self._of: dict[Wake, dict[Watched, None]] = {}  # the things that a watcher waits for
        self._watched: dict[int, Watched] = {}  # by etcd's watch
        self._last_id = 0

    def arm(self, watched: Watched, wake: Wake, revision: int, *, absent: bool = False) -> None:
        """Calls `wake` once, after the first change after that revision, at which it was read."""
        armed = self._armed.get(watched)
        if armed is None:
            armed = self._begin(watched, revision)
        elif revision < armed.past:  # its answer came late: what changed since is not told a second time
            notify(wake)
            return
        armed.wakes.setdefault(wake, Reading(revision, absent))
        self._of.setdefault(wake, {})[watched] = None

    def _begin(self, watched: Watched, revision: int) -> Armed:
        path, children = watched
        if self._stream is None:
            self._stream = self._open_stream(self._heard, lambda _, why: self._gone(why))
        asked: list[dict[str, object]] = [{"key": family_of(path) if children else key_of(path)}]
        if children:  # a claim that goes with its session is removed, and no family is put
            asked.append({"key": children_of(path), "range_end": family_of(path), "filters": [NO_PUTS]})
        ids = []
        for each in asked:
            self._last_id += 1
            ids.append(self._last_id)
            self._watched[self._last_id] = watched
            request = WatchRequest(create_request={**each, "start_revision": revision + 1, "watch_id": self._last_id})
            self._stream.send(request)
        if not children:
            self._below.setdefault(above(path), {})[path] = None
        armed = self._armed[watched] = Armed(tuple(ids), revision)
        return armed

    def disarm(self, wake: Wake) -> None:
        """Forgets a watcher."""
        for watched in self._of.pop(wake, ()):
            del self._armed[watched].wakes[wake]
            self._end_if_unheard(watched)

    def _end_if_unheard(self, watched: Watched) -> None:
        armed = self._armed[watched]
        if armed.wakes:
            return
        del self._armed[watched]
        path, children = watched
        if not children:
            siblings = self._below[above(path)]
            del siblings[path]
            if not siblings:
                del self._below[above(path)]
        for each in armed.ids:
            del self._watched[each]
            if self._stream is not None:
                self._stream.send(WatchRequest(cancel_request={"watch_id": each}))

    def _heard(self, response: Any) -> None:
        if response.created and response.canceled:  # etcd knows the stream by the token that it was opened with
            self.restart(f"a watch was refused: {response.cancel_reason}")
            return
        watched = self._watched.get(response.watch_id)
        if watched is None:  # it was ended meanwhile
            return
        if response.canceled:
            self._call(watched, lambda _: True)
            return
        for event in response.events:
            self._changed(watched, event)

    def _changed(self, watched: Watched, event: Any) -> None:
        path, children = watched
        revision = event.kv.mod_revision
        armed = self._armed.get(watched)
        if armed is not None:
            armed.past = max(armed.past, revision)
        if children:
            self._call_below(path, event, revision)
        self._call(watched, lambda reading: reading.revision < revision)

    def _call_below(self, path: str, event: Any, revision: int) -> None:
        """Calls the watchers of the child before those of its parent's children; a family does not say which."""
        if event.kv.key == family_of(path):
            if event.type != DELETED:
                for below in list(self._below.get(path, ())):
                    self._call((below, False), lambda reading: reading.absent and reading.revision < revision)
        else:
            self._call((f"{path}/{name_in(event.kv.key)}", False), lambda reading: reading.revision < revision)

    def shown(self, path: str, revision: int, changed: Mapping[str, int]) -> None:
        """
        Calls the watchers of children that an answer shows to be other than what they have read: `changed` has the
        revision of the last change of each child that there was at that revision.
        """
        for child in list(self._below.get(path, ())):
            now = changed.get(child[len(path) + 1 :])
            last, absent = revision if now is None else now, now is None
            self._call((child, False), partial(Reading.is_before, last=last, absent=absent))

    def _call(self, watched: Watched, wanted: Callable[[Reading], bool]) -> None:
        armed = self._armed.get(watched)
        if armed is None:
            return
        called = [wake for wake, reading in armed.wakes.items() if wanted(reading)]
        for wake in called:
            del armed.wakes[wake]
            del self._of[wake][watched]
            if not self._of[wake]:
                del self._of[wake]
        self._end_if_unheard(watched)
        for wake in called:
            notify(wake)

    def restart(self, why: str) -> None:
        """Ends the stream, as if it had ended by itself."""
        if self._stream is not None:
            self._stream.close()
            self._gone(why)

    def _gone(self, why: str) -> None:
        self._stream = None
        armed = self._forget()
        self._lost(why)
        for each in armed.values():
            for wake in each.wakes:
                notify(wake)

    def _forget(self) -> dict[Watched, Armed]:
        """Forgets all that is watched, and returns it."""
        armed, self._armed = self._armed, {}
        self._below.clear()
        self._of.clear()
        self._watched.clear()
        return armed

    def end(self) -> None:
        """Ends the stream, and calls nobody."""
        self._forget()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
