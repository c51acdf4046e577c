"""Ids, cookies, and the table that says whether a bookie may start (metadata-rules.md 5.3, 6)."""

import errno
import json
import shutil
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.files import Files
from quire.bookie.lifecycle import identity
from quire.bookie.lifecycle.identity import Cookie, IdentityError, check, check_id, derive_id, own_host
from quire.conf.bookie import BookieOptions
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import NEW, MetadataStore

# SPDX-License-Identifier: Apache-2.0

CLUSTER = "48a562a9-60b0-4d14-a6c2-f598c2df360b"
SPEC_TEXT = (
    b'5\nbookieHost: "h1:3181"\njournalDir: "/j1,/j2"\nledgerDirs: "2\\t/l1\\t/l2"\ninstanceId: '
    b'"48a562a9-60b0-4d14-a6c2-f598c2df360b"\nindexDirs: "1\\t/i1"\n'
)
SPEC_COOKIE = Cookie("h1:3181", "/j1,/j2", "2\t/l1\t/l2", CLUSTER, "1\t/i1")


# --- ids


@pytest.mark.parametrize(
    "good", ["127.0.0.1:3181", "bookie-c.example:3183", "b_1", "A:B;C<D=E>F?G@[H]^I", "back\\slash"]
)
def test_ids_that_are_fine(good: str) -> None:
    """Ids may have every character that Apache BookKeeper permits."""
    assert check_id(good) == good


@pytest.mark.parametrize("bad", ["", "a/b", "a b", "../x", "..", ".", "é", "readonly", "ReadOnly", "a\n", "a~b", "a+b"])
def test_ids_that_are_refused(bad: str) -> None:
    """An id becomes part of paths and keys."""
    with pytest.raises(IdentityError):
        check_id(bad)


def made(**more: object) -> BookieOptions:
    return BookieOptions.model_validate(
        {"metadata_uri": "memory://a", "journal_directories": ("/j",), "ledger_directories": ("/l",), **more}
    )


def no_interface(name: str) -> str | None:
    return "10.0.0.9" if name == "eth7" else None


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"bookie_id": "one", "advertised_address": "h"}, "one"),
        ({"advertised_address": "h.example"}, "h.example:3181"),
        ({"listen": "10.1.2.3"}, "10.1.2.3:3181"),
        ({"listen": "eth7"}, "10.0.0.9:3181"),
        ({"listen": "127.0.0.1", "allow_loopback": True}, "127.0.0.1:3181"),
        ({"listen": "127.0.0.1", "advertised_address": "127.0.0.1"}, "127.0.0.1:3181"),
    ],
)
def test_derivation(more: dict[str, object], found: str) -> None:
    """bookieId verbatim, else the advertised address, else that of the interface, with the port."""
    options = made(**more)
    assert derive_id(options, own_host(options, no_interface), 3181) == found


def test_a_loopback_address_is_refused_unless_asked_for() -> None:
    """Every bookie of a cluster would be 127.0.0.1."""
    with pytest.raises(IdentityError, match="advertisedAddress"):
        own_host(made(listen="127.0.0.1"), no_interface)


def test_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host name is the fully qualified one, or its first label on request."""
    monkeypatch.setattr("socket.getfqdn", lambda: "b1.example.org")
    assert own_host(made(use_host_name=True), no_interface) == "b1.example.org"
    assert own_host(made(use_host_name=True, use_short_host_name=True), no_interface) == "b1"


# --- the text


def test_a_known_text_both_ways() -> None:
    """A cookie is encoded to and decoded from exactly the bytes that Apache BookKeeper writes."""
    assert SPEC_COOKIE.encode() == SPEC_TEXT
    assert Cookie.decode(SPEC_TEXT, "f") == SPEC_COOKIE


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].joinpath("vectors").glob("*_znodes_running.jsonl")))
def test_cookies_that_a_real_bookie_wrote(path: Path) -> None:
    """Apache's bytes decode, and encode to the same."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    cookies = [
        (row["path"].rsplit("/", 1)[1], bytes.fromhex(row["data"])) for row in rows if "/cookies/" in row["path"]
    ]
    assert cookies
    for bookie, data in cookies:
        cookie = Cookie.decode(data, bookie)
        assert cookie.bookie == bookie
        assert cookie.encode() == data


def test_older_layouts_are_read() -> None:
    """Layouts 3 and 4, and text with all fields in one line, are decoded."""
    assert Cookie.decode(b"3\nh:1\n/j\n1\t/l\n", "f") == Cookie("h:1", "/j", "1\t/l")
    assert Cookie.decode(SPEC_TEXT.replace(b"5\n", b"4\n", 1), "f") == SPEC_COOKIE
    one_line = b'5\n bookieHost:"h:1" journalDir: "/j" ledgerDirs: "1\\t/l" '
    assert Cookie.decode(one_line, "f") == Cookie("h:1", "/j", "1\t/l")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"2\nx",
        b"1\n",
        b"hello\n",
        b"3\na\nb\n",
        b'5\nbookieHost: "h"\n',
        b"5\nbookieHost: h\n",
        b'5\nbookieHost: "h\n',
    ],
)
def test_what_is_no_cookie_is_named(data: bytes) -> None:
    """An error about a malformed cookie names the file."""
    with pytest.raises(IdentityError, match="/d/VERSION"):
        Cookie.decode(data, "/d/VERSION")


def test_quoting() -> None:
    """Protobuf's text escapes, octal ones too."""
    odd = Cookie('a"b\\c\td\ne', "/j", "1\t/l")
    assert Cookie.decode(odd.encode(), "f") == odd
    octal = Cookie.decode(b'5\nbookieHost: "a\\011b" journalDir: "/\\303\\251" ledgerDirs: "1\\t/l"\n', "f")
    assert (octal.bookie, octal.journals) == ("a\tb", "/é")
    assert b'journalDir: "/\\303\\251"' in octal.encode()


def test_a_cookie_is_written_as_java_writes_it_and_read_as_older_versions_wrote_it() -> None:
    """
    Java names the apostrophe and bytes 7, 8, 11 and 12; older versions of quire left the one as it is and wrote the
    others in octal.
    """
    odd = Cookie("h:1", "/it's\a\b\v\f", "1\t/l")
    assert b'journalDir: "/it\\\'s\\a\\b\\v\\f"\n' in odd.encode()
    assert Cookie.decode(odd.encode(), "f") == odd
    older = b'5\nbookieHost: "h:1"\njournalDir: "/it\'s\\007\\010\\013\\014"\nledgerDirs: "1\\t/l"\n'
    assert Cookie.decode(older, "f") == odd
    with pytest.raises(IdentityError, match="/d/VERSION can't be read"):
        Cookie.decode(b'5\nbookieHost: "\\q" journalDir: "/j" ledgerDirs: "1\\t/l"\n', "/d/VERSION")


# --- the check at start


class Place:
    """Directories on a real disk and a cluster in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.files = Files()
        self.store: MetadataStore = MemoryStore(self.clock, MemoryCluster("identity"))
        self.cluster: str | None = CLUSTER
        self.wait(self.store.init_cluster())

    def options(self, **more: object) -> BookieOptions:
        names = {"journal_directories": ("j",), "ledger_directories": ("l1", "l2"), **more}
        paths = {
            key: tuple(str(self.path / name) for name in value) if key.endswith("directories") else value
            for key, value in names.items()
        }  # type: ignore[attr-defined]
        return made(**paths)

    def wait(self, deferred: "Deferred[object]") -> object:
        found: list[object] = []
        deferred.addBoth(found.append)
        while not found:
            self.clock.advance(0.01)
        result = found[0]
        if hasattr(result, "raiseException"):
            result.raiseException()
        return result

    def check(self, bookie: str = "b:1", **more: object) -> bool:
        return bool(
            self.wait(Deferred.fromCoroutine(check(self.store, self.options(**more), bookie, self.cluster, self.files)))
        )

    def lost(self, bookie: str = "b:1", **more: object) -> list[str]:
        return list(
            self.wait(
                Deferred.fromCoroutine(
                    identity.lost_directories(self.store, self.options(**more), bookie, self.cluster, self.files)
                )
            )
        )

    def empty(self, directory: str) -> None:
        """A new disk in the place of the old one."""
        shutil.rmtree(self.path / directory)

    def version(self, directory: str) -> Path:
        return self.path / directory / "current" / "VERSION"

    def stored(self, bookie: str = "b:1") -> bytes:
        return self.wait(self.store.read_cookie(bookie)).value  # type: ignore[no-any-return, attr-defined, arg-type]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_new_bookie_gets_its_cookies(place: Place) -> None:
    """In every directory and in the store, all the same; the next start finds them."""
    assert place.check() is True
    texts = {place.version(name).read_bytes() for name in ("j", "l1", "l2")}
    assert texts == {place.stored()}
    assert Cookie.decode(place.stored(), "f").instance_id == CLUSTER
    assert place.check() is False


def test_separate_index_directories_have_cookies_too(place: Place) -> None:
    """Each index directory gets a VERSION file and the stored cookie lists them; a second start finds it complete."""
    assert place.check(index_directories=("i1", "i2"))
    assert place.version("i2").exists()
    assert Cookie.decode(place.stored(), "f").indexes == "\t".join(
        ["2", str(place.path / "i1"), str(place.path / "i2")]
    )
    assert place.check(index_directories=("i1", "i2")) is False


def test_a_first_start_that_ended_half_way_is_gone_on_with(place: Place) -> None:
    """Cookies in some or all directories, nothing else there, none in the store."""
    place.check()
    place.wait(place.store.remove_cookie("b:1"))
    place.version("l2").unlink()
    assert place.check() is True
    assert place.version("l2").read_bytes() == place.stored()


@pytest.mark.parametrize("call", ["make_directories", "replace"])
def test_a_directory_that_can_not_be_written_leaves_no_cookie_elsewhere(
    place: Place, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the first directories would be bound to a name that its owner corrects next."""
    working = getattr(place.files, call)

    def failing(path: str, *more: bytes) -> None:
        if "/misspelt/" in path:
            raise OSError(30, "Read-only file system", path)
        working(path, *more)

    monkeypatch.setattr(place.files, call, failing)
    with pytest.raises(IdentityError, match=r"misspelt.*: Read-only file system"):
        place.check(ledger_directories=("l1", "misspelt"))
    assert not list(place.path.rglob("VERSION"))
    assert place.check() is True


def test_unknown_files_without_cookie_are_refused(place: Place) -> None:
    """A directory that has files but no cookie ends the start before anything is written."""
    (place.path / "l2" / "current").mkdir(parents=True)
    (place.path / "l2" / "current" / "0.log").write_bytes(b"x")
    with pytest.raises(IdentityError, match="has files but no cookie"):
        place.check()
    assert not place.version("j").exists(), "nothing is written when the answer is no"


def test_data_that_the_cluster_does_not_know_is_refused(place: Place) -> None:
    """Its cookie was lost, or the metadata was made anew: the operator must say which."""
    place.check()
    (place.path / "l1" / "current" / "0.log").write_bytes(b"x")
    place.wait(place.store.remove_cookie("b:1"))
    with pytest.raises(IdentityError, match="quire cookie create b:1"):
        place.check()


def test_a_directory_that_lost_its_cookie_is_refused(place: Place) -> None:
    """An empty disk in the place of a full one would deny what was acknowledged; also when expansion is allowed."""
    place.check()
    place.version("l2").unlink()
    for expansion in (False, True):
        with pytest.raises(IdentityError, match=r"l2 has lost its cookie"):
            place.check(allow_storage_expansion=expansion)


def test_another_cluster_is_refused(place: Place) -> None:
    """A cookie with another instance id, or a cluster without one, ends the start with the option to check."""
    place.check()
    place.cluster = "11111111-2222-3333-4444-555555555555"
    with pytest.raises(IdentityError, match="The data is of another cluster: check metadataServiceUri"):
        place.check()
    place.cluster = None
    with pytest.raises(IdentityError, match="without an id"):
        place.check()


def test_a_changed_address_says_what_to_set(place: Place) -> None:
    """The commonest reason in containers."""
    place.check()
    with pytest.raises(IdentityError, match="set bookieId=b:1"):
        place.check("b:2")


@pytest.mark.parametrize(
    "more",
    [{"ledger_directories": ("l2", "l1")}, {"ledger_directories": ("l1",)}, {"journal_directories": ("j", "j2")}],
)
def test_other_directories_or_another_order_are_refused(place: Place, more: dict[str, object]) -> None:
    """A ledger's directory follows from its id and the order."""
    place.check()
    with pytest.raises(IdentityError, match="same directories in the same order"):
        place.check(**more)


def test_a_stored_cookie_of_somebody_else_is_refused(place: Place) -> None:
    """Two machines with one id: the second must not start."""
    other = Cookie("b:1", "/other", "1\t/other", CLUSTER)
    place.wait(place.store.write_cookie("b:1", other.encode(), NEW))
    with pytest.raises(IdentityError, match="cookie of b:1 in the metadata store is another one"):
        place.check()


def test_expansion(place: Place) -> None:
    """New empty directories join when it is allowed; every copy is written anew."""
    place.check()
    more = {"ledger_directories": ("l1", "l2", "l3")}
    with pytest.raises(IdentityError, match="allowStorageExpansion=true"):
        place.check(**more)
    assert place.check(allow_storage_expansion=True, **more) is False
    assert {place.version(name).read_bytes() for name in ("j", "l1", "l2", "l3")} == {place.stored()}
    assert place.check(**more) is False
    with pytest.raises(IdentityError, match="same directories"):
        place.check()


def test_expansion_that_ended_half_way_is_gone_on_with(place: Place) -> None:
    """Directories have the new text, the store the old one."""
    place.check()
    old = place.stored()
    more = {"ledger_directories": ("l1", "l2", "l3"), "allow_storage_expansion": True}
    place.check(**more)
    place.wait(place.store.write_cookie("b:1", old, -1))
    assert place.check(**more) is False
    assert place.stored() == place.version("l3").read_bytes()


def test_expansion_takes_no_full_directory(place: Place) -> None:
    """A ledger directory that is added must be empty."""
    place.check()
    (place.path / "l3" / "current").mkdir(parents=True)
    (place.path / "l3" / "current" / "x").write_bytes(b"x")
    with pytest.raises(IdentityError, match="l3 is to be added but is not empty"):
        place.check(ledger_directories=("l1", "l2", "l3"), allow_storage_expansion=True)


def test_a_directory_that_cannot_be_written_is_named(place: Place) -> None:
    """The error names the directory in which no cookie can be written."""
    (place.path / "j").write_bytes(b"a file where a directory should be")
    with pytest.raises(IdentityError, match="j/current"):
        place.check()


def test_summary() -> None:
    """A cookie's summary lists its directories by kind, without counts."""
    assert identity.summary(SPEC_COOKIE) == {
        "bookie": "h1:3181",
        "journal_directories": ["/j1", "/j2"],
        "ledger_directories": ["/l1", "/l2"],
        "index_directories": ["/i1"],
        "instance_id": CLUSTER,
    }


# --- directories that were lost or exchanged


def test_exchanged_directories_are_refused(place: Place) -> None:
    """
    Their cookies are the same, but each knows its place; the message says where the disk belongs.  What has no note
    gets one.
    """
    place.check()
    one, two = place.path / "l1", place.path / "l2"
    one.rename(place.path / "aside")
    two.rename(one)
    (place.path / "aside").rename(two)
    with pytest.raises(
        IdentityError, match=r"l1 was ledgers 1 of this bookie and is configured as ledgers 0.*Mount the disk at \S+/l2"
    ):
        place.check()
    with pytest.raises(IdentityError, match="exchanged"):
        place.lost()
    for directory in (one, two):
        (directory / "current" / "quire.place").unlink()
    assert place.check() is False
    assert (one / "current" / "quire.place").read_text() == "ledgers 0\n"


def test_a_full_bookie_takes_no_more_ledger_directories(place: Place) -> None:
    """A ledger's directory follows from their number: its entries would be denied."""
    place.check()
    (place.path / "l1" / "current" / "0.log").write_bytes(b"x")
    with pytest.raises(IdentityError, match=r"l1 holds ledgers.*quire decommission b:1"):
        place.check(ledger_directories=("l1", "l2", "l3"), allow_storage_expansion=True)


def test_what_a_restore_finds_lost(place: Place) -> None:
    """Empty directories that had a cookie; none when all is there, all when everything is new."""
    with pytest.raises(IdentityError, match="does not know b:1, so nothing can be restored"):
        place.lost()
    place.check()
    assert place.lost() == []
    place.empty("l2")
    assert place.lost() == [str(place.path / "l2")]
    for name in ("j", "l1"):
        place.empty(name)
    assert place.lost() == [str(place.path / name) for name in ("j", "l1", "l2")]
    with pytest.raises(IdentityError, match="--restore"):
        place.check()


def test_a_restore_takes_no_other_directory_for_a_lost_one(place: Place) -> None:
    """Not one with files, not one of another bookie, not with another configuration; but its own half-done work."""
    place.check()
    place.empty("l2")
    (place.path / "l2" / "current").mkdir(parents=True)
    (place.path / "l2" / "current" / "0.log").write_bytes(b"x")
    with pytest.raises(IdentityError, match="l2 has files but no cookie"):
        place.lost()
    (place.path / "l2" / "current" / "quire.restoring").write_bytes(b"")
    assert place.lost() == [str(place.path / "l2")]
    with pytest.raises(IdentityError, match="same directories in the same order"):
        place.lost(ledger_directories=("l2", "l1"))
    place.cluster = "11111111-2222-3333-4444-555555555555"
    with pytest.raises(IdentityError, match="another cluster"):
        place.lost()


def test_an_index_without_its_ledgers_is_to_be_emptied_too(place: Place) -> None:
    """After the loss of a ledger directory its index directory must be emptied before both are restored."""
    more = {"index_directories": ("i1", "i2")}
    place.check(**more)
    place.empty("l2")
    with pytest.raises(IdentityError, match=r"i2 belongs to a directory that is lost.*empty it too"):
        place.lost(**more)
    place.empty("i2")
    assert place.lost(**more) == [str(place.path / "l2"), str(place.path / "i2")]


# --- without a dead disk


class Failing(Files):
    """What `calls` ask of paths that begin with one of `dead` fails."""

    def __init__(self, *dead: str, number: int = errno.EIO, calls: tuple[str, ...] = ("read_file", "names")) -> None:
        self.dead = dead
        self.number = number
        self.calls = calls

    def _look(self, call: str, path: str) -> None:
        if call in self.calls and path.startswith(self.dead):
            raise OSError(self.number, "injected", path)

    def names(self, path: str) -> list[str]:
        self._look("names", path)
        return super().names(path)

    def read_file(self, path: str) -> bytes | None:
        self._look("read_file", path)
        return super().read_file(path)


@pytest.mark.parametrize(
    ("files", "more", "expected"),
    [
        (Failing("/l2"), {}, ["/l2"]),
        (Failing("/l2", calls=("names",)), {}, ["/l2"]),
        (Failing("/l2", calls=("read_file",)), {}, ["/l2"]),
        (Failing("/i2"), {}, ["/l2"]),
        (Failing("/l2", "/i2", "/l3"), {}, ["/l2", "/l3"]),
        (Failing("/l2", number=errno.EACCES), {}, []),
        (Failing("/l", "/i"), {}, []),
        (Failing("/l2"), {"journal_directories": ("/l2",)}, []),
        (Failing("/j"), {}, []),
    ],
)
def test_which_directories_a_bookie_may_start_without(
    files: Files, more: dict[str, object], expected: list[str]
) -> None:
    """
    A ledger directory whose disk, or whose index's, has failed, while another lives; not for a wrong configuration, nor
    where a journal lies.
    """
    options = made(ledger_directories=("/l1", "/l2", "/l3"), index_directories=("/i1", "/i2", "/i3"), **more)
    assert list(identity.dead_directories(files, options)) == expected


def test_who_may_start_without_a_dead_directory(place: Place) -> None:
    """
    A bookie that the cluster knows and whose other directories have their cookies: else nobody can tell what the dead
    one held.
    """
    two = (str(place.path / "l"), str(place.path / "l2"))
    files = Failing(two[1])

    def check_without() -> bool:
        options = place.options(ledger_directories=two)
        dead = identity.dead_directories(files, options)
        assert list(dead) == [two[1]]
        return bool(
            place.wait(Deferred.fromCoroutine(check(place.store, options, "b:1", place.cluster, files, dead=dead)))
        )

    with pytest.raises(IdentityError, match="Only a bookie that the cluster knows"):
        check_without()
    assert not place.version("l").exists()
    assert place.check(ledger_directories=two)
    assert not check_without()
    stored = place.stored()
    place.wait(place.store.remove_cookie("b:1"))  # type: ignore[arg-type]
    with pytest.raises(IdentityError, match="Only a bookie that the cluster knows"):
        check_without()
    place.wait(place.store.write_cookie("b:1", stored, NEW))  # type: ignore[arg-type]
    place.version("l").unlink()
    with pytest.raises(IdentityError, match=r"injected.*whose other directories have their cookies"):
        check_without()
