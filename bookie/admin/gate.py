"""
The one gate in front of all paths of an HTTP port: closed, but for what is said here.

    who shows                                        may
    nothing                                          GET and HEAD of the health paths (`adminOpenPaths`)
    a token of `metricsTokenFile`                    these and /metrics
    a token of `adminTokenFile`                      everything
    a certificate, without `adminTokenFile` set      everything (TLS has verified it before a request is read); with
                                                     `rightsFile` what its role may: inspect is GET and HEAD,
                                                     administer the rest

A browser, where the port has pages for one (`Keys.browser`), shows a token as the password of HTTP Basic.

Where a request comes from says nothing about who asks: behind a proxy on this machine everybody comes from here.

Knows: rights, hosts, methods.  Does not know: what the paths mean, HTTP's bytes.
Safety: what is not known to be open is closed, a path that does not exist among it.  GET and HEAD reach only what was
given for GET.  A request that names another host is refused, so that no web page reaches this port by a name of its
own (DNS rebinding); addresses are no such names.  A browser sends what it was given with every request, those that a
page of another site makes it send among them: they are refused, but for a link that is followed.  No answer has
anything of a token.
"""

import binascii
import os
import re
import socket
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from twisted.internet.defer import Deferred

from quire.bookie.admin.http import Answer, Answering, Asked, Head, HttpServer, refusal
from quire.conf.parts.http import ADMIN_TOKEN, HOSTS, METRICS_TOKEN, HttpOptions
from quire.conf.parts.rights import RIGHTS, RightsFileOptions
from quire.metadata.clock import Clock
from quire.security.opening import http_credentials
from quire.security.rights import ADMINISTER, INSPECT, VERBS, Rights, rights_of, watch
from quire.security.tokens import Tokens, ensure_token_file
from quire.security.watched import Watched

# SPDX-License-Identifier: Apache-2.0

METRICS = "/metrics"
PATHS = {
    "health": frozenset({"/healthz", "/heartbeat", "/api/v1/bookie/is_ready"}),
    "metrics": frozenset({METRICS}),
    "state": frozenset({"/api/v1/bookie/state"}),
    "none": frozenset[str](),
}
READS = ("GET", "HEAD")
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/@?#]+)(:[0-9]{1,5})?")
BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)
BASIC = re.compile(r"basic +(\S+)", re.IGNORECASE)
OWN_SITES = ("none", "same-origin")  # Sec-Fetch-Site of what a user, or a page from here, asks for
PAGE = "docs/security.md"
TOKEN_NAME = "admin.token"  # in a bookie's first journal directory, where no other file is set

Routes = Mapping[tuple[str, str], Answering]  # method (GET for HEAD too) and path


class Keys(NamedTuple):
    """The keys of an HTTP port: each opens some paths, or all."""

    open: frozenset[str] = PATHS["health"]  # to read without any
    admin: Tokens | None = None
    metrics: Tokens | None = None
    certificate: bool = False  # who is connected at all has shown one, and that is enough
    rights: Rights | None = None  # but for what its role may not
    rights_file: Watched | None = None  # that says them, where nobody else looks at it
    browser: bool = False  # a token may be the password of HTTP Basic


def keys_of(options: HttpOptions, directory: str | None = None, rights: Rights | None = None) -> Keys:
    """
    Returns the keys of a configuration; makes a file in `directory` where it names none.  `rights`: of roles of
    certificates.
    `ConfigurationError` for a file that can't be used, `OSError` where none can be made.
    """
    certificate = options.http_trust is not None and options.admin_token_file is None
    path = options.admin_token_file
    if path is None and directory is not None and not certificate:
        path = os.path.join(directory, TOKEN_NAME)
        ensure_token_file(path)
    metrics = options.metrics_token_file
    return Keys(
        frozenset[str]().union(*(PATHS[name] for name in options.admin_open)),
        None if path is None else Tokens(path, ADMIN_TOKEN),
        None if metrics is None else Tokens(metrics, METRICS_TOKEN),
        certificate,
        rights,
    )


def names_of(options: HttpOptions, *more: str) -> set[str]:
    """Names that a process may be called by, besides addresses: its machine's, the configured ones, and `more`."""
    return {socket.gethostname(), *options.admin_hosts, *more}


class Gate:
    """
    `names`: of this process, in lower case, by which it may be called besides addresses and `localhost`.  `bookie`: its
    id; a request that says which bookie it is meant for (`Bookie: ID`) is answered by no other, which may have the port
    by now.
    """

    def __init__(self, routes: Iterable[Routes], keys: Keys, names: Collection[str] = (), bookie: str = "") -> None:
        self._routes: dict[tuple[str, str], Answering] = {}
        for each in routes:
            self._routes |= each
        self._keys = keys
        self._names = {name.lower().rstrip(".") for name in names} | {"localhost"}
        self._bookie = bookie

    def refusal(self, head: Head) -> Answer | None:
        """Says why a request is not answered; None: it may go on."""
        return (
            self._wrong_host(head)
            or self._wrong_bookie(head)
            or self._wrong_site(head)
            or self._no_right(head)
            or self._no_such(head)
        )

    def serve(self, asked: Asked) -> Answer | Deferred[Answer]:
        """Answers a request that was not refused."""
        return self._routes[_read(asked.method), asked.path](asked)

    def _wrong_host(self, head: Head) -> Answer | None:
        said = head.headers.get("host")
        if said is None:
            if not head.newer:
                return None  # HTTP/1.0, which browsers do not speak
            return refusal(400, "the request names no host", "send the header Host")
        found = HOST.fullmatch(said)
        if found is not None and (_is_address(found[1]) or found[1].lower().rstrip(".") in self._names):
            return None
        step = f"ask by its address, or add the name to {HOSTS} of its configuration ({PAGE})"
        return refusal(403, "this process does not go by the name in the header Host", step)

    def _wrong_bookie(self, head: Head) -> Answer | None:
        if head.headers.get("bookie", self._bookie) == self._bookie:
            return None
        return refusal(421, "this is another bookie than the header Bookie says", "`quire bookie list` shows addresses")

    def _wrong_site(self, head: Head) -> Answer | None:
        """A page of another site has made a browser ask."""
        if not self._keys.browser:
            return None
        headers, is_read = head.headers, head.method in READS
        is_link = is_read and headers.get("sec-fetch-mode") == "navigate"
        own = headers.get("sec-fetch-site", "none") in OWN_SITES or is_link
        if not is_read and "origin" in headers:
            own = own and headers["origin"].partition("://")[2] == headers.get("host")
        return None if own else refusal(403, "a page of another site asks for this", "open it by its address")

    def _no_right(self, head: Head) -> Answer | None:
        keys, is_read = self._keys, head.method in READS
        if is_read and head.path in keys.open:
            return None
        if keys.certificate:
            refused = self._no_right_of_role(head.role, INSPECT if is_read else ADMINISTER)
            if refused is None or keys.metrics is None:
                return refused
        token = token_in(head.headers.get("authorization", ""), keys.browser)
        if keys.admin is not None and keys.admin.has(token or b""):
            return None
        if keys.metrics is not None and keys.metrics.has(token or b""):
            if is_read and head.path == METRICS:
                return None
            return refusal(403, "this token opens /metrics alone", f"show one of {ADMIN_TOKEN} ({PAGE})")
        if keys.admin is None and not (keys.metrics is not None and head.path == METRICS):
            step = f"set {ADMIN_TOKEN} in the configuration of this process and start it again ({PAGE})"
            return refusal(403, "this process has no token that opens this", step)
        wrong = "this needs a token" if token is None else "the token is not one of those that open this"
        if keys.browser:
            step = f"give any name, and as password the token in the file that this process named at its start ({PAGE})"
            return refusal(401, wrong, step, ("WWW-Authenticate", 'Basic realm="quire", charset="UTF-8"'))
        step = (
            f"send Authorization: Bearer TOKEN, with the token in the file of {ADMIN_TOKEN}: {TOKEN_NAME} in the first "
            f"journal directory if it is not set; the commands of quire do so, or take --token-file ({PAGE})"
        )
        return refusal(401, wrong, step, ("WWW-Authenticate", 'Bearer realm="quire"'))

    def _no_right_of_role(self, role: str | None, needed: int) -> Answer | None:
        rights, file = self._keys.rights, self._keys.rights_file
        if file is not None:
            file.refresh()
        if rights is None or not rights.of("", role).lacks(needed):
            return None
        verb = next(name for name, each in VERBS.items() if each == needed)
        step = f"show one whose role has it, or give it to this one's in {RIGHTS} ({PAGE})"
        return refusal(403, f"the certificate has no role with the right to {verb}", step)

    def _no_such(self, head: Head) -> Answer | None:
        if (_read(head.method), head.path) in self._routes:
            return None
        methods = [method for method, path in self._routes if path == head.path]
        if not methods:
            known = ", ".join(sorted({path for _, path in self._routes}))
            return refusal(404, "there is no such path", f"there is {known}")
        allowed = ", ".join(sorted({*methods, *(READS if "GET" in methods else ())}))
        return refusal(405, f"{head.method} means nothing here", f"this path takes {allowed}", ("Allow", allowed))


def gated(
    clock: Clock,
    options: HttpOptions,
    routes: Iterable[Routes],
    names: Collection[str],
    directory: str | None = None,
    browser: bool = False,
) -> HttpServer:
    """
    The server of a process that is no bookie's.  `directory`: see `keys_of`; `browser`: it has pages.
    `ConfigurationError` for bad files.
    """
    keys = keys_of(options, directory)._replace(browser=browser)
    if isinstance(options, RightsFileOptions) and options.rights_file is not None:
        rights = rights_of(options)
        assert rights is not None
        keys = keys._replace(rights=rights, rights_file=watch(rights, options, clock.seconds))
    gate = Gate(routes, keys, names_of(options, *names))
    return HttpServer(clock, gate, http_credentials(options, clock.seconds))


def token_in(authorization: str, browser: bool = False) -> bytes | None:
    """Returns the token that a header Authorization shows; None: none.  `browser`: also as the password of Basic."""
    if (shown := BEARER.fullmatch(authorization)) is not None:
        return shown[1].encode("latin-1")
    if browser and (shown := BASIC.fullmatch(authorization)) is not None:
        try:
            return b64decode(shown[1], validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return None


def _read(method: str) -> str:
    return "GET" if method == "HEAD" else method


def _is_address(host: str) -> bool:
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
