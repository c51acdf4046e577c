"""
The options of authentication by names and passwords, as a bookie has them and as a client has them.

Knows: each option's BookKeeper key, default and meaning, and BookKeeper's names of providers.
Does not know: what is in the file of passwords (`quire.security.jaas`).

Safety: a provider that is not served is refused, so no bookie is open to everybody whose file says otherwise; and no
option holds a password.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator

from quire.conf.options import option

# SPDX-License-Identifier: Apache-2.0

APACHES_BOOKIE = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
APACHES_CLIENT = "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
NONE = "org.apache.bookkeeper.auth.AuthProviderFactoryFactory$AuthenticationDisabledAuthProviderFactory"
PROVIDERS: Mapping[object, str | None] = {
    "sasl": "sasl",
    APACHES_BOOKIE: "sasl",
    APACHES_CLIENT: "sasl",
    NONE: None,
    "false": None,
    None: None,
}


def provider(value: object) -> object:
    """The provider that a class name of BookKeeper's means."""
    known = value.lower() if isinstance(value, str) and value.lower() == "false" else value
    if known not in PROVIDERS:
        raise ValueError(
            f"it is not served here; {APACHES_BOOKIE} (of a client: {APACHES_CLIENT}) is, as sasl, and nothing else"
        )
    return PROVIDERS[known]


SaslOrNone = Annotated[Literal["sasl"] | None, BeforeValidator(provider)]


class JaasOptions(BaseModel):
    """What both sides have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    jaas_file: str | None = option(
        None,
        key="saslJaasFile",
        min_length=1,
        description="file with names and passwords, in the form that Java reads by -Djava.security.auth.login.config "
        "(our own key)",
    )


class BookieAuthenticationOptions(JaasOptions):
    """A bookie's."""

    authentication: SaslOrNone = option(
        None,
        key="bookieAuthProviderFactoryClass",
        description=f"clients have to say who they are: sasl, or {APACHES_BOOKIE}; unset: they need not",
    )
    client_authentication: SaslOrNone = option(
        None,
        key="clientAuthProviderFactoryClass",
        description=f"it says to other bookies who it is: sasl, or {APACHES_CLIENT}; unset: it does not",
    )
    jaas_section: str = option(
        "Bookie",
        key="saslJaasBookieSectionName",
        min_length=1,
        description='section of that file with the users, user_NAME="PASSWORD"',
    )
    jaas_allowed: str = option(
        ".*bookkeeper.*",
        key="saslJaasClientAllowedIds",
        description="regular expression that a user's whole name has to match; the others are not let in",
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
        if self.authentication and self.jaas_file is None:
            raise ValueError("bookieAuthProviderFactoryClass is set: set saslJaasFile, the file with the users, too")
        return self


class ClientAuthenticationOptions(JaasOptions):
    """A client's."""

    authentication: SaslOrNone = option(
        None,
        key="clientAuthProviderFactoryClass",
        description=f"the client says to bookies who it is: sasl, or {APACHES_CLIENT}; unset: it does not",
    )
    client_role: Literal["standard", "system"] = option(
        "standard",
        key="clientRole",
        description="which section it takes: standard, or system, as AutoRecovery and bookies do where this is unset",
    )
    jaas_client_section: str = option(
        "BookKeeper",
        key="saslJaasClientSectionName",
        min_length=1,
        description="section of that file with username and password of a client of role standard",
    )
    jaas_system_section: str = option(
        "Auditor",
        key="saslJaasAuditorSectionName",
        min_length=1,
        description="section of that file with username and password of a client of role system",
    )

    @model_validator(mode="after")
    def _with_account(self) -> Self:
        if self.authentication and self.jaas_file is None:
            raise ValueError("clientAuthProviderFactoryClass is set: set saslJaasFile, the file with the password, too")
        return self
