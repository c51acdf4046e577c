"""
Admission: connections that are let in, what for, and those that are ended for others.

In reading order: `entrance` (face), `judge` (face), `connection_limits` (face), `lobby` (face).
"""

# SPDX-License-Identifier: Apache-2.0
