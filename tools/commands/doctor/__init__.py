"""
`quire doctor`: what is wrong with a cluster, how bad, and the next command.

In reading order: `command` (face), `examining` (face), `cluster` (face), `bookies` (face), `logs` (face).
"""

# SPDX-License-Identifier: Apache-2.0
