"""
Requests to a running bookie's admin address.

Knows: how the address is found and asked, that each request says which bookie is meant, and which token opens it: that
of `--token-file` (or QUIRE_TOKEN_FILE), else the one in the file that the bookie announces, if it is on this machine.
Does not know: what the paths mean.

Safety: a token that was found and not given is shown to this machine alone, and there only to a port on which nobody
listens but the owner of its file, the user of the command or root: whoever may write metadata can announce any file and
any port.  No proxy and no other address that an answer names gets one.
"""

import json
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from quire.conf.parts.http import ADMIN_TOKEN
from quire.conf.properties import ConfigurationError
from quire.metadata.formats.json_text import parse_json
from quire.metadata.store import TOKEN_PROPERTY, BookieList, Endpoint, ServiceInfo
from quire.protocol.errors import BookieHandleNotAvailable
from quire.security.tokens import tokens_in
from quire.tools.terminal.options import (
    TOKEN_FILE_OPTION,
    TOKEN_FILE_VARIABLE,
    client_options,
    metadata_uri,
    refused,
)
from quire.tools.terminal.running import with_store

# SPDX-License-Identifier: Apache-2.0

HTTP_S = 5.0
TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
LISTENING = "0A"  # in the system's lists of sockets
SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
REASON_BYTES_MAX = 8192
ANSWER_BYTES_MAX = 64 << 20  # metrics of very many ledgers are some MiB


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Shown(NamedTuple):
    """The token that a request shows, None: none, and why not."""

    token: str | None
    why_not: str = ""

    def __repr__(self) -> str:
        """All but the token."""
        return f"Shown({self.why_not or 'a token'})"


def service_of(bookie: str, metadata: str | None) -> ServiceInfo | None:
    """Reads what a bookie announces in the metadata store (`metadata`: the option); None when it is not up."""

    return with_store(metadata_uri(metadata), lambda store: store.service_info(bookie))


def answer_of(
    bookie: str,
    found: ServiceInfo | None,
    path: str,
    command: dict[str, Any] | None = None,
    token_file: Path | None = None,
) -> bytes:
    """
    Asks a bookie's admin address by a GET, or a PUT of `command`; returns the answer.  Raises
    `BookieHandleNotAvailable`, `typer.Exit`, `ConfigurationError`.
    """
    if found is None:
        raise BookieHandleNotAvailable(f"{bookie} is not up; `quire bookie list` shows those that are")
    if found.http is None:
        raise BookieHandleNotAvailable(
            f"{bookie} announced no HTTP address, so nothing can be asked of it from outside"
        )
    shown = token_of(found, token_file)
    try:
        return fetched(bookie, found.http, path, shown.token, command)
    except urllib.error.HTTPError as failure:
        why = f" ({shown.why_not})" if failure.code == 401 and shown.why_not else ""
        raise refused(f"{bookie} refused: {reason_in(failure)}{why}") from None
    except OSError as failure:
        url = found.http.url(path)
        raise refused(f"{bookie} can't be reached at {url} ({failure}); run this on its own machine") from None


def document_of(
    bookie: str,
    found: ServiceInfo | None,
    path: str,
    command: dict[str, Any] | None = None,
    token_file: Path | None = None,
    needs: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The JSON object in such an answer.  As `answer_of`; `typer.Exit` when it is none, or lacks what is needed."""
    body = answer_of(bookie, found, path, command, token_file)
    with suppress(ValueError):
        value = parse_json(body)
        if isinstance(value, dict) and value.keys() >= {*needs}:
            return value
    what = f"a JSON object with {' and '.join(needs)}" if needs else "a JSON object"
    raise refused(
        f"{bookie} answered {path} with {body[:80]!r}, which is not {what}: does something else have its HTTP port?"
    )


def asked_of(
    bookie: str,
    found: ServiceInfo | None,
    path: str,
    token_file: Path | None = None,
    command: dict[str, Any] | None = None,
) -> bytes | str:
    """Gives what a bookie's admin address answers to a GET, or a PUT of `command`, or why it can't be had from here."""
    if found is None or found.http is None:
        return "it announced no HTTP address"
    shown = token_of(found, token_file)
    try:
        return fetched(bookie, found.http, path, shown.token, command)
    except urllib.error.HTTPError as failure:
        return f"it refused: {reason_in(failure)}{f' ({shown.why_not})' if shown.why_not else ''}"
    except OSError as failure:
        return f"{found.http.url(path)} gave no answer ({failure})"


def said_by(bookie: str, found: ServiceInfo | None, path: str, token_file: Path | None = None) -> dict[str, Any] | str:
    """Returns the JSON object under a path of a bookie's admin address, or why it can't be had from here."""
    answer = asked_of(bookie, found, path, token_file)
    if isinstance(answer, str):
        return answer
    with suppress(ValueError):
        status = parse_json(answer)
        if isinstance(status, dict):
            return status
    where = bookie if found is None or found.http is None else found.http.url(path)
    return f"{where} gave something else than a JSON object"


def metrics_texts(bookies: BookieList) -> list[Callable[[], str]]:
    """For each bookie that is up and announced where its metrics are: what reads them, or raises `OSError`."""
    every = {**bookies.read_only, **bookies.writable}
    return [partial(_metrics, bookie, info) for bookie, info in sorted(every.items()) if info.http is not None]


def _metrics(bookie: str, info: ServiceInfo) -> str:
    assert info.http is not None
    return fetched(bookie, info.http, "/metrics", token_of(info).token).decode(errors="replace")


def token_of(found: ServiceInfo, token_file: Path | None = None) -> Shown:
    """`ConfigurationError` for a file that was given and can't be used."""
    given = str(token_file) if token_file is not None else os.environ.get(TOKEN_FILE_VARIABLE)
    if given:
        return Shown(tokens_in(given, TOKEN_FILE_OPTION)[0].decode())
    announced = found.properties.get(TOKEN_PROPERTY)
    if announced is None or found.http is None:
        return Shown(None, "it announces no file of a token")
    if not is_here(found.http.host):
        return Shown(None, f"{found.http.host} is not this machine, so no token is looked for")
    try:
        token = tokens_in(announced, ADMIN_TOKEN)[0].decode()
    except ConfigurationError as failure:
        return Shown(None, f"{failure}; be the user whose bookie it is")
    port = found.http.port
    users, known = listening_users(port), {os.stat(announced).st_uid, os.geteuid(), 0}
    if users is not None and not (users and users <= known):
        return Shown(None, f"somebody else than the owner of {announced} may listen on port {port} here: --token-file")
    return Shown(token)


def is_here(host: str) -> bool:
    """True if an address, or a name's, is this machine's own."""
    with suppress(OSError, UnicodeError):  # some texts are no name
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        return True
    return False


def listening_users(port: int) -> set[int] | None:
    """The ids of those who listen on a port of this machine; None where the system does not say."""
    found, is_told = set(), False
    for path in SOCKETS:
        with suppress(OSError):
            for line in Path(path).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, user, *_ = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    found.add(int(user))
            is_told = True
    return found if is_told else None


def fetched(
    bookie: str, address: Endpoint, path: str, token: str | None = None, command: dict[str, Any] | None = None
) -> bytes:
    """`OSError`, `urllib.error.HTTPError` among them."""
    headers = {"Content-Type": "application/json", "Bookie": bookie}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = None if command is None else json.dumps(command).encode()
    method = "GET" if command is None else "PUT"
    request = urllib.request.Request(address.url(path), body, headers, method=method)
    handlers = [urllib.request.ProxyHandler({}), NoRedirects()]
    if address.protocol == "https":
        handlers.append(urllib.request.HTTPSHandler(context=tls_context()))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=HTTP_S) as answer:
            body = bytes(answer.read(ANSWER_BYTES_MAX + 1))
    except HTTPException as error:
        raise OSError(f"what it answers is not HTTP: {error!r}") from None
    except UnicodeError:
        raise OSError(f"it announced {address.host!r}, and that names no host") from None
    if len(body) > ANSWER_BYTES_MAX:
        raise OSError(f"it answers with more than {ANSWER_BYTES_MAX >> 20} MiB")
    if answer.length:
        raise OSError(f"its answer ended {answer.length} bytes early")
    return body


def metrics_url(found: ServiceInfo | None) -> str | None:
    """Where a bookie's metrics are; None where it announced nothing."""
    return found.http.url("/metrics") if found is not None and found.http is not None else None


def tls_context() -> ssl.SSLContext:
    """As the client's configuration says: its authorities, who is revoked, its own certificate where it shows one."""
    options = client_options()
    context = ssl.create_default_context(cafile=options.tls_trust)
    versions = sorted(TLS_VERSIONS[name] for name in options.tls_protocols)
    if versions:  # none is left where all that are named are too old, and connections to bookies have no TLS
        context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if options.tls_revocations is not None:
        context.load_verify_locations(cafile=options.tls_revocations)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN
    if options.tls_certificate is not None:
        password = options.tls_key_password_file
        context.load_cert_chain(
            options.tls_certificate,
            options.tls_key,
            None if password is None else lambda: Path(password).read_bytes().rstrip(b"\r\n"),
        )
    return context


def reason_in(refusal: urllib.error.HTTPError) -> str:
    """Returns what a refusal says, in one line."""
    try:
        body = refusal.read(REASON_BYTES_MAX)
    except (OSError, HTTPException):
        return str(refusal)
    text = body.decode(errors="replace").strip()
    with suppress(ValueError, KeyError, TypeError):
        said = parse_json(text)
        return f"{said['error']}; {said['next']}"
    return text
