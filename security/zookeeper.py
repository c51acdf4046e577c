"""
How a session with ZooKeeper says who it is, and over which connections: from options to what its client needs.

Knows: what is in the files, what the server's certificate is checked for, and why one side refuses the other, in words.
Does not know: sessions, znodes.

Safety: a server's certificate is checked for its authority, its time and the name or address in the metadata's URI,
always, before anything is sent.  Of authorities only those of the file count, not the machine's.  A password is kept
only as its digest.
"""

import ssl

from twisted.logger import Logger

from quire.conf.parts.zookeeper import ZooKeeperOptions
from quire.conf.properties import ConfigurationError
from quire.security import refusals
from quire.security.digest_md5 import ZOOKEEPER, ClientsSide, digest_of
from quire.security.jaas import Account, account
from quire.security.watched import content_of, warn_of_readers

# SPDX-License-Identifier: Apache-2.0

log = Logger()

NAME_MISMATCHES = {62, 64}  # OpenSSL's numbers: a host's name, an address
PAGE = "docs/security.md 10"
# What a text says of TLS with bookies -> what that is here.
HERE = {
    refusals.OTHER_AUTHORITY: "add its authority to our file of authorities (zkTlsTrustStore), or give it a "
    "certificate of one that is in there",
    "set tlsClientAuthentication=true, tlsCertificatePath and the key": "set zkTlsCertificatePath and zkTlsKeyStore",
    "(tlsCertificatePath)": "(zkTlsCertificatePath)",
    "compare tlsEnabledProtocols and tlsEnabledCipherSuites of both sides": "is this its secureClientPort?",
    "compare tlsEnabledProtocols of both sides": "ours are TLSv1.2 and TLSv1.3",
}


class Login:
    """The user of a session, in the section of a file."""

    def __init__(self, known: Account, where: str) -> None:
        self.user = known.user
        self.where = where
        self._digest = digest_of(known.user, known.password, ZOOKEEPER)

    def begin(self) -> ClientsSide:
        """The exchange of one connection."""
        return ClientsSide(self.user, self._digest, service=ZOOKEEPER)


class Tls:
    """Encryption of connections; `ConfigurationError` when the files can't be used to begin with."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self.context()
        secret = options.zk_tls_key_password_file or options.zk_tls_key
        if secret is not None:
            warn_of_readers(secret)

    def context(self) -> ssl.SSLContext:
        """As the files are now; `ConfigurationError`."""
        options = self._options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it checks certificates, and the names in them
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        assert options.zk_tls_trust is not None
        content_of(options.zk_tls_trust, "zkTlsTrustStore")
        try:
            context.load_verify_locations(options.zk_tls_trust)
        except ssl.SSLError:
            raise ConfigurationError(
                f"{options.zk_tls_trust} (zkTlsTrustStore) can't be used: it is no PEM file with certificates"
            ) from None
        if options.zk_tls_certificate is not None:
            self._identify(context)
        return context

    @property
    def cut_off(self) -> str:
        """Says why a server may end a connection before it is encrypted."""
        return (
            f"it ended the connection before it was encrypted: is this its secureClientPort?  Its log says more; {PAGE}"
        )

    def _identify(self, context: ssl.SSLContext) -> None:
        certificate, key = self._options.zk_tls_certificate, self._options.zk_tls_key
        assert certificate is not None
        assert key is not None
        content_of(certificate, "zkTlsCertificatePath")
        content_of(key, "zkTlsKeyStore")
        password = b""  # None would let OpenSSL ask at the terminal
        if self._options.zk_tls_key_password_file is not None:
            password = content_of(self._options.zk_tls_key_password_file, "zkTlsKeyStorePasswordPath").rstrip(b"\r\n")
        try:
            context.load_cert_chain(certificate, key, password)
        except ssl.SSLError:
            raise ConfigurationError(
                f"{certificate} (zkTlsCertificatePath) and {key} (zkTlsKeyStore) can't be used: they are no PEM files "
                "of a certificate and its key, or the key's password (zkTlsKeyStorePasswordPath) is missing or wrong"
            ) from None


class ZooKeeperSecurity:
    """The security that options ask for; `ConfigurationError`: bad files.  `with_acl`: znodes are for the own user."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self.with_acl = options.zk_acl
        self.tls = None if options.zk_tls_trust is None else Tls(options)
        self.login: Login | None = None
        path, section = options.jaas_file, options.zk_sasl_section
        if section is not None:
            assert path is not None
            where = f"section {section} (zkSaslSection) of {path} (saslJaasFile)"
            self.login = Login(account(path, section), where)
            warn_of_readers(path)
            if self.tls is None:
                log.warn(
                    "ZooKeeper is told who we are without TLS: who listens can guess the password at leisure, and can "
                    "change what follows; set zkTlsTrustStore (docs/security.md)"
                )

    @property
    def who(self) -> str:
        """The own user, for messages."""
        if self.login is not None:
            return f"the user {self.login.user}"
        return (
            "a session without a name" if self._options.zk_tls_certificate is None else "the subject of our certificate"
        )

    @property
    def wrong_password(self) -> str:
        """Says what it means that the server does not accept our proof."""
        assert self.login is not None
        return (
            f"it does not let the user {self.login.user} in: compare name and password in {self.login.where} with its "
            f"own section Server; {PAGE}"
        )

    @property
    def no_login(self) -> str:
        """Says what it means that the server does not ask for a proof."""
        assert self.login is not None
        return f"it lets nobody prove a password, and we are to ({self.login.where}): turn SASL on in it; {PAGE}"


def refusal(error: ssl.SSLError) -> str:
    """Why there is no connection: our finding on the server's certificate, or what the server says of us."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        if error.verify_code in NAME_MISMATCHES:
            next_step = "use a name of its certificate in the metadata's URI, or give it a certificate for this one"
        else:
            next_step = refusals.FAULTS.get(error.verify_code, ("", "look at the certificate"))[1]
        text = f"its certificate is refused: {said}; {next_step}"
    else:
        text = refusals.of_errors([("", "", (error.reason or str(error)).lower().replace("_", " "))])
    for theirs, ours in HERE.items():
        text = text.replace(theirs, ours)
    return f"{text}; {PAGE}"
