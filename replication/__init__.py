"""Finding and mending missing copies."""
