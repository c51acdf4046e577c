"""
Rows into ledgers and logs, as a task and its driver do it: what a task wrote, and the one step that makes it visible.

Runs in Spark's Python workers and without Spark alike.

In reading order: `routes`, `logs` (face), `ledgers` (face).
"""

# SPDX-License-Identifier: Apache-2.0
