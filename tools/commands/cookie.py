"""
`quire cookie`: what ties a bookie's id to its directories, as the metadata store has it.

Knows: how to show, make and remove that copy.  Does not know: the copies in the directories; `quire bookie format`
removes both.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from quire.metadata.store import NEW, MetadataStore
from quire.tools.commands.bookie import BookieId
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, group, metadata_uri, options_of, refused
from quire.tools.terminal.running import with_store

# SPDX-License-Identifier: Apache-2.0

app = group("A bookie's cookie.", "quire cookie show 10.0.0.5:3181")


@app.command()
def show(bookie: BookieId, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Shows the cookie of a bookie: its directories and its cluster.

    \b
    Example:
      quire cookie show 10.0.0.5:3181
    """
    from quire.bookie.lifecycle.cookie import Cookie, summary
    from quire.bookie.lifecycle.ids import IdentityError

    async def work(store: MetadataStore) -> dict[str, Any]:
        found = await store.read_cookie(bookie)
        cookie = Cookie.decode(found.value, f"the cookie of {bookie}")
        return {**summary(cookie), "version": found.version, "text": found.value.decode("utf-8", "replace")}

    try:
        shown = with_store(metadata_uri(metadata), work)
    except IdentityError as failure:
        raise refused(str(failure)) from None
    output.document(json_wanted, shown, shown["text"].rstrip("\n"))


@app.command()
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

    \b
    Example:
      quire cookie create 10.0.0.5:3181 --conf /etc/quire/bookie.conf
    """
    from quire.bookie.lifecycle.cookie import Cookie, summary
    from quire.bookie.lifecycle.ids import IdentityError, check_id

    options = options_of(conf)
    try:
        check_id(bookie)
    except IdentityError as failure:
        raise Usage(str(failure)) from None

    async def work(store: MetadataStore) -> dict[str, Any]:
        cookie = Cookie.expected(options, bookie, (await store.cluster()).instance_id)
        await store.write_cookie(bookie, cookie.encode(), NEW)
        return dict(summary(cookie))

    uri = metadata if metadata is not None else options.metadata_uri
    output.document(json_wanted, with_store(uri, work, options))


@app.command()
def delete(bookie: BookieId, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Removes the cookie of a bookie that will not come back. Refuses while the bookie is up.

    A bookie whose directories still have their cookies will not start after this.

    \b
    Example:
      quire cookie delete 10.0.0.5:3181
    """

    async def work(store: MetadataStore) -> bool:
        if (await store.bookies()).find(bookie) is not None:
            return False
        await store.remove_cookie(bookie)
        return True

    if not with_store(metadata_uri(metadata), work):
        raise refused(f"{bookie} is up; stop it first")
    output.document(json_wanted, {"bookie": bookie, "removed": True})
