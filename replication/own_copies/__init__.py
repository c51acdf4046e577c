"""
The care of a bookie for copies of its own: it takes back what it lost, and drops what no ledger asks it for any more.

In reading order: `refilling` (face), `surplus` (face).
"""

# SPDX-License-Identifier: Apache-2.0
