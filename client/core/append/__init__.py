"""
The writer's machine: which adds are sent to whom, what is acknowledged, when the ensemble changes.

In reading order: `messages` (face), `machine` (face), `sending`, `ensemble`, `window`.
"""
