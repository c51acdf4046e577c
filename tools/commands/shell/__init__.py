"""
BookKeeper's shell by its own names, each over what `quire` has.

In reading order: `names`, `context`, `cluster`, `bookies`, `cookies`, `ledgers`, `directories`, `app` (face).
"""
