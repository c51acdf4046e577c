"""
Offload: closed ledgers and segments copied to files, verified, marked; deleted from bookies later; brought back.

Runs without Spark; `jobs` gives the tasks to a session.

In reading order: `wishes` (face), `marks`, `looking`, `runs`, `whole`, `copying`, `verifying`, `rounds`, `deleting`,
`running` (face), `claims`, `storing`, `restoring` (face).
"""

# SPDX-License-Identifier: Apache-2.0
