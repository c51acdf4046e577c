"""
The options of authentication, by names and passwords or by certificates, as a bookie has them and as a client has them.

Knows: each option's BookKeeper key, default and meaning, and BookKeeper's names of providers.
Does not know: what is in the file of passwords (`quire.security.jaas`).

Safety: a provider that is not served is refused, so no bookie is open to everybody whose file says otherwise; and no
option holds a password.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, field_validator, model_validator

from quire.conf.options import Part, option, optional

# SPDX-License-Identifier: Apache-2.0

APACHES_BOOKIE = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
APACHES_CLIENT = "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
APACHES_ROLES = "org.apache.bookkeeper.tls.BookieAuthZFactory"
NONE = "org.apache.bookkeeper.auth.AuthProviderFactoryFactory$AuthenticationDisabledAuthProviderFactory"
PROVIDERS: Mapping[object, str | None] = {
    "sasl": "sasl",
    APACHES_CLIENT: "sasl",
    NONE: None,
    "false": None,
    None: None,
}
OF_BOOKIES: Mapping[object, str | None] = {
    **PROVIDERS,
    APACHES_BOOKIE: "sasl",
    "roles": "roles",
    APACHES_ROLES: "roles",
}


def _provider(value: object, known: Mapping[object, str | None], served: str) -> object:
    """The provider that a class name of BookKeeper's means."""
    name = value.lower() if isinstance(value, str) and value.lower() == "false" else value
    if name not in known:
        raise ValueError(f"it is not served here; {served}, and nothing else")
    return known[name]


def of_client(value: object) -> object:
    return _provider(value, PROVIDERS, f"{APACHES_CLIENT} is, as sasl")


def of_bookie(value: object) -> object:
    return _provider(value, OF_BOOKIES, f"{APACHES_BOOKIE} is, as sasl, and {APACHES_ROLES}, as roles")


SaslOrNone = Annotated[Literal["sasl"] | None, BeforeValidator(of_client)]
ProviderOrNone = Annotated[Literal["sasl", "roles"] | None, BeforeValidator(of_bookie)]


class JaasOptions(Part):
    """The option that both sides have."""

    jaas_file: str | None = optional(
        "saslJaasFile",
        "file with names and passwords, in the form that Java reads by -Djava.security.auth.login.config (our own key)",
    )


class BookieAuthenticationOptions(JaasOptions):
    """The authentication of a bookie's clients, and its own to other bookies."""

    authentication: ProviderOrNone = option(
        "bookieAuthProviderFactoryClass",
        None,
        (
            f"clients have to say who they are: sasl, or {APACHES_BOOKIE}, by name and password; roles, or "
            f"{APACHES_ROLES}, by a certificate with one of authorizedRoles; unset: they need not"
        ),
    )
    client_authentication: SaslOrNone = option(
        "clientAuthProviderFactoryClass",
        None,
        f"it says to other bookies who it is: sasl, or {APACHES_CLIENT}; unset: it does not",
    )
    jaas_section: str = option(
        "saslJaasBookieSectionName", "Bookie", 'section of that file with the users, user_NAME="PASSWORD"', min_length=1
    )
    jaas_allowed: str = option(
        "saslJaasClientAllowedIds",
        ".*bookkeeper.*",
        "regular expression that a user's whole name has to match; the others are not let in",
    )

    @field_validator("jaas_allowed")
    @classmethod
    def _expression(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as failure:
            raise ValueError(f"it is no regular expression: {failure}") from None
        return value

    @model_validator(mode="after")
    def _with_users(self) -> Self:
        if self.authentication == "sasl" and self.jaas_file is None:
            raise ValueError("bookieAuthProviderFactoryClass is set: set saslJaasFile, the file with the users, too")
        return self


class ClientAuthenticationOptions(JaasOptions):
    """The authentication of a client to bookies."""

    authentication: SaslOrNone = option(
        "clientAuthProviderFactoryClass",
        None,
        f"the client says to bookies who it is: sasl, or {APACHES_CLIENT}; unset: it does not",
    )
    client_role: Literal["standard", "system"] = option(
        "clientRole",
        "standard",
        "which section it takes: standard, or system, as AutoRecovery and bookies do where this is unset",
    )
    jaas_client_section: str = option(
        "saslJaasClientSectionName",
        "BookKeeper",
        "section of that file with username and password of a client of role standard",
        min_length=1,
    )
    jaas_system_section: str = option(
        "saslJaasAuditorSectionName",
        "Auditor",
        "section of that file with username and password of a client of role system",
        min_length=1,
    )

    @model_validator(mode="after")
    def _with_account(self) -> Self:
        if self.authentication and self.jaas_file is None:
            raise ValueError("clientAuthProviderFactoryClass is set: set saslJaasFile, the file with the password, too")
        return self
