"""
Encrypted connections between clients and bookies: from PEM files to a stream of bytes whose other side is known.

In reading order: `opening` (face), `credentials` (face), `context`, `stream`, `refusals` (face).

Only `opening` and `refusals` do without pyOpenSSL and service_identity, which come with `quire[tls]`: the rest is
imported where TLS is on.
"""
