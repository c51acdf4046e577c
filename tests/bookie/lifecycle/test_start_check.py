"""The table that says whether a bookie may start (metadata-rules.md 6.2), and what a restore finds lost."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.directory import notes
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.ids import IdentityError
from quire.bookie.lifecycle.start_check import begin_incarnation, check, end_restore, failed_directories
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.retired_ids import DECOMMISSIONED, FORGOTTEN, FORMATTED, retire
from quire.metadata.store import NEW, NoCluster
from quire.rows.files import Files
from tests.bookie.fakes.home import CLUSTER, Home, made

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_new_bookie_gets_its_cookies(home: Home) -> None:
    """In every directory and in the store, all the same; the next start finds them."""
    assert home.check() is True
    texts = {home.version(name).read_bytes() for name in ("j", "l1", "l2")}
    assert texts == {home.stored()}
    assert Cookie.decode(home.stored(), "f").instance_id == CLUSTER
    assert home.check() is False


def test_separate_index_directories_have_cookies_too(home: Home) -> None:
    """Each index directory gets a VERSION file and the stored cookie lists them; a second start finds it complete."""
    assert home.check(index_directories=("i1", "i2"))
    assert home.version("i2").exists()
    assert Cookie.decode(home.stored(), "f").indexes == "\t".join(["2", str(home.path / "i1"), str(home.path / "i2")])
    assert home.check(index_directories=("i1", "i2")) is False


def test_a_first_start_that_ended_half_way_is_gone_on_with(home: Home) -> None:
    """Cookies in some or all directories, nothing else there, none in the store."""
    home.check()
    home.wait(home.store.remove_cookie("b:1"))
    home.version("l2").unlink()
    assert home.check() is True
    assert home.version("l2").read_bytes() == home.stored()


@pytest.mark.parametrize("call", ["make_directories", "replace"])
def test_a_directory_that_can_not_be_written_leaves_no_cookie_elsewhere(
    home: Home, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the first directories would be bound to a name that its owner corrects next."""
    working = getattr(home.files, call)

    def failing(path: str, *more: bytes) -> None:
        if "/misspelt/" in path:
            raise OSError(30, "Read-only file system", path)
        working(path, *more)

    monkeypatch.setattr(home.files, call, failing)
    with pytest.raises(IdentityError, match=r"misspelt.*: Read-only file system"):
        home.check(ledger_directories=("l1", "misspelt"))
    assert not list(home.path.rglob("VERSION"))
    assert home.check() is True


def test_unknown_files_without_cookie_are_refused(home: Home) -> None:
    """A directory that has files but no cookie ends the start before anything is written."""
    (home.path / "l2" / "current").mkdir(parents=True)
    (home.path / "l2" / "current" / "0.log").write_bytes(b"x")
    with pytest.raises(IdentityError, match="has files but no cookie"):
        home.check()
    assert not home.version("j").exists(), "nothing is written when the answer is no"


def test_data_that_the_cluster_does_not_know_is_refused(home: Home) -> None:
    """Its cookie was lost, or the metadata was created again: the operator must say which."""
    home.check()
    (home.path / "l1" / "current" / "0.log").write_bytes(b"x")
    home.wait(home.store.remove_cookie("b:1"))
    with pytest.raises(IdentityError, match="quire cookie create b:1"):
        home.check()


def test_a_directory_that_lost_its_cookie_is_refused(home: Home) -> None:
    """An empty disk in the place of a full one would deny what was acknowledged; also when expansion is allowed."""
    home.check()
    home.version("l2").unlink()
    for expansion in (False, True):
        with pytest.raises(IdentityError, match=r"l2 has lost its cookie.*`quire decommission b:1`.*another bookieId"):
            home.check(allow_storage_expansion=expansion)


def test_another_cluster_is_refused(home: Home) -> None:
    """A cookie with another instance id, or a cluster without one, ends the start with the option to check."""
    home.check()
    home.cluster = "11111111-2222-3333-4444-555555555555"
    with pytest.raises(IdentityError, match="The data is of another cluster: correct metadataServiceUri") as refused:
        home.check()
    assert "format" not in str(refused.value), "the way to the data must not lead to their end"
    home.cluster = None
    with pytest.raises(IdentityError, match="without an id"):
        home.check()


def test_a_store_without_a_cluster_is_not_the_one_of_data(home: Home) -> None:
    """A metadata file that was moved away, or is mistyped: only a new bookie is told to make a cluster."""
    home.store = MemoryStore(home.clock, MemoryCluster("mistyped"))
    with pytest.raises(NoCluster, match="quire metadata init"):
        home.find_cluster()
    for name in ("j", "l1", "l2"):
        home.version(name).parent.mkdir(parents=True)
    home.version("l2").write_bytes(Cookie.expected(home.options(), "b:1", CLUSTER).encode())
    with pytest.raises(IdentityError, match=f"l2 is of cluster {CLUSTER}: correct metadataServiceUri, or") as refused:
        home.find_cluster()
    assert "init" not in str(refused.value)


def test_a_changed_address_says_what_to_set(home: Home) -> None:
    """The commonest reason in containers."""
    home.check()
    with pytest.raises(IdentityError, match="set bookieId=b:1"):
        home.check("b:2")


@pytest.mark.parametrize(
    "more",
    [{"ledger_directories": ("l2", "l1")}, {"ledger_directories": ("l1",)}, {"journal_directories": ("j", "j2")}],
)
def test_other_directories_or_another_order_are_refused(home: Home, more: dict[str, object]) -> None:
    """A ledger's directory follows from its id and the order."""
    home.check()
    with pytest.raises(IdentityError, match="same directories in the same order"):
        home.check(**more)


def test_directories_that_were_moved_are_found_by_a_link_at_their_old_path(home: Home) -> None:
    """Under their new name they are refused, and the text says so."""
    home.check()
    (home.path / "l2").rename(home.path / "moved")
    with pytest.raises(IdentityError, match="where they were moved, make each old path a mount or a symbolic link"):
        home.check(ledger_directories=("l1", "moved"))
    (home.path / "l2").symlink_to(home.path / "moved")
    assert home.check() is False


def test_a_stored_cookie_of_another_bookie_is_refused(home: Home) -> None:
    """Two machines with one id: the second must not start."""
    other = Cookie("b:1", "/other", "1\t/other", CLUSTER)
    home.wait(home.store.write_cookie("b:1", other.encode(), NEW))
    with pytest.raises(IdentityError, match="cookie of b:1 in the metadata store is another one"):
        home.check()


def test_expansion(home: Home) -> None:
    """New empty directories join when it is allowed; every copy is written again."""
    home.check()
    more = {"ledger_directories": ("l1", "l2", "l3")}
    with pytest.raises(IdentityError, match="allowStorageExpansion=true"):
        home.check(**more)
    assert home.check(allow_storage_expansion=True, **more) is False
    assert {home.version(name).read_bytes() for name in ("j", "l1", "l2", "l3")} == {home.stored()}
    assert home.check(**more) is False
    with pytest.raises(IdentityError, match="same directories"):
        home.check()


def test_expansion_that_ended_half_way_is_gone_on_with(home: Home) -> None:
    """Directories have the new text, the store the old one."""
    home.check()
    old = home.stored()
    more = {"ledger_directories": ("l1", "l2", "l3"), "allow_storage_expansion": True}
    home.check(**more)
    home.wait(home.store.write_cookie("b:1", old, -1))
    assert home.check(**more) is False
    assert home.stored() == home.version("l3").read_bytes()


def test_expansion_takes_no_full_directory(home: Home) -> None:
    """A ledger directory that is added must be empty."""
    home.check()
    (home.path / "l3" / "current").mkdir(parents=True)
    (home.path / "l3" / "current" / "x").write_bytes(b"x")
    with pytest.raises(IdentityError, match="l3 is to be added but is not empty"):
        home.check(ledger_directories=("l1", "l2", "l3"), allow_storage_expansion=True)


def test_a_directory_that_cannot_be_written_is_named(home: Home) -> None:
    """The error names the directory in which no cookie can be written."""
    (home.path / "j").write_bytes(b"a file where a directory should be")
    with pytest.raises(IdentityError, match="j/current"):
        home.check()


# --- directories that were lost


def test_a_full_bookie_takes_no_more_ledger_directories(home: Home) -> None:
    """A ledger's directory follows from their number: its entries would be denied."""
    home.check()
    (home.path / "l1" / "current" / "0.log").write_bytes(b"x")
    with pytest.raises(IdentityError, match=r"l1 holds ledgers.*quire decommission b:1"):
        home.check(ledger_directories=("l1", "l2", "l3"), allow_storage_expansion=True)


def test_what_a_restore_finds_lost(home: Home) -> None:
    """Empty directories that had a cookie; none when all is there, all when everything is new."""
    with pytest.raises(IdentityError, match="does not know b:1, so nothing can be restored"):
        home.lost()
    home.check()
    assert home.lost() == []
    home.empty("l2")
    assert home.lost() == [str(home.path / "l2")]
    for name in ("j", "l1"):
        home.empty(name)
    assert home.lost() == [str(home.path / name) for name in ("j", "l1", "l2")]
    with pytest.raises(IdentityError, match="--restore"):
        home.check()


def test_a_restore_takes_no_other_directory_for_a_lost_one(home: Home) -> None:
    """Not one with files, not one of another bookie, not with another configuration; but its own half-done work."""
    home.check()
    home.empty("l2")
    (home.path / "l2" / "current").mkdir(parents=True)
    (home.path / "l2" / "current" / "0.log").write_bytes(b"x")
    with pytest.raises(IdentityError, match="l2 has files but no cookie"):
        home.lost()
    (home.path / "l2" / "current" / "quire.restoring").write_bytes(b"")
    assert home.lost() == [str(home.path / "l2")]
    with pytest.raises(IdentityError, match="same directories in the same order"):
        home.lost(ledger_directories=("l2", "l1"))
    home.cluster = "11111111-2222-3333-4444-555555555555"
    with pytest.raises(IdentityError, match="another cluster"):
        home.lost()


def test_an_index_without_its_ledgers_is_to_be_emptied_too(home: Home) -> None:
    """After the loss of a ledger directory its index directory must be emptied before both are restored."""
    more = {"index_directories": ("i1", "i2")}
    home.check(**more)
    home.empty("l2")
    with pytest.raises(IdentityError, match=r"i2 belongs to a directory that is lost.*empty it too"):
        home.lost(**more)
    home.empty("i2")
    assert home.lost(**more) == [str(home.path / "l2"), str(home.path / "i2")]


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
    assert list(failed_directories(files, options)) == expected


def test_who_may_start_without_a_dead_directory(home: Home) -> None:
    """
    A bookie that the cluster knows and whose other directories have their cookies: else what the dead one held is
    unknown.
    """
    two = (str(home.path / "l"), str(home.path / "l2"))
    files = Failing(two[1])

    def check_without() -> bool:
        options = home.options(ledger_directories=two)
        failed = failed_directories(files, options)
        assert list(failed) == [two[1]]
        checking = Deferred.fromCoroutine(check(home.store, options, "b:1", home.cluster, files, failed=failed))
        return home.wait(checking).is_new  # type: ignore[no-any-return, attr-defined, arg-type]

    with pytest.raises(IdentityError, match="Only a bookie that the cluster knows"):
        check_without()
    assert not home.version("l").exists()
    assert home.check(ledger_directories=two)
    assert not check_without()
    stored = home.stored()
    home.wait(home.store.remove_cookie("b:1"))  # type: ignore[arg-type]
    with pytest.raises(IdentityError, match="Only a bookie that the cluster knows"):
        check_without()
    home.wait(home.store.write_cookie("b:1", stored, NEW))  # type: ignore[arg-type]
    home.version("l").unlink()
    with pytest.raises(IdentityError, match=r"injected.*whose other directories have their cookies"):
        check_without()


# --- incarnations


def cookie_in(home: Home, name: str) -> Cookie:
    """The cookie of a directory."""
    return Cookie.decode(home.version(name).read_bytes(), name)


def test_a_set_of_directories_has_one_incarnation_that_stays(home: Home) -> None:
    """Drawn at the first start, in every cookie; another bookie's is another one."""
    home.check()
    drawn = home.incarnation
    assert len(drawn) == 16
    assert {cookie_in(home, name).incarnation for name in ("j", "l1", "l2")} == {drawn}
    assert Cookie.decode(home.stored(), "s").incarnation == drawn
    home.check()
    assert home.incarnation == drawn
    home.check("b:2", journal_directories=("k",), ledger_directories=("m",))
    assert home.incarnation != drawn


@pytest.mark.parametrize("without", [("j", "l1", "l2", "store"), ("j", "l1", "l2"), ("store",), ("l2",)])
def test_cookies_without_an_incarnation_get_one(home: Home, without: tuple[str, ...]) -> None:
    """Of quire before there were any, or as Apache's tools wrote them: what some of them say counts for all."""
    home.check()
    drawn = home.incarnation
    old = Cookie.expected(home.options(), "b:1", CLUSTER).encode()
    for name in without:
        if name == "store":
            home.wait(home.store.write_cookie("b:1", old, -1))  # type: ignore[arg-type]
        else:
            home.version(name).write_bytes(old)
    assert home.check() is False
    assert (home.incarnation == drawn) == (len(without) < 4)
    assert {cookie_in(home, name).incarnation for name in ("j", "l1", "l2")} == {home.incarnation}
    assert Cookie.decode(home.stored(), "s").incarnation == home.incarnation


def test_directories_of_another_incarnation_are_refused(home: Home) -> None:
    """Equal in everything else: another machine's, or one of another life; nothing is written."""
    home.check()
    cookie = cookie_in(home, "l2")
    for names in (("l2",), ("j", "l1", "l2")):
        for name in names:
            home.version(name).write_bytes(cookie.of("0123456789abcdef").encode())
        with pytest.raises(IdentityError, match=r"l2/current/VERSION: these directories are of another life.*bookieId"):
            home.check()
        with pytest.raises(IdentityError, match="another life"):
            home.lost()
    assert Cookie.decode(home.stored(), "s") == cookie
    home.wait(home.store.remove_cookie("b:1"))  # type: ignore[arg-type]
    home.version("j").write_bytes(cookie.encode())
    with pytest.raises(IdentityError, match="than the others"):
        home.check()


def test_a_directory_that_failed_while_others_were_restored_comes_back(home: Home) -> None:
    """It has the incarnation of before, and what it misses goes into limbo: the others say that it had failed."""
    home.check()
    cookie = cookie_in(home, "l2")
    home.version("l2").write_bytes(cookie.of("0123456789abcdef").encode())
    options = home.options()
    notes.note_failed(home.files, options.ledger_directories[:1], options.ledger_directories[1:])
    assert home.check() is False
    assert cookie_in(home, "l2") == cookie


def test_of_two_first_starts_at_once_one_is_let_in(tmp_path: Path) -> None:
    """With one id and the same paths on two machines: the one that was overtaken is refused, then and later."""
    winner, loser = Home(tmp_path), Home(tmp_path)
    loser.store = winner.store
    write = winner.store.write_cookie

    def overtaken(bookie: str, data: bytes, version: int) -> "Deferred[int]":
        winner.wait(write(bookie, Cookie.decode(data, "loser").of("0123456789abcdef").encode(), version))
        return write(bookie, data, version)

    winner.store.write_cookie = overtaken  # type: ignore[method-assign]
    with pytest.raises(IdentityError, match="another bookie began under the id b:1"):
        loser.check()
    winner.store.write_cookie = write  # type: ignore[method-assign]
    with pytest.raises(IdentityError, match="another life of the bookie than its cookie in the metadata store"):
        loser.check()


def begun(home: Home, lost: list[str]) -> Cookie:
    """The restore of these directories has begun; the cookie that they are to get."""
    beginning = begin_incarnation(home.store, home.options(), "b:1", CLUSTER, home.files, lost)
    return home.wait(Deferred.fromCoroutine(beginning))  # type: ignore[return-value, arg-type]


def test_a_restore_from_nothing_leaves_no_other_set_of_directories_its_id(home: Home) -> None:
    """
    Another machine has the id, the paths and all that was there: it is not taken for what is left of the set, neither
    amid the restore nor after it, and another try draws anew.
    """
    home.check()
    first = home.incarnation
    home.path.rename(home.path.with_name("away"))
    lost = home.lost()
    tries = [begun(home, lost).incarnation, begun(home, lost).incarnation]
    cookie = begun(home, lost)
    assert len({first, *tries, cookie.incarnation}) == 4
    assert Cookie.decode(home.stored(), "s") == cookie
    home.path.with_name("away").rename(home.path)
    with pytest.raises(IdentityError, match="another life"):
        home.check()
    assert cookie_in(home, "j").incarnation == first


def test_a_restore_that_was_overtaken_leaves_the_stored_cookie_alone(home: Home) -> None:
    """Of two machines that are restored at once under one id; what is left of a set is no other machine."""
    home.check()
    home.empty("l2")
    cookie = begun(home, home.lost())
    known = Cookie.decode(home.stored(), "s")
    assert known.before == home.incarnation
    assert begun(home, home.lost()) == cookie, "it goes on with what it drew"
    others = replace(known, incarnation="0123456789abcdef").encode()
    home.wait(home.store.write_cookie("b:1", others, -1))  # type: ignore[arg-type]
    with pytest.raises(IdentityError, match="another machine began under the id b:1"):
        home.wait(Deferred.fromCoroutine(end_restore(home.store, cookie)))  # type: ignore[arg-type]
    assert home.stored() == others
    home.wait(home.store.write_cookie("b:1", known.encode(), -1))  # type: ignore[arg-type]
    home.wait(Deferred.fromCoroutine(end_restore(home.store, cookie)))  # type: ignore[arg-type]
    assert home.stored() == cookie.encode()


# --- ids that were in use


@pytest.mark.parametrize("how", [DECOMMISSIONED, FORMATTED, FORGOTTEN])
def test_an_id_that_was_taken_out_is_refused(home: Home, how: str) -> None:
    """To empty directories, whether they have cookies by now or not; nothing is written, and a restore is let in."""
    home.check()
    home.wait(Deferred.fromCoroutine(retire(home.store, "b:1", how)))
    said = rf"b:1 was {how} at \d\d\d\d-.* UTC.*Choose another bookieId; or keep this one with .*--restore"
    with pytest.raises(IdentityError, match=said):
        home.check()
    for name in ("j", "l1", "l2"):
        home.empty(name)
    with pytest.raises(IdentityError, match=said):
        home.check()
    assert not list(home.path.rglob("VERSION"))
    assert len(home.lost()) == 3
    assert home.check("b:2") is True


def test_an_id_that_a_ledger_names_is_refused(home: Home) -> None:
    """The cookie is gone, by Apache's tools, say: a recovery would take what an empty bookie denies for the end."""
    for ledger in range(120):
        named = ("b:1", "c", "d") if ledger == 110 else ("b", "c", "d")
        home.wait(home.store.create_ledger(ledger, LedgerMetadata.new(3, 3, 2, named)))  # type: ignore[arg-type]
    with pytest.raises(IdentityError, match=r"ledger 110 names b:1, whose cookie is gone.*--restore"):
        home.check()
    assert len(home.lost()) == 3
    assert home.check("b:2") is True


def test_a_new_id_has_nothing_to_restore(home: Home) -> None:
    """A mistyped id or store must not begin as if it were the bookie that was lost."""
    with pytest.raises(IdentityError, match="nothing can be restored"):
        home.lost()
