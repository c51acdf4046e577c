"""Entries as a user of the console sees them."""

import pytest

from quire.console.entries import BYTES_MAX, Shown, hex_of, shown, some_of, text_of
from quire.protocol.errors import UnauthorizedAccess
from tests.reactor import run
from tests.tools.commands.doctor.conftest import World

# SPDX-License-Identifier: Apache-2.0


def test_forms() -> None:
    """Text with what is none shown by its number, JSON in lines, hexadecimal digits with places and letters."""
    assert text_of("héé\n\x1b[31m".encode() + b"\xff") == "héé\n\\x1b[31m\\xff"
    assert shown(3, b'{"a": [1]}', "json").text == '{\n  "a": [\n    1\n  ]\n}'
    assert shown(3, b"{", "json").text.startswith("this is no JSON (")
    assert hex_of(b"0123456789abcdef\x00") == (
        "000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n"
        "000010  00                                               ."
    )


def test_a_long_entry_is_cut() -> None:
    """What is left out is said."""
    found = shown(0, b"x" * (BYTES_MAX + 1), "text")
    assert (found.size, len(found.text), found.cut) == (BYTES_MAX + 1, BYTES_MAX, True)
    assert shown(0, b"[" + b" " * BYTES_MAX + b"]", "json").cut


def test_entries_are_read_and_nothing_is_fenced(world: World) -> None:
    """With the ledger's password; of one that is being written what is confirmed; its writer goes on."""

    async def story() -> None:
        client = await world.client()
        try:
            writer = await client.create_ledger(password=b"secret")
            await writer.append_many([b"one", b"two", b"three"])
            await writer.write_lac()
            found = await some_of(client, writer.id, b"secret", 1, 50, "text")
            assert found.entries == [Shown(1, 3, "two", False), Shown(2, 5, "three", False)]
            assert found.end == 2
            assert (await some_of(client, writer.id, b"secret", 3, 50, "text")).entries == []
            with pytest.raises(UnauthorizedAccess):
                await some_of(client, writer.id, b"", 0, 1, "text")
            await writer.append(b"four")
            await writer.close()
            await client.delete_ledger(writer.id)
        finally:
            await client.close()

    run(story)
