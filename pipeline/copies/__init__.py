"""
Copies of closed ledgers as Parquet files, on any filesystem that PyArrow opens, and how they are read like ledgers.

Importing a face imports no PyArrow: that is needed only where a copy is read or written.

In reading order: `manifest` (face), `places` (face), `entries` (face), `reading` (face).
"""

# SPDX-License-Identifier: Apache-2.0
