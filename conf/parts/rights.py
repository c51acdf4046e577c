"""
The options that say what clients may do, by the roles in their certificates or the names that they authenticate with.

Knows: each option's key and meaning, and what there has to be for a client to be known at all.
Does not know: what is in the file of rights (`quire.security.rights`).

Safety: a configuration in which no client could be known, or in which roles are named and nobody asks for them, is
refused.
"""

from typing import Self

from pydantic import field_validator, model_validator

from quire.conf.options import Part, listed, option, optional
from quire.conf.parts.authentication import APACHES_ROLES, BookieAuthenticationOptions
from quire.conf.parts.tls import BookieTlsOptions

# SPDX-License-Identifier: Apache-2.0

PROVIDER = "bookieAuthProviderFactoryClass"
ROLES, RIGHTS = "authorizedRoles", "rightsFile"
CERTIFICATES = "set tlsClientAuthentication=true too, so that clients show certificates"


class RightsFileOptions(Part):
    """The file that says who may do what in a process."""

    rights_file: str | None = optional(
        RIGHTS,
        "file that says which roles and users may add, read, fence and administer, and in which ledgers; "
        "who is not in it may do nothing; unset: who is let in may do everything (our own key)",
    )
    access_refresh_s: int = option(
        "accessFilesRefreshDurationSeconds",
        300,
        (
            f"how often {RIGHTS} and a bookie's saslJaasFile are looked at; changed ones hold at once, for "
            "connections that are open too; 0: only a bookie's SIGHUP makes it look (our own key)"
        ),
        unit="s",
        ge=0,
    )


class RightsOptions(BookieAuthenticationOptions, BookieTlsOptions, RightsFileOptions):
    """The rights of a bookie's clients."""

    authorized_roles: tuple[str, ...] = option(
        ROLES,
        (),
        (
            f"roles of certificates that are let in, comma-separated, where bookieAuthProviderFactoryClass is "
            f"{APACHES_ROLES}; without {RIGHTS} they may do everything"
        ),
    )

    _listed_roles = field_validator("authorized_roles", mode="before")(listed)

    @field_validator("authorized_roles")
    @classmethod
    def _named_roles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value):
            raise ValueError("a role without a name")
        return value

    @property
    def asks_clients(self) -> bool:
        """True if each client has to say who it is."""
        by_certificate = self.tls_client_certificates and self.tls_required is not False
        return self.authentication is not None or self.rights_file is not None or by_certificate

    @model_validator(mode="after")
    def _known(self) -> Self:
        by_roles = self.authentication == "roles"
        if by_roles and not self.authorized_roles:
            raise ValueError(f"{PROVIDER}={APACHES_ROLES} lets nobody in: set {ROLES} too")
        if self.authorized_roles and not by_roles:
            raise ValueError(f"{ROLES} is set, but nobody asks for it: set {PROVIDER}={APACHES_ROLES} too")
        if by_roles and not self.tls_client_certificates:
            raise ValueError(f"{PROVIDER}={APACHES_ROLES} is set: {CERTIFICATES}")
        if self.rights_file is not None and self.authentication is None and not self.tls_client_certificates:
            raise ValueError(f"{RIGHTS} is set, but nobody has to say who he is: {CERTIFICATES}, or set {PROVIDER}")
        return self
