"""
The cluster heals itself: an auditor finds ledgers that are short of copies, workers make the copies again.

In reading order: `running` (face), `election`, `audits`, `worker`, `waiting`, `parked`, `ledger`, `graces`, `places`,
`notes` (face),
`found` (face).
"""

# SPDX-License-Identifier: Apache-2.0
