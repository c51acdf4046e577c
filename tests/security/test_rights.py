"""Files of rights: what a line gives, what stops the start, and what a grant lacks."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.properties import ConfigurationError
from quire.security.rights import (
    ADD,
    ADMINISTER,
    ALL,
    FENCE,
    INSPECT,
    LEDGER_MAX,
    READ,
    Grant,
    Rights,
    Spans,
    parse,
    rights_of,
    watch,
)
from tests.security.wires import DIRECTORIES, bookie_options

# SPDX-License-Identifier: Apache-2.0

TEXT = """
# who may what
role Writer  add
role  Reader\tread  ledgers 100-199,205,1000-
role "Site Ops" inspect,administer
   user reports read,fence
role System all
role Writer read ledgers 5
"""
MUTUAL = {"tls_certificate": "/c.pem", "tls_key": "/k.pem", "tls_trust": "/t.pem", "tls_client_certificates": True}
SASL = {**DIRECTORIES, "authentication": "sasl", "jaas_file": "/jaas.conf"}


def rights(text: str) -> Rights:
    return Rights(parse(text, "rights").values())


def file(where: Path, text: str | bytes) -> str:
    path = where / "rights"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o640)
    return str(path)


@pytest.mark.parametrize(
    ("user", "role", "verbs"),
    [
        ("", "Writer", ADD),
        ("", "Reader", 0),
        ("", "Site Ops", INSPECT | ADMINISTER),
        ("reports", None, READ | FENCE),
        ("reports", "Writer", READ | FENCE | ADD),
        ("", "System", ALL),
        ("Writer", None, 0),
        ("", "reports", 0),
        ("", "writer", 0),
        ("", None, 0),
        ("", "", 0),
    ],
)
def test_what_a_line_gives_everywhere(user: str, role: str | None, verbs: int) -> None:
    """To the role or the user of that very name, and to who is both what either may; to nobody else."""
    grant = rights(TEXT).of(user, role)
    assert grant.verbs == verbs
    assert bool(grant) == bool(verbs) or role == "Reader"


@pytest.mark.parametrize(
    ("ledger", "may"),
    [(99, False), (100, True), (199, True), (200, False), (205, True), (206, False), (999, False), (1000, True)],
)
def test_runs_of_ledgers(ledger: int, may: bool) -> None:
    """Both ends are inside; the last run has none."""
    grant = rights(TEXT).of("", "Reader")
    assert grant
    assert bool(grant.lacks(READ, ledger)) != may
    assert not grant.lacks(READ, LEDGER_MAX)
    assert grant.lacks(READ | FENCE, 150) == FENCE
    assert grant.lacks(READ) == READ
    assert grant.lacks(READ, None) == READ


def test_runs_that_touch_are_one_and_others_are_not() -> None:
    """A ledger between two runs is in neither."""
    assert [ledger for ledger in range(12) if ledger in Spans([(8, 9), (1, 2), (4, 5), (6, 6)])] == [
        1,
        2,
        4,
        5,
        6,
        8,
        9,
    ]


def test_lines_of_one_role_add_up() -> None:
    """All ledgers by one line, some by another; what is given everywhere needs no look at runs."""
    grant = rights(TEXT).of("", "Writer")
    assert (grant.lacks(ADD, 7), grant.lacks(ADD | READ, 5), grant.lacks(READ, 7)) == (0, 0, READ)
    assert rights("role A add ledgers 1\nrole A add\n").of("", "A") == Grant(ADD)
    both = rights("role A read ledgers 1-5\nuser u read ledgers 6-9\n").of("u", "A")
    assert [ledger for ledger in range(12) if not both.lacks(READ, ledger)] == list(range(1, 10))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10))), st.integers(0, 60))
def test_spans_have_what_any_of_them_has(pairs: list[tuple[int, int]], ledger: int) -> None:
    """However they overlap."""
    spans = [(first, first + more) for first, more in pairs]
    assert (ledger in Spans(spans)) == any(first <= ledger <= last for first, last in spans)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("role", "a line is `role NAME VERBS`"),
        ("role Writer", "a line is"),
        ("role Writer add read", "a line is"),
        ("role Writer add ledgers", "a line is"),
        ("role Writer add ledgers 5 7", "a line is"),
        ("role Writer add # comment", "a line is"),
        ('role "Writer add', "a line is"),
        ('role "" add', "a line is"),
        ("group Writer add", "neither role nor user"),
        ("Role Writer add", "neither role nor user"),
        ("role Writer write", "none of add, read, fence, inspect, administer and all"),
        ("role Writer add,", "a verb that is none of"),
        ("role Writer ADD", "a verb that is none of"),
        ("role Writer add ledgers x", "a run of ledgers that is none"),
        ("role Writer add ledgers 5-9,", "a run of ledgers that is none"),
        ("role Writer add ledgers -5", "a run of ledgers that is none"),
        ("role Writer add ledgers 9-5", "a run without a ledger in it"),
        (f"role Writer add ledgers {LEDGER_MAX + 1}", "a run without a ledger in it"),
        ("role Writer inspect ledgers 5", "of no ledger"),
        ("role Writer all ledgers 5", "of no ledger"),
    ],
)
def test_a_line_that_is_not_understood(tmp_path: Path, line: str, said: str) -> None:
    """Stops the start with the file, the number of the line, the key, and the form that it should have."""
    path = file(tmp_path, f"# rights\nrole A all\n{line}\n")
    with pytest.raises(ConfigurationError) as failure:
        rights_of(bookie_options(**MUTUAL, rights_file=path))
    assert str(failure.value).startswith(f"{path}:3 (rightsFile): ")
    assert said in str(failure.value)
    assert "Writer" not in str(failure.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "gives nobody a right"),
        (b"# role A all\n\n", "gives nobody a right"),
        (b"role A all\nrole \xff add\n", r":2 \(rightsFile\): that is not UTF-8"),
        (b"role A all\n" * 100_000, "more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, data: bytes, said: str) -> None:
    """Nothing in it, nothing that is text, or too much: the start stops."""
    with pytest.raises(ConfigurationError, match=said):
        rights_of(bookie_options(**MUTUAL, rights_file=file(tmp_path, data)))


def test_a_file_that_is_cut_off_gives_no_more_than_the_whole_one(tmp_path: Path) -> None:
    """As one is that is being written: where it does not end with a line it is named, and not used so far."""
    text = "role A read ledgers 5-9\nuser b add,fence ledgers 7,30-31\n# role C all\n"
    whole = list(parse(text, "rights").items())
    for cut in range(len(text)):
        if not text[:cut].endswith("\n"):
            with pytest.raises(ConfigurationError, match=r"is not whole" if cut else "gives nobody"):
                parse(text[:cut], "rights")
        else:
            found = list(parse(text[:cut], "rights").items())
            assert found == whole[: len(found)]
    path = file(tmp_path, text[:-1])
    with pytest.raises(ConfigurationError, match=rf"{path}:3 \(rightsFile\) is not whole"):
        rights_of(bookie_options(**MUTUAL, rights_file=path))


def test_only_a_line_feed_ends_a_line() -> None:
    """What an editor shows inside a comment gives nothing; Windows' ends of lines are none either."""
    assert list(parse("# a\u2028role A all\x0brole A all\r\nrole B all\r\n", "rights")) == [2]


def test_a_file_that_is_not_there_or_everybodys(tmp_path: Path) -> None:
    """Who can write it could give himself every right."""
    with pytest.raises(ConfigurationError, match=r"nowhere \(rightsFile\): No such file"):
        rights_of(bookie_options(**MUTUAL, rights_file=str(tmp_path / "nowhere")))
    path = file(tmp_path, "role A all\n")
    Path(path).chmod(0o666)
    with pytest.raises(ConfigurationError, match="chmod o-w"):
        rights_of(bookie_options(**MUTUAL, rights_file=path))


def test_names_of_nobody_who_could_be_known(tmp_path: Path) -> None:
    """Users without names and passwords, roles without certificates, roles that are not let in."""
    path = file(tmp_path, "role A all\nuser u all\n")
    with pytest.raises(ConfigurationError, match=f"{path}:2 .* names a user, and nobody says a name here"):
        rights_of(bookie_options(**MUTUAL, rights_file=path))
    with pytest.raises(ConfigurationError, match=f"{path}:1 .* names a role, and nobody shows a certificate here"):
        rights_of(BookieOptions.model_validate({**SASL, "rights_file": path}))
    only = {"authentication": "roles", "authorized_roles": ("B",)}
    with pytest.raises(ConfigurationError, match=f"{path}:1 .* names a role that is not let in: add it to authorized"):
        rights_of(bookie_options(**MUTUAL, **only, rights_file=path))
    found = rights_of(bookie_options(**MUTUAL, authentication="sasl", jaas_file="/j", rights_file=path))
    assert found is not None
    assert found.of("u", None) == found.of("", "A") == Grant(ALL)


def test_roles_without_a_file() -> None:
    """May do everything, and nobody else anything; without either there are no rights to look at."""
    found = rights_of(bookie_options(**MUTUAL, authentication="roles", authorized_roles=("A", "B")))
    assert found is not None
    assert found.of("", "B") == Grant(ALL)
    assert not found.of("B", "C")
    assert rights_of(bookie_options(**MUTUAL)) is None


def test_a_file_that_changes(tmp_path: Path) -> None:
    """Its rights hold when they are read again; what can't be used, in any line, changes nothing."""
    path, clock = file(tmp_path, "role A all\n"), Clock()
    options = bookie_options(**MUTUAL, rights_file=path, access_refresh_s=60)
    rights = rights_of(options)
    assert rights is not None
    watched = watch(rights, options, clock.seconds)
    assert watched is not None
    for text in ("role A add\nrole B alll\n", "role A add\nuser u all\n", ""):
        Path(path).write_text(text)
        clock.advance(60)
        assert not watched.refresh()
        assert watched.broken is not None
        assert path in watched.broken
        assert rights.of("", "A") == Grant(ALL)
    Path(path).write_text("role A add\nrole B read\n")
    clock.advance(60)
    assert watched.refresh()
    assert (rights.of("", "A"), rights.of("", "B")) == (Grant(ADD), Grant(READ))
    plain = bookie_options(**MUTUAL, authentication="roles", authorized_roles=("A",))
    assert watch(rights, plain, clock.seconds) is None


def test_another_process_with_a_bookies_file(tmp_path: Path) -> None:
    """Takes lines that only a bookie could refuse: of users, whom its port does not know."""
    found = rights_of(
        AutoRecoveryOptions(metadata_uri="memory://x", rights_file=file(tmp_path, "user u all\nrole A inspect\n"))
    )
    assert found is not None
    assert found.of("", "A") == Grant(INSPECT)
    assert rights_of(AutoRecoveryOptions(metadata_uri="memory://x")) is None
