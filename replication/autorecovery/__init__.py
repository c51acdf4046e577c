"""
The cluster heals itself: an auditor finds ledgers that are short of copies, workers make the copies again.

In reading order: `running` (face), `election`, `auditor`, `losses`, `checks`, `walk`, `resume`, `switch`, `worker`,
`parked`, `ledger`, `places`, `notes` (face).
"""

# SPDX-License-Identifier: Apache-2.0
