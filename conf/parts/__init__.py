"""
Parts of the options of several kinds of process.

In reading order: `identity` (face), `tls` (face), `authentication` (face), `rights` (face), `zookeeper` (face),
`etcd` (face), `stores` (face), `http` (face).
"""

# SPDX-License-Identifier: Apache-2.0
