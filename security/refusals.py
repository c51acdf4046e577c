"""
Why a TLS connection was refused, in words: what is wrong, with whose certificate, and what to do.

Knows: the numbers of OpenSSL's verification and the names of TLS's alerts.
Does not know: OpenSSL itself; what a connection is for.

Safety: a text has names, dates and serial numbers of certificates, which are public, and nothing of a key.
"""

import re
from collections.abc import Sequence

# SPDX-License-Identifier: Apache-2.0

NEW_CERTIFICATE = "it needs a new certificate from its authority"
OTHER_AUTHORITY = (
    "add its authority to our file of authorities (tlsTrustStore, of a client clientTrustStore), or give it a "
    "certificate of one that is in there"
)

# OpenSSL's number -> what is wrong with the other side's certificate, and what to do.
FAULTS: dict[int, tuple[str, str]] = {
    9: ("is not valid yet", "compare the clocks of both machines"),
    10: ("has expired", NEW_CERTIFICATE),
    18: ("is signed by itself", OTHER_AUTHORITY),
    19: ("is of an authority that is not trusted here", OTHER_AUTHORITY),
    20: ("is of an authority that is not trusted here", OTHER_AUTHORITY),
    21: ("is of an authority that is not trusted here", OTHER_AUTHORITY),
    23: ("is revoked", NEW_CERTIFICATE),
    3: ("is of an authority without a list in tlsRevocationList", "add that authority's list to the file"),
    12: ("is of an authority whose list in tlsRevocationList is out of date", "get its present list"),
    26: ("is not for this use", "it needs a certificate for TLS servers and clients (extended key usage)"),
}

# An alert of the other side -> what it says, and what to do.
ALERTS: dict[str, tuple[str, str]] = {
    "certificate expired": ("our certificate has expired", "replace it (tlsCertificatePath) by a new one"),
    "certificate revoked": ("our certificate is revoked", "replace it (tlsCertificatePath) by a new one"),
    "certificate required": (
        "it asks for a certificate and we showed none",
        "set tlsClientAuthentication=true, tlsCertificatePath and the key",
    ),
    "unknown ca": (
        "our certificate is of an authority that it does not trust",
        "add our authority to its file, or get a certificate of one of its own",
    ),
    "unsupported certificate": ("our certificate is not for this use", "get one for TLS servers and clients"),
    "bad certificate": ("our certificate is not accepted", "its log says why"),
    "certificate unknown": ("our certificate is not accepted", "its log says why"),
    "handshake failure": (
        "we have no cipher suite in common, or it wants a certificate",
        "compare both configurations",
    ),
    "protocol version": ("we have no version of TLS in common", "compare tlsEnabledProtocols of both sides"),
    "access denied": ("our certificate is valid, but not allowed", "its configuration says who is"),
}
ALERT = re.compile(r"alert (?:number \d+ )?(.+)")


class TlsRefused(Exception):
    """One side does not trust the other.  The text says what is wrong and the next step."""


def of_certificate(number: int, depth: int, certificate: str, expiry: str) -> str:
    """Our own finding on a certificate at `depth` of the chain: OpenSSL's number, the subject, its last day."""
    what, step = FAULTS.get(number, (f"is refused (OpenSSL's verification error {number})", "look at the certificate"))
    until = f" on {expiry}" if number == 10 else ""
    whose = "its certificate" if depth == 0 else "the certificate of its authority"
    return f"{whose} ({certificate}) {what}{until}; {step}"


def of_errors(errors: Sequence[tuple[str, str, str]]) -> str:
    """OpenSSL's queue of errors: an alert of the other side, or bytes that are not TLS as we speak it."""
    reasons = [reason for _library, _function, reason in errors]
    for reason in reasons:
        alert = ALERT.search(reason)
        if alert is not None:
            what, step = ALERTS.get(alert[1], (f"it says: {alert[1]}", "its log says why"))
            return f"it refused us: {what}; {step}"
    if "peer did not return a certificate" in reasons:
        return (
            "it showed no certificate (tlsClientAuthentication asks for one here); its client needs "
            "tlsClientAuthentication=true, tlsCertificatePath and clientKeyStore"
        )
    said = "; ".join(reasons) or "no reason given"
    return f"the handshake failed ({said}); compare tlsEnabledProtocols and tlsEnabledCipherSuites of both sides"
