"""
The provider of authentication that a bookie or client has by its options.

Knows: the one that there is, SASL with DIGEST-MD5 as Apache's, and what it needs from the options.
Does not know: connections, the tokens of an exchange (`digest_md5`).

Safety: the file of passwords is read and judged before a port opens or a connection is made.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

from twisted.logger import Logger

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import ConfigurationError
from quire.security.digest_md5 import BookiesSide, ClientsSide, Users, digest_of
from quire.security.exchange import Provider
from quire.security.jaas import Account, account, users
from quire.security.watched import Watched, warn_of_readers

# SPDX-License-Identifier: Apache-2.0

NAME = "sasl"
log = Logger()


class SaslOfBookie:
    """A bookie's."""

    name = NAME

    def __init__(self, known: Users) -> None:
        self.users = known

    def begin(self) -> BookiesSide:
        return BookiesSide(self.users)


class SaslOfClient:
    """A client's."""

    name = NAME

    def __init__(self, known: Account) -> None:
        self._user = known.user
        self._digest = digest_of(known.user, known.password)

    def begin(self) -> ClientsSide:
        return ClientsSide(self._user, self._digest)


def of_client(options: ClientOptions) -> Provider | None:
    """None: it does not say who it is.  `ConfigurationError` when it could not."""
    if options.authentication is None:
        return None
    path = options.jaas_file
    assert path is not None
    is_system = options.client_role == "system"
    found = account(path, options.jaas_system_section if is_system else options.jaas_client_section)
    _warn_of(path, options.tls)
    return SaslOfClient(found)


def of_bookie(options: BookieOptions) -> SaslOfBookie | None:
    """None: no names are asked for.  `ConfigurationError` when nobody could be let in."""
    if options.authentication != "sasl":
        return None
    path = options.jaas_file
    assert path is not None
    found = SaslOfBookie(Users())
    _take(found, options, path)
    _warn_of(path, options.tls)
    return found


def watch(provider: SaslOfBookie, options: BookieOptions, seconds: Callable[[], float]) -> Watched:
    """Keeps its users as the file says.  `seconds`: a clock that only goes forward."""
    path = options.jaas_file
    assert path is not None
    take = partial(_take, provider, options, path)
    return Watched(f"the users in {path}", [path], take, options.access_refresh_s, seconds)


def _take(provider: SaslOfBookie, options: BookieOptions, path: str) -> None:
    found = users(path, options.jaas_section)
    provider.users.become(found, _allowed(found, path, options.jaas_allowed))


def _allowed(found: Mapping[str, str], path: str, expression: str) -> list[str]:
    allowed = [user for user in found if re.fullmatch(expression, user)]
    left_out = sorted(set(found) - set(allowed))
    if not allowed:
        raise ConfigurationError(
            f"saslJaasClientAllowedIds={expression} matches none of the users in {path}: {', '.join(left_out)}"
        )
    if left_out:
        log.warn(
            "users in {path} that saslJaasClientAllowedIds={expression} does not match are not let in: {users}",
            path=path,
            expression=expression,
            users=", ".join(left_out),
        )
    return allowed


def _warn_of(path: str, tls: bool) -> None:
    """Warns of what gives passwords away: connections that can be listened to, a file that all here can read."""
    if not tls:
        log.warn(
            "clients authenticate without TLS: who listens can guess passwords at leisure, and can change what "
            "follows; turn TLS on (tlsProviderFactoryClass, docs/security.md)"
        )
    warn_of_readers(path)
