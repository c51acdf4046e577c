"""
`format("ledger")` and `format("log")`: PySpark's data source classes around `reading` and `writing`.

In reading order: `schema`, `pushed`, `ledger` (face), `log` (face), `files` (face).
"""

# SPDX-License-Identifier: Apache-2.0
