"""
Ordered rows on disk, and the file system under them: what a bookie's index and all that is derived from a log stand on.

In reading order: `files` (face), `contract` (face), `rocks_check` (face), `rocks` (face).
"""

# SPDX-License-Identifier: Apache-2.0
