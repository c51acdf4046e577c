"""
The options of a process's HTTP port: who is let in, and how the port is known.

Knows: each option's key, default, range and meaning, and what is missing where TLS is on.
Does not know: which paths there are, nor what is in the files (`quire.security`).

Safety: where nothing is set only the health of the process is answered without a token.  A configuration that asks for
a part of TLS without TLS itself is refused.
"""

from typing import Literal, NamedTuple, Self

from pydantic import field_validator, model_validator

from quire.conf.options import listed, option, optional
from quire.conf.parts.tls import TlsTerms

# SPDX-License-Identifier: Apache-2.0

ADMIN_TOKEN, METRICS_TOKEN = "adminTokenFile", "metricsTokenFile"
OPEN, HOSTS = "adminOpenPaths", "adminHosts"
METRICS_HOST, METRICS_PORT = "prometheusStatsHttpAddress", "prometheusStatsHttpPort"


class HttpAddress(NamedTuple):
    """Where an HTTP port listens, and the key that sets the port."""

    host: str
    port: int
    key: str


class HttpOptions(TlsTerms):
    """The HTTP port of a bookie, of AutoRecovery and of a host of bookies."""

    metrics_host: str = option(
        METRICS_HOST, "127.0.0.1", "address of the HTTP port: /metrics, /healthz and all other paths", min_length=1
    )
    metrics_port: int = option(METRICS_PORT, 0, "its port; 0 takes a free one", ge=0, le=65535)
    http_server: bool = option(
        "httpServerEnabled",
        False,
        f"the HTTP port is at httpServerHost and httpServerPort instead, as in BookKeeper; false: at {METRICS_HOST} "
        f"and {METRICS_PORT}",
    )
    http_server_host: str = option(
        "httpServerHost", "0.0.0.0", "its address where httpServerEnabled is on", min_length=1
    )
    http_server_port: int = option(
        "httpServerPort", 8080, "its port where httpServerEnabled is on; 0 takes a free one", ge=0, le=65535
    )

    admin_token_file: str | None = optional(
        ADMIN_TOKEN,
        "file with the token that opens every path over HTTP, for its owner's eyes (chmod 600); unset: a "
        "bookie makes admin.token in its first journal directory; docs/security.md (our own key)",
    )
    metrics_token_file: str | None = optional(
        METRICS_TOKEN, "file with a token that opens /metrics and nothing else, for a Prometheus server (our own key)"
    )
    admin_open: tuple[Literal["health", "metrics", "state", "none"], ...] = option(
        OPEN,
        ("health",),
        "what is answered without a token, comma-separated: health (is it up), metrics, state (is it read-only, and "
        "why: BookKeeper's /api/v1/bookie/state, which probes of Pulsar's chart read); or none (our own key)",
        min_length=1,
    )
    metrics_names: tuple[Literal["quire", "apache"], ...] = option(
        "metricsNames",
        ("quire", "apache"),
        "under which names /metrics has what is counted, comma-separated: quire, our own; apache, those that "
        "BookKeeper's dashboards ask for (our own key)",
        min_length=1,
    )
    admin_hosts: tuple[str, ...] = option(
        HOSTS,
        (),
        "names by which HTTP requests may call it, comma-separated, besides its advertised address, the "
        "machine's name and every address; a proxy's or a load balancer's, say (our own key)",
    )
    http_tls: bool = option(
        "httpServerTlsEnable", False, "the HTTP port is HTTPS, with the certificate of the next key"
    )
    http_certificate: str | None = optional(
        "httpServerKeyStorePath",
        "PEM file with the private key of the HTTP port, without a password, and its certificates",
    )
    http_trust: str | None = optional(
        "httpServerTrustStorePath",
        "PEM file with authorities: only who shows a certificate of theirs is connected, and that opens "
        "every path unless adminTokenFile is set, too",
    )

    @property
    def http_address(self) -> HttpAddress:
        """Where the HTTP port listens."""
        if self.http_server:
            return HttpAddress(self.http_server_host, self.http_server_port, "httpServerPort")
        return HttpAddress(self.metrics_host, self.metrics_port, METRICS_PORT)

    _listed_http = field_validator("admin_open", "metrics_names", "admin_hosts", mode="before")(listed)

    @model_validator(mode="after")
    def _whole_http(self) -> Self:
        if "none" in self.admin_open and len(self.admin_open) > 1:
            raise ValueError(f"{OPEN}={','.join(self.admin_open)}: none goes with nothing else")
        if self.admin_token_file is not None and self.admin_token_file == self.metrics_token_file:
            raise ValueError(f"{ADMIN_TOKEN} and {METRICS_TOKEN} are one file, so who reads metrics may do everything")
        if self.http_tls:
            self._check_versions()
        if self.http_tls and self.http_certificate is None:
            raise ValueError("httpServerTlsEnable is on: set httpServerKeyStorePath, a PEM file of key and certificate")
        if not self.http_tls and (self.http_certificate or self.http_trust):
            raise ValueError(
                "httpServerKeyStorePath or httpServerTrustStorePath is set, but TLS of the HTTP port is not on: set "
                "httpServerTlsEnable=true too, or remove the line"
            )
        return self
