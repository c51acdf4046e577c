"""
Ledgers, logs and topics of Pulsar as Arrow batches: what a plan reads of the metadata, and what a task reads of
bookies.

Runs in Spark's Python workers and without Spark alike.

In reading order: `ledgers` (face), `logs` (face), `places` (face), `topics` (face), `kafka` (face), `pulsar` (face),
`files` (face).
"""

# SPDX-License-Identifier: Apache-2.0
