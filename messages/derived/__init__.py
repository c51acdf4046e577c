"""
Rows beside a process, derived from the log: consume queues, key index, offset index; and the reads that use them.

In reading order: `rows` (face), `dispatch` (face), `lookup` (face), `trimming`, `directory` (face), `thread`,
`following` (face), `finding` (face), `windows`, `reads` (face).
"""

# SPDX-License-Identifier: Apache-2.0
