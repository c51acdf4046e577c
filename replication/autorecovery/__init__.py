"""
The cluster heals itself: an auditor finds ledgers that are short of copies, workers make the copies again.

In reading order: `running` (face), `election`, `audits`, `worker`, `waiting`, `ledger`, `graces`, `notes` (face).
"""

# SPDX-License-Identifier: Apache-2.0
