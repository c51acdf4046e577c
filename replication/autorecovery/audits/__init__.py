"""
What the elected auditor of a cluster does: it finds the ledgers that are short of copies, and has them marked.

In reading order: `auditor` (face), `losses`, `checks`, `looks`, `scrubs`, `walk`, `resume`, `switch`.
"""

# SPDX-License-Identifier: Apache-2.0
