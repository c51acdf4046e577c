"""
The credentials of a bookie, a client or an HTTP port, where its options ask for TLS.

Knows: that OpenSSL is loaded only then, and what to install where it is missing.  Does not know: what they are.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.conf.extras import installs
from quire.conf.parts.http import HttpOptions
from quire.conf.parts.tls import BookieTlsOptions, TlsOptions, TlsTerms
from quire.conf.properties import ConfigurationError

if TYPE_CHECKING:
    from quire.security.credentials import Credentials

# SPDX-License-Identifier: Apache-2.0

LIBRARY = "OpenSSL"
# A key of a bookie's TLS -> that of its HTTP port.
HTTP_KEYS = {
    "tlsProviderFactoryClass": "httpServerTlsEnable",
    "tlsCertificatePath": "httpServerKeyStorePath",
    "tlsKeyStore": "httpServerKeyStorePath",
    "tlsTrustStore": "httpServerTrustStorePath",
}


def credentials(options: TlsOptions, seconds: Callable[[], float]) -> "Credentials | None":
    """None: TLS is off.  `ConfigurationError` when files or libraries can't be used.  `seconds`: a clock."""
    if not options.tls:
        return None
    if sys.modules.get(LIBRARY, sys) is None:
        del sys.modules[LIBRARY]  # daemons and commands keep Twisted from loading it in vain
    try:
        from quire.security.credentials import Credentials
    except ImportError as missing:
        raise ConfigurationError(
            f"TLS is on (tlsProviderFactoryClass), and a library for it is missing ({missing.name}): {installs('tls')}"
        ) from missing
    return Credentials(options, seconds)


def http_credentials(options: HttpOptions, seconds: Callable[[], float]) -> "Credentials | None":
    """The credentials of an HTTP port, with its own keys; None: it is not HTTPS."""
    if not options.http_tls:
        return None
    files = BookieTlsOptions(
        tls=True,
        tls_certificate=options.http_certificate,
        tls_key=options.http_certificate,
        tls_trust=options.http_trust,
        tls_client_certificates=options.http_trust is not None,
        **{name: getattr(options, name) for name in TlsTerms.model_fields},
    )
    try:
        return credentials(files, seconds)
    except ConfigurationError as failure:
        text = str(failure)
        for key, ours in HTTP_KEYS.items():
            text = text.replace(f"({key})", f"({ours})")
        raise ConfigurationError(text) from failure
