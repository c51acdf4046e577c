"""
The credentials of a bookie or client, where its options ask for TLS.

Knows: that OpenSSL is loaded only then, and what to install where it is missing.  Does not know: what they are.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.conf.parts.tls import TlsOptions
from quire.conf.properties import ConfigurationError

if TYPE_CHECKING:
    from quire.security.credentials import Credentials

# SPDX-License-Identifier: Apache-2.0

LIBRARY = "OpenSSL"


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
            f"TLS is on (tlsProviderFactoryClass), and a library for it is missing ({missing.name}): "
            "pip install 'quire[tls]'"
        ) from missing
    return Credentials(options, seconds)
