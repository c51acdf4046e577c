"""
Rows beside a process, derived from the log: consume queues, key index, offset index.

In reading order: none yet.
"""

# SPDX-License-Identifier: Apache-2.0
