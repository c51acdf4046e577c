"""
The names of BookKeeper's shell and their options, as they are declared by those who carry them out.

Knows: how Apache writes options (a short and a long word, either with one dash or, the long one, with two), and how a
command line becomes values.
Does not know: what a name does.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from quire.tools.commands.shell.context import Shell
from quire.tools.terminal.options import Usage

# SPDX-License-Identifier: Apache-2.0

Act = Callable[[Shell, argparse.Namespace], None]


class Option(NamedTuple):
    """An option, or an argument (without a dash); `words` of an option are its names without dashes."""

    words: tuple[str, ...]
    settings: dict[str, Any]
    is_argument: bool = False

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Takes it with one dash or two."""
        if self.is_argument:
            parser.add_argument(self.words[0], **self.settings)
            return
        longest = max(self.words, key=len)
        dashes = [f"-{word}" for word in self.words] + [f"--{word}" for word in self.words if len(word) > 1]
        parser.add_argument(*dashes, dest=longest.replace("-", "_"), **self.settings)

    @property
    def text(self) -> str:
        """As it is written in a summary."""
        if self.is_argument:
            named = f"<{self.words[0]}>"
            return f"[{named}]" if self.settings.get("nargs") == "?" else named
        value = "" if self.settings.get("action") == "store_true" else " " + self.settings["metavar"]
        named = f"-{self.words[0]}{value}"
        return named if self.settings.get("required") else f"[{named}]"


def flag(*words: str) -> Option:
    """Declares an option without a value."""
    return Option(words, {"action": "store_true"})


def value(*words: str, metavar: str = "VALUE", **settings: Any) -> Option:
    """Declares an option with a value."""
    return Option(words, {"metavar": metavar, **settings})


def argument(word: str, **settings: Any) -> Option:
    """Declares a word that stands for itself."""
    return Option((word,), settings, is_argument=True)


class Parser(argparse.ArgumentParser):
    """Says what is wrong as a command of quire does."""

    def __init__(self, usage: str) -> None:
        super().__init__(add_help=False, allow_abbrev=False, usage=usage)
        self.add_argument("--json", action="store_true")
        self.add_argument("--metadata")

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{message}; usage: {self.usage}")


class Name(NamedTuple):
    """One name of the shell: what it takes, what it does."""

    word: str
    about: str
    options: tuple[Option, ...]
    act: Act

    @property
    def usage(self) -> str:
        """Name and options in one line."""
        return " ".join([self.word, *(option.text for option in self.options)])

    def given(self, words: Sequence[str]) -> argparse.Namespace:
        """`Usage` for what it does not take."""
        parser = Parser(self.usage)
        for option in self.options:
            option.add_to(parser)
        return parser.parse_args(words)


NAMES: dict[str, Name] = {}


def name(word: str, *options: Option) -> Callable[[Act], Act]:
    """Makes a function what a name does; its docstring says what that is, in one sentence."""

    def add(act: Act) -> Act:
        about = " ".join((act.__doc__ or "").split())
        NAMES[word] = Name(word, about, options, act)
        return act

    return add
