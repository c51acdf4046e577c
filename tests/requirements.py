"""
What some tests need beyond Python: looked for here, so that every test says the same when it is missing.

    need("maven")      # skips the test with the reason; fails it when QUIRE_REQUIRE names `maven`

Knows: Maven with a JDK (for the real Apache BookKeeper), Docker with what starts one and docker-compose, OpenSSL's
command and curl (for what a page says of them), Prometheus (which reads our metrics), Chromium (which shows the
console), etcd, strace, a server of PostgreSQL, an address of IPv6, the commit of the release before, a library that
gives a process another time of day, Pulsar's jars, Matplotlib (which draws the chart of an example).
"""

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from pwd import getpwall

import pytest

# The commit of the last release, or of the one to come while there is none: 0.2.0.  A release writes its own here when
# the next begins (CONTRIBUTING.md).
BEFORE = "ce9562466d27ad22f05e675420c9fefb8f0ced4c"
ROOT = Path(__file__).parents[1]
FAKETIME = Path(f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketime.so.1")  # another time of day


def _maven() -> str | None:
    absent = [tool for tool in ("mvn", "java", "javac") if shutil.which(tool) is None]
    return f"no {', '.join(absent)} on the PATH: Apache BookKeeper cannot be fetched and run" if absent else None


def _openssl() -> str | None:
    return None if shutil.which("openssl") else "no openssl on the PATH"


def _curl() -> str | None:
    return None if shutil.which("curl") else "no curl on the PATH"


def _strace() -> str | None:
    if shutil.which("strace") is None:
        return "no strace on the PATH"
    done = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    return f"strace may not watch processes here: {done.stderr.strip()[-200:]}" if done.returncode else None


def _prometheus() -> str | None:
    absent = [tool for tool in ("prometheus", "promtool") if shutil.which(tool) is None]
    return f"no {', '.join(absent)} on the PATH" if absent else None


def _chromium() -> str | None:
    if shutil.which("chromium") is None:
        return "no chromium on the PATH"
    return None if find_spec("playwright") else "no playwright in this environment: make console installs it"


def postgres_programs() -> Path | None:
    """Where `initdb` and `pg_ctl` are: on the PATH, or where Debian puts them."""
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((each for each in reversed(places) if (each / "pg_ctl").exists()), None)


def _postgres() -> str | None:
    if postgres_programs() is None:
        return "no initdb on the PATH: Debian's package postgresql has it"
    if os.geteuid() == 0 and (
        shutil.which("setpriv") is None or "postgres" not in {each.pw_name for each in getpwall()}
    ):
        return "PostgreSQL does not run as root, and there is no user postgres to run it as"
    return None


def _etcd() -> str | None:
    if shutil.which("etcd") is None:
        return "no etcd on the PATH: Debian's package etcd-server has it"
    return None if find_spec("grpc") else "no grpcio in this environment: the extra etcd has it"


def _ipv6() -> str | None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError as failure:
            return f"::1 can't be listened on: {failure.strerror}"
    return None


def _docker() -> str | None:
    if shutil.which("docker") is None:
        return "no docker on the PATH"
    try:
        answer = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return "docker does not answer within 20 s"
    return f"docker does not work: {answer.stderr.strip()[-200:]}" if answer.returncode else None


def _dockerd() -> str | None:
    if os.geteuid() != 0:
        return "only root can start a Docker for itself"
    absent = [tool for tool in ("docker", "dockerd", "unshare", "ip", "iptables") if shutil.which(tool) is None]
    return f"no {', '.join(absent)} on the PATH" if absent else None


def _release() -> str | None:
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{BEFORE}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    return f"the commit {BEFORE} of the release before is not in this clone" if found.returncode else None


def _faketime() -> str | None:
    return None if FAKETIME.is_file() else f"no {FAKETIME}: Debian's package libfaketime has it"


def _pulsar() -> str | None:
    from tests.interop.peer import cache
    from tests.interop.pulsar.broker import VERSION

    if (cache() / f"pulsar-{VERSION}" / "complete").exists():
        return None
    return f"Pulsar {VERSION} is not in {cache()}: `make interop ARGS=tests/interop/pulsar` fetches it"


def _compose() -> str | None:
    return None if shutil.which("docker-compose") else "no docker-compose on the PATH"


def _matplotlib() -> str | None:
    return None if find_spec("matplotlib") else "no matplotlib in this environment: make pipeline installs it"


LACKING: dict[str, Callable[[], str | None]] = {
    "maven": _maven,
    "docker": _docker,
    "dockerd": _dockerd,
    "faketime": _faketime,
    "compose": _compose,
    "openssl": _openssl,
    "strace": _strace,
    "curl": _curl,
    "prometheus": _prometheus,
    "chromium": _chromium,
    "postgres": _postgres,
    "etcd": _etcd,
    "ipv6": _ipv6,
    "release": _release,
    "pulsar": _pulsar,
    "matplotlib": _matplotlib,
}


def required() -> set[str]:
    """What `QUIRE_REQUIRE` names; an unknown name is refused, since it would require nothing."""
    names = {name.strip() for name in os.environ.get("QUIRE_REQUIRE", "").split(",")} - {""}
    unknown = names - set(LACKING)
    if unknown:
        raise ValueError(f"QUIRE_REQUIRE names {', '.join(sorted(unknown))}: known are {', '.join(sorted(LACKING))}")
    return names


def need(name: str) -> None:
    """Returns when it is there; skips the calling test, or fails it when `QUIRE_REQUIRE` names it."""
    reason = LACKING[name]()
    if reason is None:
        return
    if name in required():
        pytest.fail(f"QUIRE_REQUIRE names {name}, but {reason}", pytrace=False)
    pytest.skip(reason)
