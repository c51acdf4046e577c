"""
Offload: closed ledgers and segments copied to files, verified, marked; deleted from bookies later; brought back.

Runs without Spark; `jobs` gives the tasks to a session.

In reading order: `requests` (face), `marks`, `copying`, `running` (face), `restoring` (face).
"""

# SPDX-License-Identifier: Apache-2.0
