"""
The formats and rules of Pulsar's topics: no input or output, no clock.

In reading order: `schema` (face), the protobuf messages; `names` (face), topics and where their nodes are; `positions`
(face), places in a topic; `managed` (face), the nodes of a topic and its cursors; `head`, the metadata of an entry;
`entry` (face), an entry up to its payload; `singles`, the messages of a batch; `batch` (face), messages as columns;
`chunks` (face), messages in pieces; `ranges` (face), a topic in pieces for readers.
"""

# SPDX-License-Identifier: Apache-2.0
