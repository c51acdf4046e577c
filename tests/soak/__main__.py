"""
A cluster of many processes for hours, under faults that are drawn all the time: nothing is lost, and nothing grows that
should not (docs/soak.md).

    python -m tests.soak --minutes 120 --bookies 24 --seed 17

Ends with status 1 when a promise was broken, or a quantity has a slope whose interval is above what is allowed.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from tests.soak.racks import Namespaces, begin, racks
from tests.soak.running import Soak
from tests.soak.scene import Scene, Sizes

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "build", "docs", "changes", "tests")


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=120, help="of faults")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="of faults and workers")
    parser.add_argument("--racks", type=int, default=4)
    parser.add_argument("--stores", type=int, default=3, help="members of the ZooKeeper ensemble")
    parser.add_argument("--bookies", type=int, default=24)
    parser.add_argument("--recoveries", type=int, default=4)
    parser.add_argument("--workers", type=int, default=6, help="processes of owners, replicas, publishers, cursors")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--rate", type=float, default=25, help="calls that append in a second, in all")
    parser.add_argument("--every", type=float, default=12, help="seconds between two faults, in the mean")
    parser.add_argument("--dir", type=Path, help="where all is kept, and stays; else a directory that goes")
    parser.add_argument("--copied", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--goes", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def from_a_copy(words: list[str]) -> NoReturn:
    """Runs a copy of this checkout, which may change meanwhile: a process that begins again must run what it ran."""
    given = arguments(words)
    directory = (given.dir or Path(tempfile.mkdtemp(prefix="quire-soak-"))).resolve()
    code = directory / "code"
    shutil.copytree(ROOT, code, symlinks=True, ignore=LEFT_OUT)
    shutil.copytree(ROOT / "tests" / "soak", code / "tests" / "soak")
    for file in (ROOT / "tests").glob("*.py"):
        shutil.copy(file, code / "tests")
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (code / ".types", code / "tests" / "soak" / "counting")))
    os.chdir(code)
    goes = [] if given.dir else ["--goes"]
    seed = ["--seed", str(given.seed)]
    begin([sys.executable, "-m", "tests.soak", *words, *seed, "--copied", "--dir", str(directory), *goes])


def main(words: list[str]) -> int:
    """Runs a soak; its exit status."""
    given = arguments(words)
    directory: Path = given.dir
    places = racks(given.racks)

    def say(text: str) -> None:
        print(text, flush=True)

    say(f"seed {given.seed}, racks {'with networks' if isinstance(places, Namespaces) else 'by name'}, in {directory}")
    sizes = Sizes(**{name: getattr(given, name) for name in Sizes.__dataclass_fields__})
    scene = Scene(directory, sizes, places, given.minutes * 60, given.seed)
    try:
        scene.start()
        well = Soak(scene, given.minutes * 60, given.every, given.seed, say).run()
    finally:
        scene.stop()
    if well and given.goes:
        os.chdir("/")
        shutil.rmtree(directory)
    return 0 if well else 1


if __name__ == "__main__":
    if not arguments(sys.argv[1:]).copied:
        from_a_copy(sys.argv[1:])
    sys.exit(main(sys.argv[1:]))
