"""
Builds what a release consists of, from the last commit, into a directory:

    python -m release [--to dist]

    quire-VERSION-py3-none-any.whl, quire-VERSION.tar.gz    wheel and sdist, the same bytes each time
    CHANGES.md               the fragments of `changes/`, joined by kind; in the sdist, too
    requirements.txt         the versions of all dependencies that were newest, with their hashes
    quire-VERSION.cdx.json   these as an SBOM (CycloneDX)
    SHA256SUMS               of all of them

Knows: which tool makes what, that only files of the commit get in and that their time is the commit's.
Does not know: what is in the packages (`setup.cfg`, `MANIFEST.in`).
"""

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from configparser import ConfigParser
from datetime import UTC, datetime
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).resolve().parents[1]
LOCK, SUMS, CHANGES = "requirements.txt", "SHA256SUMS", "CHANGES.md"
EXTRAS = ("tls", "zstd", "pipeline", "zookeeper")


def version_in(root: Path) -> str:
    """Returns the version that a checkout has."""
    parser = ConfigParser()
    parser.read(root / "setup.cfg")
    return parser["metadata"]["version"]


def run(*words: str, within: Path = ROOT, **environment: str) -> str:
    """Runs a command and returns its output; what it says is shown if it fails."""
    spent = {**os.environ, **environment}
    done = subprocess.run(words, cwd=within, env=spent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def commit_into(folder: Path) -> str:
    """Unpacks the last commit there; returns its time, in seconds since 1970."""
    archive = folder.with_suffix(".tar")
    run("git", "archive", f"--output={archive}", "HEAD")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    archive.unlink()
    return run("git", "log", "-1", "--format=%ct").strip()


def settle(sdist: Path, epoch: int) -> None:
    """Gives all files of an archive one time and no owner; a wheel has its time from SOURCE_DATE_EPOCH."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    with tempfile.TemporaryDirectory(prefix="quire-release-") as name:
        with tarfile.open(sdist) as tar:
            tar.extractall(name, filter="data")
        with gzip.GzipFile(sdist, "wb", mtime=epoch) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for path in sorted(Path(name).rglob("*")):
                tar.add(path, path.relative_to(name), recursive=False, filter=plain)


def packages(to: Path) -> list[Path]:
    """Makes wheel, sdist and the list of changes, and returns them."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="quire-release-") as name:
        copy = Path(name) / "quire"
        epoch = commit_into(copy)
        date = datetime.fromtimestamp(int(epoch), UTC).date().isoformat()
        joined = ("-m", "towncrier", "build", "--draft", f"--version={version_in(copy)}", f"--date={date}")
        (copy / CHANGES).write_text(run(sys.executable, *joined, within=copy), encoding="utf-8")
        run(sys.executable, "-m", "build", f"--outdir={name}", str(copy), SOURCE_DATE_EPOCH=epoch)
        settle(next(Path(name).glob("quire-*.tar.gz")), int(epoch))
        return [Path(shutil.copy(each, to / each.name)) for each in (*Path(name).glob("quire-*"), copy / CHANGES)]


def dependencies(to: Path) -> list[Path]:
    """Makes the lock of all that is needed, and the SBOM, and returns them."""
    version, lock = version_in(ROOT), to / LOCK
    sbom = to / f"quire-{version}.cdx.json"
    words = (
        "--quiet",
        "--generate-hashes",
        "--no-header",
        "--strip-extras",
        "--no-emit-options",
        "--no-emit-index-url",
    )
    extras = [f"--extra={each}" for each in EXTRAS]
    with tempfile.TemporaryDirectory(prefix="quire-release-") as name:
        copy = Path(name) / "quire"
        commit_into(copy)
        run(
            sys.executable,
            "-m",
            "piptools",
            "compile",
            *words,
            *extras,
            f"--output-file={lock}",
            "setup.cfg",
            within=copy,
        )
        whole = Path(name) / "component.toml"  # what the dependencies are of; the tool reads no setup.cfg
        whole.write_text(f'[project]\nname = "quire"\nversion = "{version}"\nlicense = "Apache-2.0"\n')
        described = ("--pyproject", str(whole), "--output-reproducible", f"--output-file={sbom}")
        run(sys.executable, "-m", "cyclonedx_py", "requirements", *described, str(lock))
    return [lock, sbom]


def built(to: Path) -> list[Path]:
    """Makes all files and returns them, their sums last."""
    made = sorted([*packages(to), *dependencies(to)])
    (to / SUMS).write_text("".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in made))
    return [*made, to / SUMS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="the directory (default: dist)")
    for each in built(parser.parse_args().to.absolute()):
        print(each)


if __name__ == "__main__":
    main()
