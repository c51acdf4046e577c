"""
`quire log`: named logs for operators.

In reading order: `group` (face), `shared` (face), `partitioned`, `naming` (face), `records` (face), `owning`,
`upkeep`, `merging` (face), `mirroring`, `moving`, `bench`.
"""
