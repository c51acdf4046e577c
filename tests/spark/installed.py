"""The wheel as users install it, in a folder of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]


def installed(place: Path, checkout: Path = ROOT) -> dict[str, str]:
    """Installs the package of a checkout, nothing else, below `place`; the environment in which it is found there."""
    source = place / "source"
    shutil.copytree(checkout, source, ignore=shutil.ignore_patterns(".*", "tests", "*.egg-info", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(place / "site"), str(source)], check=True, capture_output=True)
    found = {f"pyspark_{each.name}" for each in (checkout / "pipeline/discovered").iterdir()}
    assert {*found, "quire"} <= set(os.listdir(place / "site"))
    return {
        **os.environ,
        "PYTHONPATH": str(place / "site"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
