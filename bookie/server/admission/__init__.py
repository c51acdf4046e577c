"""
Which connections are let in, what for, and which are ended for others.

In reading order: `entrance` (face), `judge` (face), `connection_limits` (face), `unsent_answers` (face),
`lobby` (face).
"""

# SPDX-License-Identifier: Apache-2.0
