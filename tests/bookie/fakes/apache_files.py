"""The directories that Apache bookies left (`tests/vectors`), and storages on copies of them."""

import json
import pathlib
import tarfile
from typing import Any

from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.rebuild import Upkeep
from quire.conf.bookie import BookieOptions
from quire.protocol.digest import Digest, DigestType
from quire.rows.files import Files
from tests.bookie.fakes.disk import Events, LimboOf
from tests.bookie.fakes.workers import InlineWorkers
from tests.clock import Clock

VECTORS = pathlib.Path(__file__).parents[2] / "vectors"
PASSWORD = b"secret"
LINES = (VECTORS / "lines.txt").read_bytes().removesuffix(b"\n").split(b"\n")
OPEN_ENTRY = bytes((31 + 7 * index) % 256 for index in range(100))


def unpack(name: str, target: pathlib.Path) -> pathlib.Path:
    """The directories `journal`, `ledgers` and `index` of a captured bookie, in `target`."""
    with tarfile.open(VECTORS / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target


def ledgers_of(name: str, moment: str) -> dict[int, tuple[Digest, list[bytes]]]:
    """
    What these directories hold: ledger -> digest, payloads.  A killed bookie had what a stopped one had, and one more.
    """
    found = {}
    for line in (VECTORS / f"{name}_disks.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["moment"] == moment or row["moment"] == "stopped":
            payloads = [OPEN_ENTRY] * row["entries"] if row.get("left") == "open" else LINES
            found[row["ledger"]] = (Digest(DigestType[row["digest"]], PASSWORD), payloads)
            assert len(payloads) == row["entries"]
    return found


def options_for(root: pathlib.Path, **changes: Any) -> BookieOptions:
    values: dict[str, Any] = {
        "metadata_uri": "memory://tests",
        "journal_directories": (str(root / "journal"),),
        "ledger_directories": (str(root / "ledgers"),),
        "index_directories": (str(root / "index"),),
        "journal_segment_bytes": 1 << 20,
        "write_cache_bytes_max": 2 << 20,
    }
    return BookieOptions(**{**values, **changes})


class Cut(Files):
    """The process ends at the `left`th change of names, or sync, from now on."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def datasync(self, handle: int) -> None:
        self._step()
        super().datasync(handle)

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def rename_aside(self, path: str, aside: str) -> None:
        self._step()
        super().rename_aside(path, aside)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    def sync_names(self, handle: int) -> None:
        self._step()
        super().sync_names(handle)


class Here:
    """A storage on real directories, its work done in the caller."""

    def __init__(self, root: pathlib.Path, files: Files | None = None, **changes: Any) -> None:
        self.clock = Clock()
        self.tokens: list[object] = []
        self.storage = Storage(options_for(root, **changes), self.clock, files, workers=InlineWorkers())
        self.storage.listen(Events(self.tokens.extend))
        self.storage.start()
        self.upkeep = Upkeep(self.storage, self.clock, LimboOf(self.storage))

    def commit(self) -> None:
        self.clock.advance(0)
        self.clock.advance(0)

    def now(self, result: Any) -> Any:
        """The value of a result that may be a Deferred, which has fired."""
        if not hasattr(result, "addBoth"):
            return result
        found: list[Any] = []
        result.addCallbacks(found.append, found.append)
        assert found, "not fired"
        return found[0]

    def read(self, ledger: int, entry: int) -> Any:
        return self.now(self.storage.read(ledger, entry))

    def read_run(self, ledger: int, first: int) -> Any:
        return self.now(self.storage.read_run(ledger, first, 0, 1 << 20))

    def close(self) -> None:
        done: list[object] = []
        self.storage.close().addBoth(done.append)
        self.commit()
        assert done == [None], done
