"""
Connections between clients and bookies on which the other side is known: encrypted, from PEM files to a stream of
bytes, and authenticated, from names and passwords in a file to tokens; what who is known may do; and the secrets that
open a page over HTTP.

Files that change: `watched` (face).
TLS, in reading order: `opening` (face), `credentials` (face), `context`, `stream`, `refusals` (face).
Authentication: `authentication` (face), `exchange` (face), `digest_md5`, `jaas`.  What who may do: `rights` (face).
HTTP: `tokens` (face).  ZooKeeper: `zookeeper` (face).  etcd: `etcd` (face).

Only `opening` and `refusals` do without pyOpenSSL and service_identity, which come with `quire[tls]`: the rest of TLS
is imported where it is on.  Authentication, `rights` and `tokens` need neither.
"""
