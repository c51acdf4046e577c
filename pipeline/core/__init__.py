"""
Decisions of the pipeline: which entries a task reads, how far a batch of a stream goes, what options mean.

Pure: no Spark, no Arrow, no client.

In reading order: `selection` (face), `ranges` (face), `filters` (face), `offsets` (face), `positions` (face).
"""

# SPDX-License-Identifier: Apache-2.0
