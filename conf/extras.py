"""
How what is missing here is installed: by what this quire was installed from.

Knows: that an installer notes where a package came from (PEP 610), unless that was an index.
Does not know: which extra is needed where.
"""

import json
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from urllib.parse import unquote, urlsplit

# SPDX-License-Identifier: Apache-2.0

NAME = "quire"
NOTE = "direct_url.json"


def installs(extra: str) -> str:
    """
    Returns the command that installs an extra: of the wheel or checkout that this quire came from, or from the index
    that had it; where that is gone, the libraries themselves.
    """
    try:
        found = distribution(NAME)
    except PackageNotFoundError:
        return f"pip install -e {quote(f'{Path(__file__).parents[1]}[{extra}]')}"
    source, editable = source_of(found)
    if source is None:
        return f"pip install {quote(f'{NAME}[{extra}]')}"
    if source.exists():
        return f"pip install {'-e ' if editable else ''}{quote(f'{source}[{extra}]')}"
    return f"pip install {' '.join(map(quote, libraries(found, extra)))}"


def source_of(found: Distribution) -> tuple[Path | None, bool]:
    """Returns the wheel or checkout that it was installed from (None: an index), and if changes there show here."""
    if found.read_text("PKG-INFO") is not None:  # a checkout tells of itself
        return Path(str(found.locate_file(""))).absolute(), True
    note = json.loads(found.read_text(NOTE) or "{}")
    if not note:
        return None, False
    return Path(unquote(urlsplit(note["url"]).path)), bool(note.get("dir_info", {}).get("editable"))


def libraries(found: Distribution, extra: str) -> list[str]:
    """Returns what an extra requires, other extras' parts included."""
    wanted = []
    for each in found.requires or []:
        requirement, _, marker = each.partition(";")
        if f'extra == "{extra}"' not in marker.replace("'", '"'):
            continue
        name, _, inner = requirement.strip().partition("[")
        if name == NAME:
            wanted += [library for one in inner.rstrip("]").split(",") for library in libraries(found, one.strip())]
        else:
            wanted.append(requirement.strip().replace(" ", ""))
    return wanted
