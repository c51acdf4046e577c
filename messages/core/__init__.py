"""
The formats and rules of message stores: no input or output, no clock.

`record` (a message's record), `layout` (values of the log, fillers, units, names and places of files), `queues` (the
position of a record in its queue), `assign` (the offsets of new records).
"""

# SPDX-License-Identifier: Apache-2.0
