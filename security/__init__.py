"""
Encrypted connections: from PEM files to a stream of bytes whose other side is known; and tokens, where a secret says
who asks.

In reading order: `opening` (face), `credentials` (face), `context`, `stream`, `refusals` (face), `tokens` (face).

Only `opening`, `refusals` and `tokens` do without pyOpenSSL and service_identity, which come with `quire[tls]`: the
rest is imported where TLS is on.
"""
