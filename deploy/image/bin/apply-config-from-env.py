#!/usr/bin/env python3
"""
Writes variables of the environment into files of configuration: `apply-config-from-env.py [--prefix P] FILE…`, as
images of BookKeeper and Pulsar do it before they start something.

A variable counts if its name is a key that quire or BookKeeper knows, or if it begins with a prefix: the rest is the
key then, known or not, and it is stronger.  A directory means its bookkeeper.conf and bk_server.conf.

quire itself takes BK_<key> and PULSAR_PREFIX_<key> as they are; this program is for names without a prefix, which mean
nothing to it in an environment where everything else has names, too.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from quire.conf.known_keys import CLIENT, SERVER
from quire.conf.options import key_of
from quire.conf.properties import ENVIRONMENT_PREFIXES
from quire.conf.shared_file import READERS
from quire.conf.treatment import of_script

# SPDX-License-Identifier: Apache-2.0

KNOWN = (
    SERVER
    | CLIENT
    | {name for model in READERS for field in model.model_fields.values() for name in key_of(field)["names"]}
)
FILES = ("bookkeeper.conf", "bk_server.conf")


def wanted(environment: Mapping[str, str], prefixes: Iterable[str]) -> dict[str, str]:
    """The keys that the environment sets, with their values."""
    found = {name: value for name, value in environment.items() if name in KNOWN}
    for prefix in prefixes:
        found |= {
            name.removeprefix(prefix): value
            for name, value in sorted(environment.items())
            if name.startswith(prefix) and not of_script(name)
        }
    return {key: " ".join(value.split()) for key, value in found.items()}


def applied(text: str, values: Mapping[str, str]) -> str:
    """The text of a file in which keys have these values: where they were, commented out or not, else at the end."""
    left, lines = dict(values), []
    for line in text.splitlines():
        key, equals, _ = line.lstrip("# ").partition("=")
        key = key.strip()
        if not equals or key not in values:
            lines.append(line)
        elif key in left:
            lines.append(written(key, left.pop(key)))
    return "\n".join([*lines, *(written(key, value) for key, value in left.items()), ""])


def written(key: str, value: str) -> str:
    """A line of a file of properties."""
    escaped = value.replace("\\", "\\\\")
    return f"{key}={escaped}"


def main() -> str | None:
    """Writes the files, and returns what is wrong."""
    parser = argparse.ArgumentParser(prog="apply-config-from-env.py")
    parser.add_argument("--prefix", help="another prefix in place of BK_ and PULSAR_PREFIX_")
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
    asked = parser.parse_args()
    values = wanted(os.environ, [asked.prefix] if asked.prefix else ENVIRONMENT_PREFIXES)
    for named in asked.files:
        for path in [named / name for name in FILES if (named / name).is_file()] if named.is_dir() else [named]:
            try:
                path.write_text(applied(path.read_text(), values))
            except OSError as failure:
                return f"{path}: {failure.strerror}; is it a file of this image, and its user the container's?"
            print(f"{path}: {', '.join(sorted(values)) or 'nothing to set'}", flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
