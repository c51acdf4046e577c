"""Asking a daemon of this machine over HTTP, as who may read its token, and as who may not."""

import urllib.request
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60


def get(url: str, token_file: str | Path | None = None, put: bytes | None = None) -> bytes:
    """The body of a 200; `urllib.error.HTTPError` for anything else.  `put`: the body of a PUT instead of a GET."""
    headers = {}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {Path(token_file).read_text().split()[0]}"
    request = urllib.request.Request(url, put, headers, method="GET" if put is None else "PUT")
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return bytes(answer.read())
