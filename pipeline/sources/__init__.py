"""
`format("ledger")`, `format("log")`, `format("pulsar")`, `format("bookiefiles")`: data source classes around `reading`
and `writing`.

In reading order: `table`, `ledger` (face), `log_reading`, `log` (face), `pulsar` (face), `files` (face).
"""

# SPDX-License-Identifier: Apache-2.0
