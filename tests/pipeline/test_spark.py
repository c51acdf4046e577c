"""What the package needs of PySpark, and that nothing else needs it."""

import subprocess
import sys

import pytest

from quire.conf.extras import installs
from quire.pipeline import spark

# SPDX-License-Identifier: Apache-2.0


def test_every_name_is_there() -> None:
    """In the version that is installed."""
    assert all(getattr(spark, name) is not None for name in spark.__all__)


@pytest.mark.parametrize("package", ["quire.pipeline", "quire.log", "quire.client", "quire.tools.main"])
def test_importing_a_package_imports_no_pyspark(package: str) -> None:
    """Nor PyArrow: they come with the first session."""
    text = f"import sys, {package}; print(sorted({{'pyspark', 'pyarrow'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_missing_extra_is_one_line() -> None:
    """With the command that installs it."""
    text = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from quire.pipeline import session\n"
        "try: session()\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert said.startswith("the pipeline needs PySpark")
    assert installs("pipeline") in said
    assert said.count("\n") == 1
