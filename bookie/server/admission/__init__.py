"""
Who is let in, what for, and how many: what comes before the requests of a connection are served.

In reading order: `entrance` (face), `judge` (face), `crowd` (face), `lobby` (face).
"""

# SPDX-License-Identifier: Apache-2.0
