"""
One side's certificate, key and authorities, as they are on the disk now: what each new connection is encrypted with.

Knows: when the files are looked at again, and that files which can't be used change nothing.
Does not know: what is in them (`context`), whose connections they are.

Safety: connections that exist keep what they began with.  A change of files that can't be used, a certificate without
its new key among them, is an alarm, and what was loaded before goes on to serve.
"""

import os
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from quire.conf.parts.tls import ClientTlsOptions, TlsOptions
from quire.conf.properties import ConfigurationError
from quire.security.context import files_of, load
from quire.security.stream import Owner, SecureStream

# SPDX-License-Identifier: Apache-2.0

Signature = tuple[object, ...]


class Credentials:
    """`ConfigurationError` when the files can't be used to begin with.  `seconds`: a clock that only goes forward."""

    log = Logger()

    def __init__(self, options: TlsOptions, seconds: Callable[[], float]) -> None:
        self._options = options
        self._seconds = seconds
        self._signature = self._look()
        self._loaded = load(options)
        self.reloads = 0
        self.broken: str | None = None  # why the files as they are now can't be used
        if isinstance(options, ClientTlsOptions) and not options.tls_verify_host:
            self.log.warn(
                "bookies' certificates are not compared with the hosts that they are reached at "
                "(tlsHostnameVerificationEnabled=false)"
            )

    @property
    def expires(self) -> float:
        """When the own certificate ends, in seconds since 1970; 0: there is none."""
        return self._loaded.expires

    def refresh(self) -> None:
        """Reads the files again if they have changed and it is time to look."""
        every = self._options.tls_refresh_s
        if every and self._seconds() - self._looked >= every and self._look() != self._signature:
            self.reload()

    def reload(self) -> None:
        """Reads the files now."""
        self._signature = self._look()
        try:
            self._loaded = load(self._options)
        except ConfigurationError as failure:
            self.broken = str(failure)
            self.log.critical(
                "the files of TLS have changed and can't be used; new connections go on with those from before, until "
                "their certificate ends: {reason}",
                reason=self.broken,
            )
            return
        self.reloads += 1
        self.broken = None
        self.log.info("the files of TLS were read again; new connections use them")

    def serve(self, tcp: Any, owner: Owner) -> SecureStream:
        """A bookie's side of one connection, still to begin."""
        self.refresh()
        return SecureStream(tcp, owner, self._loaded.context, client=False)

    def connect(self, tcp: Any, owner: Owner, host: str) -> SecureStream:
        """A client's side of one connection to `host`, still to begin."""
        self.refresh()
        options = self._options
        assert isinstance(options, ClientTlsOptions)
        checked = host if options.tls_verify_host else None
        return SecureStream(tcp, owner, self._loaded.context, client=True, sent_name=host, host=checked)

    def _look(self) -> Signature:
        """Changes when a file does."""
        self._looked = self._seconds()
        return tuple(_state(path) for path in files_of(self._options))


def _state(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
