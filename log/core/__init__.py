"""
A log and what may happen to it, as values and pure functions.

In reading order: `frame` (face), `packed` (face), `batch` (face), `pieces` (face), `manifest` (face), `values` (face),
`uses` (face), `edits` (face), `upkeep_edits` (face), `mirroring` (face), `moving` (face), `places` (face), `merging`
(face), `publishing` (face), `streams` (face), `machine` (face), `ownership` (face), `ownership_messages` (face),
`counters` (face), `partitions` (face).
"""
