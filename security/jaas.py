"""
Names and passwords from the file by which Java's programs are given theirs (JAAS), as Apache's bookies and clients
read it.

    Bookie {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        user_ledgers="the password"
        user_reports="another";
    };
    BookKeeper {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="ledgers"
        password="the password";
    };

Knows: the file's grammar, and what the one login module that is served has to be told in either section.
Does not know: what a password is good for (`digest_md5`).

Safety: an error names the file and the line and shows nothing of what is there, for a quotation mark that is missing
makes anything of a password.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quire.conf.properties import ConfigurationError

# SPDX-License-Identifier: Apache-2.0

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
USER = "user_"  # before a user's name, in a bookie's section
FILE_BYTES_MAX = 1 << 20
TOKEN = re.compile(
    r"""
    (?P<blank>  \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<quoted> "(?: [^"\\\n] | \\["\\] )*" )
  | (?P<word>   [\w.$*-]+ )
  | (?P<mark>   [{};=] )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a client at a bookie, or at ZooKeeper."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Token:
    """One word, quoted text or mark; `line` from 1 on."""

    kind: str
    text: str = field(repr=False)
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """One login module of a section."""

    name: str
    line: int
    options: dict[str, str] = field(repr=False)


def users(path: str, section: str) -> dict[str, str]:
    """The passwords by name in a bookie's section; `ConfigurationError` where there are none, or anything else."""
    module = _module(path, section)
    found = {}
    for key, password in module.options.items():
        if not key.startswith(USER) or key == USER:
            raise ConfigurationError(
                f'{path}:{module.line}: section {section} has an option that is not {USER}NAME="PASSWORD"'
            )
        found[key.removeprefix(USER)] = password
    if not found:
        raise ConfigurationError(f'{path}:{module.line}: section {section} has no user: {USER}NAME="PASSWORD"')
    return found


def account(path: str, section: str) -> Account:
    """The name and password in a client's section; `ConfigurationError` where one is missing, or more is there."""
    module = _module(path, section)
    if set(module.options) != {"username", "password"}:
        raise ConfigurationError(f"{path}:{module.line}: section {section} needs username and password, and no more")
    if not module.options["username"]:
        raise ConfigurationError(f"{path}:{module.line}: section {section} has an empty username")
    return Account(module.options["username"], module.options["password"])


def _module(path: str, section: str) -> Module:
    """The one login module of a section."""
    sections = parse(_read(path), path)
    if section not in sections:
        there = ", ".join(sections) or "none"
        raise ConfigurationError(f"{path} has no section {section}; its sections: {there}")
    modules = sections[section]
    for module in modules:
        if module.name != MODULE:
            raise ConfigurationError(
                f"{path}:{module.line}: section {section} asks for a login module that is not served here; {MODULE} is"
            )
    if len(modules) != 1:
        raise ConfigurationError(f"{path}: section {section} has {len(modules)} login modules; one is needed")
    (found,) = modules
    return found


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            state, data = os.fstat(file.fileno()), file.read(FILE_BYTES_MAX + 1)
        if state.st_mode & stat.S_IWOTH:
            raise ConfigurationError(f"{path} can be written by everybody on this machine: `chmod o-w {path}`")
        if len(data) > FILE_BYTES_MAX:
            raise ConfigurationError(f"{path} has more than {FILE_BYTES_MAX} bytes: it is no file of JAAS sections")
        return data.decode("utf-8")
    except UnicodeDecodeError as failure:
        line = failure.object.count(b"\n", 0, failure.start) + 1
        raise ConfigurationError(f"{path}:{line}: that is not UTF-8") from None
    except OSError as failure:
        raise ConfigurationError(f"{path}: {failure.strerror or failure}") from failure


def parse(text: str, path: str) -> dict[str, list[Module]]:
    """The login modules of each section, in order; `path` is the file's name for messages."""
    return _Reading(text, path).sections()


class _Reading:
    """One pass over the tokens of a file."""

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._tokens = self._cut(text)
        self._next = next(self._tokens)

    def sections(self) -> dict[str, list[Module]]:
        found: dict[str, list[Module]] = {}
        while self._next.kind != "end":
            name = self._text("the name of a section")
            if name.text in found:
                raise self._wrong(name.line, "a section is there a second time")
            self._mark("{", "after the name of a section")
            found[name.text] = []
            while not self._is("}"):
                found[name.text].append(self._module())
            self._mark("}", "at the end of a section")
            self._mark(";", "after the } of a section")
        return found

    def _module(self) -> Module:
        name = self._text("the name of a login module")
        flag = self._text("one of " + ", ".join(sorted(FLAGS)))
        if flag.text.lower() not in FLAGS:
            raise self._wrong(flag.line, "expected one of " + ", ".join(sorted(FLAGS)))
        options: dict[str, str] = {}
        while not self._is(";"):
            key = self._text("an option, or ; after the last one")
            self._mark("=", "after the name of an option")
            value = self._text("the value of an option, in quotation marks")
            if key.text in options:
                raise self._wrong(key.line, "an option is there a second time")
            if "${" in value.text:
                raise self._wrong(value.line, "a value has ${…}, which Java replaces and quire does not")
            options[key.text] = value.text
        self._mark(";", "after the last option")
        return Module(name.text, name.line, options)

    def _is(self, mark: str) -> bool:
        return self._next.kind == "mark" and self._next.text == mark

    def _text(self, what: str) -> Token:
        if self._next.kind not in ("word", "quoted"):
            raise self._wrong(self._next.line, f"expected {what}")
        return self._taken()

    def _mark(self, mark: str, where: str) -> None:
        if not self._is(mark):
            raise self._wrong(self._next.line, f"expected {mark} {where}")
        self._taken()

    def _taken(self) -> Token:
        taken, self._next = self._next, next(self._tokens)
        return taken

    def _wrong(self, line: int, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._path}:{line}: {what}")

    def _cut(self, text: str) -> Iterator[Token]:
        at, line = 0, 1
        while at < len(text):
            match = TOKEN.match(text, at)
            if match is None:
                begun = 'a quotation mark or comment that does not end, or an escape other than \\" and \\\\'
                raise self._wrong(line, begun if text[at] in '"/' else "a character that has to be in quotation marks")
            kind, piece = match.lastgroup or "", match.group()
            if kind != "blank":
                text_of = re.sub(r"\\(.)", r"\1", piece[1:-1]) if kind == "quoted" else piece
                yield Token(kind, text_of, line)
            line += piece.count("\n")
            at = match.end()
        while True:
            yield Token("end", "", line)
