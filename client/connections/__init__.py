"""
Connections to bookies: one per bookie and protocol generation, made on demand, with every request of the protocol.

In reading order: `pool` (face), `answers` (face), `network` (face), `on_demand_link`, `opening`, `link`, `link_v2`,
`link_v3`, `add_channel`, `unanswered`.
"""
