"""
Topics of Apache Pulsar, read straight from bookies and ZooKeeper without a broker, and beside one that serves.

In reading order: `core` (face), the formats; `codecs` (face), compressions.
"""

# SPDX-License-Identifier: Apache-2.0
