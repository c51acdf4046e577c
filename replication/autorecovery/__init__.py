"""
The cluster heals itself: an auditor finds ledgers that are short of copies, workers make the copies again.

In reading order: `running` (face), `losses`, `checks`, `walk`, `worker`, `waiting`,
`ledger`, `notes` (face), `measures` (face).
"""

# SPDX-License-Identifier: Apache-2.0
