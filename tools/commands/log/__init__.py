"""
`quire log`: named logs for operators.

In reading order: `group` (face), `shared`, `naming`, `records`, `owning`,
`upkeep`, `bench`.
"""
