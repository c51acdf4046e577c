"""
`python -m tests.fuzz [TARGET…] [--seconds N] [--drawn K] [--grow]`: feeds each target what a coverage-guided fuzzer
finds, N seconds each, from its corpus (`tests/fuzz/inputs.py`), on each core another target; with `--drawn` as many
targets only, drawn by the seed; with `--grow` the fewest inputs that reach what was reached go into the corpus.

An error that a decoder does not announce, an input that takes more than a second of CPU, and growth of memory end a
target with its input in `fuzz-found/`; `python -m tests.fuzz TARGET --add FILE` puts it into the corpus of the target,
where a test tries it from then on.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.fuzz.inputs import CORPUS, add_inputs, inputs
from tests.fuzz.registry import registered

# SPDX-License-Identifier: Apache-2.0

FOUND = Path("fuzz-found")
INPUT_S_MAX = 1  # of CPU: a busy machine makes anything last longer
HANGS_S = 30
INPUT_BYTES_MAX = 1 << 16
MEMORY_MB_MAX = 1024
GRACE_S = 120
MERGE_S = 900


class TooSlow(Exception):
    """An input took too much of the CPU."""


def timed(target: Callable[[bytes], None], data: bytes) -> None:
    begun = time.process_time()
    target(data)
    spent = time.process_time() - begun
    if spent > INPUT_S_MAX:
        raise TooSlow(f"{len(data)} bytes took {spent:.2f} s of CPU")


def run(name: str, program: str, directories: list[str], flags: list[str]) -> None:
    """One target, in this process: instrumented where it is imported first.  `program` starts another such process."""
    import atheris

    atheris.enabled_hooks.add("str")  # comparisons of text guide it, too
    with atheris.instrument_imports(include=["quire"]):
        found = registered()[name]
    atheris.Setup([program, *flags, *directories], partial(timed, found))
    atheris.Fuzz()


def grow(name: str, old: str, new: str, scratch: str) -> None:
    """Adds to the corpus, of it and the new inputs, the fewest that reach all paths."""
    merged, program = Path(scratch, f"{name}-merged"), Path(scratch, f"{name}-program")
    merged.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.fuzz --run {name} --program "$0" -- "$@"\n')
    program.chmod(0o755)
    command = [str(program), "-merge=1", f"-max_len={INPUT_BYTES_MAX}", str(merged), old, new]
    subprocess.run(command, capture_output=True, timeout=MERGE_S, check=True)
    added = add_inputs(name, [path.read_bytes() for path in merged.iterdir() if path.stat().st_size])
    print(f"{name}: {added} of them are in the corpus now", flush=True)


def fuzz(name: str, seconds: float, seed: int, scratch: str, growing: bool) -> bool:
    """One target in a process of its own; whether it found nothing."""
    new, old = os.path.join(scratch, name), os.path.join(scratch, f"{name}-old")
    os.mkdir(new)
    os.mkdir(old)
    for number, data in enumerate(inputs(name).values()):
        Path(old, str(number)).write_bytes(data)
    found = os.path.join(scratch, f"{name}-found-")
    flags = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-seed={seed}",
        f"-timeout={HANGS_S}",
        f"-rss_limit_mb={MEMORY_MB_MAX}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-artifact_prefix={found}",
        "-print_final_stats=1",
    ]
    command = [sys.executable, "-m", "tests.fuzz", "--run", name, "--", new, old, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE_S, check=False)
    runs = next((line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line), "?")
    print(f"{name}: {runs} inputs, {len(os.listdir(new))} new paths", flush=True)
    if done.returncode == 0:
        if growing:
            grow(name, old, new, scratch)
        return True
    FOUND.mkdir(exist_ok=True)
    for path in Path(scratch).glob(f"{name}-found-*"):
        kept = FOUND / path.name
        shutil.copy(path, kept)
        print(f"{name}: {kept} ({kept.stat().st_size} bytes)")
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(("#", "INFO: Instr"))]
    print("\n".join(lines)[-4000:], flush=True)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", help="all, if none is given")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--drawn", type=int, help="so many of them, drawn by the seed")
    parser.add_argument("--seed", type=int, default=int(time.time()) % (1 << 31))
    parser.add_argument("--grow", action="store_true", help="inputs that reach new paths go into the corpus")
    parser.add_argument("--add", type=Path, metavar="FILE", help="this input goes into the corpus of the target")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--program", default=sys.argv[0], help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    if given.run:
        flags = [each for each in given.targets + rest if each.startswith("-")]
        run(given.run, given.program, [each for each in given.targets if each not in flags], flags)
        return 0
    if given.add:
        add_inputs(*given.targets, [given.add.read_bytes()])
        return 0
    names = given.targets or sorted(path.stem for path in CORPUS.iterdir())
    if given.drawn is not None:
        names = random.Random(given.seed).sample(names, min(given.drawn, len(names)))
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as processes:
        good = list(processes.map(lambda name: fuzz(name, given.seconds, given.seed, scratch, given.grow), names))
    bad = [name for name, is_good in zip(names, good, strict=True) if not is_good]
    print(f"{len(names) - len(bad)} of {len(names)} targets found nothing" + (f"; {', '.join(bad)} did" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
