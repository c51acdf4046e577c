"""What a host makes of the answers of its bookies' ports: the text, or nothing, and always one of the two."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.testing import StringTransport

from quire.tools.host.page import Asking

# SPDX-License-Identifier: Apache-2.0

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (OK + b"Content-Length: 3\r\n\r\na 1", "a 1"),
        (OK + b"Content-Length: 3\r\n\r\na \xff", "a \N{REPLACEMENT CHARACTER}"),
        (OK + b"Content-Length: 4\r\n\r\na 1", None),
        (b"HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\na 1", None),
        (b"SSH-2.0-OpenSSH\r\n", None),
        (b"", None),
    ],
    ids=["whole", "no UTF-8", "cut off", "refused", "no HTTP", "nothing"],
)
def test_each_answer_is_a_text_or_none(answer: bytes, text: str | None) -> None:
    """So that nobody who looks at the page waits for it."""
    found: list[str | None] = []
    waiting: Deferred[str | None] = Deferred()
    waiting.addCallback(found.append)
    asking = Asking(b"GET / HTTP/1.1\r\n\r\n", waiting)
    asking.makeConnection(StringTransport())
    asking.dataReceived(answer)
    asking.connectionLost()
    assert found == [text]
