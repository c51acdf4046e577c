"""
`quire cookie`: what ties a bookie's id to its directories, as the metadata store has it.

Knows: how to show, make and remove that copy.  Does not know: the copies in the directories, but that
a new one must not contradict them; `quire bookie format` removes both.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from quire.metadata.retired_ids import FORGOTTEN, retire
from quire.metadata.store import NEW
from quire.metadata.tree_store import MetadataStore
from quire.tools.terminal import output
from quire.tools.terminal.options import (
    BookieId,
    Json,
    Metadata,
    Usage,
    Yes,
    asked,
    command,
    group,
    metadata_uri,
    options_of,
    refused,
)
from quire.tools.terminal.running import with_store

# SPDX-License-Identifier: Apache-2.0

app = group("A bookie's cookie.", "quire cookie show 10.0.0.5:3181")


@command(app, "quire cookie show 10.0.0.5:3181")
def show(bookie: BookieId, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Shows the cookie of a bookie: its directories and its cluster."""
    from quire.bookie.lifecycle.cookie import Cookie, summary

    async def work(store: MetadataStore) -> dict[str, Any]:
        found = await store.read_cookie(bookie)
        cookie = Cookie.decode(found.value, f"the cookie of {bookie}")
        return {**summary(cookie), "version": found.version, "text": found.value.decode("utf-8", "replace")}

    shown = with_store(metadata_uri(metadata), work)
    output.document(json_wanted, shown, shown["text"].rstrip("\n"))


@command(app, "quire cookie delete 10.0.0.7:3181 --yes")
def delete(bookie: BookieId, yes: Yes = False, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Removes the cookie of a bookie that will not come back. Refuses while the bookie is up. Asks, unless --yes.

    A bookie whose directories still have their cookies will not start after this. The cluster remembers the id: an
    empty bookie begins under another bookieId, or with `quire bookie start --restore`.
    """

    asked(yes, f"The cookie of {bookie} will be removed: it can't start with its directories any more.")

    async def work(store: MetadataStore) -> bool:
        if (await store.bookies()).find(bookie) is not None:
            return False
        await store.read_cookie(bookie)  # before anything is noted of an id that is mistyped
        await retire(store, bookie, FORGOTTEN)
        return True

    if not with_store(metadata_uri(metadata), work):
        raise refused(f"{bookie} is up; stop it first")
    output.document(json_wanted, {"bookie": bookie, "removed": True})


@command(app, "quire cookie create 10.0.0.7:3181 --conf /etc/quire/bookie.conf")
def create(
    bookie: BookieId,
    conf: Annotated[
        Path,
        typer.Option(
            "--conf", metavar="FILE", help="the bookie's configuration: its directories", exists=True, dir_okay=False
        ),
    ],
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Makes the cookie of a bookie again after it was lost, from its configuration.

    Refuses a configuration of another bookie. Run it on the bookie's machine, where its directories are looked at, too.
    """
    from quire.bookie.lifecycle.cookie import Cookie, summary
    from quire.bookie.lifecycle.ids import IdentityError, check_id, derive_id
    from quire.bookie.lifecycle.start_check import check_cookies, cluster_of, incarnation_of, read_cookies
    from quire.rows.files import Files

    options, files = options_of(conf), Files()
    try:
        check_id(bookie)
        if options.bookie_id is not None or (options.advertised_address is not None and options.port):
            own = derive_id(options, options.advertised_address or "", options.port)
            if own != bookie:
                raise Usage(f"{conf} is the configuration of {own}, not of {bookie}: name {bookie}'s own")
    except IdentityError as failure:
        raise Usage(str(failure)) from None

    async def work(store: MetadataStore) -> dict[str, Any]:
        cookie = Cookie.expected(options, bookie, await cluster_of(store, options, files))
        found = read_cookies(files, options)
        check_cookies(cookie, found, expansion=False)
        if (incarnation := incarnation_of(files, options, found, None)) is not None:
            cookie = cookie.of(incarnation)
        await store.write_cookie(bookie, cookie.encode(), NEW)
        return dict(summary(cookie))

    uri = metadata if metadata is not None else options.metadata_uri
    output.document(json_wanted, with_store(uri, work, options))
