"""
Looking at every copy of every entry: what is planned, seen, suspected, and found to be so.

In reading order: `plan` (face), `sums` (face), `examine` (face), `compare` (face),
`judge` (face), `ledgers` (face), `second_look` (face),
`whole` (face), `point` (face), `run` (face).
"""

# SPDX-License-Identifier: Apache-2.0
