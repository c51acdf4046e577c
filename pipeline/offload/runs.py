"""
One run of an offload and what it works with.

Knows: these parts, and where a ledger's manifest is.  Does not know: steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from quire.pipeline.clients import Cluster
from quire.pipeline.copies.manifest import CopyDamaged, Manifest, UnknownFormat, place_of
from quire.pipeline.copies.places import COMING, Place
from quire.pipeline.copies.reading import manifest_of
from quire.pipeline.offload.marks import Subject
from quire.pipeline.offload.wishes import Done, Reached, Spread, Wish

# SPDX-License-Identifier: Apache-2.0


class Taken(Exception):
    """The place of a ledger's copy has another one, or one of an unknown format: nothing may replace it."""


@dataclass(frozen=True)
class Run:
    """`id`: of this run, random; `cluster`: the instance id of the ledgers' cluster."""

    ours: Cluster
    wish: Wish
    spread: Spread
    now: Callable[[], float]
    reached: Reached
    id: str
    place: Place
    cluster: str
    done: Done = field(default_factory=Done)

    @property
    def now_ms(self) -> int:
        """Since 1970."""
        return int(self.now() * 1000)

    def uri_of(self, ledger: int) -> str:
        """Of its manifest."""
        return self.place.uri_of(place_of(ledger))

    def count(self, subject: Subject) -> None:
        """It is offloaded, or would be."""
        self.done.offloaded.append(subject.ledger)
        self.done.entries += subject.metadata.last_entry + 1
        self.done.bytes += subject.metadata.length

    def written(self, subject: Subject) -> Manifest | None:
        """
        What is written down of a copy of this very ledger.  `Taken` when its place is another one's.  What is damaged
        is moved aside, for it may be all there is of another ledger.
        """
        try:
            found = manifest_of(self.place, subject.ledger)
        except UnknownFormat as error:
            raise Taken(
                f"{self.uri_of(subject.ledger)} is {error}: offload by a newer version, or to another place"
            ) from None
        except CopyDamaged:
            self.place.move(place_of(subject.ledger), f"{subject.ledger}/manifest-{self.id}.damaged")
            return None
        if found is not None and not found.is_of(self.cluster, subject.metadata):
            raise Taken(
                f"{self.uri_of(subject.ledger)} is the copy of another ledger that had the number {subject.ledger}: "
                "offload to another place, or move that copy away"
            )
        return found

    def write_down(self, manifest: Manifest) -> None:
        """From now on it is what there is of its ledger."""
        self.place.put(place_of(manifest.ledger), manifest.encode(), self.reached)
        self.reached("manifest.named")

    def sweep(self, ledger: int) -> None:
        """
        What a task that was killed left half-written.  A whole file stays, also when no manifest names it: another run
        may be about to.
        """
        for file in self.place.files(str(ledger)):
            if file.name.startswith(COMING) and self.now() - file.at_s >= self.wish.deletion_lag_s:
                self.place.remove(f"{ledger}/{file.name}")
