"""
Looking at every copy of every entry: what is planned, seen, suspected, and found to be so.

In reading order: `plan` (face), `examine` (face), `judge` (face), `ledgers` (face), `second_look` (face),
`whole` (face), `run` (face).
"""

# SPDX-License-Identifier: Apache-2.0
