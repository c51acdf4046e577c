"""
Rights of clients: verbs of roles and users, in all ledgers or in some, from a file of this form.

    # who             may                     where (in all ledgers, unless it is said)
    role Writer       add
    role Reader       read                    ledgers 100-199,205,1000-
    role "Site Ops"   inspect,administer
    user reports      read,fence
    role System       all

    add          append to a ledger, say how far it is confirmed, sync it
    read         entries and all that is known of a ledger
    fence        take a ledger over from its writer and write its end: fencing, and the adds of a recovery or a repair
    inspect      administer by reading: disks over the wire, pages over HTTP
    administer   administer by changing, over HTTP

Knows: that form, and what is lacking to a request that needs some verbs.
Does not know: requests (`bookie/server/admission/judge.py` knows what each needs), who somebody is (`stream`,
`digest_md5`), when the file is read again (`watched`).

Safety: what no line gives nobody has.  A file that is not understood, in any line of it, gives nothing and stops the
start; so does one whose last line has no end, for it may be cut off where it gives more than all of it, and a line that
can't count, because nobody is known here by what it names.  An error names the file and the line and shows nothing of
what is there, which may be meant for another key.
"""

import os
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from quire.conf.parts.rights import RIGHTS, ROLES, RightsFileOptions, RightsOptions
from quire.conf.properties import ConfigurationError
from quire.security.watched import Watched

# SPDX-License-Identifier: Apache-2.0

ADD, READ, FENCE, INSPECT, ADMINISTER = (1 << bit for bit in range(5))  # no enum: they meet in each request
VERBS = {"add": ADD, "read": READ, "fence": FENCE, "inspect": INSPECT, "administer": ADMINISTER}
ALL = ADD | READ | FENCE | INSPECT | ADMINISTER
OF_LEDGERS = ADD | READ | FENCE
ROLE, USER = "role", "user"
FILE_BYTES_MAX = 1 << 20
LEDGER_MAX = (1 << 63) - 2
LINE = re.compile(
    r"""(?P<kind>\S+)[ \t]+(?:"(?P<quoted>[^"]+)"|(?P<plain>[^\s"]+))[ \t]+(?P<verbs>[^\s"]+)
    (?:[ \t]+ledgers[ \t]+(?P<ledgers>[^\s"]+))?""",
    re.VERBOSE,
)
SPAN = re.compile("([0-9]{1,19})(?:(-)([0-9]{1,19})?)?")
FORM = (
    '`role NAME VERBS` or `user NAME VERBS`, and behind that perhaps `ledgers FIRST-LAST,…`; a NAME with blanks in ""'
)

Who = tuple[str, str]  # ROLE or USER, and the name
Span = tuple[int, int]  # the first ledger and the last


class Spans:
    """Ledgers, as runs of ids."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, spans: Iterable[Span]) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(spans):
            if self._lasts and first <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], last)
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __contains__(self, ledger: int) -> bool:
        at = bisect_right(self._firsts, ledger) - 1
        return at >= 0 and ledger <= self._lasts[at]


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights of one client: `verbs` everywhere, and of the others those of `spans` in the ledgers there."""

    verbs: int = 0
    spans: Mapping[int, Spans] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """True if it gives any right."""
        return bool(self.verbs or self.spans)

    def lacks(self, needed: int, ledger: int | None = None) -> int:
        """Returns the needed verbs that it does not have in this ledger; 0: it may."""
        lacking = needed & ~self.verbs
        if lacking and ledger is not None:
            for verb, ledgers in self.spans.items():
                if lacking & verb and ledger in ledgers:
                    lacking &= ~verb
        return lacking


@dataclass(frozen=True, slots=True)
class Line:
    """Rights that one line gives; without `spans` in all ledgers."""

    who: Who
    verbs: int
    spans: tuple[Span, ...] = ()


class Rights:
    """Rights of all roles and users."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.become(lines)

    def become(self, lines: Iterable[Line]) -> None:
        """Takes these lines in the place of those before."""
        self._lines: dict[Who, list[Line]] = {}
        for line in lines:
            self._lines.setdefault(line.who, []).append(line)

    def of(self, user: str, role: str | None) -> Grant:
        """Rights of a client that has proved to be this user ("": none) and to have this role: all that either may."""
        lines = [*self._lines.get((USER, user), ()), *self._lines.get((ROLE, role or ""), ())]
        verbs, spans = 0, dict[int, list[Span]]()
        for line in lines:
            if not line.spans:
                verbs |= line.verbs
        for verb in VERBS.values():
            found = [span for line in lines if line.verbs & verb for span in line.spans]
            if found and not verbs & verb:
                spans[verb] = found
        return Grant(verbs, {verb: Spans(found) for verb, found in spans.items()})


def rights_of(options: RightsFileOptions) -> Rights | None:
    """
    None: who is let in may do everything.  `ConfigurationError` names the file, the line and what to do.  A process
    that is no bookie may have a bookie's file: lines of users, whom it does not know, count for nobody there.
    """
    roles = options.authorized_roles if isinstance(options, RightsOptions) else ()
    if options.rights_file is None:
        return Rights(Line((ROLE, role), ALL) for role in roles) if roles else None
    return Rights(_checked(options, options.rights_file))


def watch(rights: Rights, options: RightsFileOptions, seconds: Callable[[], float]) -> Watched | None:
    """Keeps them as the file says; None: there is no file.  `seconds`: a clock that only goes forward."""
    path = options.rights_file
    if path is None:
        return None

    def take() -> None:
        rights.become(_checked(options, path))

    return Watched(f"the rights in {path}", [path], take, options.access_refresh_s, seconds)


def _checked(options: RightsFileOptions, path: str) -> Iterable[Line]:
    """Reads the lines of a file; a bookie refuses lines that can't count there."""
    lines = parse(_read(path), path)
    if isinstance(options, RightsOptions):
        _check(options, lines, path)
    return lines.values()


def _check(options: RightsOptions, lines: Mapping[int, Line], path: str) -> None:
    roles = options.authorized_roles
    for number, line in lines.items():
        kind, name = line.who
        if kind == USER and options.authentication != "sasl":
            wrong = "a user, and nobody says a name here: set bookieAuthProviderFactoryClass=sasl, or name roles"
        elif kind == ROLE and not options.tls_client_certificates:
            wrong = "a role, and nobody shows a certificate here: set tlsClientAuthentication=true, or name users"
        elif kind == ROLE and roles and name not in roles:
            wrong = f"a role that is not let in: add it to {ROLES}, or remove the line"
        else:
            continue
        raise ConfigurationError(f"{path}:{number} ({RIGHTS}) names {wrong}")


def parse(text: str, path: str) -> dict[int, Line]:
    """Returns what each line gives, by its number from 1 on; `path` is the file's name for messages."""
    found = {}
    *lines, rest = text.split("\n")
    if rest.strip():  # what is left of a line may give more than all of it: `5-` of `5-9`
        raise ConfigurationError(
            f"{path}:{len(lines) + 1} ({RIGHTS}) is not whole: its last line has no end; copy it again, or end the line"
        )
    for number, text_of in enumerate(lines, 1):
        line = text_of.strip()
        if line and not line.startswith("#"):
            try:
                found[number] = _line(line)
            except ValueError as failure:
                raise ConfigurationError(f"{path}:{number} ({RIGHTS}): {failure}") from None
    if not found:
        raise ConfigurationError(f"{path} ({RIGHTS}) gives nobody a right, so nobody would be served: a line is {FORM}")
    return found


def _line(text: str) -> Line:
    """`ValueError` says what is wrong with it."""
    found = LINE.fullmatch(text)
    if found is None:
        raise ValueError(f"a line is {FORM}")
    if found["kind"] not in (ROLE, USER):
        raise ValueError(f"it begins with neither role nor user; a line is {FORM}")
    verbs = 0
    for word in found["verbs"].split(","):
        if word != "all" and word not in VERBS:
            raise ValueError(f"a verb that is none of {', '.join(VERBS)} and all; between two is a comma, and no blank")
        verbs |= VERBS.get(word, ALL)
    spans = () if found["ledgers"] is None else tuple(map(_span, found["ledgers"].split(",")))
    if spans and verbs & ~OF_LEDGERS:
        raise ValueError("inspect and administer (and all) are of no ledger: give them in a line without ledgers")
    return Line((found["kind"], found["quoted"] or found["plain"]), verbs, spans)


def _span(text: str) -> Span:
    found = SPAN.fullmatch(text)
    if found is None:
        raise ValueError("a run of ledgers that is none: write 5, 5-9 or, without an end, 5-; a comma between two")
    first = int(found[1])
    last = int(found[3]) if found[3] else LEDGER_MAX if found[2] else first
    if not first <= last <= LEDGER_MAX:
        raise ValueError(f"a run without a ledger in it: ids go from 0 to {LEDGER_MAX}, the lower one first")
    return first, last


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            state, data = os.fstat(file.fileno()), file.read(FILE_BYTES_MAX + 1)
    except OSError as failure:
        raise ConfigurationError(f"{path} ({RIGHTS}): {failure.strerror or failure}") from failure
    if state.st_mode & stat.S_IWOTH:
        raise ConfigurationError(f"{path} ({RIGHTS}) can be written by everybody on this machine: `chmod o-w {path}`")
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} ({RIGHTS}) has more than {FILE_BYTES_MAX} bytes: it is no file of rights")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise ConfigurationError(f"{path}:{line} ({RIGHTS}): that is not UTF-8") from None
