"""
Files of tokens: what a program that asks over HTTP shows, and what it is compared with.

    quire-or-any-text-of-16-to-512-letters      one token a line: letters, digits and - . _ ~ + / =
    # a line like this one, or an empty one, is passed over

Knows: what may be in such a file, who may read it, how one is made, and that it is read again when it has changed.
Does not know: what a token opens (`quire.bookie.admin.gate`).

Safety: only digests of tokens are kept, they are compared in constant time, and no error and no repr has a part of one.
A file that is gone, damaged or readable for everybody opens nothing until that is mended.
"""

import hashlib
import hmac
import os
import re
import stat

from twisted.logger import Logger

from quire.conf.properties import ConfigurationError

# SPDX-License-Identifier: Apache-2.0

TOKEN = re.compile(rb"[A-Za-z0-9._~+/=-]{16,512}")
TOKEN_BYTES = 32  # of chance, in one that is made
FILE_BYTES_MAX = 65_536
FORBIDDEN = stat.S_IWGRP | stat.S_IRWXO  # a group may read it: a Prometheus server's, say

Signature = tuple[int, ...]


def tokens_in(path: str, key: str) -> list[bytes]:
    """The tokens of a file.  `ConfigurationError` names it, the `key` that does, and what to do."""
    return _read(path, key)[0]


def ensure_token_file(path: str) -> None:
    """Makes one where there is none."""
    if not os.path.lexists(path):
        make_token_file(path)


def make_token_file(path: str) -> None:
    """Writes one with a token of its own, for its owner's eyes only.  `OSError`."""
    fresh = f"{path}.new"
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)  # an older one may have had another mode
        os.write(handle, os.urandom(TOKEN_BYTES).hex().encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(fresh, path)


class Tokens:
    """The tokens of one file, as it is now.  `ConfigurationError` when it can't be used to begin with."""

    log = Logger()

    def __init__(self, path: str, key: str) -> None:
        self.path, self._key = os.path.abspath(path), key
        self._load()

    def has(self, shown: bytes) -> bool:
        """True if this is one of them."""
        self._refresh()
        wanted, found = _digest(shown), False
        for each in self._digests:
            found |= hmac.compare_digest(each, wanted)
        return found

    def _refresh(self) -> None:
        if _signature(self.path) == self._seen:
            return
        try:
            self._load()
        except ConfigurationError as failure:
            self.log.critical("the file of tokens has changed and opens nothing: {reason}", reason=str(failure))
            return
        self.log.info("{path} ({key}) was read again", path=self.path, key=self._key)

    def _load(self) -> None:
        self._digests: list[bytes] = []
        self._seen = _signature(self.path)
        found, self._seen = _read(self.path, self._key)
        self._digests = [_digest(each) for each in found]


def _read(path: str, key: str) -> tuple[list[bytes], Signature]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode):
                raise ConfigurationError(f"{path} ({key}) is no file: name one with a token in it")
            if state.st_mode & FORBIDDEN:
                raise ConfigurationError(
                    f"{path} ({key}) may be read by everybody or written by others (mode "
                    f"{stat.S_IMODE(state.st_mode):o}): `chmod 600 {path}`, and put a new token into it if others "
                    "are on this machine"
                )
            data = os.read(handle, FILE_BYTES_MAX)
        finally:
            os.close(handle)
    except OSError as failure:
        raise ConfigurationError(f"{path} ({key}): {failure.strerror or failure}") from None
    lines = [line.strip() for line in data.splitlines()]
    found = [line for line in lines if line and not line.startswith(b"#")]
    for number, line in enumerate(lines, 1):
        if line in found and not TOKEN.fullmatch(line):
            raise ConfigurationError(
                f"{path}:{number} ({key}) is no token: 16 to 512 of letters, digits and - . _ ~ + / =, one token a "
                "line; `openssl rand -hex 32` makes one"
            )
    if not found:
        raise ConfigurationError(f"{path} ({key}) has no token in it: `openssl rand -hex 32` makes one")
    return found, _of(state)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _signature(path: str) -> Signature:
    """Changes when the file does."""
    try:
        return _of(os.stat(path))
    except OSError:
        return ()


def _of(state: os.stat_result) -> Signature:
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_mode
