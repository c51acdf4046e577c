"""
Real bookies in this process, as `quire.testing` has them, on the tests' reactor: files in a test's directory, and a
sync before each answer.

    with RealCluster(tmp_path, 3) as cluster:
        with connect(cluster.uri) as bk: ...
        cluster.kill(cluster.ids[0])
"""

from pathlib import Path

from quire.bookie.lifecycle.bookie import Bookie
from quire.conf.bookie import BookieOptions
from quire.testing.in_process import InProcessCluster


class RealCluster(InProcessCluster):
    """
    `named`: ids are fixed, so a bookie may come back at another of the `ports`.  `options`: fields of its options
    instead of keys.
    """

    def __init__(self, directory: Path, count: int, named: bool = False, **options: object) -> None:
        super().__init__(directory, count, {"journalSyncData": "true"})
        self._named = named
        self._fields = options

    def options_of(self, number: int) -> BookieOptions:
        named = {"bookie_id": f"bookie-{number}"} if self._named else {}
        return BookieOptions(**{**super().options_of(number).model_dump(exclude_unset=True), **named, **self._fields})

    @property
    def bookies(self) -> list[Bookie]:
        """Those that run, in order."""
        return [self.bookie(bookie) for bookie in self.running]
