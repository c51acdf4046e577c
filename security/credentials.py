"""
One side's certificate, key and authorities, as they are on the disk now: what each new connection is encrypted with.

Knows: whose side it is.  Does not know: what is in the files (`context`), when they are looked at again (`watched`),
whose connections they are.

Safety: connections that exist keep what they began with.  A change of files that can't be used, a certificate without
its new key among them, is an alarm, and what was loaded before goes on to serve.
"""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from quire.conf.parts.tls import ClientTlsOptions, TlsOptions
from quire.security.context import Loaded, files_of, load
from quire.security.stream import Owner, SecureStream
from quire.security.watched import Watched

# SPDX-License-Identifier: Apache-2.0


class Credentials:
    """`ConfigurationError` when the files can't be used to begin with.  `seconds`: a clock that only goes forward."""

    log = Logger()
    _loaded: Loaded

    def __init__(self, options: TlsOptions, seconds: Callable[[], float]) -> None:
        self._options = options
        self.files = Watched("the files of TLS", files_of(options), self._take, options.tls_refresh_s, seconds)
        if isinstance(options, ClientTlsOptions) and not options.tls_verify_host:
            self.log.warn(
                "bookies' certificates are not compared with the hosts that they are reached at "
                "(tlsHostnameVerificationEnabled=false)"
            )

    @property
    def expires(self) -> float:
        """When the own certificate ends, in seconds since 1970; 0: there is none."""
        return self._loaded.expires

    def serve(self, tcp: Any, owner: Owner) -> SecureStream:
        """A bookie's side of one connection, still to begin."""
        self.files.refresh()
        return SecureStream(tcp, owner, self._loaded.context, client=False)

    def connect(self, tcp: Any, owner: Owner, host: str) -> SecureStream:
        """A client's side of one connection to `host`, still to begin."""
        self.files.refresh()
        options = self._options
        assert isinstance(options, ClientTlsOptions)
        checked = host if options.tls_verify_host else None
        return SecureStream(tcp, owner, self._loaded.context, client=True, sent_name=host, host=checked)

    def _take(self) -> None:
        self._loaded = load(self._options)
