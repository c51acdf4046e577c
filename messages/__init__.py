"""
Message stores: messages of topics and queues in RocketMQ's record format and offset space, in one named log.

The log holds the records; consume queues and the key index are derived from it.  Errors are `LedgerError`s, those of
message stores `MessageError`s.

Rooms: `core` (formats and rules, pure), `descriptor`, `message`, `derived` (rows), `rocketmq` (directories in and out).
"""

# SPDX-License-Identifier: Apache-2.0
