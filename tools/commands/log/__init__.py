"""
`quire log`: named logs for operators.

In reading order: `group` (face), `shared`, `naming`, `records`, `printing`, `owning`, `publishing`,
`standing`, `upkeep`, `bench`.
"""
