"""
Jobs that the commands run: each starts from a session, says how far it is, and gives a summary.

In reading order: `running` (face), `chart` (face), `parquet` (face), `findings` (face),
`scrub` (face), `repair` (face), `merging` (face).
"""

# SPDX-License-Identifier: Apache-2.0
