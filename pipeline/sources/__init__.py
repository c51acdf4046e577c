"""
`format("ledger")`, `format("log")`, `format("bookiefiles")`: data source classes around `reading` and `writing`.

In reading order: `table`, `ledger` (face), `log_reading`, `log` (face), `files` (face).
"""

# SPDX-License-Identifier: Apache-2.0
