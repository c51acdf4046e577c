"""
The formats and rules of message stores: no input or output, no clock.

In reading order: `record` (face), a message's record; `layout` (face), values of the log, fillers, units, places and
names of files; `queues` (face), the position of a record in its queue; `scan` (face), the
values of a file; `assign` (face), the offsets of new records.
"""

# SPDX-License-Identifier: Apache-2.0
