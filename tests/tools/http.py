"""Asking a daemon of this machine over HTTP, as who may read its token, and as who may not."""

import urllib.request
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60


def get(url: str, token_file: str | Path | None = None) -> bytes:
    """The body of a 200; `urllib.error.HTTPError` for anything else."""
    headers = {}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {Path(token_file).read_text().split()[0]}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=WAIT_S) as answer:
        return bytes(answer.read())
