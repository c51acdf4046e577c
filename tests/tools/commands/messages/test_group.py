"""`quire messages` against real bookies: a broker's directory in, searched, added to, and out."""

from tests.messages import archives
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0


def test_a_broker_s_directory(uri, tmp_path):
    """Planned, imported, listed, read by offset, id, queue and key, checked, exported, deleted."""
    source = archives.unpack("plain-clean", tmp_path)
    rows = ["--derived-dir", tmp_path / "rows"]
    plan = ok("messages", "import", source, "--into", "orders", "--dry-run", "--json", metadata=uri).document
    assert (plan["records"], plan["kind"], plan["end"]) == (86, "plain", 199346)
    assert (
        "plain: 86 records in 4 files"
        in ok("messages", "import", source, "--into", "orders", "--dry-run", metadata=uri).out
    )
    assert "there are no message stores" in ok("messages", "list", metadata=uri).err
    said = ok("messages", "import", source, "--into", "orders", metadata=uri)
    assert said.out == "orders: 86 records, 192917 bytes, offsets 0 to 199346\n"
    (row,) = ok("messages", "list", "--json", metadata=uri).rows
    assert (row["name"], row["state"], row["address"]) == ("orders", "ready", "127.0.0.1:43781")
    assert "plain from 0" in ok("messages", "show", "orders", metadata=uri).out
    found = ok("messages", "get", "orders", "7F0000010000AB050000000000000000", "--json", metadata=uri).document
    assert (found["offset"], found["body"], found["keys"]) == (0, "hi", "k1")
    assert ok("messages", "get", "orders", "0", metadata=uri).out.startswith("topic:")
    wrong = refused(1, "messages", "get", "orders", "5", metadata=uri)
    assert "no message begins at offset 5 of the store 'orders'; the next: 237" in wrong
    pulled = ok("messages", "pull", "orders", "T", "0", "--max", 3, *rows, metadata=uri)
    assert [line.split("\t")[0] for line in pulled.out.splitlines()] == ["0", "1", "2"]
    assert "FOUND: next 3" in pulled.err
    pulled = ok("messages", "pull", "orders", "T", "0", "--max", 3, "--json", *rows, metadata=uri)
    assert [row["position"] for row in pulled.rows] == [0, 1, 2]  # messages alone, one document each
    assert "FOUND: next 3" in pulled.err
    assert "k1" in ok("messages", "query", "orders", "T", "k1", *rows, metadata=uri).out
    queues = ok("messages", "queues", "orders", "T", "--group", "again", "--json", *rows, metadata=uri).rows
    assert {row["queue"] for row in queues} >= {0, 1}
    assert any(row["committed"] for row in queues)
    assert "86 records, 192917 bytes, 0 flaws" in ok("messages", "check", "orders", metadata=uri).out
    back = ok("messages", "export", "orders", tmp_path / "back", metadata=uri)
    assert "mappedFileSizeCommitLog=65536" in back.out
    assert "86 records" in ok("messages", "check", "orders", metadata=uri).out
    assert "give --yes" in refused(1, "messages", "delete", "orders", metadata=uri)
    ok("messages", "delete", "orders", "--yes", metadata=uri)
    assert "there is no message store 'orders'" in refused(1, "messages", "show", "orders", metadata=uri)


def test_messages_from_a_file(uri, tmp_path):
    """Each line is one, or the whole input; the store's logs refuse who does not come through it."""
    made = ok(
        *["messages", "create", "pay", "--address", "10.0.0.5:10911", "--file-size", 1 << 20, "--set", "ack=2"],
        "--json",
        metadata=uri,
    ).document
    assert (made["state"], made["settings"]["file_bytes"]) == ("ready", 1 << 20)
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\nthree\n")
    many = ok("messages", "put", "pay", "T", "--lines", "-f", lines, "--tags", "A", "--json", metadata=uri).document
    assert (many["messages"], many["first"]["position"], many["last"]["position"]) == (3, 0, 2)
    one = ok(
        *["messages", "put", "pay", "T", "-f", lines, "--keys", "k", "--property", "a=b", "--json"], metadata=uri
    ).document
    found = ok("messages", "get", "pay", one["first"]["message_id"], "--json", metadata=uri).document
    assert (found["body"], found["keys"], found["properties"]["a"]) == ("one\ntwo\nthree\n", "k", "b")
    assert "kept by `quire messages`" in refused(2, "log", "append", "pay", "-f", lines, metadata=uri)
    raw = ok("messages", "get", "pay", one["first"]["message_id"], "--raw", metadata=uri).raw
    assert raw[4:8].hex() == "daa320a7"
    assert "no message" in ok("messages", "put", "pay", "T", "-f", "/dev/null", metadata=uri).out


def test_what_is_refused(uri, tmp_path):
    """Each names the thing and the next step."""
    assert "SourceUnknown" in refused(1, "messages", "import", tmp_path, "--into", "none", metadata=uri)
    assert "multiple of 4096" in refused(
        2, "messages", "create", "x", "--address", "10.0.0.5:1", "--file-size", 5, metadata=uri
    )
    assert "not an IP address" in refused(2, "messages", "create", "x", "--address", "here:1", metadata=uri)
    assert "exclude each other" in refused(
        2, "messages", "import", tmp_path, "--into", "x", "--single", "--group-size", 3, metadata=uri
    )
    assert "no message store 'nobody'" in refused(1, "messages", "put", "nobody", "T", "-f", "/dev/null", metadata=uri)
