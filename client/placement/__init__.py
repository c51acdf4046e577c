"""
Placement, the choice of the bookies of an ensemble: policies, where bookies are, how they do.

In reading order: `policy` (face), `greedy`, `levels` (face), `choice` (face),
`topology` (face), `health` (face), `hosts` (face).
What a policy of your own needs is named here.
"""

from quire.client.placement.policy import Placement, PlaceOf, Weigh, Wish

# SPDX-License-Identifier: Apache-2.0

__all__ = ["PlaceOf", "Placement", "Weigh", "Wish"]
