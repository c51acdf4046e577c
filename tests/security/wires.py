"""Both sides of a secure stream over two TCP transports in memory; a test sees every byte between them."""

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.security.context import load
from quire.security.stream import SecureStream

# SPDX-License-Identifier: Apache-2.0

DIRECTORIES = {"metadata_uri": "memory://x", "journal_directories": ("/j",), "ledger_directories": ("/l",)}


def bookie_options(**more: object) -> BookieOptions:
    return BookieOptions.model_validate({**DIRECTORIES, "tls": True, **more})


def client_options(**more: object) -> ClientOptions:
    return ClientOptions.model_validate({"tls": True, **more})


class Tcp(StringTransport):
    """One side's transport.  `written`: each piece that it was given."""

    protocol: object = None

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)
        super().write(data)

    def abortConnection(self) -> None:
        self.disconnecting = True


class Side:
    """One side's owner, which notes what it is told."""

    def __init__(self) -> None:
        self.tcp = Tcp()
        self.is_secured = False
        self.pieces: list[bytes] = []
        self.lost: BaseException | None = None

    def secured(self) -> None:
        self.is_secured = True

    def dataReceived(self, data: bytes) -> None:
        self.pieces.append(data)

    def connectionLost(self, reason: Failure) -> None:
        self.lost = reason.value


class Pair:
    """A bookie's and a client's side.  `sent`: every byte that went from the client, and from the bookie."""

    def __init__(self, bookie: BookieOptions, client: ClientOptions, host: str = "127.0.0.1") -> None:
        self.bookie, self.client = Side(), Side()
        self.sent = {"client": b"", "bookie": b""}
        checked = host if client.tls_verify_host else None
        self.served = SecureStream(self.bookie.tcp, self.bookie, load(bookie).context, client=False)
        self.made = SecureStream(
            self.client.tcp, self.client, load(client).context, client=True, sent_name=host, host=checked
        )
        self.served.begin()
        self.made.begin()
        self.carry()

    def carry(self) -> None:
        """Carries bytes until both sides are silent, then ends what was to end."""
        carry(self.client, self.bookie, self.sent)


def carry(client: Side, bookie: Side, sent: dict[str, bytes] | None = None) -> None:
    """The same between any two sides."""
    while client.tcp.value() or bookie.tcp.value():
        for name, side, other in (("client", client, bookie), ("bookie", bookie, client)):
            data = side.tcp.value()
            side.tcp.clear()
            if sent is not None:
                sent[name] += data
            if data and other.lost is None:
                other.tcp.protocol.dataReceived(data)  # type: ignore[attr-defined]
    if client.tcp.disconnecting or bookie.tcp.disconnecting:
        for side in (client, bookie):
            if side.lost is None:
                side.tcp.protocol.connectionLost(Failure(ConnectionDone()))  # type: ignore[attr-defined]
