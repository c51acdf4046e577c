"""
What a running bookie says, and takes, at its admin address.

Knows: how the address is found and asked, and that each request says which bookie is meant.  Does not know: what the
paths mean.
"""

import json
import urllib.error
import urllib.request
from typing import Any

from quire.metadata.store import MetadataStore, ServiceInfo
from quire.protocol.errors import BookieHandleNotAvailable
from quire.tools.terminal.options import metadata_uri, refused
from quire.tools.terminal.running import with_store

# SPDX-License-Identifier: Apache-2.0

HTTP_S = 5.0


def service_of(bookie: str, metadata: str | None) -> ServiceInfo | None:
    """What a bookie announces in the metadata store (`metadata`: the option); None when it is not up."""

    async def work(store: MetadataStore) -> ServiceInfo | None:
        return await store.service_info(bookie)

    return with_store(metadata_uri(metadata), work)


def answer_of(bookie: str, found: ServiceInfo | None, path: str, command: dict[str, Any] | None = None) -> bytes:
    """
    What a bookie's admin address answers to a GET, or to a PUT of `command`.  Raises `BookieHandleNotAvailable`,
    `typer.Exit`.
    """
    if found is None:
        raise BookieHandleNotAvailable(f"{bookie} is not up; `quire bookie list` shows those that are")
    if found.http is None:
        raise BookieHandleNotAvailable(
            f"{bookie} announced no HTTP address, so nothing can be asked of it from outside"
        )
    url = f"http://{found.http.host}:{found.http.port}{path}"
    body = None if command is None else json.dumps(command).encode()
    request = urllib.request.Request(
        url, body, {"Content-Type": "application/json", "Bookie": bookie}, method="GET" if command is None else "PUT"
    )
    try:
        with urllib.request.urlopen(request, timeout=HTTP_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as failure:
        raise refused(f"{bookie} refused: {failure.read().decode(errors='replace').strip()}") from None
    except OSError as failure:
        raise refused(f"{bookie} can't be reached at {url} ({failure}); run this on its own machine") from None


def said_by(bookie: str, found: ServiceInfo | None, path: str) -> dict[str, Any] | None:
    """What a bookie says of itself under a path of its admin address; None when that can't be reached from here."""
    if found is None or found.http is None:
        return None
    try:
        request = urllib.request.Request(
            f"http://{found.http.host}:{found.http.port}{path}", headers={"Bookie": bookie}
        )
        with urllib.request.urlopen(request, timeout=HTTP_S) as answer:
            status: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return None
    return status
